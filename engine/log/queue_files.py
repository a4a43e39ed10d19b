"""The units of a consume queue in their files: read by queue offset, written at the end. The rules are ConsumeQueue's.

Theory (Apache ConsumeQueue): unit n lies at byte n × 20 of a queue of mapped files, so it is found by division; a
file's name is the byte of its first unit. The end is kept here as a queue offset, and moves after the bytes are in
place: a reader below it sees whole units. One writer, many readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from engine.errors import InvalidArgument
from engine.files.queue import MappedFileQueue
from engine.format import names, queue_unit
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE, QueueUnit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.mapped_file import MappedFile
    from engine.files.open_files import OpenFiles
    from engine.files.selected import SelectedBuffer
    from engine.log.derive import TopicQueue

_MANY = 1 << 16
"""Bytes from which on they are appended by call."""
_AT_ONCE = 65536
"""Units that are written at a time where one is repeated."""

ALLOCATE_STEP = 64 * 1024
"""Bytes of blocks that a queue's file takes at a time: a store has thousands of queues with a few units each."""


class QueueFileChain:
    """See the module. Offsets are queue offsets.

    Attributes:
        mapped: the files.
        end: offset after the last unit.
        per_file: units in a file.
    """

    __slots__ = ("end", "mapped", "per_file")

    def __init__(
        self, disk: Disk, base_dir: str, queue: TopicQueue, file_size: int, open_files: OpenFiles | None = None
    ) -> None:
        if file_size < UNIT_SIZE or file_size % UNIT_SIZE:
            raise InvalidArgument(
                f"consume queue file size {file_size} is not a positive multiple of {UNIT_SIZE}, the size of a unit"
            )
        directory = names.queue_directory(base_dir, queue.topic, queue.queue_id)
        self.mapped = MappedFileQueue(
            disk, directory, file_size, allocate_step=ALLOCATE_STEP, single_pages=True, open_files=open_files
        )
        self.per_file = file_size // UNIT_SIZE
        self.end = 0

    @property
    def is_empty(self) -> bool:
        """Whether no unit is there: no file, or only one that a truncation has emptied."""
        return not 0 <= self.mapped.min_offset < self.end * UNIT_SIZE

    @property
    def start(self) -> int:
        """Offset of the first file's first unit, 0 without files."""
        return max(0, self.mapped.min_offset) // UNIT_SIZE

    # --- reading ----------------------------------------------------------------------------------------------------

    def select(self, offset: int, count: int | None = None, *, most: int | None = None) -> SelectedBuffer | None:
        """Hold the units from `offset` on: `count`, which must all be there; or all to the readable end of the file.

        Of the latter, `most` at most: without a map they are read.
        """
        position = offset * UNIT_SIZE
        file = self.mapped.find_by_offset(position)
        if file is None:
            return None
        start = position - file.file_from_offset
        if most is not None:
            left = file.read_position - start
            return file.select(start, min(left, most * UNIT_SIZE)) if left > 0 else None
        return file.select(start, None if count is None else count * UNIT_SIZE)

    def get(self, offset: int) -> QueueUnit | None:
        """One unit; None when it is not there."""
        selected = self.select(offset, 1)
        if selected is None:
            return None
        with selected:
            return queue_unit.decode(selected.view)

    def read(self, offset: int, count: int) -> NDArray[np.void]:
        """A copy of up to `count` units, fewer at the end of a file or of the queue: unit_dtype()[n]."""
        import numpy as np

        selected = self.select(offset, most=count) if count > 0 else None
        if selected is None:
            return np.empty(0, dtype=queue_unit.unit_dtype())
        with selected:
            return queue_unit.decode_many(selected.view[: count * UNIT_SIZE]).copy()

    def runs(self, start: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units from `start` to the end, (offset of the first, units) a file; missing files are left out."""
        offset = start
        while offset < self.end:
            units = self.read(offset, self.end - offset)
            if len(units):
                yield offset, units
            offset = offset + len(units) if len(units) else self.next_file(offset)

    def next_file(self, offset: int) -> int:
        """First offset of the file after the one that `offset` lies in."""
        return offset + self.per_file - offset % self.per_file

    # --- writing ----------------------------------------------------------------------------------------------------

    def begin(self, offset: int) -> None:
        """Give an empty queue the file that `offset` lies in, pre-blank up to it. Source: ConsumeQueue#fillPreBlank."""
        start = offset - offset % self.per_file
        for file in reversed(self.mapped.files):
            if file.file_from_offset != start * UNIT_SIZE:
                self.mapped.delete_last()
        self.end = start
        self.end += self._last_file().wrote_position // UNIT_SIZE
        self.repeat(PRE_BLANK, offset - self.end)

    def has_room(self, units: int) -> bool:
        """Whether so many units go into the last file, which is mapped and has the blocks for them."""
        last = self.mapped.last()
        return last is not None and last.has_room(units * UNIT_SIZE)

    def put(self, unit: QueueUnit) -> None:
        """Append one unit. Raises DiskFull, StorageError."""
        self._last_file().append(unit.encode())
        self.end += 1

    def repeat(self, unit: QueueUnit, count: int) -> None:
        """Append one unit `count` times."""
        encoded = unit.encode()
        while count > 0:
            file = self._last_file()
            many = min(count, _AT_ONCE, self._room(file))
            file.append(encoded * many)
            self.end += many
            count -= many

    def write(self, records: NDArray[np.void]) -> None:
        """Append an array of unit_dtype(); one copy a file. When it fails, `end` tells how far it came."""
        import numpy as np

        data = memoryview(cast("bytes", np.ascontiguousarray(records).view(np.uint8)))
        while data:
            file = self._last_file()
            part = data[: self._room(file) * UNIT_SIZE]
            if len(part) >= _MANY:
                file.append_many(part)
            else:
                file.append(part)
            self.end += len(part) // UNIT_SIZE
            data = data[len(part) :]

    def _last_file(self) -> MappedFile:
        return cast("MappedFile", self.mapped.last(self.end * UNIT_SIZE, create=True))

    def _room(self, file: MappedFile) -> int:
        return self.per_file - file.wrote_position // UNIT_SIZE
