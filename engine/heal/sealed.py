"""What seals decide (engine.seals): which pages of a segment changed since it was complete, and which copy has them.

A seal knows each byte, header and properties included. So pages are fetched one by one, each from the first copy that
has it as it was sealed; a piece of 4 MiB is taken when all of it is what its BLAKE3 says, the store's own pages and the
fetched ones together. Pages alone are not believed: their XXH64 locates, and proves nothing against who forges.

A piece that held damage when it was sealed is none that its seal decides on. Nor is a segment that a program has
written since, be it a repair or a broker after a cut: a file's modification time shows that, as rot changes none. Then
its seal counts only where no page changed but those of ranges that are lost anyway.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, RStoreError, StorageError
from engine.heal.fetched import CHUNK, Fetched, Readable, Store
from engine.inspect.store.intervals import Intervals
from engine.seals.directory import read_seal_in
from engine.seals.layout import PAGE_SIZE, PIECE_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.files.disk import Disk
    from engine.heal.sources import HealCopy, HealSource
    from engine.log.source import ClosedLog, Segment
    from engine.repair.change import Tick
    from engine.seals.seal import Seal

_HASHED_AT_ONCE = 32
_MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class SealedPiece:
    """A piece that is healed: its bytes, the ranges of it (physical, [start, end)) that changed, whence they come."""

    segment: Segment
    fetched: Fetched
    changed: tuple[tuple[int, int], ...]
    copies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangedPages:
    """Pages [start, end) (physical) that changed, and that no copy has as they were sealed; `why`: of each copy."""

    segment: Segment
    start: int
    end: int
    why: tuple[str, ...]


@dataclass(slots=True)
class SealedLog:
    """What the seals of a log say.

    Attributes:
        pieces: that are healed, by physical offset.
        proved: ranges (physical) that are as they were sealed, once the pieces are written.
        left: pages that stay changed.
        problems: seals that can't be read.
        whole: seals of segments that are as they were sealed once their pieces are written, by path.
    """

    pieces: dict[int, SealedPiece] = field(default_factory=dict)
    proved: Intervals = field(default_factory=Intervals)
    left: list[ChangedPages] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    whole: dict[str, Seal] = field(default_factory=dict)
    _seals: dict[int, Seal] = field(default_factory=dict)

    def is_proved(self, start: int, end: int) -> bool:
        """Whether all of a range is as it was sealed."""
        return self.proved.overlap(start, end) == end - start

    def take(self, other: SealedLog) -> None:
        """Add what the seal of one segment says."""
        self.pieces |= other.pieces
        for start, end in other.proved:
            self.proved.add(start, end)
        self.left += other.left
        self.whole |= other.whole
        self._seals |= other._seals

    def contradicts(self, log: ClosedLog, segment: Segment, fetched: Readable, first: int, last: int) -> bool:
        """Whether fetched bytes [first, last) (physical) make pages that are not what was sealed.

        A page is looked at as a whole: with the bytes of the store around a range. Where these are damaged, too, that
        makes another page, and nothing is taken.
        """
        seal = self._seals.get(segment.offset)
        if seal is None:
            return False
        start = first - (first - segment.offset) % PAGE_SIZE
        end = min(segment.end, last + -(last - segment.offset) % PAGE_SIZE)
        for at in range(start, end, PAGE_SIZE):
            if _was_damaged(seal, (at - segment.offset) // PIECE_SIZE):
                continue
            length = min(PAGE_SIZE, end - at)
            low, high = max(at, first), min(at + length, last)
            try:
                page = bytearray(length) if (low, high) == (at, at + length) else bytearray(log.read(at, length))
            except StorageError:
                return True
            page[low - at : high - at] = fetched.read(low, high - low)
            if not seal.proves_pages(at - segment.offset, bytes(page)):
                return True
        return False


@dataclass(slots=True)
class SealHealer:
    """Compares a log with its seals, and fetches what changed.

    Args:
        disk: how files are reached.
        directory: of the seals.
        sources: where copies are looked for.
        store: keeps what is fetched.
        log: of the store that is healed.
        resumed: files that a killed heal has written to.
    """

    disk: Disk
    directory: str
    sources: Sequence[HealSource]
    store: Store
    log: ClosedLog
    resumed: frozenset[str]

    def heal(self, segments: Sequence[Segment], lost: Intervals, tick: Tick | None) -> SealedLog:
        """Read all segments that have a seal.

        Args:
            segments: complete ones; of those that are missing nothing is held.
            lost: ranges (physical) that hold no sound records.
            tick: told how far it is.

        Raises:
            NotInstalled: there are seals, and a package that they need is not there.
        """
        outcome = SealedLog()
        total = sum(segment.size for segment in segments)
        done = 0
        for segment in segments:
            one = SealedLog()
            seal = self._seal(segment, one)
            outcome.problems += one.problems
            if seal is not None and self._all_pieces(segment, seal, one, lost):
                outcome.take(one)
            elif seal is not None:
                outcome.problems.append(
                    f"{segment.path} was written since it was sealed, and its records changed: the seal is not used"
                )
            done += segment.size
            if tick is not None:
                tick(done, total)
        return outcome

    def _all_pieces(self, segment: Segment, seal: Seal, outcome: SealedLog, lost: Intervals) -> bool:
        """Whether the seal counts."""
        is_rot = segment.held == 0 or os.path.abspath(segment.path) in self.resumed
        is_rot = is_rot or self.disk.stat(segment.file).mtime_ns == seal.mtime_ns
        for number in range(seal.piece_count):
            self._piece(segment, seal, number, outcome, lost, is_rot=is_rot)
            if outcome.problems:
                return False
        if outcome.pieces and outcome.is_proved(segment.offset, segment.end):
            outcome.whole[segment.path] = seal
        return True

    def _seal(self, segment: Segment, outcome: SealedLog) -> Seal | None:
        try:
            seal = read_seal_in(self.disk, self.directory, segment.offset)
        except (FormatError, StorageError) as error:
            outcome.problems.append(f"a seal can't be used: {error}")
            return None
        if seal is None or seal.size != segment.size:
            return None
        outcome._seals[segment.offset] = seal
        return seal

    def _piece(
        self, segment: Segment, seal: Seal, number: int, outcome: SealedLog, lost: Intervals, *, is_rot: bool
    ) -> None:
        if _was_damaged(seal, number):
            return
        position, length = seal.piece_range(number)
        start = segment.offset + position
        data, bad = self._read(start, length)
        if segment.held == 0:
            bad = {*range(0, length, PAGE_SIZE)}
        changed = {at - position for at in _pages(seal.changed_pages(number, bytes(data)))} | bad
        if not changed and seal.proves(number, bytes(data)):
            outcome.proved.add(start, start + length)
            return
        if not is_rot and not all(lost.overlap(start + at, start + at + PAGE_SIZE) for at in changed):
            outcome.problems.append("written since")
            return
        wanted = sorted(changed)
        names, why = self._fetch(segment, seal, start, data, changed)
        ranges = tuple((start + low, min(start + high, start + length)) for low, high in _ranges(wanted))
        if not changed and seal.proves(number, bytes(data)):
            places = tuple(self.store.put(bytes(data[at : at + CHUNK])) for at in range(0, length, CHUNK))
            fetched = Fetched(start, start + length, self.store, places, b"")
            outcome.pieces[start] = SealedPiece(segment, fetched, ranges, tuple(names))
            outcome.proved.add(start, start + length)
        else:
            outcome.left += [ChangedPages(segment, low, high, tuple(why)) for low, high in ranges]

    def _read(self, start: int, length: int) -> tuple[bytearray, set[int]]:
        """A piece, and which of its pages (positions in it) the disk can't read."""
        try:
            data = bytearray(self.log.read(start, length))
        except StorageError:
            data = bytearray(length)
            bad = set()
            for at in range(0, length, PAGE_SIZE):
                try:
                    page = self.log.read(start + at, min(PAGE_SIZE, length - at))
                    data[at : at + len(page)] = page
                except StorageError:
                    bad.add(at)
            return data, bad
        return data + bytes(length - len(data)), set()

    def _fetch(
        self, segment: Segment, seal: Seal, start: int, data: bytearray, changed: set[int]
    ) -> tuple[list[str], list[str]]:
        """Put pages of copies into a piece, as they were sealed; those that are there leave `changed`."""
        names: list[str] = []
        why: list[str] = []
        for copy in self._copies(start, why):
            had = len(changed)
            try:
                self._fetch_from(copy, segment, seal, start, data, changed)
            except RStoreError as error:
                why.append(f"{copy.name} can't be read there: {error.message}")
            if len(changed) < had:
                names.append(copy.name)
            if not changed:
                return names, why
            if len(why) < _MOST_TOLD:
                why.append(f"{copy.name} does not have {len(changed)} of the pages as they were sealed")
        return names, why

    def _fetch_from(
        self, copy: HealCopy, segment: Segment, seal: Seal, start: int, data: bytearray, changed: set[int]
    ) -> None:
        for low, page_end in _ranges(sorted(changed), _HASHED_AT_ONCE * PAGE_SIZE):
            high = min(page_end, len(data))
            theirs = copy.read(start + low, high - low)
            if len(theirs) != high - low:
                theirs = b"" if len(theirs) > high - low else theirs[: len(theirs) - len(theirs) % PAGE_SIZE]
            for at in range(low, low + len(theirs), PAGE_SIZE):
                page = theirs[at - low : at - low + PAGE_SIZE]
                if seal.proves_pages(start - segment.offset + at, page):
                    data[at : at + len(page)] = page
                    changed.discard(at)

    def _copies(self, offset: int, why: list[str]) -> Iterator[HealCopy]:
        for source in self.sources:
            try:
                yield from source.copies(offset)
            except RStoreError as error:
                why.append(f"{source.name} can't be read: {error.message}")


def _was_damaged(seal: Seal, number: int) -> bool:
    """Whether a piece held damage when it was sealed."""
    position, length = seal.piece_range(number)
    start = seal.offset + position
    return any(one.offset < start + length and one.offset + max(1, one.length) > start for one in seal.damage)


def _pages(ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    for start, length in ranges:
        yield from range(start, start + length, PAGE_SIZE)


def _ranges(pages: Sequence[int], most: int = PIECE_SIZE) -> Iterator[tuple[int, int]]:
    """Pages (positions, ascending) in a row as ranges of at most so many bytes."""
    low = high = -1
    for at in pages:
        if at != high or high - low >= most:
            if low >= 0:
                yield low, high
            low = at
        high = at + PAGE_SIZE
    if low >= 0:
        yield low, high
