"""Records of the log as columns: where each field of each record lies, decoded without an object a record.

`decode_columns` is the plain way, over `engine.format.message.row_at`; engine.log.kernels.get does the same in one
pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.message import StoredMessage, decode, row_at
from engine.format.record import LONG_SIZE, POSITION_BORN_HOST, store_timestamp_position, whole_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

FIELDS = (
    "position",
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp",
    "born_host_at",
    "store_timestamp",
    "store_host_at",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_at",
    "body_length",
    "topic_at",
    "topic_length",
    "properties_at",
    "properties_length",
)


class RecordColumns:
    """n records in one buffer, a column a field: int64[n] each, without a copy of any record.

    Times in ms, sizes in bytes; `…_at` and `position` are positions in `buffer`. Hosts take 8 bytes there, or 20 when
    `sys_flag` says so. The bytes of all are what the log holds: the CRC is not judged.

    Attributes:
        buffer: the bytes that the records lie in: as much of a log file as can be read, or a copy of the records.
        table: int64[21, n], rows in the order of `FIELDS`.
    """

    __slots__ = ("buffer", "table")

    def __init__(self, buffer: memoryview, table: NDArray[np.int64]) -> None:
        self.buffer = buffer
        self.table = table

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def __getattr__(self, name: str) -> NDArray[np.int64]:
        try:
            column: NDArray[np.int64] = self.table[FIELDS.index(name)]
        except ValueError:
            raise AttributeError(name) from None
        return column

    def bytes(self) -> NDArray[np.uint8]:
        """`buffer` as uint8[any], to be indexed by the columns."""
        import numpy as np

        return np.frombuffer(self.buffer, dtype=np.uint8)

    def record(self, i: int) -> memoryview:
        """The bytes of record `i`."""
        return self._part(0, 1, i)

    def body(self, i: int) -> memoryview:
        """The body of record `i`."""
        return self._part(15, 16, i)

    def topic(self, i: int) -> str:
        """The topic of record `i`."""
        return str(self._part(17, 18, i), "utf-8", "replace")

    def properties_raw(self, i: int) -> memoryview:
        """The properties string of record `i`, as stored."""
        return self._part(19, 20, i)

    def message(self, i: int) -> StoredMessage:
        """Record `i` as an object."""
        return decode(self.record(i))

    def _part(self, at: int, length: int, i: int) -> memoryview:
        start = int(self.table[at, i])
        return self.buffer[start : start + int(self.table[length, i])]


def decode_columns(buffer: memoryview, places: Sequence[tuple[int, int]]) -> RecordColumns:
    """The records at some (position, size) of a buffer.

    Raises:
        FormatError: no record is there, as `decode`; `offset` is its position.
    """
    import numpy as np

    rows = [_row(buffer[at : at + size], at) for at, size in places]
    return RecordColumns(buffer, np.array(rows, dtype=np.int64).reshape(-1, len(FIELDS)).T)


def _row(record: memoryview, at: int) -> tuple[int, ...]:
    row = row_at(record)
    (
        size, magic, crc, queue_id, flag, queue_offset, physical, flags, born, _, stored, _, reconsume, prepared, _
    ) = whole_head(row.sys_flag).unpack_from(record)  # fmt: skip
    stored_at = at + store_timestamp_position(flags)
    return (
        at, size, magic, crc, queue_id, flag, queue_offset, physical, flags, born, at + POSITION_BORN_HOST, stored,
        stored_at + LONG_SIZE, reconsume, prepared, at + row.body_position, row.body_length,
        at + row.topic_position, row.topic_length, at + row.properties_position, row.properties_length,
    )  # fmt: skip
