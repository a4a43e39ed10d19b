"""Records as Arrow rows, column by column: only the columns that are asked for are made.

Theory: a batch that was read by kernels has its fields as a table, and the bytes of all its records in one buffer. A
column of numbers is a column of the table, or gathered from the heads in one pass (engine.pipeline.rows_kernel); a
column of strings is copied together, part by part, which is how Arrow keeps it. Few hosts write a log: each is made a
string once. What is rare (bytes that are no UTF-8, IPv6 hosts, a property twice) is made the plain way, its column
alone. A batch without a table (a short log, no numba) is made the plain way altogether: engine.pipeline.plain_rows.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from engine.format.compression import inflate
from engine.format.hosts import V4_SIZE, host_size
from engine.format.hosts import decode as decode_host
from engine.format.message import make_msg_id
from engine.format.properties import KEYS, TAGS
from engine.format.record import POSITION_BORN_HOST, RECONSUME_TIMES_BACK
from engine.format.sysflag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from engine.log.scan import MISSING_SEGMENT
from engine.pipeline.plain_rows import damage_row, row
from engine.pipeline.schema import LATEST_MS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from engine.format.hosts import Host
    from engine.log.batch import RecordBatch
    from engine.log.scan import Damage
    from engine.log.source import Segment
    from engine.pipeline.splits import Split

    Numbers = NDArray[np.int64]

_OF_TABLE = {
    "size": 1, "queue_id": 2, "queue_offset": 3, "stored_physical_offset": 4, "sys_flag": 5, "store_timestamp": 6,
    "body_length": 8,
}  # fmt: skip
_OF_HEAD = {"body_crc": 0, "flag": 1, "born_timestamp": 2, "reconsume_times": 5, "prepared_transaction_offset": 6}
_HOSTS = {"born_host": 3, "store_host": 4}
_OF_PROPERTIES = ("tags", "keys", "properties")


class Rows:
    """Makes the rows of one split.

    Args:
        split: where the records lie.
        columns: names, in the order of the rows.
        decompress: whether compressed bodies are given as they were sent.
    """

    def __init__(self, split: Split, columns: Sequence[str], *, decompress: bool = False) -> None:
        self._split = split
        self._columns = tuple(columns)
        self._decompress = decompress
        self._schema = arrow_schema(self._columns)

    def of(self, batch: RecordBatch, chosen: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        """The rows of a batch's records, or of those that are `chosen` (bool[n])."""
        import numpy as np
        import pyarrow as pa

        if batch.table is None or find_spec("numba") is None:
            places = range(len(batch)) if chosen is None else np.flatnonzero(chosen).tolist()
            rows = [row(self._split, batch, i, decompress=self._decompress) for i in places]
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        table = batch.table if chosen is None else batch.table[chosen]
        made = _Columns(self._split, batch, table, set(self._columns), self._decompress)
        return pa.RecordBatch.from_arrays([made.column(name) for name in self._columns], schema=self._schema)

    def of_damage(self, event: Damage) -> pa.RecordBatch:
        """The row of a damaged range."""
        return self._odd(os.path.basename(self._split.segment.path), event.offset, event.length, event.reason.value)

    def of_gap(self, missing: Segment) -> pa.RecordBatch:
        """The row of files that are missing, as one segment."""
        return self._odd(missing.path, missing.offset, missing.size, MISSING_SEGMENT)

    def _odd(self, file: str, offset: int, size: int, why: str) -> pa.RecordBatch:
        import pyarrow as pa

        row = damage_row(self._split.store.name, file, offset, size, why)
        return pa.RecordBatch.from_pylist([row], schema=self._schema)


class _Columns:
    """The columns of one batch, by name."""

    def __init__(
        self, split: Split, batch: RecordBatch, table: NDArray[np.int64], wanted: set[str], decompress: bool
    ) -> None:
        import numpy as np

        from engine.pipeline import rows_kernel

        self._split = split
        self._base = batch.base
        self._buffer = batch.buffer
        self._table = table
        self._decompress = decompress
        self._kernel = rows_kernel
        self._data = np.frombuffer(batch.buffer, dtype=np.uint8)
        self._data.flags.writeable = False  # one kind of array: one kernel
        self._v4 = True
        self._replaced = False
        if wanted & (_OF_HEAD.keys() | _HOSTS.keys() | {"born_time", "msg_id"}):
            self._heads = np.empty((rows_kernel.HEADS, len(table)), dtype=np.int64)
            self._v4 = rows_kernel.heads(self._data, table, self._heads)
        self._parts: tuple[Numbers, Numbers] | None = None
        if wanted & set(_OF_PROPERTIES):
            self._parts = self._find_properties()

    def column(self, name: str) -> pa.Array:
        """One column."""
        import pyarrow as pa

        if name in _OF_TABLE:
            return _numbers(name, self._table[:, _OF_TABLE[name]])
        if name in _OF_HEAD:
            return _numbers(name, self._heads[_OF_HEAD[name]])
        if name in _HOSTS:
            return self._hosts(name)
        if name in _OF_PROPERTIES:
            return self._of_properties(name)
        makers: dict[str, Callable[[], pa.Array]] = {
            "store": lambda: self._constant(self._split.store.name),
            "file": lambda: self._constant(os.path.basename(self._split.segment.path)),
            "physical_offset": lambda: _numbers("physical_offset", self._table[:, 0] + self._base),
            "topic": lambda: self._text(*self._places(9)),
            "body": self._bodies,
            "crc_ok": self._crc_ok,
            "store_time": lambda: _times(self._table[:, 6]),
            "born_time": lambda: _times(self._heads[_OF_HEAD["born_timestamp"]]),
            "msg_id": self._msg_ids,
            "damage": lambda: pa.nulls(len(self._table), pa.string()),
        }
        return makers[name]()

    def _constant(self, value: str) -> pa.Array:
        import pyarrow as pa

        return pa.repeat(pa.scalar(value, pa.string()), len(self._table))

    def _crc_ok(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        flags = np.empty(len(self._table), dtype=np.bool_)
        self._kernel.bodies_ok(self._data, self._table, flags)
        return pa.array(flags)

    def _bodies(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        starts, lengths = self._places(7)
        if self._decompress and (self._table[:, 5] & COMPRESSED).any():
            return pa.array([self._plain_body(i) for i in range(len(starts))], type=pa.binary())
        out = np.empty(int(lengths.sum()), dtype=np.uint8)
        self._kernel.copy_bytes(self._data, starts, lengths, out)
        return pa.Array.from_buffers(pa.binary(), len(starts), [None, _ends(lengths), pa.py_buffer(out)])

    def _plain_body(self, i: int) -> bytes:
        at, length, flags = (int(self._table[i, k]) for k in (7, 8, 5))
        body = bytes(self._buffer[at : at + length])
        plain = inflate(body, flags)
        return body if plain is None else plain

    def _places(self, field: int) -> tuple[Numbers, Numbers]:
        """Position and length of a part of each record."""
        return _two(self._table, field)

    def _text(self, starts: Numbers, lengths: Numbers) -> pa.Array:
        """Strings at some places of the buffer; null where the length is negative."""
        import numpy as np
        import pyarrow as pa

        missing = lengths < 0
        kept = np.maximum(lengths, 0)
        out = np.empty(int(kept.sum()), dtype=np.uint8)
        ascii_only = self._kernel.copy(self._data, starts, kept, out)
        valid, nulls = None, 0
        if missing.any():
            valid, nulls = pa.py_buffer(np.packbits(~missing, bitorder="little")), int(missing.sum())
        column = pa.Array.from_buffers(pa.string(), len(starts), [valid, _ends(kept), pa.py_buffer(out)], nulls)
        if not ascii_only:
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                self._replaced = True
                data = self._buffer
                places = zip(starts.tolist(), lengths.tolist(), strict=True)
                texts = [None if n < 0 else str(data[at : at + n], "utf-8", "replace") for at, n in places]
                return pa.array(texts, type=pa.string())
        return column

    # --- hosts ------------------------------------------------------------------------------------------------------

    def _hosts(self, name: str) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        if not self._v4:
            return pa.array([str(self._host_of(i, name)) for i in range(len(self._table))], type=pa.string())
        packed = self._heads[_HOSTS[name]]
        first = packed[:1]
        if (packed == first).all():
            return self._constant(_v4_host(int(first[0]))) if len(first) else pa.array([], type=pa.string())
        different, places = np.unique(packed, return_inverse=True)
        return pa.array([_v4_host(one) for one in different.tolist()], type=pa.string()).take(pa.array(places))

    def _host_of(self, i: int, name: str) -> Host:
        at, flags, body_at = (int(self._table[i, k]) for k in (0, 5, 7))
        if name == "born_host":
            return decode_host(self._buffer, at + POSITION_BORN_HOST, bool(flags & BORN_HOST_V6))
        is_v6 = bool(flags & STORE_HOST_V6)
        return decode_host(self._buffer, body_at - RECONSUME_TIMES_BACK - host_size(is_v6), is_v6)

    def _msg_ids(self) -> pa.Array:
        """Source: MessageDecoder#createMessageId."""
        import numpy as np
        import pyarrow as pa

        count = len(self._table)
        if not self._v4:
            made = (
                make_msg_id(self._host_of(i, "store_host"), stored)
                for i, stored in enumerate(self._table[:, 4].tolist())
            )
            return pa.array(list(made), type=pa.string())
        raw = np.empty((count, 2), dtype=">i8")
        raw[:, 0], raw[:, 1] = self._heads[_HOSTS["store_host"]], self._table[:, 4]
        text = np.frombuffer(raw.tobytes().hex().upper().encode(), dtype=np.uint8)
        lengths = np.full(count, 4 * V4_SIZE, dtype=np.int64)
        return pa.Array.from_buffers(pa.string(), count, [None, _ends(lengths), pa.py_buffer(text)])

    # --- properties -------------------------------------------------------------------------------------------------

    def _find_properties(self) -> tuple[Numbers, Numbers] | None:
        """How many each record has, and where all of them lie; None when they are for the plain way."""
        import numpy as np

        starts, lengths = self._places(11)
        counts = np.empty(len(starts), dtype=np.int64)
        room = 8 * len(starts)
        while True:
            parts = np.empty((room, 4), dtype=np.int64)
            total = self._kernel.properties(self._data, starts, lengths, counts, parts)
            if total != -2:
                break
            room *= 4
        return None if total < 0 else (counts, parts[:total])

    def _of_properties(self, name: str) -> pa.Array:
        import pyarrow as pa

        if self._parts is None:
            return self._plain_properties(name)
        counts, parts = self._parts
        if name == "tags":
            return self._text(*self._values(TAGS))
        if name == "keys":
            return self._words(*self._values(KEYS))
        names, values = self._text(*_two(parts, 0)), self._text(*_two(parts, 2))
        if self._replaced:  # two names may have become one
            return self._plain_properties(name)
        ends = pa.Array.from_buffers(pa.int32(), len(counts) + 1, [None, _ends(counts)])
        return pa.MapArray.from_arrays(ends, names, values)

    def _plain_properties(self, name: str) -> pa.Array:
        import pyarrow as pa

        from engine.format.properties import key_words, parse

        parsed = [parse(str(self._buffer[at : at + n], "utf-8", "replace")) for at, n in self._table[:, 11:13].tolist()]
        if name == "tags":
            return pa.array([one.get(TAGS) for one in parsed], type=pa.string())
        if name == "keys":
            return pa.array([key_words(one.get(KEYS)) for one in parsed], type=pa.list_(pa.string()))
        return pa.array([list(one.items()) for one in parsed], type=pa.map_(pa.string(), pa.string()))

    def _values(self, name: str) -> tuple[Numbers, Numbers]:
        import numpy as np

        assert self._parts is not None
        counts, parts = self._parts
        starts, lengths = np.empty(len(counts), dtype=np.int64), np.empty(len(counts), dtype=np.int64)
        wanted = np.frombuffer(name.encode(), dtype=np.uint8)
        self._kernel.values_of(self._data, counts, parts, wanted, starts, lengths)
        return starts, lengths

    def _words(self, starts: Numbers, lengths: Numbers) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        counts = np.empty(len(starts), dtype=np.int64)
        most = int(np.maximum(lengths + 1, 0).sum()) // 2 + len(starts)
        word_starts, word_lengths = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        total = self._kernel.words(self._data, starts, lengths, counts, word_starts, word_lengths)
        texts = self._text(word_starts[:total], word_lengths[:total])
        ends = pa.Array.from_buffers(pa.int32(), len(counts) + 1, [None, _ends(counts)])
        return pa.ListArray.from_arrays(ends, texts)


def _two(table: Numbers, field: int) -> tuple[Numbers, Numbers]:
    """Two columns side by side, each in one piece: kernels know one kind of array."""
    import numpy as np

    return np.ascontiguousarray(table[:, field]), np.ascontiguousarray(table[:, field + 1])


def _ends(lengths: Numbers) -> pa.Buffer:
    """Where each of some parts ends, as Arrow has it: int32[n + 1] from 0 on."""
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.py_buffer(ends)


def _times(stamps: Numbers) -> pa.Array:
    """Timestamps of ms since 1970; null where Spark has no such time."""
    import pyarrow as pa

    none = (stamps < 0) | (stamps > LATEST_MS)
    micros = pa.array(stamps.clip(0, LATEST_MS) * 1000, mask=none, type=pa.int64())
    return micros.view(pa.timestamp("us", tz="UTC"))


def _numbers(name: str, values: Numbers) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    from engine.pipeline.schema import COLUMNS

    return pa.array(np.ascontiguousarray(values, dtype=np.int32 if COLUMNS[name] == "int" else np.int64))


@lru_cache(maxsize=4096)
def _v4_host(packed: int) -> str:
    return str(decode_host(packed.to_bytes(V4_SIZE, "big", signed=True), 0, False))
