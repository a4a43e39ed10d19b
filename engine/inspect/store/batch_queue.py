"""Batch consume queues of RocketMQ 5 as they lie on disk: a unit a record, by queue offset or time, never written.

Unit n of a queue lies at byte n × 46 of its files; where its messages are in the queue, only its base offset tells.
So a queue offset is looked for by the first units of files (bisection), then in the units of one file. A file that was
cut is read as far as it goes, whatever size the setting says. Bytes that are no unit, before the queue's last unit, are
damage; what follows that unit is the place of units to come.

Source: BatchConsumeQueue#getBatchMsgIndexBuffer, #recover, #correctMinOffset (5.3.3).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.written import written_end
from engine.format import names
from engine.format.batch_unit import BATCH_UNIT_SIZE, BatchUnit, decode_many, valid_units
from engine.format.numbers import LONG_MAX
from engine.format.quantities import counted
from engine.inspect.store.odd import SIZE, OddFile
from engine.inspect.store.survey import queue_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue

_CHUNK = 1 << 16
"""Units that are read at once: 3 MB."""
_NO_UNIT = "not a file of units: its name is not the place of one"
_INSIDE = "the file ends inside a unit"


@dataclass(frozen=True, slots=True)
class BatchQueueFile:
    """A file of units: number of its first unit, and of those after its last whole one."""

    path: str
    first: int
    end: int
    size: int

    def offset_of(self, unit: int) -> int:
        """Where a unit lies in the file, in bytes."""
        return (unit - self.first) * BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchQueueFiles:
    """One batch consume queue: its files by name, and what is among them that is none."""

    queue: TopicQueue
    directory: str
    files: tuple[BatchQueueFile, ...]
    odd: tuple[OddFile, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """Units in a row: of which file, the number of the first, and as an array (`batch_unit_dtype`)."""

    file: BatchQueueFile
    first: int
    units: NDArray[np.void]

    def place(self, index: int) -> tuple[str, int]:
        """File and position in it (bytes) of one."""
        return self.file.path, self.file.offset_of(self.first + index)


@dataclass(frozen=True, slots=True)
class BadUnits:
    """Bytes of a queue that are no units: where (file, position and length in bytes), why, and the code of check."""

    path: str
    offset: int
    length: int
    why: str
    code: str = "unit-invalid"

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.why} ({self.length} bytes)"


def batch_queues(disk: Disk, files: StoreFiles) -> tuple[tuple[BatchQueueFiles, ...], tuple[OddFile, ...]]:
    """The batch queues of a store by topic and id, and what is odd among their directories. Raises StorageError."""
    root = os.path.join(files.root, names.BATCHCONSUMEQUEUE)
    if not files.newer.batch_topics:
        return (), ()
    directories, odd = queue_directories(disk, root)
    return tuple(_listed(disk, queue, directory) for queue, directory in directories), tuple(odd)


def batch_queue(disk: Disk, files: StoreFiles, queue: TopicQueue) -> BatchQueueFiles | None:
    """One of them; None: it has no directory. Raises StorageError."""
    if queue.topic not in files.newer.batch_topics:
        return None
    directory = names.queue_directory(os.path.join(files.root, names.BATCHCONSUMEQUEUE), queue.topic, queue.queue_id)
    return _listed(disk, queue, directory) if disk.is_dir(directory) else None


def _listed(disk: Disk, queue: TopicQueue, directory: str) -> BatchQueueFiles:
    files: list[BatchQueueFile] = []
    odd: list[OddFile] = []
    for entry in sorted(disk.scandir(directory), key=lambda one: one.name):
        offset = names.segment_offset(entry.name)
        if not entry.is_file or offset is None or offset % BATCH_UNIT_SIZE:
            odd.append(OddFile(entry.path, entry.size, _NO_UNIT, movable=False, code=SIZE))
            continue
        first = offset // BATCH_UNIT_SIZE
        files.append(BatchQueueFile(entry.path, first, first + entry.size // BATCH_UNIT_SIZE, entry.size))
    return BatchQueueFiles(queue, directory, tuple(files), tuple(odd))


class BatchQueueRows:
    """Read access to one queue's units.

    Attributes:
        files: its files, by place.
        min_offset, max_offset: queue offsets of its first message that the log still has, and after its last one.
        last: number of the last unit; −1 without any.
        max_physical_offset, max_timestamp: of the last unit: where its record lies, and when that was stored (ms).
    """

    def __init__(self, disk: Disk, queue: BatchQueueFiles, log_min: int) -> None:
        """Look for the ends. `log_min`: physical offset of the log's first byte. Raises StorageError."""
        self._disk = disk
        self.queue = queue.queue
        self.directory = queue.directory
        self.files = queue.files
        self._odd = queue.odd
        self.last, unit = self._find_last()
        self.max_offset = unit.end_offset
        self.max_physical_offset, self.max_timestamp = unit.physical_offset, unit.store_timestamp
        self._log_min = log_min
        self.min_offset = self._find_first()

    def chunks(self, start: int = 0) -> Iterator[BatchChunk]:
        """The units from the file of number `start` on up to the last one, in the order of their places."""
        for file in self.files[start:]:
            yield from self._chunks_of(file, self.last + 1)

    def chunks_of(self, number: int) -> Iterator[BatchChunk]:
        """The units of the file of that number, up to the last one."""
        yield from self._chunks_of(self.files[number], self.last + 1)

    def at_offset(self, offset: int) -> int:
        """Number of the file whose units are to be read for a queue offset and what follows it.

        The first one where a damaged unit may have led astray: none of the file found has the offset.
        """
        offset = min(offset, LONG_MAX)
        start = self._last_file(lambda chunk, valid: int(chunk.units["base_offset"][valid]) <= offset)
        for chunk in self._chunks_of(self.files[start], self.last + 1) if start else ():
            base = chunk.units["base_offset"].astype("i8")
            if (valid_units(chunk.units) & (base <= offset) & (offset - base < chunk.units["batch_size"])).any():
                return start
        return 0

    def at_time(self, time: int) -> int:
        """Queue offset of the first unit stored at `time` (ms) or later; the maximum without one."""
        import numpy as np

        start = self._last_file(lambda chunk, valid: int(chunk.units["store_timestamp"][valid]) < time)
        for chunk in self.chunks(start):
            late = valid_units(chunk.units) & (chunk.units["store_timestamp"] >= time)
            late &= chunk.units["physical_offset"] >= self._log_min
            if late.any():
                return int(chunk.units["base_offset"][np.flatnonzero(late)[0]])
        return self.max_offset

    def bad(self) -> Iterator[BadUnits]:
        """What is damaged: bytes that are no units, before the last unit; files that are missing, cut or none."""
        for odd in self._odd:
            yield BadUnits(odd.path, 0, odd.size, odd.why, odd.code)
        for number, file in enumerate(self.files):
            if number and file.first != self.files[number - 1].end:
                before = self.files[number - 1]
                missing = (file.first - before.end) * BATCH_UNIT_SIZE
                why = "units are missing after it" if missing > 0 else "the next file begins before its end"
                yield BadUnits(before.path, before.size, abs(missing), why, "queue-gap")
            if file.size % BATCH_UNIT_SIZE:
                whole = file.size - file.size % BATCH_UNIT_SIZE
                yield BadUnits(file.path, whole, file.size % BATCH_UNIT_SIZE, _INSIDE, SIZE)
        for chunk in self.chunks():
            yield from bad_runs(chunk)

    def _last_file(self, is_before: Callable[[BatchChunk, int], bool]) -> int:
        """The last file whose first valid unit is before what is looked for; 0 without one: by bisection."""
        import numpy as np

        def follows(number: int) -> bool:
            for chunk in self._chunks_of(self.files[number], self.last + 1):
                valid = np.flatnonzero(valid_units(chunk.units))
                if len(valid):
                    return not is_before(chunk, int(valid[0]))
            return True

        return max(0, bisect_right(range(len(self.files)), False, key=follows) - 1)

    def _find_last(self) -> tuple[int, BatchUnit]:
        """Number of the last valid unit, and the unit."""
        import numpy as np

        for file in reversed(self.files):
            last = None
            for chunk in self._chunks_of(file, file.first + self._written(file)):
                valid = np.flatnonzero(valid_units(chunk.units))
                if len(valid):
                    last = chunk.first + int(valid[-1]), BatchUnit(*chunk.units[int(valid[-1])].tolist())
            if last is not None:
                return last
        return -1, BatchUnit(-1, 0, 0, 0, 0, 0)

    def _find_first(self) -> int:
        import numpy as np

        for chunk in self.chunks():
            kept = valid_units(chunk.units) & (chunk.units["physical_offset"] >= self._log_min)
            if kept.any():
                return int(chunk.units["base_offset"][np.flatnonzero(kept)[0]])
        return self.max_offset

    def _written(self, file: BatchQueueFile) -> int:
        """Units of a file up to its last byte that is not zero: a file that a broker makes is zeros at first."""
        reader = self._disk.open_reader(file.path)
        try:
            return -(-written_end(reader, 0, file.size) // BATCH_UNIT_SIZE)
        finally:
            reader.close()

    def _chunks_of(self, file: BatchQueueFile, end: int) -> Iterator[BatchChunk]:
        high = min(file.end, end)
        if high <= file.first:
            return
        reader = self._disk.open_reader(file.path)
        try:
            for first in range(file.first, high, _CHUNK):
                many = min(_CHUNK, high - first) * BATCH_UNIT_SIZE
                yield BatchChunk(file, first, decode_many(reader.read(file.offset_of(first), many)))
        finally:
            reader.close()


def bad_runs(chunk: BatchChunk) -> Iterator[BadUnits]:
    """Runs of bytes among the units of a chunk that are none."""
    import numpy as np

    wrong = np.flatnonzero(~valid_units(chunk.units))
    for run in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1):
        if len(run):
            path, offset = chunk.place(int(run[0]))
            yield BadUnits(path, offset, len(run) * BATCH_UNIT_SIZE, counted(len(run), "invalid unit"))
