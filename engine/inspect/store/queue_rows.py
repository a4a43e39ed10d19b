"""The rows of one consume queue as they lie on disk: units by queue offset, whatever they hold, read and never written.

A row is 20 bytes at (queue offset × 20); rows that no file holds read as zeros.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.written import written_end
from engine.format.queue_unit import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, decode_many, unit_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.listing import SegmentFile
    from engine.files.raw_file import RawFile
    from engine.inspect.store.survey import QueueFiles

CHUNK = 1 << 17
"""Rows that are looked at in one piece."""

_SHORT = 16 << 10
"""Bytes of a queue whose rows may be held."""

_ROW_FIELDS = [
    ("queue", "i4"),
    ("size", "i4"),
    ("queue_offset", "i8"),
    ("physical_offset", "i8"),
    ("tags_code", "i8"),
    ("store_timestamp", "i8"),
]


def row_dtype() -> np.dtype[np.void]:
    """A unit with the number of its queue, native byte order."""
    import numpy as np

    return np.dtype(_ROW_FIELDS)


def as_rows(number: int, start: int, units: NDArray[np.void]) -> NDArray[np.void]:
    """Units (unit_dtype()) of the queue of this number, from queue offset `start` on, as row_dtype(), stored at 0."""
    import numpy as np

    rows = np.zeros(len(units), dtype=row_dtype())
    rows["queue"] = number
    rows["queue_offset"] = np.arange(start, start + len(units))
    for name in units.dtype.names or ():
        rows[name] = units[name]
    return rows


def as_units(rows: NDArray[np.void]) -> memoryview:
    """The bytes of rows (row_dtype()) as units, one after the other."""
    import numpy as np

    units = np.empty(len(rows), dtype=unit_dtype())
    for name in units.dtype.names or ():
        units[name] = rows[name]
    return memoryview(units.view(np.uint8).data)


@dataclass(slots=True)
class HeldRows:
    """How many bytes of short queues may still be held in memory, so that each of their files is opened once.

    For who knows that nobody writes them meanwhile.
    """

    left: int = 64 << 20


class QueueRows:
    """Read access to one queue's rows. `may_lack_units`: pre-blank rows may stand between others,
    for units that are not there (RocksDB). `held`: what bounds the rows that are held, if any are to be."""

    def __init__(self, disk: Disk, files: QueueFiles, held: HeldRows | None = None) -> None:
        self._held = held
        self._rows = b""  # those before the extent, of a short queue
        self._disk = disk if files.source is None else files.source
        self.files = files.files
        self.queue = files.queue
        self.directory = files.directory
        self.first = self.files[0].offset // UNIT_SIZE if self.files else 0
        self.may_lack_units = files.source is not None
        self._extent: int | None = None

    @property
    def extent(self) -> int:
        """Queue offset after the last row that holds anything but zeros."""
        if self._extent is None:
            self._extent = self._find_extent()
        return self._extent

    def read(self, start: int, end: int) -> NDArray[np.void]:
        """Rows [start, end): unit_dtype()[end − start]."""
        import numpy as np

        if self._held is not None and self.first <= start <= end <= self.extent and self._rows:
            return np.frombuffer(
                self._rows, dtype=unit_dtype(), count=end - start, offset=(start - self.first) * UNIT_SIZE
            )
        parts: list[NDArray[np.void]] = []
        at = start
        for file in self._between(start, end):
            file_start = file.offset // UNIT_SIZE
            low, high = max(start, file_start), min(end, file_start + file.size // UNIT_SIZE)
            if low > at:
                parts.append(np.zeros(low - at, dtype=unit_dtype()))
            parts.append(self._read_file(file, low - file_start, high - file_start))
            at = high
        if at < end:
            parts.append(np.zeros(end - at, dtype=unit_dtype()))
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype=unit_dtype())

    def place_of(self, offset: int) -> tuple[int, int]:
        """Physical offset and size that one row says."""
        place: int
        size: int
        if self._held is not None and self.first <= offset < self.extent and self._rows:
            place, size, _ = UNIT.unpack_from(self._rows, (offset - self.first) * UNIT_SIZE)
        else:
            place, size, _ = self.read(offset, offset + 1)[0].item()
        return place, size

    def message_at(self, offset: int) -> tuple[int, int] | None:
        """The same; None: the row is no unit of a message."""
        place, size = self.place_of(offset)
        real = place >= 0 and size > 0 and not (size == PRE_BLANK_SIZE and place == 0)
        return (place, size) if real else None

    def holds(self, start: int, units: memoryview) -> bool:
        """Whether one file holds just these bytes, 20 a unit, from the queue offset `start` on."""
        low, high = start * UNIT_SIZE, start * UNIT_SIZE + len(units)
        if self._held is not None and self.first <= start and high <= self.extent * UNIT_SIZE and self._rows:
            at = low - self.files[0].offset
            return at >= 0 and self._rows[at : at + len(units)] == bytes(units)
        for file in self.files:
            if file.offset <= low and high <= file.offset + file.size:
                reader = self._disk.open_reader(file.path)
                try:
                    return bytes(reader.read(low - file.offset, len(units))) == bytes(units)
                finally:
                    reader.close()
        return False

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The rows of [start, end) that a file holds, in pieces: (queue offset of the first, rows)."""
        for low, high in self.pieces(start, end):
            yield low, self.read(low, high)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Queue offsets [low, high) of at most CHUNK rows that files hold: a file's name may be a wild one."""
        low = high = start
        for file in self._between(start, end):
            first = max(start, file.offset // UNIT_SIZE)
            if first > high:
                yield from _cut(low, high)
                low = first
            high = min(end, (file.offset + file.size) // UNIT_SIZE)
        yield from _cut(low, high)

    def files_before(self, offset: int) -> list[tuple[str, int, int]]:
        """Files that begin before a queue offset: path, offset in bytes, length in bytes."""
        return [(file.path, file.offset, file.size) for file in self.files if file.offset < offset * UNIT_SIZE]

    def _between(self, start: int, end: int) -> Iterator[SegmentFile]:
        for file in self.files:
            if file.offset < end * UNIT_SIZE and file.offset + file.size > start * UNIT_SIZE:
                yield file

    def _read_file(self, file: SegmentFile, low: int, high: int) -> NDArray[np.void]:
        reader = self._disk.open_reader(file.path)
        try:
            return decode_many(reader.read(low * UNIT_SIZE, (high - low) * UNIT_SIZE))
        finally:
            reader.close()

    def _find_extent(self) -> int:
        for file in reversed(self.files):
            reader = self._disk.open_reader(file.path)
            try:
                last = self._hold(file, reader)
                if last is None:
                    last = written_end(reader, 0, file.size)
            finally:
                reader.close()
            if last:
                return (file.offset + last + UNIT_SIZE - 1) // UNIT_SIZE
        return self.first

    def _hold(self, file: SegmentFile, reader: RawFile) -> int | None:
        """Hold the rows of a short queue; after which byte the file has zeros only, None: it is not short."""
        held = self._held
        if held is None or len(self.files) > 1 or file.offset % UNIT_SIZE:
            return None
        start = reader.next_data(0, file.size)
        if start is None:
            return 0
        end = reader.next_hole(start, file.size)
        if end > _SHORT or reader.next_data(end, file.size) is not None:
            return None
        data = bytes(reader.read(0, end))
        last = len(data.rstrip(b"\0"))
        size = -(-last // UNIT_SIZE) * UNIT_SIZE
        if size <= min(len(data), held.left):  # more than there is where the file ends within a row, or a hole begins
            self._rows = data[:size]
            held.left -= size
        return last


def _cut(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, CHUNK):
        yield at, min(at + CHUNK, end)


def is_real(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which rows are units of messages: valid, and no pre-blank filling. bool[len(rows)]."""
    size = rows["size"]
    offset = rows["physical_offset"]
    filling = (size == PRE_BLANK_SIZE) & (offset == 0)
    real: NDArray[np.bool_] = (offset >= 0) & (size > 0) & ~filling
    return real


def first_at(rows: QueueRows, end: int, physical: int) -> int:
    """Queue offset of the first unit before `end` that points at or after a physical offset; `end` without one.

    By bisection: units are in log order after the pre-blank ones.
    """

    def is_kept(offset: int) -> bool:
        message = rows.message_at(offset)
        return message is not None and message[0] >= physical

    return rows.first + bisect_left(range(rows.first, end), True, key=is_kept)
