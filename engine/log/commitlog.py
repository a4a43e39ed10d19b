"""The live commit log: every message of the store, one after another, in files of one size.

Theory (Apache CommitLog): one append at a time. Batches, and messages until the native is loaded, are made ready before
the append lock is taken (engine.log.prepare); under it the store time is taken, each record gets its queue offset from
the topic-queue table and its place, and the bytes are copied after what is there. The native (engine.log.kernels.lay)
makes the record of a plain message where it goes, under the lock; what it leaves is made ready there, too. A record, or
a whole batch, that does not fit with 8 bytes to spare closes the file with a blank record and starts the next one,
which was allocated ahead of time.

Invariants:
- A reader sees whole records only: the end moves after the bytes are in place. Without a transient pool the end of
  what is readable is the end of what was appended; with one it is what was committed.
- Store times are taken inside the lock, so they never decrease unless the clock does.
- An append that raises has changed nothing that a reader or a recovery could take for a message, and no queue
  offset. The next append starts at the same place: after DiskFull puts work again as soon as there is space.
  A signal's exception may come when all of it is done: the message is stored then, and nobody is told.

It is a `LogSource`: the scanner reads the live log through it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.config import FlushDiskType, StoreConfig
from engine.errors import FormatError, InvalidArgument, Shortage, StorageError
from engine.files.allocator import SegmentAllocator
from engine.files.disk import Disk
from engine.files.mapped_file import MappedFile
from engine.files.pages_ahead import PagesAhead
from engine.files.placement import MultiPath
from engine.files.queue import MappedFileQueue
from engine.files.transient_pool import TransientStorePool
from engine.format.batch import BatchItem
from engine.format.columns import MessageColumns
from engine.format.hosts import Host
from engine.format.message import Message, encode_blank
from engine.format.record import BLANK_SIZE
from engine.log.append_run import append_by_call, append_run
from engine.log.begun import begins_a_record
from engine.log.derive import TopicQueue
from engine.log.log_files import LogFiles
from engine.log.natives import LAY
from engine.log.prepare import Prepared, PreparedFurther, Preparer
from engine.log.prepare_batch import BatchPreparer, PreparedBatch, PreparedColumns
from engine.log.prepare_run import RunPreparer
from engine.log.results import AppendedRun, AppendResult, StoreClosed, WriteFailed

_made = tuple.__new__
"""Makes a NamedTuple of all its fields in half the time of its constructor: that counts where it is done once a put."""

_MANY = 1 << 16
"""Bytes that are written by call: through the map, each page of them would take the system a fault."""

Clock = Callable[[], int]
"""Gives the time, ms since 1970."""


class CommitLog(LogFiles):
    """See the module. Thread-safe.

    Args:
        disk: the system's files.
        config: settings of the store.
        clock: gives the store times (default: the disk's clock).
        full_paths: says which directories of a multi-path log are (nearly) full; asked at each new file.
    """

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        full_paths: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._clock: Clock = clock or disk.now_ms
        self._prepare = Preparer(config)
        self._lay: Callable[..., AppendResult | None] | None = None
        self._most_laid, self._plain = self._prepare.most_laid, self._prepare.plain
        self._of_lay = (self._most_laid, dict, int, str, Host, AppendResult, "wrote_position", ("ip", "port"), None)
        self._prepare_batch = BatchPreparer(config, self._prepare)
        self._prepare_run = RunPreparer(config, self._prepare)
        self._lock = threading.Lock()
        self._table: dict[TopicQueue, int] = {}
        self._sealed = False
        self._warm = config.warm_maped_file_enable
        file_size = config.mapped_file_size_commit_log
        self.begin_time_in_lock = 0
        self.pool = (
            TransientStorePool(disk, config.transient_store_pool_size, file_size)
            if config.transient_store_pool_active
            else None
        )
        self.allocator = SegmentAllocator(
            disk,
            pool=self.pool,
            warm_pages=config.flush_least_pages_when_warm_maped_file if self._warm else None,
            warm_sync=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            warm_min_size=file_size,
            fast_fail=config.fast_fail_if_no_buffer_in_store_pool,
        )
        paths = [str(path) for path in config.commit_log_paths]
        read_only = [str(path) for path in config.read_only_commit_log_paths]
        places = paths[0] if len(paths) == 1 and not read_only else MultiPath(paths, read_only, full_paths)
        self._pages = PagesAhead(disk)
        super().__init__(MappedFileQueue(disk, places, file_size, self.allocator), file_size)

    # --- life -------------------------------------------------------------------------------------------------------

    def open(self, max_offset: int, topic_queue_table: Mapping[TopicQueue, int], *, single_pages: bool = False) -> None:
        """Map the files of a recovered store and continue at `max_offset` (physical).

        `single_pages`: messages come and are flushed a few at a time, see MappedFile.single_pages.

        Raises:
            WrongFileSize, FormatError: the directory is not what a recovery leaves. StorageError.
        """
        self.files.single_pages = self.allocator.single_pages = single_pages
        self.files.load()
        last = self.files.last()
        if last is not None and last.file_from_offset > max_offset:
            raise FormatError(
                "segment after the log end",
                path=last.path,
                offset=max_offset,
                hint="run rstore recover",
            )
        self.files.truncate_dirty(max_offset)
        self.files.flushed_where = self.files.committed_where = max_offset
        self.topic_queue_table = dict(topic_queue_table)
        self.allocator.start()
        if self.pool is None and not self._warm:
            self._pages.begin(max_offset)

    def seal(self) -> None:
        """Refuse every append from now on; the one under way is finished when this returns."""
        with self._lock:
            self._sealed = True

    def close(self, *, clean: bool) -> None:
        """Give everything back. `clean`: files made ahead of time are deleted, as Apache's shutdown does.

        Raises:
            StorageError: one of them can't be deleted.
        """
        self.seal()
        self._pages.stop()
        try:
            self.allocator.stop(discard=clean)
        finally:
            self.files.shutdown()
            if self.pool is not None:
                self.pool.destroy()

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> AppendResult:
        """Append one message.

        Raises:
            MessageRefused: it can't be stored. DiskFull, StorageError: nothing was appended.
        """
        lay = self._lay or self._lay_from_now()
        if lay is None or len(message[1]) > self._most_laid:
            return self._append(self._prepare.one(message))
        with self._lock:  # the record is made where it goes. Few calls: each takes a twentieth of all this
            if self._sealed:
                self._check_open()
            now = self.begin_time_in_lock = self._clock()
            try:
                files = self.files.files
                if files:
                    file = files[-1]
                    physical = file.file_from_offset + file.wrote_position
                    if physical >= self._pages.wanted_from:
                        self._pages.go_on(file)
                    what = (message, self._plain, self._table, physical, now, self._of_lay)
                    result = file.append_by(lay, what)
                    if result is not None:
                        file.store_timestamp = now
                        return result
                prepared = self._prepare.one(message)  # not plain, or no room; the clock is asked once for each put
                assert isinstance(prepared, Prepared)  # others are not laid
                return self._append_one(prepared, now)
            finally:
                self.begin_time_in_lock = 0

    def append_batch(self, message: Message, items: Sequence[BatchItem] | MessageColumns) -> AppendResult:
        """Append a batch: all of it in one file, or nothing. Raises as `append`."""
        return self._append(self._prepare_batch.batch(message, items))

    def append_run(self, messages: Sequence[Message]) -> AppendedRun | None:
        """Append the plain messages that they begin with, as `append` of each; None: none of them, put them alone.

        Raises StoreClosed. For one thread at a time.
        """
        prepared = self._prepare_run.run(messages)
        if prepared is None:
            return None
        with self._lock:
            self._check_open()
            now = self.begin_time_in_lock = self._clock()
            self._pages.put_off(self.appended)
            try:
                return append_run(prepared, self._table, self._file_for, now)
            finally:
                self.begin_time_in_lock = 0

    def batches(self, message: Message, columns: MessageColumns) -> list[MessageColumns]:
        """Any number of messages as batches, each of a size that `append_batch` takes. Raises MessageRefused."""
        return self._prepare_batch.pieces(message, columns)

    def append_raw(self, offset: int, data: bytes | memoryview) -> None:
        """Append log bytes of a master as they are, on a slave. Source: CommitLog#appendData.

        Raises:
            InvalidArgument: `offset` (physical) is not the log end; in an empty one, not the start of a file.
            DiskFull, StorageError: what was appended before stays.
        """
        with self._lock, memoryview(data) as view:
            self._check_open()
            last = self.files.last()
            end = offset - offset % self.file_size if last is None else self.files.max_wrote_position
            if offset != end:
                raise InvalidArgument(f"cannot append at this offset: the log end is {end}", offset=offset)
            done = 0
            while done < len(view):
                file = self._last_file(offset)
                part = view[done : done + file.file_size - file.wrote_position]
                self._put(file, part)
                done += len(part)

    def cut_back(self, offset: int) -> bool:
        """End the log at `offset` (physical), if what follows is the beginning of one record; whether it was.

        Raises StorageError.
        """
        with self._lock:
            rest = self.files.max_wrote_position - offset
            if rest <= 0 or not begins_a_record(self.read(offset, rest), rest):
                return False
            self.files.truncate_dirty(offset, zero_tail=True)
            return True

    def _append(self, prepared: Prepared | PreparedFurther | PreparedBatch | PreparedColumns) -> AppendResult:
        with self._lock:
            if self._sealed:
                self._check_open()
            now = self.begin_time_in_lock = self._clock()
            try:
                if isinstance(prepared, Prepared):
                    return self._append_one(prepared, now)
                if isinstance(prepared, PreparedFurther):
                    return self._append_further(prepared, now)
                return self._append_several(prepared, now)
            finally:
                self.begin_time_in_lock = 0

    def _lay_from_now(self) -> Callable[..., AppendResult | None] | None:
        """The native that writes plain records, once there is enough to do for it."""
        if self._prepare.lays:
            self._lay = LAY.after(1)
        return self._lay

    def _append_one(self, prepared: Prepared, now: int) -> AppendResult:
        destination, size = prepared[0], prepared[1]
        queue, numbered = destination.queue, destination.numbered
        queue_offset = self._table.get(queue, 0) if numbered else 0
        file = self._file_for(size)
        position = file.wrote_position
        physical = file.file_from_offset + position
        data = prepared.record(queue_offset, physical, now)
        try:  # as `_put`
            if file.append(data) is None:
                raise StorageError(f"{size} bytes don't fit", path=file.path, offset=position)
        except StorageError as error:
            raise self._not_put(file, position, size, error) from error
        file.store_timestamp = now
        if numbered:
            self._table[queue] = queue_offset + 1
        return _made(AppendResult, (physical, size, now, queue_offset, destination.store_host, (physical,)))

    def _append_further(self, prepared: PreparedFurther, now: int) -> AppendResult:
        table = self._table
        following = {queue: table.get(queue, 0) + 1 for queue in prepared.further}
        one = prepared.dispatched(table)
        result = self._append_one(one, now)
        if one.destination.numbered:
            table.update(following)
        return result

    def _append_several(self, prepared: PreparedBatch | PreparedColumns, now: int) -> AppendResult:
        queue, size = prepared.queue, prepared.size
        queue_offset = self._table.get(queue, 0)
        file = self._file_for(size)
        physical = file.file_from_offset + file.wrote_position
        place = prepared.place
        room = None if place is None else self._room(file, size)
        if place is None or room is None:
            self._put(file, prepared.record(queue_offset, physical, now))
        else:
            place(room, queue_offset, physical, now)
            file.advance(size)
        file.store_timestamp = now
        self._table[queue] = queue_offset + prepared.count
        return AppendResult(physical, size, now, queue_offset, prepared.store_host, prepared.offsets(physical))

    def _file_for(self, size: int) -> MappedFile:
        """The file that takes `size` bytes; the one before is closed by a blank record if they don't fit there."""
        last = self.files.last()
        if last is not None:
            position = last.wrote_position
            if last.file_from_offset + position >= self._pages.wanted_from:
                self._pages.go_on(last)
            if size + BLANK_SIZE <= last.file_size - position:
                return last
        file = self._last_file(0)
        left = file.file_size - file.wrote_position
        if size + BLANK_SIZE <= left:
            return file
        if left >= BLANK_SIZE:
            self._put(file, encode_blank(left))
            left -= BLANK_SIZE
        file.advance(left)
        if self._warm:
            file.munlock()
        return self._last_file(0)

    def _room(self, file: MappedFile, size: int) -> memoryview | None:
        """The next bytes of a file with room, in memory; None when it is written by call. Raises DiskFull."""
        try:
            return file.reserve(size)
        except Shortage:
            raise
        except StorageError as error:
            raise WriteFailed(error.message, path=error.path, offset=error.offset, hint=error.hint) from error

    def _last_file(self, start: int) -> MappedFile:
        file = self.files.last(start, create=True)
        if file is None:
            raise StorageError("no file to append to", path=self.files.directories[0])
        return file

    def _put(self, file: MappedFile, data: bytes | bytearray | memoryview) -> None:
        """Append to a file with room. What a failed write left after the end is wiped: it could look like records.

        Raises DiskFull, WriteFailed.
        """
        position = file.wrote_position
        append = append_by_call if len(data) >= _MANY else MappedFile.append
        try:
            if append(file, data) is None:
                raise StorageError(f"{len(data)} bytes don't fit", path=file.path, offset=position)
        except StorageError as error:
            raise self._not_put(file, position, len(data), error) from error

    @staticmethod
    def _not_put(file: MappedFile, position: int, length: int, error: StorageError) -> StorageError:
        """The error to raise for one of a write, whose bytes are wiped."""
        if not file.mapped and not file.has_write_buffer:
            # The disk ends this at the same byte as the write that failed: all that was written is wiped then.
            with contextlib.suppress(StorageError):
                file.write_at(position, bytes(length))
        if isinstance(error, Shortage):
            return error
        return WriteFailed(error.message, path=error.path, offset=error.offset, hint=error.hint)

    def _check_open(self) -> None:
        if self._sealed:
            raise StoreClosed("the store is closed", path=self.files.directories[0])

    # --- queue offsets ----------------------------------------------------------------------------------------------

    @property
    def topic_queue_table(self) -> dict[TopicQueue, int]:
        """The next queue offset of every queue that has one: a copy."""
        with self._lock:
            return dict(self._table)

    @topic_queue_table.setter
    def topic_queue_table(self, table: Mapping[TopicQueue, int]) -> None:
        with self._lock:
            self._table = dict(table)

    def next_queue_offset(self, queue: TopicQueue) -> int | None:
        """Of the queue's next message; None of one that got none here."""
        return self._table.get(queue)

    def forget_queue(self, queue: TopicQueue) -> None:
        """Start the queue's offsets anew. Source: CommitLog#removeQueueFromTopicQueueTable."""
        with self._lock:
            self._table.pop(queue, None)
