"""The records of a batch as kernels: encoded in one pass outside of the append lock, copied and patched in another in it.

The plain way is `engine.log.prepare_batch.encode_plain`; tests hold the two equal, and both equal to
`engine.format.message.encode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.message import POSITION_QUEUE_OFFSET
from engine.log.crc_kernel import crc32
from engine.log.jit import compiled
from engine.log.unaligned import copy, put32, put64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.columns import MessageColumns
    from engine.format.template import RecordTemplate

_POSITION_CRC = 8
_POSITION_FLAG = 16
_SEPARATOR = 2


def measure(columns: MessageColumns, fixed_size: int, common: int) -> tuple[NDArray[np.int64], int, int]:
    """Where each record begins, int64[n + 1] (the last: behind all); bytes of the longest properties; what is wrong.

    Args:
        columns: the messages.
        fixed_size: bytes of a record beside body and properties.
        common: bytes of the properties that all have.

    Returns:
        As above; the last is the number of a message outside of its buffers, −1 when there is none.
    """
    starts = np.zeros(len(columns) + 1, dtype=np.int64)
    bodies, *places, _ = _arrays(columns)
    longest, wrong = _measure(bodies.size, *places, fixed_size, common, starts)
    return starts, longest, wrong


def encode(
    columns: MessageColumns,
    template: RecordTemplate,
    born_timestamp: int,
    common: bytes,
    starts: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """The records, as `measure` has measured them, one behind another: uint8[starts[-1]]."""
    out = np.empty(int(starts[-1]), dtype=np.uint8)
    head = template.head(0, 0, 0, 0, born_timestamp)
    texts = np.frombuffer(head + template.topic + common, dtype=np.uint8)
    _encode(*_arrays(columns), texts, len(head), len(template.topic), starts, out)
    return out


def place(
    target: memoryview,
    records: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stored_at: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> None:
    """Copy the records to `target` (of their size) and patch them there, as `message.patch` does; offsets ascend."""
    room = np.frombuffer(target, dtype=np.uint8)
    _place(room, records, starts, stored_at, queue_offset, physical_offset, store_timestamp)


def _arrays(columns: MessageColumns) -> list[NDArray[Any]]:
    """The columns, each of one kind of array, so that there is one kernel."""
    found = []
    for array, kind in (
        (columns.bodies, np.uint8),
        (columns.body_at, np.int64),
        (columns.body_length, np.int64),
        (columns.properties, np.uint8),
        (columns.properties_at, np.int64),
        (columns.properties_length, np.int64),
        (columns.flag, np.int32),
    ):
        view = np.ascontiguousarray(array, dtype=kind).view()
        view.flags.writeable = False
        found.append(view)
    return found


@compiled
def _joint(properties: Any, at: int, length: int, common: int) -> int:
    """Bytes of the separator between a message's own properties and those that all have."""
    return 1 if length and common and properties[at + length - 1] != _SEPARATOR else 0


@compiled
def _measure(
    bodies: int, body_at: Any, body_length: Any, properties: Any, properties_at: Any, properties_length: Any,
    fixed_size: int, common: int, starts: Any,
) -> tuple[int, int]:  # fmt: skip
    longest = 0
    for i in range(len(body_at)):
        at, length = properties_at[i], properties_length[i]
        body, size = body_at[i], body_length[i]
        if body < 0 or size < 0 or body > bodies - size:
            return longest, i
        if at < 0 or length < 0 or at > len(properties) - length:
            return longest, i
        own = length + _joint(properties, at, length, common) + common
        longest = max(longest, own)
        starts[i + 1] = starts[i] + fixed_size + size + own
    return longest, -1


@compiled
def _encode(
    bodies: Any, body_at: Any, body_length: Any, properties: Any, properties_at: Any, properties_length: Any,
    flag: Any, texts: Any, head: int, topic: int, starts: Any, out: Any,
) -> None:  # fmt: skip
    common = len(texts) - head - topic
    for i in range(len(body_at)):
        start = starts[i]
        at = start + head
        size = body_length[i]
        copy(out, start, texts, 0, head)
        copy(out, at, bodies, body_at[i], size)
        put32(out, start, starts[i + 1] - start)
        put32(out, start + _POSITION_CRC, np.int64(crc32(bodies, body_at[i], body_at[i] + size)) & 0x7FFFFFFF)
        put32(out, start + _POSITION_FLAG, np.int64(flag[i]))
        put32(out, at - 4, size)
        at += size
        copy(out, at, texts, head, topic)
        at += topic
        length = properties_length[i]
        joint = _joint(properties, properties_at[i], length, common)
        own = length + joint + common
        out[at] = own >> 8
        out[at + 1] = own & 0xFF
        at += 2
        copy(out, at, properties, properties_at[i], length)
        at += length
        if joint:
            out[at] = _SEPARATOR
            at += 1
        copy(out, at, texts, head + topic, common)


@compiled
def _place(
    room: Any, records: Any, starts: Any, stored_at: int, queue_offset: int, physical_offset: int, store_timestamp: int
) -> None:
    copy(room, 0, records, 0, starts[-1])
    for i in range(len(starts) - 1):
        start = starts[i]
        put64(room, start + POSITION_QUEUE_OFFSET, queue_offset + i)
        put64(room, start + POSITION_QUEUE_OFFSET + 8, physical_offset + start)
        put64(room, start + stored_at, store_timestamp)
