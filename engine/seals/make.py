"""A seal made of a complete segment: each byte that is hashed is one that the judge of records saw, and none else.

Theory: the segment is read piece by piece into memory; the judge (engine.log) reads out of that memory. A piece that is
read a second time, because the judge went back, must be the same again: what a disk gives in two ways is not sealed.
What the judge finds is noted in the seal, so that damage is never taken for truth.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import StorageError
from engine.inspect.check.verify import check_events
from engine.log.ahead import count_ahead
from engine.log.scan import Scanner
from engine.log.source import ClosedLog, last_begun
from engine.log.tally import RecordCounter, tallied
from engine.seals.layout import PAGE_SIZE, PIECE_SIZE
from engine.seals.page_hash import WORTH_KERNELS, page_hasher
from engine.seals.seal import Seal, SealedDamage, hash_of, root_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile
    from engine.inspect.check.verify import VerifiedPart
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.seals.page_hash import Hashes

_KEPT = 8
"""Pieces that stay in memory: the judge goes back by a record at most, but for damage."""
_MOST_DAMAGE = 10_000


def complete_segments(disk: Disk, files: StoreFiles) -> list[Segment]:
    """The segments that the log has left behind, by offset: of them no byte is written any more.

    Beside a running broker, too: it begins a segment when the one before is full. Raises StorageError.
    """
    size = files.config.mapped_file_size_commit_log
    with ClosedLog(disk, files.log) as log:
        last = last_begun(log)
    return [one for one in files.log if last is not None and one.offset < last.offset and one.size == size]


def make_seal(
    disk: Disk,
    segment: Segment,
    *,
    max_message_size: int,
    by: str,
    total: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Seal:
    """Read a complete segment, judge it, and make its seal. Writes nothing.

    Args:
        disk: how files are reached.
        segment: no byte of it is written any more: the log has begun a later one.
        max_message_size: the store's limit, bytes.
        by: who seals, as user@host.
        total: bytes of all segments that are sealed now: kernels are loaded where they pay.
        progress: told how many bytes were read; it may wait, to keep a pace.

    Raises:
        StorageError: a page can't be read, or the file is written meanwhile, or it has too many damaged ranges: it is
            not sealed. NotInstalled.
    """
    before = disk.stat(segment.file)
    reader = disk.open_reader(segment.file)
    try:
        if reader.size() != segment.size:
            raise StorageError(f"the file has {reader.size()} bytes instead of {segment.size}", path=segment.file)
        source = _HashedSegment(reader, segment, total, progress)
        part = _judged(source, segment, max_message_size, by_kernels=total >= WORTH_KERNELS or None)
        pieces, pages = source.hashes()
    finally:
        reader.close()
    after = disk.stat(segment.file)
    if (after.size, after.mtime_ns) != (before.size, before.mtime_ns):
        raise StorageError("the segment was written while it was sealed", path=segment.file)
    damage = _damage(part)
    if len(damage) > _MOST_DAMAGE:
        raise StorageError(f"the segment has {len(damage)} damaged ranges: too many to seal", path=segment.file)
    return Seal(
        segment.offset, segment.size, before.mtime_ns, disk.now_ms(), part.records, by, damage,
        root_of(segment.offset, segment.size, pieces), b"".join(pieces), pages,
    )  # fmt: skip


class _HashedSegment:
    """One segment as a source for the scanner (engine.log.source.LogSource), hashed as it is read. Thread-safe."""

    def __init__(self, reader: RawFile, segment: Segment, total: int, progress: Callable[[int], None] | None) -> None:
        self._reader = reader
        self._segment = segment
        self._progress = progress
        self._hash_pages = page_hasher(max(total, segment.size))
        count = -(-segment.size // PIECE_SIZE)
        self._hashes: list[bytes | None] = [None] * count
        self._pages: Hashes = np.zeros(-(-segment.size // PAGE_SIZE), dtype=np.uint64)
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._failed: dict[int, StorageError] = {}
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[Segment]:
        """See LogSource."""
        return (self._segment,)

    def read(self, offset: int, length: int) -> memoryview:
        """See LogSource."""
        start = offset - self._segment.offset
        end = min(start + length, self._segment.size)
        if not 0 <= start < end:
            return memoryview(b"")
        first, last = start // PIECE_SIZE, (end - 1) // PIECE_SIZE
        if first == last:
            return self._piece(first)[start % PIECE_SIZE : start % PIECE_SIZE + end - start]
        out = bytearray(end - start)
        self.read_into(offset, memoryview(out))
        return memoryview(out).toreadonly()

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """As `read`, into memory that is there: the bytes read. Raises StorageError."""
        start = offset - self._segment.offset
        end = min(start + len(buffer), self._segment.size)
        at = start
        while at < end:
            piece = self._piece(at // PIECE_SIZE)[at % PIECE_SIZE :][: end - at]
            buffer[at - start : at - start + len(piece)] = piece
            at += len(piece)
        return max(0, end - start)

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """See LogSource."""
        if offset < segment.end:
            yield offset, segment.end

    def hashes(self) -> tuple[list[bytes], Hashes]:
        """The hashes of all pieces and pages; what nobody asked for is read now. Raises StorageError."""
        pieces = []
        for number in range(len(self._hashes)):
            if self._hashes[number] is None:
                self._piece(number)
            pieces.append(self._hashes[number] or b"")
        return pieces, self._pages

    def _piece(self, number: int) -> memoryview:
        with self._lock:
            data = self._kept.get(number)
            if data is None:
                data = self._kept[number] = self._read_piece(number)
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(number)
            return data

    def _read_piece(self, number: int) -> memoryview:
        if number in self._failed:
            raise self._failed[number]
        start = number * PIECE_SIZE
        length = min(PIECE_SIZE, self._segment.size - start)
        try:
            data = self._reader.read(start, length)
        except StorageError as error:
            self._failed[number] = error
            raise
        if len(data) < length:
            raise StorageError("the file became shorter while it was sealed", path=self._reader.path, offset=start)
        digest = hash_of(data)
        if self._hashes[number] is None:
            self._hashes[number] = digest
            pages = self._hash_pages(data)
            self._pages[start // PAGE_SIZE : start // PAGE_SIZE + len(pages)] = pages
            if self._progress is not None:
                self._progress(length)
        elif self._hashes[number] != digest:
            raise StorageError(
                "the disk gave other bytes when they were read again", path=self._reader.path, offset=start
            )
        return data


def _judged(
    source: _HashedSegment, segment: Segment, max_message_size: int, *, by_kernels: bool | None
) -> VerifiedPart:
    scanner = Scanner(source, max_message_size=max_message_size, kernels=by_kernels)
    fast = scanner.by_kernels(segment.offset, segment.end)
    if fast is None:
        return check_events(segment, tallied(scanner.scan(segment.offset, segment.end, resume=True)))
    counter = RecordCounter(fast, source.read_into)
    return check_events(segment, count_ahead(counter, fast, segment.offset, segment.end, threads=1))


def _damage(part: VerifiedPart) -> tuple[SealedDamage, ...]:
    """What a complete segment should not hold; that nothing follows the last record is damage, too: the log went on."""
    bad = [SealedDamage(one.offset, one.length, one.reason) for one in part.bad]
    bad += [SealedDamage(one.offset, one.length, one.reason.value) for one in part.held]
    bad += [SealedDamage(one.offset, one.length, one.reason, is_suspect=True) for one in part.suspect]
    return tuple(sorted(bad, key=lambda one: (one.offset, one.is_suspect)))
