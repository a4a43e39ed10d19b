"""One sealed segment read and compared with its seal, piece by piece: where it differs, and what can't be read."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.seals.layout import PAGE_SIZE
from engine.seals.page_hash import hash_pages, page_hasher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.files.disk import Disk
    from engine.seals.page_hash import PageHasher
    from engine.seals.seal import Seal

CHANGED, UNREADABLE, MISSING, UNSTEADY = "changed", "unreadable", "missing", "unsteady"
"""Kinds of ranges: other bytes than were sealed; the system can't read them; the file ends before them; other bytes at
the first reading, and at the second those that were sealed."""

Difference = tuple[int, int, str]
"""Position in the segment, bytes, kind."""


@dataclass(slots=True)
class Comparison:
    """What a reading gave so far: how many pieces are read, and how they differ."""

    pieces: int = 0
    differences: list[Difference] = field(default_factory=list)


class SegmentReader:
    """Compares a segment's file with its seal.

    Args:
        disk: how files are reached.
        path: the segment's file.
        seal: of it.
        total: bytes of all segments that are read now: kernels are loaded where they pay.
        fresh: have the system read from the disk what no process maps, and keep it in memory no longer than before.
    """

    def __init__(self, disk: Disk, path: str, seal: Seal, *, total: int = 0, fresh: bool = True) -> None:
        self._file = disk.open_reader(path)
        self._seal = seal
        self._fresh = fresh
        hasher = page_hasher(max(total, seal.size))
        self._hasher: PageHasher | None = None if hasher is hash_pages else hasher

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def run(self, done: Comparison, between: Callable[[int], bool]) -> bool:
        """Go on after the pieces that are `done`, and note there what is found.

        `between` is told the bytes of each piece before it is read, and says whether to go on. Returns whether the
        segment is read to its end. Raises StorageError: nothing of it can be read.
        """
        for number in range(done.pieces, self._seal.piece_count):
            start, length = self._seal.piece_range(number)
            if not between(length):
                return False
            done.differences += self._piece(number, start, length)
            done.pieces = number + 1
        done.differences[:] = merged(done.differences)
        return True

    def _piece(self, number: int, start: int, length: int) -> list[Difference]:
        seen = self._once(number, start, length)
        if not seen:
            return []
        again = self._once(number, start, length)
        if again:
            return again
        return [(position, size, UNSTEADY) for position, size, _ in seen]

    def _once(self, number: int, start: int, length: int) -> list[Difference]:
        if self._fresh:
            self._file.forget(start, start + length)
        try:
            data = self._file.read(start, length)
        except StorageError:
            return self._page_by_page(number, start, length)
        if self._fresh:
            self._file.forget(start, start + length)
        return self._compared(number, data, start)

    def _compared(self, number: int, data: memoryview, start: int) -> list[Difference]:
        if self._hasher is None and self._is_proved(number, data):
            return []
        ranges = self._seal.changed_pages(number, data, self._hasher or hash_pages)
        end = start + len(data)
        rows: list[Difference] = []
        for position, size in ranges:
            held = max(0, min(position + size, end) - position)
            if held:
                rows.append((position, held, CHANGED))
            if held < size:
                rows.append((position + held, size - held, MISSING))
        return rows

    def _is_proved(self, number: int, data: memoryview) -> bool:
        """By the piece's hash, where it is faster than that of the pages: without kernels."""
        try:
            return self._seal.proves(number, data)
        except StorageError:  # blake3 is not installed
            return False

    def _page_by_page(self, number: int, start: int, length: int) -> list[Difference]:
        """The same where the disk can't read some of it."""
        data = bytearray(length)
        end = 0
        lost: set[int] = set()
        for at in range(0, length, PAGE_SIZE):
            size = min(PAGE_SIZE, length - at)
            try:
                page = self._file.read(start + at, size)
            except StorageError:
                lost.add(start + at)
                end = at + size
                continue
            data[at : at + len(page)] = page
            end = at + len(page)
            if len(page) < size:
                break
        rows = [(position, min(PAGE_SIZE, start + length - position), UNREADABLE) for position in lost]
        for position, size, kind in self._compared(number, memoryview(data)[:end], start):
            pages = range(position, position + size, PAGE_SIZE)
            rows += [(at, min(PAGE_SIZE, position + size - at), kind) for at in pages if at not in lost]
        return merged(rows)


def merged(rows: Iterable[Difference]) -> list[Difference]:
    """Ranges of one kind that follow each other as one."""
    out: list[Difference] = []
    for position, size, kind in sorted(rows):
        if out and out[-1][2] == kind and out[-1][0] + out[-1][1] == position:
            out[-1] = (out[-1][0], out[-1][1] + size, kind)
        else:
            out.append((position, size, kind))
    return out
