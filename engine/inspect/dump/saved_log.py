"""The pieces of the commit log that repairs saved, read as a log again: by the physical offset that they came from.

A repair that was killed and the one that resumed it are one (`SavedRepair`): what both saved counts once, and
the oldest copy wins, as it was made before anything changed. A piece that was all zeros was not kept, and holds no
record; nor does one that is smaller than any record (the old value of a mended field).
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, InvalidArgument
from engine.format import names
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.odd import demand_saved
from engine.inspect.store.repairs import KEPT, Repair, repairs
from engine.log.source import Segment

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile

_NOT_THE_LOG = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.BATCHCONSUMEQUEUE, names.INDEX)
_OPEN = 16


@dataclass(frozen=True, slots=True)
class SavedRepair:
    """One repair that came to its end, with the killed ones that it resumed; or one that did not. Oldest first."""

    repairs: tuple[Repair, ...]

    @property
    def id(self) -> str:
        """The name of the directory of the last of them."""
        return self.repairs[-1].name

    @property
    def directory(self) -> str:
        """Where that is."""
        return self.repairs[-1].directory

    @property
    def state(self) -> str:
        """ "done", "unfinished", "undo interrupted", "undone" or "pruned"."""
        last = self.repairs[-1]
        if any(repair.pruned for repair in self.repairs):
            return "pruned"
        if last.undone:
            return "undone"
        if any(repair.undoing for repair in self.repairs):
            return "undo interrupted"
        return "unfinished" if last.applied is None else "done"


@dataclass(frozen=True, slots=True)
class Span(Segment):
    """A saved range of the log. `offset`: physical; `path`: of the copy, whose byte `position` is its first.

    `origin`: the file of the store that it came from, which begins at the physical offset `origin_offset`.
    """

    position: int
    origin: str
    origin_offset: int


def saved_repairs(disk: Disk, root: str) -> list[SavedRepair]:
    """The repairs of a store whose manifests can be read, oldest first. Raises DataIsAbsent: a disk is not mounted."""
    demand_saved(disk, root)
    saved: list[SavedRepair] = []
    killed: list[Repair] = []
    for repair in repairs(disk, root):
        if repair.applied is None and not repair.undone:
            killed.append(repair)
        elif repair.applied is None:
            saved.append(SavedRepair((repair,)))
        else:
            saved.append(SavedRepair((*(one for one in killed if one.is_config == repair.is_config), repair)))
            killed = [one for one in killed if one.is_config != repair.is_config]
    return saved + [SavedRepair((repair,)) for repair in killed]


def find_repair(disk: Disk, root: str, name: str) -> SavedRepair:
    """The repair of that name, or the only one whose name begins so; a killed one is found as a part of its successor.

    Raises:
        InvalidArgument: there is none, or more than one.
    """
    every = saved_repairs(disk, root)
    exact = [saved for saved in every if any(one.name == name for one in saved.repairs)]
    close = exact or [saved for saved in every if any(one.name.startswith(name) for one in saved.repairs)]
    if len(close) == 1:
        return close[0]
    raise InvalidArgument(
        f"{'more than one repair starts with' if close else 'no repair'} {name!r}",
        path=os.path.join(root, names.SALVAGE),
        hint="rstore salvage list shows them",
    )


def log_offset(piece: dict[str, Any]) -> int | None:
    """Physical offset at which a piece's file begins, when it is a kept range of the commit log; else None."""
    path = str(piece["path"])
    if piece["action"] not in KEPT or path.split(os.sep, maxsplit=1)[0] in _NOT_THE_LOG:
        return None
    return names.segment_offset(os.path.basename(path))


def missing_copies(disk: Disk, saved: SavedRepair) -> frozenset[str]:
    """Copies of the log that a repair made, and that are gone since, or shorter than they were."""
    paths = {span.path: span.position + span.size for span in log_spans(saved)}
    return frozenset(path for path, needed in paths.items() if not disk.exists(path) or disk.stat(path).size < needed)


def demand_copies(disk: Disk, saved: SavedRepair) -> None:
    """Raises CannotRepair when a copy of the log that a repair made is gone."""
    missing = sorted(missing_copies(disk, saved)) if saved.state != "pruned" else []
    if missing:
        raise CannotRepair(
            "the pieces of the log that the repair saved are missing",
            path=missing[0],
            hint=f"rstore salvage show {saved.id} shows what is left; "
            "rstore salvage scan --file FILE reads a single copy",
        )


def log_spans(saved: SavedRepair, without: Collection[str] = ()) -> list[Span]:
    """The log that a repair saved, by offset, each byte once; `without`: copies that are passed over."""
    covered = Intervals()
    spans: list[Span] = []
    for repair in saved.repairs:
        for piece in repair.pieces:
            origin = log_offset(piece)
            length = int(piece["length"])
            if origin is None or piece["file"] is None or length < MIN_RECORD_SIZE:
                continue
            start = origin + int(piece["offset"])
            path = os.path.join(repair.directory, piece["file"])
            if path in without:
                continue
            for low, high in covered.missing(start, start + length):
                spans.append(Span(low, high - low, path, low - start, str(piece["path"]), origin))
            covered.add(start, start + length)
    return sorted(spans, key=lambda span: span.offset)


class SavedLog:
    """Saved ranges of the log as a `LogSource` (engine.log.source). A context manager; not thread-safe.

    A span may end before its copy does, so positions are taken from the span, not from the file's length.
    """

    def __init__(self, disk: Disk, spans: Sequence[Span]) -> None:
        self._disk = disk
        self._spans = tuple(spans)
        self._starts = [span.offset for span in spans]
        self._open: dict[str, RawFile] = {}

    @property
    def segments(self) -> Sequence[Span]:
        """The spans, by offset."""
        return self._spans

    def read(self, offset: int, length: int) -> memoryview:
        """As `LogSource.read`; empty where nothing was saved."""
        at = bisect.bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._spans[at].end:
            return memoryview(b"")
        span = self._spans[at]
        return self._reader(span.path).read(offset - span.offset + span.position, min(length, span.end - offset))

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """As `LogSource.data_ranges`."""
        assert isinstance(segment, Span)
        shift = segment.offset - segment.position
        at, end = offset - shift, segment.end - shift
        while (start := self._reader(segment.path).next_data(at, end)) is not None:
            at = self._reader(segment.path).next_hole(start, end)
            yield start + shift, at + shift

    def close(self) -> None:
        """Close the files."""
        for reader in self._open.values():
            reader.close()
        self._open.clear()

    def __enter__(self) -> SavedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reader(self, path: str) -> RawFile:
        reader = self._open.get(path)
        if reader is None:
            if len(self._open) >= _OPEN:  # a repair may have saved thousands of segments
                self.close()
            reader = self._open[path] = self._disk.open_reader(path)
        return reader
