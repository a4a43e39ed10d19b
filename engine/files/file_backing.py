"""What holds the bytes of a mapped file: its segment, the blocks that the segment has, its write buffer, its pages.

Blocks: they are made sure of before memory is touched. A file that was created has all; one that was opened gets them
from the write position on, at the first append or in `ensure_allocated`. So a full disk is DiskFull there, and nothing
was written. Where the file system can't allocate, the file turns to the channel kind at that moment.

Sources: warmMappedFile, mlock, munlock of Apache MappedFile, 4.9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.files.reference import ReferenceCounted
from engine.files.segment import PAGE, MapSegment, Segment
from engine.files.transient_pool import TransientStorePool, WriteBuffer

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.open_files import OpenFiles

WARM_AT_A_TIME = 256
"""Pages that `warm` touches between two chances for other threads to run."""


class FileBacking(ReferenceCounted):
    """See the module. The base of MappedFile, which appends, reads and flushes.

    Attributes:
        path: the file.
        file_size: bytes.
        allocate_step: bytes of blocks to take at a time when the file is appended to; None: all, or to its end.
        used: it was read since `open_files` looked last.
        wrote_position: end of what was appended, bytes; set by MappedFile alone. Each append asks for it.
    """

    __slots__ = (
        "_buffer",
        "_disk",
        "_has_blocks_from",
        "_has_blocks_to",
        "_open_files",
        "_pool",
        "_room",
        "_segment",
        "_single",
        "_target",
        "allocate_step",
        "file_size",
        "path",
        "used",
        "wrote_position",
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
        super().__init__(disk.now_ms)
        self._disk = disk
        self._segment = segment
        self._pool = pool
        self._buffer: WriteBuffer | None = pool.borrow() if pool is not None else None
        self.path = segment.path
        self.file_size = segment.size
        self.allocate_step: int | None = None
        self.wrote_position = 0
        self._has_blocks_from = 0
        self._has_blocks_to = blocks if segment.mapped else segment.size
        self._target: memoryview | None = None
        self._room = 0
        self._single = False
        self.used = True
        self._open_files = open_files
        self._aim()

    def park(self) -> bool:
        """Give up the map until the file is used again; False: nothing to give up. See `open_files`.

        What was appended stays appended. Any thread may call it, beside readers and the appender.
        """
        segment = self._segment
        if not isinstance(segment, MapSegment) or self._buffer is not None:
            return False
        with self._reference_lock:
            if not self._available:
                return False
            self._room, self._target = 0, None  # the next append asks for room, and finds the map gone
            segment.park()
        return True

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes can be appended at once: to a map that is there, with its blocks, or to a buffer."""
        return self._target is not None and self.wrote_position + size <= self._room

    @property
    def is_allocated(self) -> bool:
        """Whether it is of the memory map kind, and all its blocks are known to be there."""
        return self._segment.mapped and self._has_blocks_from == 0 and self._has_blocks_to == self.file_size

    def warm(self, pages: int, *, sync: bool) -> bool:
        """Touch every page after the write position, so that appends meet no page fault; then `mlock`.

        With `sync`, every `pages` pages are synced (Apache warmMappedFile with SYNC_FLUSH). Returns mlock's answer.
        """
        memory = self._segment.memory
        if memory is None:
            return False
        first = -(-self.wrote_position // PAGE) * PAGE
        self._ensure_blocks(first, self.file_size)
        synced = first
        for start in range(first, self.file_size, WARM_AT_A_TIME * PAGE):
            end = min(start + WARM_AT_A_TIME * PAGE, self.file_size)
            memory[start:end:PAGE] = bytes(len(range(start, end, PAGE)))
            if sync and end - synced >= pages * PAGE:
                self._segment.sync(synced, end)
                synced = end
        if sync:
            self._segment.sync(synced, self.file_size)
        return self.mlock()

    def touch(self, start: int, end: int) -> bool:
        """Have the pages of [start, end) ready for appends, if they go to a map with blocks; False where not possible.

        May be called beside anything else. `start` is a page's start.
        """
        mapped = self._target is not None and self._buffer is None
        if not mapped or not self._has_blocks_from <= start <= end <= self._has_blocks_to:
            return False
        try:
            return self._segment.touch(start, end)
        except ValueError:  # closed between the two
            return False

    def let_go(self, start: int, end: int) -> None:
        """Take the whole pages of [start, end) out of this process' memory: they stay in the page cache."""
        first, last = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if first < last:
            self._segment.let_go(first, last)

    def single_pages(self, start: int = 0) -> None:
        """Get the pages from a position on one by one, until the file is full and flushed: see Segment.

        For who flushes every few KiB. Else many at a time is quicker. A `start` within the file costs a map more.
        """
        self._single = True
        self._segment.single_pages(start, self.file_size)

    def mlock(self) -> bool:
        """Keep the file's pages in memory; False when the system would not (RLIMIT_MEMLOCK) or on the channel kind."""
        return self._segment.lock_memory()

    def munlock(self) -> bool:
        """Undo `mlock`; False when the system would not."""
        return self._segment.unlock_memory()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _cleanup(self) -> None:
        self._target = None
        self._room = -1
        self._drop_buffer()
        self._segment.close()

    def _aim(self) -> None:
        """Decide where appends go and how far they may without asking."""
        with self._reference_lock:
            buffer, segment = self._buffer, self._segment
            self._target = buffer.memory if buffer is not None else segment.memory
            free = buffer is not None or not segment.mapped
            parked = self._target is None and segment.mapped
            self._room = 0 if parked else self.file_size if free else self._has_blocks_to

    def _make_room(self, end: int) -> bool:
        if self._room < 0:
            raise StorageError("the file is closed", path=self.path)
        if end > self.file_size:
            return False
        segment = self._segment
        if isinstance(segment, MapSegment) and segment.parked:
            segment.unpark()
            self._aim()
        step = self.allocate_step
        self._ensure_blocks(self.wrote_position, self.file_size if step is None else min(self.file_size, end + step))
        return True

    def _ensure_blocks(self, start: int, end: int) -> None:
        if (self._has_blocks_from <= start and end <= self._has_blocks_to) or start >= end:
            return
        segment = self._segment
        if segment.allocate(start, end) or not segment.mapped:
            joins = start <= self._has_blocks_to and end >= self._has_blocks_from
            if joins and self._has_blocks_from < self._has_blocks_to:
                self._has_blocks_from = min(self._has_blocks_from, start)
                self._has_blocks_to = max(self._has_blocks_to, end)
            else:
                self._has_blocks_from, self._has_blocks_to = start, end
        else:
            # No blocks to be had in advance here: writes must be able to fail, so they go by call from now on.
            kept = self._open_files is None
            self._segment = self._disk.open_segment(self.path, self.file_size, mapped=False, kept=kept)
            self._has_blocks_from, self._has_blocks_to = 0, self.file_size
            segment.close()
        self._aim()

    def _drop_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None and self._pool is not None:
            self._pool.give_back(buffer)
            if self._room >= 0:
                self._aim()
