"""The log of a snapshot, read where it lies: a source for the scanner, as a store's files are (engine.log.source)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.backup.manifest import PIECE_SIZE
from engine.backup.repository import SEGMENTS, place
from engine.errors import RStoreError, StorageError
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backup.manifest import SegmentPieces, Snapshot
    from engine.backup.repository import Repository

_KEPT = 8
"""Pieces that are kept: a scan reads one several times."""


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
        self._lists: dict[int, SegmentPieces] = {}
        self._pieces: OrderedDict[str, bytes] = OrderedDict()
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
            known = self._repository.get_segment(self._refs[segment.offset].pieces)
            with self._lock:
                self._lists[segment.offset] = known
        return known

    def read(self, offset: int, length: int) -> memoryview:
        """See LogSource; damage of the repository is a StorageError with the physical offset."""
        at = bisect_right(self._offsets, offset) - 1
        if at < 0 or offset >= self._segments[at].end:
            return memoryview(b"")
        segment = self._segments[at]
        length = min(length, segment.end - offset)
        out = bytearray(length)
        done = 0
        while done < length:
            position = offset + done - segment.offset
            piece = memoryview(self._piece(segment, position // PIECE_SIZE, offset + done))
            inside = position % PIECE_SIZE
            some = min(length - done, PIECE_SIZE - inside)
            held = piece[inside : inside + some]
            out[done : done + len(held)] = held
            done += some
        return memoryview(out).toreadonly()

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """See LogSource."""
        pieces = self.pieces_of(segment)
        for number, piece in enumerate(pieces.pieces):
            start = segment.offset + number * PIECE_SIZE
            end = min(start + PIECE_SIZE, pieces.end)
            if piece is not None and end > offset:
                yield max(start, offset), end

    def _piece(self, segment: Segment, number: int, offset: int) -> bytes:
        try:
            pieces = self.pieces_of(segment).pieces
            name = pieces[number] if number < len(pieces) else None
            if name is None:
                return b""
            with self._lock:
                if name in self._pieces:
                    self._pieces.move_to_end(name)
                    return self._pieces[name]
            data = self._repository.get_piece(name)
        except RStoreError as error:
            why = f"the repository can't give it: {error.message}"
            raise StorageError(why, path=error.path, offset=offset) from None
        with self._lock:
            self._pieces[name] = data
            while len(self._pieces) > _KEPT:
                self._pieces.popitem(last=False)
        return data
