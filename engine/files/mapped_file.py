"""One file of fixed size, named by the offset of its first byte, that is appended to and read at the same time.

Positions, bytes from the start of the file:

    0 ≤ flushed ≤ committed ≤ wrote ≤ file_size        (without a write buffer committed is wrote)

    wrote       appended
    committed   copied from the write buffer to the file; readers see up to here (`read_position`)
    flushed     durable

Theory (Apache MappedFile, ReferenceResource): one appender moves `wrote` after the bytes are in place, so
readers need no lock: a view up to `read_position` never changes. `flush` syncs only what lies between flushed
and read position, and what `write_at` changed below. How the bytes are stored (map or channel) is the
Segment's business.

What holds the bytes, and when the file gets blocks, is in file_backing.py.

Sources: isAbleToFlush, isAbleToCommit, selectMappedBuffer, destroy of Apache MappedFile, 4.9.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.errors import InvalidArgument, StorageError
from engine.files.file_backing import FileBacking
from engine.files.raw_file import Bytes
from engine.files.segment import PAGE, MapSegment, Segment
from engine.files.selected import SelectedBuffer
from engine.files.transient_pool import TransientStorePool

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.disk import Disk
    from engine.files.open_files import OpenFiles


_Appended = TypeVar("_Appended")


class MappedFile(FileBacking):
    """See the module. One appender, one flusher, many readers. Made by `create` or `open`.

    Attributes:
        file_from_offset: the number that is its name.
        store_timestamp: ms, of the newest message in it; set by who appends.
        first_create_in_queue: it was made as the first file of an empty queue.
    """

    __slots__ = (
        "_committed",
        "_flushed",
        "_rewritten",
        "file_from_offset",
        "first_create_in_queue",
        "store_timestamp",
    )

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        *,
        blocks: int,
        pool: TransientStorePool | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        name = Path(segment.path).name
        if not (name.isascii() and name.isdigit()):
            raise InvalidArgument("a store file's name must be a number", path=segment.path)
        self._committed = self._flushed = 0
        self._rewritten: tuple[int, int] | None = None
        super().__init__(disk, segment, blocks=blocks, pool=pool, open_files=open_files)
        self.file_from_offset = int(name)
        self.store_timestamp = 0
        self.first_create_in_queue = False
        if open_files is not None and isinstance(segment, MapSegment):
            segment.on_mapped = self._mapped_again
            open_files.opened(self)

    @classmethod
    def create(
        cls,
        disk: Disk,
        path: str,
        file_size: int,
        pool: TransientStorePool | None = None,
        *,
        allocate_step: int | None = None,
        single_pages: bool = False,
        open_files: OpenFiles | None = None,
    ) -> MappedFile:
        """Make the file, which must not be there: allocated, zeros, durable; positions 0. Its directory must exist.

        With an `allocate_step` it is allocated as far as that, and on as it is appended to. With a `pool` it takes a
        write buffer, if one is left. `single_pages`: see the method; `open_files`: they may park it. Raises DiskFull,
        StorageError; no file stays behind then.
        """
        if file_size < 1:
            raise InvalidArgument(f"file size must be ≥ 1, not {file_size}", path=path)
        if pool is not None and pool.size != file_size:
            raise InvalidArgument(f"file size {file_size} is not that of the write buffers, {pool.size}", path=path)
        blocks = file_size if allocate_step is None else min(allocate_step, file_size)
        kept = open_files is None
        segment = disk.open_segment(path, file_size, create=True, blocks=blocks, kept=kept)
        file = cls(disk, segment, blocks=blocks, pool=pool, open_files=open_files)
        file.allocate_step = allocate_step
        if single_pages:
            file.single_pages()
        return file

    @classmethod
    def open(
        cls, disk: Disk, path: str, file_size: int, *, writable: bool = True, open_files: OpenFiles | None = None
    ) -> MappedFile:
        """Open an existing file; all positions at its end, as Apache's load leaves them. Raises StorageError."""
        segment = disk.open_segment(path, file_size, writable=writable, kept=open_files is None)
        file = cls(disk, segment, blocks=0, open_files=open_files)
        file.truncate_to(file_size)
        return file

    # --- positions --------------------------------------------------------------------------------------------------

    @property
    def committed_position(self) -> int:
        """End of what is in the file, bytes: `wrote_position` without a write buffer."""
        return self._committed if self._buffer is not None else self.wrote_position

    @property
    def flushed_position(self) -> int:
        """End of what is durable, bytes."""
        return self._flushed

    @property
    def read_position(self) -> int:
        """End of what readers may see, bytes."""
        return self._committed if self._buffer is not None else self.wrote_position

    @property
    def is_full(self) -> bool:
        """Whether `wrote_position` is the file's size."""
        return self.wrote_position == self.file_size

    @property
    def mapped(self) -> bool:
        """Whether it is of the memory map kind."""
        return self._segment.mapped

    @property
    def has_write_buffer(self) -> bool:
        """Whether appends go to a buffer of the pool first."""
        return self._buffer is not None

    @property
    def last_modified_ms(self) -> int:
        """The file's modification time, ms since 1970; 0 when the file is gone (as Java's File.lastModified)."""
        try:
            return self._disk.stat(self.path).mtime_ns // 1_000_000
        except StorageError:
            if self._disk.exists(self.path):
                raise
            return 0

    def truncate_to(self, position: int) -> None:
        """Set all three positions. Bytes after stay what they are: see `invalidate_tail`."""
        self._segment_check(position, 0)
        self.wrote_position = self._committed = self._flushed = position

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, data: Bytes) -> int | None:
        """Put `data` after what is there; its position, or None: it does not fit. Raises DiskFull, StorageError."""
        position = self.wrote_position
        end = position + len(data)
        if end > self._room and not self._make_room(end):
            return None
        target = self._target
        if target is None:
            self._segment.write(position, data)
        else:
            target[position:end] = data
        self.wrote_position = end
        return position

    def append_by(self, append: Callable[..., _Appended | None], what: object) -> _Appended | None:
        """Have `append` put something into the file's memory and count it in `wrote_position`; what it gives, None:
        nothing was done.

        It gets this file, the memory (None where there is none), where to write, how far there is room, and the file's
        size; then what it is to write, in one object: to pass on any number of arguments takes as long as to write a
        record. It must do both or nothing: no signal's exception may come in between.
        """
        return append(self, self._target, self.wrote_position, self._room, self.file_size, what)

    def append_many(self, data: Bytes) -> int | None:
        """As `append`, for many bytes: by call, which gets the pages that nobody has touched some at a time."""
        position = self.wrote_position
        end = position + len(data)
        if self._buffer is not None or end > self._room:
            return self.append(data)
        self._segment.write_many(position, data)
        self.wrote_position = end
        return position

    def reserve(self, size: int) -> memoryview | None:
        """The next `size` bytes to fill in place, to be followed by `advance`; None when they do not fit.

        Also None on the channel kind without a write buffer: `append` then. Raises DiskFull.
        """
        position = self.wrote_position
        end = position + size
        if end > self._room and not self._make_room(end):
            return None
        target = self._target
        return None if target is None else target[position:end]

    def advance(self, size: int) -> None:
        """Count the next `size` bytes as appended, whatever they hold (a filled `reserve`, or a file's unused rest)."""
        self._segment_check(self.wrote_position, size)
        self.wrote_position += size

    def writable(self, position: int, size: int) -> memoryview | None:
        """Bytes of the file to change in place, wherever they are; None on the channel kind (`write_at` then).

        Moves no position; the next `flush` covers them. Not for a file with a write buffer. Raises DiskFull.
        """
        self._ensure_blocks(position, position + size)
        memory = self._segment.memory
        if memory is None or self._buffer is not None:
            return None
        self._mark_rewritten(position, position + size)
        return memory[position : position + size]

    def write_at(self, position: int, data: Bytes) -> None:
        """Overwrite bytes anywhere in the file; moves no position, the next `flush` covers them.

        With a write buffer, what lies after the committed position is changed in the buffer. Raises DiskFull.
        """
        end = position + len(data)
        self._segment_check(position, len(data))
        split = max(position, min(end, self._committed)) if self._buffer is not None else end
        with memoryview(data) as whole:
            if split > position:
                self._ensure_blocks(position, split)
                self._segment.write(position, whole[: split - position])
                self._mark_rewritten(position, split)
            if self._buffer is not None and split < end:
                self._buffer.memory[split:end] = whole[split - position :]

    def write_many_at(self, position: int, data: Bytes) -> None:
        """As `write_at`, for many bytes where nothing was before. Not for a file with a write buffer."""
        self._ensure_blocks(position, position + len(data))
        self._segment.write_many(position, data)
        self._mark_rewritten(position, position + len(data))

    def begin_writing(self, start: int, end: int) -> None:
        """Have [start, end) on its way to the device, so that a flush waits less; a hint."""
        self._segment.begin_writing(start, end)

    def ensure_allocated(self, position: int) -> None:
        """Have blocks from `position` to the file's end; DiskFull when there are none. Nothing when they are known."""
        self._ensure_blocks(position, self.file_size)

    def invalidate_tail(self, position: int) -> bool:
        """Make everything from `position` on zeros, with blocks, durably; positions after it move back to it.

        What lies below is synced as well. Returns whether anything but zeros was there; if not, no byte is written.
        Why: apache/rocketmq#10666, records after the end that come back after the next crash.
        """
        self._segment_check(position, 0)
        if self._buffer is not None:
            # Below the committed position too: it moves back, so these bytes will be committed again.
            self._buffer.memory[position : self.wrote_position] = bytes(max(0, self.wrote_position - position))
        changed = not self._segment.is_zero(position, self.file_size)
        if changed:
            self._has_blocks_to = min(self._has_blocks_to, position)
            self._aim()
            self._disk.step("invalidate-tail:start")
            self._segment.zero(position, self.file_size)
            self._disk.step("invalidate-tail:zeroed")
        # Even when nothing changed: the zeros may be those of a run that was killed before its sync.
        self._segment.sync(min(self._flushed, position), self.file_size)
        self._disk.step("invalidate-tail:synced")
        self.wrote_position = min(self.wrote_position, position)
        self._committed = min(self._committed, position)
        self._flushed = min(self._flushed, position)
        self._ensure_blocks(position, self.file_size)
        return changed

    # --- reading ----------------------------------------------------------------------------------------------------

    def select(self, position: int, size: int | None = None) -> SelectedBuffer | None:
        """Hold readable bytes: `size` from `position`, or all from there to the read position.

        None when they are not all there yet, when nothing is (no size), or after `shutdown`.
        Source: Apache MappedFile.selectMappedBuffer.
        """
        end = self.read_position
        if size is None:
            if not 0 <= position < end:
                return None
            size = end - position
        elif position < 0 or size < 0 or position + size > end:
            return None
        if not self.hold():
            return None
        self.used = True
        try:
            return SelectedBuffer(self, self.file_from_offset + position, self._segment.read(position, size))
        except StorageError:
            self.release()
            if self.available:
                raise
            # Overruled by a forced shutdown between the hold and the read.
            return None

    def view(self, position: int, size: int) -> memoryview:
        """Readable bytes without holding the file: InvalidArgument when they are not all there.

        On the map kind they stay readable even when the file is destroyed meanwhile.
        """
        if position < 0 or size < 0 or position + size > self.read_position:
            raise self._not_readable(position, size)
        return self._segment.read(position, size)

    def _not_readable(self, position: int, size: int) -> InvalidArgument:
        return InvalidArgument(f"{size} bytes are not readable yet", path=self.path, offset=position)

    def whole(self) -> memoryview | None:
        """All bytes of the file, past its read position, too, where it is mapped; None: it is not, or was given up.

        They stay readable, as those of `view`. Raises StorageError.
        """
        try:
            return self._segment.whole()
        except StorageError:
            if self.available:
                raise
            return None

    def view_if_there(self, position: int, size: int) -> memoryview | None:
        """As `view`, for who does not hold the file: None when it was given up. They stay readable on every kind.

        Raises InvalidArgument, StorageError.
        """
        segment = self._segment
        # By call, a descriptor that is closed in the middle of a read may be another file's by then.
        held = not segment.mapped
        if held and not self.hold():
            return None
        try:
            if position < 0 or size < 0 or position + size > self.read_position:
                raise self._not_readable(position, size)
            return segment.read(position, size)
        except StorageError:
            if self.available:
                raise
            return None
        finally:
            if held:
                self.release()

    # --- making durable ---------------------------------------------------------------------------------------------

    def is_able_to_flush(self, least_pages: int) -> bool:
        """Apache's rule: a full file, or `least_pages` pages more than flushed, or (0) anything at all."""
        return self._is_able(self._flushed, self.read_position, least_pages)

    def is_able_to_commit(self, least_pages: int) -> bool:
        """The same rule between committed and wrote."""
        return self._is_able(self.committed_position, self.wrote_position, least_pages)

    def commit(self, least_pages: int = 0) -> int:
        """Copy from the write buffer to the file, if enough is waiting; the committed position (bytes).

        Gives the buffer back when the file is full. Raises DiskFull, StorageError; nothing counts as committed then.
        """
        buffer = self._buffer
        if buffer is None:
            return self.wrote_position
        if self.is_able_to_commit(least_pages) and self.hold():
            try:
                start, end = self._committed, self.wrote_position
                if end > start:
                    self._ensure_blocks(start, end)
                    with buffer.memory[start:end] as waiting:
                        self._segment.write(start, waiting)
                    self._committed = end
                if self._committed == self.file_size:
                    self._drop_buffer()
            finally:
                self.release()
        return self.committed_position

    def flush(self, least_pages: int = 0) -> int:
        """Make durable what readers see, if enough is waiting; the flushed position (bytes). Raises StorageError.

        A file that was shut down counts as flushed, as in Apache: it is about to be deleted.
        """
        if not self.is_able_to_flush(least_pages) and self._rewritten is None:
            return self._flushed
        end = self.read_position
        if self.hold():
            try:
                start = self._flushed
                changed, self._rewritten = self._rewritten, None
                try:
                    if changed is not None:
                        self._segment.sync(*changed)
                    if end > start:
                        self._segment.sync(start, end)
                except StorageError:
                    # A forced shutdown may have closed it meanwhile: what is about to be deleted needs no sync.
                    if self.available:
                        self._rewritten = changed
                        raise
                if self._single and end == self.file_size:
                    self._single = False
                    self._segment.many_pages()
            finally:
                self.release()
        self._flushed = end
        return end

    def sync(self, start: int = 0, end: int | None = None) -> None:
        """Make a range durable whatever the positions say; moves none. Raises StorageError."""
        self._segment.sync(start, self.file_size if end is None else end)

    # --- the end ----------------------------------------------------------------------------------------------------

    def destroy(self, interval_forcibly_ms: int) -> bool:
        """Shut down, and delete the file (durably) once nobody holds it; False while somebody does: call again later.

        After `interval_forcibly_ms` since the first call holders are overruled. Raises StorageError.
        """
        self.shutdown(interval_forcibly_ms)
        if not self.cleanup_over:
            return False
        self._disk.unlink(self.path, missing_ok=True)
        self._disk.sync_dir(str(Path(self.path).parent))
        return True

    # --- inside -----------------------------------------------------------------------------------------------------

    def _mapped_again(self) -> None:
        self.used = True
        if self._open_files is not None:
            self._open_files.opened(self)

    def _is_able(self, done: int, wrote: int, least_pages: int) -> bool:
        if self.is_full:
            return True
        if least_pages > 0:
            return wrote // PAGE - done // PAGE >= least_pages
        return wrote > done

    def _mark_rewritten(self, start: int, end: int) -> None:
        old = self._rewritten
        self._rewritten = (start, end) if old is None else (min(start, old[0]), max(end, old[1]))

    def _segment_check(self, position: int, size: int) -> None:
        if position < 0 or size < 0 or position + size > self.file_size:
            raise InvalidArgument(
                f"{size} bytes are not within the file's {self.file_size} bytes", path=self.path, offset=position
            )
