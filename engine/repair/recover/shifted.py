"""Records that lie off their place in their own segment: bytes were inserted into its file, or taken out of it.

An editor, a copy that was patched, a file system's repair: after that place every record is whole and says where it
belongs. A run of them, all off by the same distance, goes back as it is (with whatever lies between), and what was
taken out is the only damage left. Which file it is, its first records tell (layout.py); this is about one whose first
part is where its name says.

Sound enough to move: `FEW` records or more of one distance, one after the other, whose places hold no record that is
at home and are claimed by no other run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
"""So many records that are off by the same distance are no damaged fields."""
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Shift:
    """`records` whole ones that belong at [start, end) of the log (physical), and lie `distance` bytes after that.

    `segment`: theirs, as it will be. A negative distance: before it.
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
            f"{counted(self.records, 'record')} from {self.start} on lie {counted(many, 'byte')} {way} their place: "
            f"that many bytes are {what} before them"
        )


def as_it_lies(segment: Segment, size: int) -> Segment:
    """The segment with all bytes that its file has now, under the name that it has."""
    return Segment(segment.offset, size, segment.file)


def find_shifts(disk: Disk, segment: Segment, largest_message: int, start: int | None = None) -> tuple[Shift, ...]:
    """The runs of one segment that go back, by place. All of the file is searched, or from the physical offset `start`.

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
    """Write a segment as `log` shows it, aside, and swap it in: a kill leaves the one file or the other.

    Raises:
        DiskFull, StorageError.
    """
    temporary = os.path.join(root, names.RECOVER_PROGRESS)
    directory = os.path.dirname(disk.behind_link(segment.file))
    disk.mkdirs(temporary)
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
    """Whether records of this segment lie off their place after the physical offset `start`.

    The whole file is searched once the part after shows some: what it holds at its place is a copy there.

    Raises:
        StorageError: the file can't be read, so nobody knows.
    """
    return bool(find_shifts(disk, segment, largest_message, start)) and any(
        shift.start + shift.distance >= start for shift in find_shifts(disk, segment, largest_message)
    )
