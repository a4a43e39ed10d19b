"""Shifted records: bytes were inserted into their segment's file, or removed from it.

An editor, a patched copy or a file system's repair does that. After the change every record is whole, and its
physicalOffset differs from where it lies by the same distance. A run of such records is moved back together with all
that lies between them; the removed bytes are the only damage left. Whether the whole file has a wrong name is decided
by its first records (layout.py); here the first part of the file is where its name says.

A run is moved if it has `FEW` records or more of one distance, one after the other, if no record lies at its own
offset where they belong, and if no other run belongs there.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.directories import PRIVATE
from engine.files.written import is_zeros
from engine.format import names
from engine.format.message import ENCODE_OVERHEAD
from engine.format.quantities import counted
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.record_search import whole
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from engine.files.disk import Disk

FEW = 8
"""Records of one distance from which on they are shifted: fewer may be records whose field is damaged."""
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Shift:
    """`records` whole records that belong at [start, end) of the log (physical), and lie `distance` bytes after that
    (before, where it is negative). `segment`: theirs, as the plan leaves it.
    """

    segment: Segment
    start: int
    end: int
    distance: int
    records: int

    @property
    def words(self) -> str:
        """What happened to the file, and where (physical offsets)."""
        many = abs(self.distance)
        way, what = ("after", "inserted") if self.distance > 0 else ("before", "missing")
        return (
            f"{counted(self.records, 'record is', 'records are')} {counted(many, 'byte')} {way} the right place, "
            f"from {self.start} on: that many bytes are {what} before them"
        )


def as_it_lies(segment: Segment, size: int) -> Segment:
    """The segment with all bytes and the name that its file has now."""
    return Segment(segment.offset, size, segment.file)


def find_shifts(disk: Disk, segment: Segment, largest_message: int, start: int | None = None) -> tuple[Shift, ...]:
    """The runs of one segment that can be moved back, in log order. `start`: physical offset to search from; None: all.

    Raises:
        StorageError: the file can't be read.
    """
    size = disk.stat(segment.file).size
    home = Intervals()
    runs: list[Shift] = []
    with ClosedLog(disk, [as_it_lies(segment, size)]) as log:
        begin = segment.offset if start is None else start
        written = list(log.data_ranges(log.segments[0], begin)) or [(begin, begin)]
        for batch in whole(log, max(begin, written[0][0]), written[-1][1], largest_message + ENCODE_OVERHEAD):
            for row in batch.rows:
                distance = batch.base + row.position - row.stored_offset
                place, end = row.stored_offset, row.stored_offset + row.size
                if not distance:
                    home.add(place, end)
                    continue
                last = runs[-1] if runs else None
                if last is not None and last.distance == distance and last.end <= place and end <= segment.end:
                    runs[-1] = replace(last, end=end, records=last.records + 1)
                elif segment.offset <= place and end <= segment.end:
                    runs.append(Shift(segment, place, end, distance, 1))
    runs = [run for run in runs if run.records >= FEW]
    return tuple(
        sorted(
            (run for run in runs if not home.overlap(run.start, run.end) and not _is_claimed(run, runs)),
            key=lambda run: run.start,
        )
    )


def _is_claimed(run: Shift, runs: list[Shift]) -> bool:
    return any(other is not run and other.start < run.end and run.start < other.end for other in runs)


def put_back(disk: Disk, root: str, log: ClosedLog, segment: Segment) -> None:
    """Write a segment as `log` shows it to a new file and swap it in: a kill leaves the old file or the new one.

    Raises:
        DiskFull, StorageError.
    """
    temporary = os.path.join(root, names.RECOVER_PROGRESS)
    directory = os.path.dirname(disk.behind_link(segment.file))
    disk.mkdirs(temporary, mode=PRIVATE)
    if disk.device(temporary) != disk.device(directory):
        temporary = directory
    path = os.path.join(temporary, f"{os.path.basename(segment.file)}.shifted")
    file = disk.open_raw(path, writable=True, create=True)
    try:
        file.set_size(0)
        file.set_size(segment.size)
        for low, high in ((at, min(at + _PIECE, segment.size)) for at in range(0, segment.size, _PIECE)):
            data = log.read(segment.offset + low, high - low)
            if not is_zeros(data):
                file.write(low, data)
        file.sync(0, segment.size)
    except BaseException:
        disk.unlink(path, missing_ok=True)
        raise
    finally:
        file.close()
    disk.set_mode(path, disk.mode(segment.file))
    disk.step("recover.put-back")
    disk.replace(path, disk.behind_link(segment.file))
    disk.sync_dir(directory)


def is_shifted(disk: Disk, segment: Segment, largest_message: int, start: int) -> bool:
    """Whether there are shifted records of this segment after the physical offset `start`.

    If the part after `start` has some, the whole file is searched: where a record lies at its own offset, the shifted
    one is a copy.

    Raises:
        StorageError: the file can't be read, so nobody knows.
    """
    return bool(find_shifts(disk, segment, largest_message, start)) and any(
        shift.start + shift.distance >= start for shift in find_shifts(disk, segment, largest_message)
    )
