"""The timer log of a RocketMQ 5 store: its units in order, the blanks that close its files, and what is wrong there.

Theory: units lie in a grid of 52 bytes in each file, so reading continues after what is no unit, whatever it says: what
lies at one place of the grid tells nothing of the next. Zeros after the last unit are space that is not used yet;
anywhere else they are damage. Files are read in pieces, and holes of them not at all.

A file's length is a setting (mappedFileSizeTimerLog); where none is given, it is the length that most files have.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import is_lost_found
from engine.files.lock import holder_of
from engine.files.written import is_zeros
from engine.format import names, timer_log
from engine.format.numbers import INT_MAX, LONG_MAX, read_java_int
from engine.format.timer_log import UNIT_SIZE, TimerUnit
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.inspect.store.survey import StoreFiles

UNIT, BLANK, DAMAGE = "unit", "blank", "damage"
"""What a row is, as `dump` names it."""
_UNITS = 5041
"""Units of one read: 256 KiB."""
_ZERO, _SOUND, _WRONG = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TimerRow:
    """One thing in the timer log, by offset and length in bytes.

    `kind`: UNIT (with `unit`), BLANK or DAMAGE (with `reason`). `path`: the file that it lies in.
    """

    kind: str
    offset: int
    length: int
    path: str
    unit: TimerUnit | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TimerBatch:
    """Units one after the other, unit_dtype()[n], of which none has a fault; the first lies at `offset`."""

    offset: int
    units: NDArray[np.void]
    path: str


@dataclass(frozen=True, slots=True)
class TimerFiles:
    """The files of a timer log.

    Attributes:
        size: bytes that each file has, where all is well.
        files: by offset; of a longer file, `size` bytes.
        wrong: files of another length, and ranges for which there is no file: as DAMAGE.
        odd: paths of what is no file of a timer log, and why.
    """

    size: int = 0
    files: tuple[Segment, ...] = ()
    wrong: tuple[TimerRow, ...] = ()
    odd: tuple[tuple[str, str], ...] = ()


def timer_files(disk: Disk, files: StoreFiles) -> TimerFiles:
    """The files in timerlog/; none where it isn't there. Raises StorageError."""
    directory = os.path.join(files.root, names.TIMER_LOG)
    if not disk.is_dir(directory):
        return TimerFiles()
    odd: list[tuple[str, str]] = []
    entries: list[tuple[int, Entry]] = []
    for entry in sorted(disk.scandir(directory), key=lambda one: one.name):
        offset = names.segment_offset(entry.name)
        if is_lost_found(entry):
            continue
        if not entry.is_file:
            odd.append((entry.path, entry.what))
        elif offset is None:
            odd.append((entry.path, "a name that is not 20 digits"))
        elif entry.size == 0:
            odd.append((entry.path, "an empty file"))
        else:
            entries.append((offset, entry))
    size = _file_size(files, [entry.size for _, entry in entries])
    taken: list[Segment] = []
    wrong: list[TimerRow] = []
    end: int | None = None
    for offset, entry in entries:
        if offset % size or offset + size > LONG_MAX:
            odd.append((entry.path, "a name that is not a multiple of the file size"))
            continue
        if end is not None and offset > end:
            wrong.append(
                TimerRow(DAMAGE, end, offset - end, taken[-1].path, reason="files of the timer log are missing")
            )
        if entry.size != size:
            at, length = (offset + entry.size, size - entry.size) if entry.size < size else (offset + size, 0)
            reason = f"the file has {entry.size} bytes instead of {size}"
            wrong.append(TimerRow(DAMAGE, at, length, entry.path, reason=reason))
        taken.append(Segment(offset, min(entry.size, size), entry.path))
        end = offset + size
    return TimerFiles(size, tuple(taken), tuple(wrong), tuple(odd))


def _file_size(files: StoreFiles, sizes: list[int]) -> int:
    try:
        return read_java_int(files.config.other.get("mappedFileSizeTimerLog", ""), 1)
    except ValueError:
        counts = Counter(size for size in sizes if size <= INT_MAX)
        return max(counts, key=lambda size: (counts[size], size), default=INT_MAX)


def dump_timer_log(
    disk: Disk, files: StoreFiles, timer: TimerFiles, *, start: int | None = None, end: int | None = None
) -> Iterator[TimerRow]:
    """The timer log from offset `start` up to `end`; it continues after damage. Raises StorageError."""
    for item in timer_batches(disk, files, timer, start=start, end=end):
        if isinstance(item, TimerRow):
            yield item
            continue
        for i, values in enumerate(item.units.tolist()):
            yield TimerRow(UNIT, item.offset + i * UNIT_SIZE, UNIT_SIZE, item.path, TimerUnit(*values))


def timer_batches(
    disk: Disk,
    files: StoreFiles,
    timer: TimerFiles,
    *,
    start: int | None = None,
    end: int | None = None,
    live: bool | None = None,
) -> Iterator[TimerBatch | TimerRow]:
    """As `dump_timer_log`, units as the batches in which they are read. Raises StorageError.

    `live`: whether a broker may be writing what lies at the end; None: whether somebody holds the store's lock.
    """
    live = holder_of(disk, files.root) is not None if live is None else live
    low, high = start or 0, LONG_MAX if end is None else end
    held = _Held([row for row in timer.wrong if low <= row.offset < high])
    with ClosedLog(disk, timer.files) as log:
        for segment in timer.files:
            if segment.offset + timer.size <= low or segment.offset >= high:
                continue
            grid = segment.offset + timer_log.units_of_file(timer.size) * UNIT_SIZE
            first = max(segment.offset, segment.offset - (segment.offset - low) // UNIT_SIZE * UNIT_SIZE)
            for offset, piece in _pieces(log, segment, first, min(grid, segment.end)):
                yield from _judged(held, segment, offset, piece, low, high)
            if low <= grid < min(high, segment.end):
                yield from _closed(held, log, segment, grid, timer.size)
    yield from held.rest(live)


def unit_at(log: ClosedLog, timer: TimerFiles, offset: int) -> TimerUnit | str:
    """The unit at an offset of the timer log, or why there is none. Raises StorageError."""
    segment = log.segment_at(offset)
    if segment is None:
        return "it lies in no file of the timer log"
    place = offset - segment.offset
    if place % UNIT_SIZE or place // UNIT_SIZE >= timer_log.units_of_file(timer.size):
        return "no unit begins there"
    data = log.read(offset, UNIT_SIZE)
    if len(data) < UNIT_SIZE:
        return "its file ends before it"
    unit = timer_log.decode(data)
    return timer_log.fault(unit, offset) or unit


# --- one piece after the other ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    """Rows that are not said yet. `wrong`: of the listing, by offset. `zeros`: ranges after the last thing that was
    seen. `damage`: the last one, which may go on.
    """

    wrong: list[TimerRow]
    damage: TimerRow | None = None
    zeros: list[TimerRow] = field(default_factory=list)

    def add_zeros(self, row: TimerRow) -> None:
        last = self.zeros[-1] if self.zeros else None
        if last is not None and last.path == row.path and last.offset + last.length == row.offset:
            self.zeros[-1] = TimerRow(DAMAGE, last.offset, last.length + row.length, row.path, reason=row.reason)
        else:
            self.zeros.append(row)

    def add_damage(self, row: TimerRow) -> Iterator[TimerRow]:
        last = self.damage
        if last is not None and not self.zeros and last.path == row.path and last.offset + last.length == row.offset:
            self.damage = TimerRow(DAMAGE, last.offset, last.length + row.length, row.path, reason=last.reason)
            return
        yield from self.before(row.offset)
        self.damage = row

    def before(self, offset: int) -> Iterator[TimerRow]:
        """What is to be said before what lies at `offset`, which makes zeros before it damage."""
        rows = ([] if self.damage is None else [self.damage]) + self.zeros
        self.damage, self.zeros = None, []
        while self.wrong and self.wrong[0].offset <= offset:
            rows.append(self.wrong.pop(0))
        yield from sorted(rows, key=lambda row: row.offset)

    def rest(self, live: bool) -> Iterator[TimerRow]:
        """What is left at the end: zeros are space that is not used yet; a live broker may be writing the last unit."""
        rows = self.wrong if self.damage is None or live else [*self.wrong, self.damage]
        yield from sorted(rows, key=lambda row: row.offset)


def _pieces(log: ClosedLog, segment: Segment, low: int, high: int) -> Iterator[tuple[int, memoryview | int]]:
    """Bytes of [low, high), which are places of the grid, by offset; of holes their length."""
    at = low
    for data, hole in log.data_ranges(segment, low):
        first = max(at, data - (data - segment.offset) % UNIT_SIZE)
        stop = min(high, hole + (segment.offset - hole) % UNIT_SIZE)
        if first >= high:
            break
        if first > at:
            yield at, first - at
        for place in range(first, stop, _UNITS * UNIT_SIZE):
            piece = log.read(place, min(_UNITS * UNIT_SIZE, stop - place))
            if len(piece):
                yield place, piece
        at = max(first, stop)
    if at < high:
        yield at, high - at


def _judged(
    held: _Held, segment: Segment, offset: int, piece: memoryview | int, low: int, high: int
) -> Iterator[TimerBatch | TimerRow]:
    """Runs of units, of zeros and of what is no unit."""
    import numpy as np

    if isinstance(piece, int) or is_zeros(piece):
        length = piece if isinstance(piece, int) else len(piece)
        first, stop = max(offset, low), min(offset + length, high)
        if first < stop:
            held.add_zeros(_zeros_at(first, stop - first, segment.path))
        return
    units = timer_log.decode_many(piece)
    kinds = np.where(timer_log.sound(units, offset), _SOUND, _WRONG)
    blank = ~np.frombuffer(piece, np.uint8, len(units) * UNIT_SIZE).reshape(-1, UNIT_SIZE).any(axis=1)
    kinds[blank] = _ZERO
    first = max(0, -((offset - low) // UNIT_SIZE))
    last = min(len(units), max(0, -((offset - high) // UNIT_SIZE)))
    borders = np.flatnonzero(np.diff(kinds[first:last])) + first + 1
    for begin, stop in zip((first, *borders.tolist()), (*borders.tolist(), last), strict=True):
        if begin >= stop:
            continue
        at, length = offset + begin * UNIT_SIZE, (stop - begin) * UNIT_SIZE
        if kinds[begin] == _SOUND:
            yield from held.before(at)
            yield TimerBatch(at, units[begin:stop], segment.path)
        elif kinds[begin] == _ZERO:
            held.add_zeros(_zeros_at(at, length, segment.path))
        else:
            reason = timer_log.fault(TimerUnit(*units[begin].item()), at)
            yield from held.add_damage(TimerRow(DAMAGE, at, length, segment.path, reason=reason))
    rest = len(piece) % UNIT_SIZE
    if rest and last == len(units):
        at = offset + len(units) * UNIT_SIZE
        reason = f"the file ends after {rest} bytes of a unit"
        yield from held.add_damage(TimerRow(DAMAGE, at, rest, segment.path, reason=reason))


def _zeros_at(offset: int, length: int, path: str) -> TimerRow:
    return TimerRow(DAMAGE, offset, length, path, reason="nothing written here (zeros)")


def _closed(held: _Held, log: ClosedLog, segment: Segment, offset: int, size: int) -> Iterator[TimerRow]:
    """What lies after a file's last unit."""
    left = segment.offset + size - offset
    data = log.read(offset, left)
    blank = timer_log.decode_blank(data)
    if blank is not None and blank.size == left:
        yield from held.before(offset)
        yield TimerRow(BLANK, offset, left, segment.path)
    elif is_zeros(data):
        held.add_zeros(_zeros_at(offset, len(data), segment.path))
    else:
        reason = "no blank closes the file" if blank is None else f"a blank of {blank.size} bytes instead of {left}"
        yield from held.add_damage(TimerRow(DAMAGE, offset, len(data), segment.path, reason=reason))
