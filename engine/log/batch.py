"""Consecutive sound records of the log, as rows or as a table, whichever they were read as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import StorageError
from engine.format import sysflag
from engine.format.judge import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

_POSITION, _SIZE, _STORED_OFFSET, _SYS_FLAG, _STORE_TIMESTAMP, _BODY, _TOPIC, _PROPERTIES = 0, 1, 4, 5, 6, 7, 9, 11
assert (
    Row._fields.index("stored_offset"),
    Row._fields.index("sys_flag"),
    Row._fields.index("store_timestamp"),
    Row._fields.index("body_position"),
    Row._fields.index("topic_position"),
    Row._fields.index("properties_position"),
) == (_STORED_OFFSET, _SYS_FLAG, _STORE_TIMESTAMP, _BODY, _TOPIC, _PROPERTIES)


class RecordBatch:
    """Consecutive sound records, n ≥ 1. Positions are in `buffer`, sizes in bytes, times in ms.

    Columns where they count (`columns`, `offsets`, `moved`): a batch that was read by the kernels has them at once, and
    makes `rows`, an object a record, only for who asks.

    Attributes:
        base: physical offset of the buffer's first byte.
        table: int64[n, 13], the fields of `Row`, of a batch that was read by the kernels; None of any other.
        lead: bytes before the first record that belong to it: the header of its DLedger entry.
    """

    __slots__ = (
        "_ascends",
        "_buffer",
        "_columns",
        "_in_place",
        "_messages",
        "_newest",
        "_read",
        "_rows",
        "_size",
        "base",
        "lead",
        "table",
    )

    def __init__(
        self,
        base: int,
        buffer: memoryview,
        rows: list[Row] | NDArray[np.int64],
        *,
        lead: int = 0,
        read: Callable[[int, int], memoryview] | None = None,
    ) -> None:
        """`read`: of a physical offset and a length, reads the buffer once more (see `let_go`)."""
        self.base = base
        self.lead = lead
        self._buffer: memoryview | None = buffer
        self._read = read
        self._size = len(buffer)
        self._rows: list[Row] | None = None
        self._in_place = False
        self._columns: NDArray[np.int64] | None = None
        self._messages: int | None = None
        self._newest: int | None = None
        self._ascends: bool | None = None
        self.table: NDArray[np.int64] | None = None
        if isinstance(rows, list):
            self._rows = rows
        else:
            self.table = rows

    @property
    def buffer(self) -> memoryview:
        """Bytes of the log; the records lie in it. Raises StorageError: after `let_go` alone."""
        if self._buffer is None:
            assert self._read is not None
            buffer = self._read(self.base, self._size)
            if len(buffer) < self._size:
                raise StorageError("the log has become shorter while it was read", offset=self.base + len(buffer))
            self._buffer = buffer
        return self._buffer

    def let_go(self) -> None:
        """Hold the bytes no longer, for who has taken of them what is wanted: who asks for them has them read again.

        The next batch is read into the same memory then, which the processor's caches still hold.
        """
        if self._read is not None:
            self._buffer = None

    @property
    def rows(self) -> list[Row]:
        """The records' fields, an object each."""
        if self._rows is None:
            assert self.table is not None
            self._rows = [Row._make(row) for row in self.table.tolist()]
        return self._rows

    def __len__(self) -> int:
        return len(self.rows if self.table is None else self.table)

    @property
    def start(self) -> int:
        """Physical offset of the first record, or of the entry that it is in."""
        return self.offset(0) - self.lead

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return sum(self.last)

    @property
    def first_store_timestamp(self) -> int:
        """storeTimestamp (ms) of the first record."""
        return int(self._row(0)[_STORE_TIMESTAMP])

    @property
    def last_store_timestamp(self) -> int:
        """storeTimestamp (ms) of the last record."""
        return int(self._row(-1)[_STORE_TIMESTAMP])

    @property
    def newest_store_timestamp(self) -> int:
        """The largest storeTimestamp (ms)."""
        if self._newest is not None:
            return self._newest
        if self.table is None:
            return max(row.store_timestamp for row in self.rows)
        return int(self._column(_STORE_TIMESTAMP).max())

    @property
    def ascends(self) -> bool:
        """Whether no record was stored before the one in front of it."""
        if self._ascends is None:
            times = self.store_timestamps()
            self._ascends = not (times[1:] < times[:-1]).any()
        return self._ascends

    @property
    def last(self) -> tuple[int, int]:
        """Physical offset and size (bytes) of the last record."""
        return self.offset(-1), int(self._row(-1)[_SIZE])

    def offset(self, i: int) -> int:
        """Physical offset of record `i`."""
        return self.base + int(self._row(i)[_POSITION])

    def record(self, i: int) -> memoryview:
        """The bytes of record `i`."""
        return self._part(i, _POSITION)

    def body(self, i: int) -> memoryview:
        """The body of record `i`."""
        return self._part(i, _BODY)

    def body_end(self, i: int) -> int:
        """Where the body of record `i` ends, as a position in the record."""
        row = self._row(i)
        return int(row[_BODY]) + int(row[_BODY + 1]) - int(row[_POSITION])

    def store_timestamp(self, i: int) -> int:
        """storeTimestamp (ms) of record `i`."""
        return int(self._row(i)[_STORE_TIMESTAMP])

    def topic(self, i: int) -> bytes:
        """The topic of record `i`, as stored."""
        return bytes(self._part(i, _TOPIC))

    def properties(self, i: int) -> bytes:
        """The properties string of record `i`, as stored."""
        return bytes(self._part(i, _PROPERTIES))

    def columns(self) -> NDArray[np.int64]:
        """All `Row` fields: int64[13, n], in the order of `Row._fields`; each field's values lie side by side."""
        if self._columns is None:
            import numpy as np

            table = self.table
            if table is None:
                table = np.array(self._rows, dtype=np.int64).reshape(len(self), len(Row._fields))
            self._columns = np.ascontiguousarray(table.T)
        return self._columns

    def offsets(self) -> NDArray[np.int64]:
        """Physical offsets of the records: int64[n]."""
        return self._column(_POSITION) + self.base

    def first(self, count: int) -> RecordBatch:
        """The first `count` ≥ 1 records."""
        rows = self.rows[:count] if self.table is None else self.table[:count]
        return RecordBatch(self.base, self.buffer, rows, lead=self.lead, read=self._read)

    def note(self, *, messages: int, newest: int, ascends: bool, in_place: bool) -> None:
        """Somebody has looked at each record: `messages`, `newest_store_timestamp` and `ascends` are these.

        `in_place`: no record's own physicalOffset names another place.
        """
        self._messages, self._newest, self._ascends, self._in_place = messages, newest, ascends, in_place

    def moved(self) -> list[tuple[int, int, int]]:
        """Records whose own physicalOffset names another place: (physical offset, what the record says, size)."""
        if self._in_place:
            return []
        if self.table is None:
            base = self.base
            return [
                (base + row.position, row.stored_offset, row.size)
                for row in self.rows
                if row.stored_offset != base + row.position
            ]
        rows = self.table[self.offsets() != self.stored_offsets()]
        return [(self.base + row[_POSITION], row[_STORED_OFFSET], row[_SIZE]) for row in rows.tolist()]

    def stored_offsets(self) -> NDArray[np.int64]:
        """The physical offsets that they say themselves: int64[n]."""
        return self._column(_STORED_OFFSET)

    def consumable(self) -> NDArray[np.bool_]:
        """Which of them get a unit in a consume queue (`sysflag.is_consumable`): bool[n]."""

        kind = self._column(_SYS_FLAG) & sysflag.TRANSACTION_MASK
        mask: NDArray[np.bool_] = (kind == sysflag.TRANSACTION_NONE) | (kind == sysflag.TRANSACTION_COMMIT)
        return mask

    @property
    def messages(self) -> int:
        """How many of them are messages: what consumers get, and no prepared, rolled back or inert record."""
        return int(self.consumable().sum()) if self._messages is None else self._messages

    def rolled_back(self) -> list[int]:
        """Which of them are rolled back, as places in the batch."""
        if self.table is None:
            kind = sysflag.TRANSACTION_ROLLBACK
            return [i for i, row in enumerate(self.rows) if sysflag.transaction_type(row.sys_flag) == kind]
        import numpy as np

        return np.flatnonzero(
            self._column(_SYS_FLAG) & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_ROLLBACK
        ).tolist()

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of the records: int64[n]."""
        return self._column(_SIZE)

    def store_timestamps(self) -> NDArray[np.int64]:
        """Their storeTimestamp (ms): int64[n]."""
        return self._column(_STORE_TIMESTAMP)

    def _column(self, field: int) -> NDArray[np.int64]:
        """The values of a field, side by side only where all are."""
        if self.table is None or self._columns is not None:
            column: NDArray[np.int64] = self.columns()[field]
            return column
        return self.table[:, field]

    def _row(self, i: int) -> Sequence[Any] | NDArray[np.int64]:
        return self.rows[i] if self.table is None else self.table[i]

    def _part(self, i: int, field: int) -> memoryview:
        row = self._row(i)
        at = int(row[field])
        return self.buffer[at : at + int(row[field + 1])]
