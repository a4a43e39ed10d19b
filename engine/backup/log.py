"""The log of a snapshot, read where it lies: a source for the scanner, as a store's files are (engine.log.source).

A piece that is missing or damaged is a StorageError, as a bad sector is: a scan names it and goes on after it. Where
the repository does not answer, nobody knows what the log has there: that is NotReached, which ends a scan.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from engine.backup.manifest import PIECE_SIZE
from engine.backup.repository import SEGMENTS, place
from engine.dataclass import dataclass
from engine.errors import FormatError, NotFound, NotReached, RStoreError, StorageError
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.manifest import SegmentPieces, Snapshot
    from engine.backup.repository import Repository

_KEPT = 8
"""Pieces that are kept: a scan reads one several times."""
_KEPT_LISTS = 256
"""Segments whose pieces are known: a list has 20 KiB for a GiB."""
_KEPT_FAILURES = 1024
"""Damaged objects that are not asked for again: a scan tries each page of one."""


class NamedSegment(Protocol):
    """A segment: its physical offset, its file's bytes, the name of its SegmentPieces."""

    @property
    def offset(self) -> int:
        """Physical."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def pieces(self) -> str:
        """A name."""


@dataclass(frozen=True, slots=True)
class NamedSegments:
    """Segments of a log, by offset."""

    segments: tuple[NamedSegment, ...]


class RepositoryLog:
    """See `LogSource`. Thread-safe. What a piece does not hold is zeros, up to the segment's length.

    Args:
        repository: that has the pieces.
        snapshot: whose log.
    """

    def __init__(self, repository: Repository, snapshot: Snapshot | NamedSegments) -> None:
        self._repository = repository
        named: tuple[NamedSegment, ...] = snapshot.segments
        self._refs = {one.offset: one for one in named}
        self._segments = tuple(
            Segment(one.offset, one.size, repository.path(place(SEGMENTS, one.pieces))) for one in named
        )
        self._offsets = [one.offset for one in self._segments]
        self._lists: OrderedDict[int, SegmentPieces] = OrderedDict()
        self._pieces: OrderedDict[str, bytes] = OrderedDict()
        self._damaged: OrderedDict[str, RStoreError] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def segments(self) -> Sequence[Segment]:
        """See LogSource."""
        return self._segments

    def pieces_of(self, segment: Segment) -> SegmentPieces:
        """What a segment is made of. Raises NotFound, FormatError, StorageError."""
        with self._lock:
            known = self._lists.get(segment.offset)
        if known is None:
            name = self._refs[segment.offset].pieces
            with self._proved(name):
                known = self._repository.get_segment(name)
            with self._lock:
                self._lists[segment.offset] = known
                while len(self._lists) > _KEPT_LISTS:
                    self._lists.popitem(last=False)
        return known

    def read(self, offset: int, length: int) -> memoryview:
        """See LogSource; damage of the repository is a StorageError with the physical offset. Raises NotReached."""
        segment = self._segment_at(offset)
        if segment is None:
            return memoryview(b"")
        out = bytearray(min(length, segment.end - offset))
        self.read_into(offset, memoryview(out))
        return memoryview(out).toreadonly()

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """As `read`, into memory that is there: the bytes read."""
        segment = self._segment_at(offset)
        if segment is None:
            return 0
        length = min(len(buffer), segment.end - offset)
        position = offset - segment.offset
        fill(
            buffer[:length],
            position,
            self._list(segment, offset),
            lambda name, at: self.piece(name, at + segment.offset),
        )
        return length

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """See LogSource."""
        pieces = self.pieces_of(segment)
        for number, piece in enumerate(pieces.pieces):
            start = segment.offset + number * PIECE_SIZE
            end = min(start + PIECE_SIZE, pieces.end)
            if piece is not None and end > offset:
                yield max(start, offset), end

    def piece(self, name: str, offset: int) -> bytes:
        """What a piece holds. Raises StorageError with `offset` where it is missing or damaged, NotReached."""
        with self._lock:
            if name in self._pieces:
                self._pieces.move_to_end(name)
                return self._pieces[name]
        try:
            with self._proved(name):
                data = self._repository.get_piece(name)
        except RStoreError as error:
            raise _as_read(error, offset) from None
        with self._lock:
            self._pieces[name] = data
            while len(self._pieces) > _KEPT:
                self._pieces.popitem(last=False)
        return data

    def _segment_at(self, offset: int) -> Segment | None:
        at = bisect_right(self._offsets, offset) - 1
        return None if at < 0 or offset >= self._segments[at].end else self._segments[at]

    def _list(self, segment: Segment, offset: int) -> tuple[str | None, ...]:
        try:
            return self.pieces_of(segment).pieces
        except RStoreError as error:
            raise _as_read(error, offset) from None

    @contextlib.contextmanager
    def _proved(self, name: str) -> Iterator[None]:
        """An object is read within: one that was missing or damaged before is not asked for again."""
        with self._lock:
            known = self._damaged.get(name)
        if known is not None:
            raise known
        try:
            yield
        except (NotFound, FormatError) as error:
            with self._lock:
                self._damaged[name] = error
                while len(self._damaged) > _KEPT_FAILURES:
                    self._damaged.popitem(last=False)
            raise


def fill(buffer: memoryview, position: int, pieces: Sequence[str | None], get: Callable[[str, int], bytes]) -> None:
    """Fill `buffer` with a file's bytes from `position` on; after what a piece holds, and where none is, are zeros.

    Args:
        buffer: is filled whole.
        position: bytes from the file's start.
        pieces: their names, one for each PIECE_SIZE bytes.
        get: what a piece holds, by its name; and at which position it is wanted.

    Raises:
        what `get` raises.
    """
    done, length = 0, len(buffer)
    while done < length:
        number, inside = divmod(position + done, PIECE_SIZE)
        name = pieces[number] if number < len(pieces) else None
        some = min(length - done, PIECE_SIZE - inside)
        held = memoryview(b"" if name is None else get(name, position + done))[inside : inside + some]
        buffer[done : done + len(held)] = held
        if len(held) < some:
            buffer[done + len(held) : done + some] = bytes(some - len(held))
        done += some


def _as_read(error: RStoreError, offset: int) -> RStoreError:
    """What a read of the log at a physical offset raises."""
    why = f"the repository can't give it: {error.message}"
    if isinstance(error, NotFound | FormatError):
        return StorageError(why, path=error.path, offset=offset)
    return NotReached(why, path=error.path, offset=offset, hint=error.hint)
