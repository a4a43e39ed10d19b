"""What a start of RocketMQ 5 makes of one consume queue, computed on what lies on disk and written nowhere.

A queue is recovered from its last three files up to the first unit that is none; then units of the log's records are
appended by the rules of dispatch, and units at or after the log end are cut. What comes of it may be wrong: a unit at
another queue offset than its record's, a file's bytes of zeros taken for a unit. It is computed as it happens.

Source: ConsumeQueue#recover, #putMessagePositionInfo, #fillPreBlank, #truncateDirtyLogicFiles, #correctMinOffset,
MappedFileQueue#getLastMappedFile, #truncateDirtyFiles; BatchConsumeQueue the same (5.3.3, 5.5.0).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.batch_unit import valid_units
from engine.format.queue_unit import PRE_BLANK_SIZE, UNIT_SIZE, unit_dtype
from engine.inspect.store.queue_rows import QueueRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.batch_queue import BatchQueueFiles, BatchQueueRows
    from engine.inspect.store.survey import QueueFiles
    from engine.log.derive import TopicQueue

FILES = 3
"""Files from the end on that a queue is recovered from."""


@dataclass(slots=True)
class _File:
    """A file of the queue: queue offset of its first unit, and of what is after the last one written."""

    first: int
    end: int


class StartedQueue:
    """A queue as a start leaves it. Offsets are queue offsets, but for `known`.

    Attributes:
        known: the queue's maxPhysicOffset: after the record of its last unit (physical), −1 without one.
        kept: up to there it has the units that are on disk.
        minimum: its least offset.
    """

    def __init__(self, disk: Disk, files: QueueFiles, file_size: int) -> None:
        self.queue = files.queue
        self.known = -1
        self.kept = 0
        self._rows = QueueRows(disk, files)
        self._units = file_size // UNIT_SIZE
        self._files = [_File(f.offset // UNIT_SIZE, f.offset // UNIT_SIZE + self._units) for f in files.files]
        self._added: list[tuple[int, NDArray[np.void]]] = []
        self.minimum = 0
        self._recover()
        self._left = self._files[-1].first + self._units if self._files else 0  # files after it are deleted

    @property
    def end(self) -> int:
        """After the last unit; 0 without a file."""
        return self._files[-1].end if self._files else 0

    @property
    def has_empty_file(self) -> bool:
        """Whether the last file has no unit and the queue's least offset is before it."""
        return bool(self._files) and self._files[-1].end == self._files[-1].first and self.minimum < self.end

    def dispatch(self, physical: NDArray[np.int64], sizes: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Append the units of records, in log order: physical offset, size (bytes), queue offset."""
        import numpy as np

        order = (np.diff(physical) > 0) & (np.diff(offsets) == 1)
        bounds = [0, *(np.flatnonzero(~order) + 1).tolist(), len(physical)]
        for low, high in pairwise(bounds):
            at = low
            while at < high:
                self._put(int(physical[at]), int(sizes[at]), int(offsets[at]))
                at += 1
                if at < high and self._is_next(int(physical[at]), int(sizes[at]), int(offsets[at])):
                    self._append(physical[at:high], sizes[at:high])
                    at = high

    def cut(self, log_end: int) -> None:
        """Remove the units at or after the log end (physical)."""
        import numpy as np

        self.known = log_end
        while self._files:
            last = self._files[-1]
            units = self.read(last.first, last.first + self._units)
            physical, size = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            if physical[0] >= log_end:
                self._files.pop()
                continue
            stop = np.flatnonzero((physical < 0) | (size <= 0) | (physical >= log_end))
            stop = stop[stop > 0]  # the first unit of a file is not asked whether it is one
            count = int(stop[0]) if len(stop) else len(units)
            last.end = last.first + count
            self.known = int(physical[count - 1] + size[count - 1])
            break
        self.kept = min(self.kept, self.end)

    def read(self, start: int, end: int) -> NDArray[np.void]:
        """The units [start, end), as they are then, zeros where nothing is: unit_dtype()."""
        import numpy as np

        units = self._rows.read(start, end).copy()
        units[max(0, self._left - start) :] = np.zeros(1, dtype=unit_dtype())
        for first, added in self._added:
            low, high = max(start, first), min(end, first + len(added))
            if low < high:
                units[low - start : high - start] = added[low - first : high - first]
        return units

    def chunks(self, start: int, end: int, size: int = 1 << 16) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units of [start, end) by pieces: (queue offset of the first, units)."""
        for low in range(start, end, size):
            yield low, self.read(low, min(low + size, end))

    def correct_minimum(self, log_min: int) -> int:
        """The least queue offset, after the units before the log's first byte (physical) are passed over."""
        import numpy as np

        if self.minimum >= self.end or not self._files:
            return self.minimum
        last = self._files[-1]
        if last.end > last.first and int(self.read(last.end - 1, last.end)["physical_offset"][0]) < log_min:
            self.minimum = last.end
            return self.minimum
        first = self._files[0]
        intact = self.minimum >= first.first
        start = max(self.minimum, first.first)
        if start >= first.end:
            return self.minimum
        physical = self.read(start, first.end)["physical_offset"].astype(np.int64)
        if not (intact and physical[0] >= log_min):
            at = _bisected(physical, log_min)
            self.minimum = self.minimum if at < 0 else start + at
        return self.minimum

    def _recover(self) -> None:
        """Find its end: after the last unit before the first that is none."""
        import numpy as np

        for file in self._files[max(0, len(self._files) - FILES) :]:
            units = self._rows.read(file.first, file.first + self._units)
            bad = np.flatnonzero((units["physical_offset"] < 0) | (units["size"] <= 0))
            count = int(bad[0]) if len(bad) else len(units)
            if count:
                self.known = int(units["physical_offset"][count - 1]) + int(units["size"][count - 1])
            if count < len(units):
                end = file.first + count
                self._files = [one for one in self._files if one.first <= end]
                file.end = end
                break
        self.kept = self.end

    def _is_next(self, physical: int, size: int, offset: int) -> bool:
        return physical + size > self.known and offset == self.end and offset > 0

    def _put(self, physical: int, size: int, offset: int) -> None:
        if physical + size <= self.known:
            return
        made = not self._files
        if made:
            first = offset // self._units * self._units
            self._files.append(_File(first, first))
        elif self._files[-1].end - self._files[-1].first >= self._units:
            self._files.append(_File(self.end, self.end))
        last = self._files[-1]
        if offset:
            if made:
                self.minimum = offset
                self._fill(last, offset)
            if offset < last.end:
                return
        self._add(physical, size)

    def _fill(self, file: _File, until: int) -> None:
        """The units before the first one of a queue that is not its first."""
        import numpy as np

        units = np.zeros(until - file.first, dtype=unit_dtype())
        units["size"] = PRE_BLANK_SIZE
        if len(units):
            self._added.append((file.first, units))
        file.end = until

    def _add(self, physical: int, size: int) -> None:
        import numpy as np

        self._append(np.array([physical], dtype=np.int64), np.array([size], dtype=np.int32))

    def _append(self, physical: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
        """Append units one after the other, in new files where one is full."""
        import numpy as np

        units = np.zeros(len(physical), dtype=unit_dtype())
        units["physical_offset"], units["size"] = physical, sizes
        self._added.append((self.end, units))
        left = len(units)
        while left:
            last = self._files[-1]
            room = last.first + self._units - last.end
            if not room:
                self._files.append(_File(last.end, last.end))
                continue
            last.end += min(room, left)
            left -= min(room, left)
        self.known = int(physical[-1]) + int(sizes[-1])


class StartedBatchQueue:
    """A batch queue the same way: `known` is where the record of its last unit begins (physical), −1 without one."""

    def __init__(self, queue: TopicQueue, places: list[int]) -> None:
        self.queue = queue
        self._places = places
        self.known = places[-1] if places else -1

    @classmethod
    def of(cls, rows: BatchQueueRows, files: BatchQueueFiles) -> StartedBatchQueue:
        """As it is recovered from its files. Raises StorageError."""
        places: list[int] = []
        first = max(0, len(files.files) - FILES)
        for chunk in rows.chunks(first):
            valid = valid_units(chunk.units)
            count = len(valid) if valid.all() else int(valid.argmin())
            places += chunk.units["physical_offset"][:count].tolist()
            if count < len(valid):
                break
        return cls(files.queue, places)

    def dispatch(self, physical: int) -> None:
        """Append the unit of a record."""
        if physical > self.known:
            self._places.append(physical)
            self.known = physical

    def cut(self, log_end: int) -> None:
        """Remove the units at or after the log end (physical)."""
        self._places = [place for place in self._places if place < log_end]
        self.known = int(self._places[-1]) if self._places else log_end - 1


def _bisected(physical: NDArray[np.int64], log_min: int) -> int:
    """The place that a start's bisection ends at; −1: none. Units need not be in order."""
    low, high = 0, len(physical) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if physical[middle] > log_min:
            high = middle
        elif physical[middle] == log_min:
            low = high = middle
            break
        else:
            low = middle
    return next((at for at in range(low, high + 1) if physical[at] >= log_min), -1)
