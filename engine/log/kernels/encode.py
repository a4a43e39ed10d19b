"""The records of a batch as kernels: one pass encodes them outside of the append lock, another places them in it.

The plain way is `engine.log.prepare_batch.encode_plain`; tests hold the two equal, and both equal to
`engine.format.message.encode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.format.record import (
    BODY_LENGTH_BACK,
    POSITION_BODY_CRC,
    POSITION_FLAG,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    POSITION_TOTAL_SIZE,
    PROPERTIES_LENGTH_SIZE,
)
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import copy, put32, put64
from engine.log.kernels.jit import compiled
from engine.log.kernels.property_crc import seal_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.columns import MessageColumns
    from engine.format.template import RecordTemplate

_SEPARATOR = 2


class Arrays(NamedTuple):
    """`MessageColumns`, each of one kind of array, so that there is one kernel."""

    bodies: NDArray[np.uint8]
    body_at: NDArray[np.int64]
    body_length: NDArray[np.int64]
    properties: NDArray[np.uint8]
    properties_at: NDArray[np.int64]
    properties_length: NDArray[np.int64]
    flag: NDArray[np.int32]


def arrays(columns: MessageColumns) -> Arrays:
    """The columns as the kernels take them."""
    return Arrays(
        _plain(columns.bodies, np.uint8),
        _plain(columns.body_at, np.int64),
        _plain(columns.body_length, np.int64),
        _plain(columns.properties, np.uint8),
        _plain(columns.properties_at, np.int64),
        _plain(columns.properties_length, np.int64),
        _plain(columns.flag, np.int32),
    )


def _plain(array: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


def measure(columns: Arrays, template: RecordTemplate, common: int) -> tuple[NDArray[np.int64], int, int]:
    """Where each record begins, int64[n + 1] (the last: after all); bytes of the longest properties; what is wrong.

    Args:
        columns: the messages.
        template: what all records have in common.
        common: bytes of the properties that all have.

    Returns:
        As above; the last is the number of a message outside of its buffers, −1 when there is none.
    """
    starts = np.zeros(len(columns.body_at) + 1, dtype=np.int64)
    longest, wrong = _measure(columns, template.fixed_size, common, template.reserved, starts)
    return starts, longest, wrong


def encode(
    columns: Arrays,
    template: RecordTemplate,
    born_timestamp: int,
    common: bytes,
    starts: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """The records, as `measure` has measured them, one after another: uint8[starts[-1]]. Property CRCs are not set."""
    out = np.empty(int(starts[-1]), dtype=np.uint8)
    head = template.head(0, 0, 0, 0, born_timestamp)
    texts = np.frombuffer(head + template.topic + common, dtype=np.uint8)
    _encode(columns, texts, len(head), len(template.topic), template.reserved, starts, out)
    return out


def place(
    target: memoryview,
    records: NDArray[np.uint8],
    starts: NDArray[np.int64],
    template: RecordTemplate,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> None:
    """Copy the records to `target` (of their size) and patch them there, as `message.patch` does, then seal them where
    they have property CRCs; offsets ascend.
    """
    room = np.frombuffer(target, dtype=np.uint8)
    _place(room, records, starts, template.stored_at, queue_offset, physical_offset, store_timestamp)
    if template.reserved:
        seal_each(room, starts)


@compiled
def _joint(properties: Any, at: int, length: int, after: int) -> int:
    """Bytes of the separator between a message's own properties and `after` bytes of others."""
    return 1 if length and after and properties[at + length - 1] != _SEPARATOR else 0


@compiled
def _measure(columns: Any, fixed_size: int, common: int, reserved: int, starts: Any) -> tuple[int, int]:
    bodies, properties = len(columns.bodies), columns.properties
    longest = 0
    for i in range(len(columns.body_at)):
        body, size = columns.body_at[i], columns.body_length[i]
        at, length = columns.properties_at[i], columns.properties_length[i]
        if body < 0 or size < 0 or body > bodies - size:
            return longest, i
        if at < 0 or length < 0 or at > len(properties) - length:
            return longest, i
        own = length + _joint(properties, at, length, common + reserved) + common
        longest = max(longest, own + reserved)
        starts[i + 1] = starts[i] + fixed_size + size + own
    return longest, -1


@compiled
def _encode(columns: Any, texts: Any, head: int, topic: int, reserved: int, starts: Any, out: Any) -> None:
    bodies, properties = columns.bodies, columns.properties
    common = len(texts) - head - topic
    for i in range(len(columns.body_at)):
        start = starts[i]
        at = start + head
        body, size = columns.body_at[i], columns.body_length[i]
        copy(out, start, texts, 0, head)
        copy(out, at, bodies, body, size)
        put32(out, start + POSITION_TOTAL_SIZE, starts[i + 1] - start)
        put32(out, start + POSITION_BODY_CRC, body_crc(bodies, body, body + size))
        put32(out, start + POSITION_FLAG, np.int64(columns.flag[i]))
        put32(out, at - BODY_LENGTH_BACK, size)
        at += size
        copy(out, at, texts, head, topic)
        at += topic
        own_at, length = columns.properties_at[i], columns.properties_length[i]
        joint = _joint(properties, own_at, length, common + reserved)
        own = length + joint + common + reserved
        out[at] = own >> 8
        out[at + 1] = own & 0xFF
        at += PROPERTIES_LENGTH_SIZE
        copy(out, at, properties, own_at, length)
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
        put64(room, start + POSITION_PHYSICAL_OFFSET, physical_offset + start)
        put64(room, start + stored_at, store_timestamp)
