"""The index of an open store: a row of index files, the last of which is appended to.

Theory (Apache IndexService): keys are put in log order; when the last file is full, a new one begins, whose header
starts with the end of the one before. The full one is then flushed in the background, and its newest store time goes
to the checkpoint: after a crash, what is older is known to be on disk.

Invariants:
- A key is put once. Messages below the endPhyOffset are known; keys of the message at it are passed over as far as
  they are, in order, the newest entries (RECOVERY.md, rule 11; Apache puts them twice). So putting a range of log
  again changes nothing, and a record's keys may come in several calls.
- File names ascend in the order of the files, whatever the clock does: files are found by their names' order.
- One writer, many readers: the list of files is replaced, never changed; a reader holds the file that it reads by
  call, and has the map of any other.

Unlike Apache's, an index without keys has no file, and a full last file gets its successor with the next key, not with
the next message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import FormatError, StorageError
from engine.format import names
from engine.format.hashing import key_hash_of, message_key_hash, topic_hash
from engine.log.index_file import IndexFile
from engine.log.natives import JAVA_HASH

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.format.index_file import IndexHeader, IndexLayout
    from engine.log.derive import Keys

DESTROY_INTERVAL_MS = 3000
"""How long a held file is waited for (Apache IndexService#deleteExpiredFile)."""

_made = tuple.__new__
"""As in engine.log.commitlog."""
_FEW = 12


class IndexQueryResult(NamedTuple):
    """What a query found.

    Attributes:
        offsets: physical offsets, newest file first, in each the newest first. Only hashes were compared.
        last_update_timestamp: store time (ms) of the newest message in the index, 0 without files.
        last_update_phy_offset: its physical offset.
        findings: chains that are damaged.
    """

    offsets: tuple[int, ...]
    last_update_timestamp: int
    last_update_phy_offset: int
    findings: tuple[FormatError, ...] = ()


class IndexService:
    """See the module.

    Args:
        disk: the system's files.
        directory: where the index files are.
        layout: settings maxHashSlotNum and maxIndexNum.
        clock: ms since 1970, for the names of new files; None: the disk's.
        on_durable: called (in the flushing thread) with the newest store time (ms) in a full file that is durable now:
            sets the index time of the checkpoint and flushes that.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        layout: IndexLayout,
        clock: Callable[[], int] | None = None,
        on_durable: Callable[[int], None] | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock or disk.now_ms
        self._on_durable = on_durable
        self._files: tuple[IndexFile, ...] = ()
        self._lock = threading.Lock()
        self._at_end: list[int] = []  # hashes of the newest message's entries
        self._flushing: list[threading.Thread] = []
        self._failed: list[StorageError] = []
        self._to_come = 0
        self._beside: Executor | None = None
        self.directory = directory
        self.layout = layout

    def open(self, paths: Iterable[str], *, writable: bool = True) -> None:
        """Open the files of these names (recovery's StoreState.index_files).

        Raises:
            StorageError: one can't be opened; none is then.
        """
        opened: list[IndexFile] = []
        try:
            for name in sorted(paths):
                opened.append(IndexFile.open(self._disk, self._path(name), self.layout, writable=writable))
        except BaseException:
            for file in opened:
                file.shutdown()
            raise
        with self._lock:
            self._files = tuple(opened)
        self._at_end = self._hashes_at_end()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files of this moment, oldest first."""
        return self._files

    @property
    def end_phy_offset(self) -> int:
        """Physical offset of the newest message in the index, 0 without files."""
        files = self._files
        return files[-1].header.end_phy_offset if files else 0

    # --- writing ----------------------------------------------------------------------------------------------------

    def expect_keys(self, keys: int, beside: Executor | None = None) -> None:
        """About so many keys are to come, and nobody reads before `flush_all`: as `IndexFile.gather_slots`."""
        self._to_come, self._beside = keys, beside

    def put(self, keys: Keys) -> int:
        """Put the keys of a batch, in log order; keys that are there already are passed over.

        Returns:
            How many were put.

        Raises:
            DiskFull, StorageError: the keys before the one that failed are in the index: put the batch again.
        """
        if len(keys) <= _FEW:
            columns = (keys.key_hash.tolist(), keys.physical_offset.tolist(), keys.store_timestamp.tolist())
            return self._put_few(*columns)
        return self._put_many(keys)

    def has_room(self, keys: int) -> bool:
        """Whether so many keys are put one by one, without a kernel, into a last file that is there with its blocks."""
        files = self._files
        return keys <= _FEW and bool(files) and files[-1].has_room(keys)

    def put_message(self, key_hash: Sequence[int], physical_offset: int, store_timestamp: int) -> int:
        """Put the keys of one message: as `put`, without arrays."""
        many = len(key_hash)
        return self._put_few(key_hash, [physical_offset] * many, [store_timestamp] * many)

    # --- reading ----------------------------------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, begin: int, end: int, max_num: int, *, accept: Callable[[int], bool] | None = None
    ) -> IndexQueryResult:
        """Physical offsets of up to `max_num` messages that may have the key and a store time in [begin, end] (ms).

        `max_num` is to be capped by maxMsgsNumBatch. The message itself must be compared by the caller, since other
        keys have the same hash: in `accept` (given a physical offset), so that `max_num` counts right messages; or
        afterwards, as Apache does. Source: IndexService#queryOffset.
        """
        native = JAVA_HASH.after(1)
        bits = None if native is None else native(key, topic_hash(topic), None)
        key_hash = message_key_hash(topic, key) if bits is None else key_hash_of(bits)
        offsets: list[int] = []
        findings: list[FormatError] = []
        newest: IndexHeader | None = None
        for file in reversed(self._files):
            header = file.header
            newest = newest or header
            if header.is_time_matched(begin, end) and ((whole := file.whole()) is not None or file.hold()):
                try:
                    matches = file.query(key_hash, begin, end, max_num - len(offsets), accept=accept, whole=whole)
                finally:
                    if whole is None:
                        file.release()
                offsets += matches.offsets
                if matches.finding is not None:
                    findings.append(matches.finding)
            if header.begin_timestamp < begin or len(offsets) >= max_num:
                break
        if newest is None:
            return IndexQueryResult((), 0, 0)
        result = (tuple(offsets), newest.end_timestamp, newest.end_phy_offset, tuple(findings))
        return _made(IndexQueryResult, result)

    # --- making durable ---------------------------------------------------------------------------------------------

    def begin_writing(self) -> None:
        """Have what was put on its way to the device: between the puts of many keys, so that `flush_all` waits less."""
        for file in self._files[-1:]:
            file.begin_writing()

    def flush_all(self) -> int:
        """Make every file durable; the newest store time (ms) in the index, 0 without files.

        Raises:
            StorageError: also for a full file that could not be flushed in the background.
        """
        for thread in self._flushing:
            thread.join()
        self._flushing.clear()
        if self._failed:
            raise self._failed[0]
        files = self._files
        newest = files[-1].header.end_timestamp if files else 0
        for file in files:
            file.flush()
        self._to_come, self._beside = 0, None
        return newest

    def delete_expired(self, min_physical_offset: int) -> int:
        """Delete the oldest files that end below the log's first byte, never the last; returns how many.

        Stops at one that a reader holds (who reads by call): its turn comes again. Source:
        IndexService#deleteExpiredFile.
        """
        deleted = 0
        for file in self._files[:-1]:
            if file.header.end_phy_offset >= min_physical_offset or not file.destroy(DESTROY_INTERVAL_MS):
                break
            self._forget(file)
            deleted += 1
        return deleted

    @property
    def hanging(self) -> bool:
        """Whether an expired file is there still, because a reader holds it: `delete_expired` again."""
        files = self._files
        return bool(files) and not files[0].available

    def shutdown(self) -> None:
        """Flush everything and give the files back.

        Raises:
            StorageError: something could not be made durable; the files are given back all the same.
        """
        try:
            self.flush_all()
        finally:
            for file in self._files:
                file.shutdown()

    def destroy(self) -> None:
        """Delete all files. Those in use go when their readers let go."""
        for file in self._files:
            if not file.destroy(DESTROY_INTERVAL_MS):
                file.destroy(0)
            self._forget(file)
        self._at_end = []

    # --- inside -----------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return str(Path(self.directory) / name)

    def _forget(self, file: IndexFile) -> None:
        with self._lock:
            self._files = tuple(other for other in self._files if other is not file)

    def _hashes_at_end(self) -> list[int]:
        """Hashes of the entries of the message at the end, oldest first; they may begin in the file before."""
        end = self.end_phy_offset
        hashes: list[int] = []
        for file in reversed(self._files):
            if file.header.end_phy_offset != end:
                break
            here = file.entries_at_end()
            hashes[:0] = file.entries(file.entry_count - here + 1)["key_hash"].tolist()
            if here < file.entry_count:
                break
        return hashes

    def _known(self, key_hash: Sequence[int]) -> int:
        """How many of the keys that come for the message at the end are its entries already."""
        many = min(len(key_hash), len(self._at_end))
        return many if list(key_hash[:many]) == self._at_end[:many] else 0

    def _put_few(self, key_hash: Sequence[int], offsets: Sequence[int], times: Sequence[int]) -> int:
        end = self.end_phy_offset
        at_end = [i for i, offset in enumerate(offsets) if offset == end] if self._at_end else []
        known = set(at_end[: self._known([key_hash[i] for i in at_end])])
        chosen: list[int] = []
        for i, offset in enumerate(offsets):
            if offset >= end and i not in known:
                end = offset
                chosen.append(i)
        columns = ([column[i] for i in chosen] for column in (key_hash, offsets, times))
        return self._write_few(*columns)

    def _put_many(self, keys: Keys) -> int:
        import numpy as np

        offsets, end = keys.physical_offset, self.end_phy_offset
        if int(offsets[0]) > end and bool((offsets[1:] >= offsets[:-1]).all()):
            return self._write_many(keys.key_hash, offsets, keys.store_timestamp)
        wanted = offsets >= np.maximum.accumulate(np.maximum(offsets, end))
        if self._at_end:
            at_end = np.flatnonzero(offsets == end)
            wanted[at_end[: self._known(keys.key_hash[at_end].tolist())]] = False
        return self._write_many(keys.key_hash[wanted], offsets[wanted], keys.store_timestamp[wanted])

    def _write_few(self, key_hash: list[int], offsets: list[int], times: list[int]) -> int:
        put = 0
        while put < len(key_hash):
            file = self._file_to_write()
            before = file.header.end_phy_offset
            taken = file.put_few(key_hash[put:], offsets[put:], times[put:])
            self._note_end(before, key_hash[put : put + taken], offsets[put : put + taken])
            put += taken
        return put

    def _write_many(self, key_hash: NDArray[np.int32], offsets: NDArray[np.int64], times: NDArray[np.int64]) -> int:
        put = 0
        while put < len(key_hash):
            file = self._file_to_write()
            before = file.header.end_phy_offset
            taken = file.put_keys(key_hash[put:], offsets[put:], times[put:])
            newest = offsets[put : put + taken].searchsorted(offsets[put + taken - 1])
            tail = slice(put + int(newest), put + taken)
            self._note_end(before if newest == 0 else -1, key_hash[tail].tolist(), offsets[tail].tolist())
            put += taken
        return put

    def _note_end(self, before: int, key_hash: Sequence[int], offsets: Sequence[int]) -> None:
        """Remember the entries of the message that is the newest now; `before`: the end before these keys."""
        last = offsets[-1]
        first = len(offsets) - 1
        while first > 0 and offsets[first - 1] == last:
            first -= 1
        goes_on = first == 0 and last == before
        self._at_end = [*self._at_end, *key_hash] if goes_on else list(key_hash[first:])

    def _file_to_write(self) -> IndexFile:
        files = self._files
        if files and not files[-1].is_full:
            return files[-1]
        full = files[-1] if files else None
        if full is None:
            self._disk.mkdirs(self.directory)
            created = IndexFile.create(self._disk, self._path(self._new_name()), self.layout)
        else:
            end = full.header
            path = self._path(self._new_name(full))
            created = IndexFile.create(self._disk, path, self.layout, end.end_phy_offset, end.end_timestamp)
        created.gather_slots(self._to_come, self._beside)
        with self._lock:
            self._files = (*self._files, created)
        if full is not None:
            self._flush_in_background(full)
        return created

    def _new_name(self, last: IndexFile | None = None) -> str:
        """The time, or the next number after the last name when the clock has not moved on (or has gone back)."""
        number = int(names.index_name(self._clock()))
        if last is not None:
            number = max(number, int(Path(last.path).name) + 1)
        while self._disk.exists(self._path(names.index_name_of(number))):
            number += 1
        return names.index_name_of(number)

    def _flush_in_background(self, full: IndexFile) -> None:
        thread = threading.Thread(target=self._flush_full, args=(full,), name="FlushIndexFile", daemon=True)
        self._flushing = [one for one in self._flushing if one.is_alive()]
        self._flushing.append(thread)
        thread.start()

    def _flush_full(self, full: IndexFile) -> None:
        newest = full.header.end_timestamp
        try:
            if full.flush() and newest > 0 and self._on_durable is not None:
                self._on_durable(newest)
        except StorageError as error:
            self._failed.append(error)
