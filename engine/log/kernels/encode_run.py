"""The records of messages that follow one another, each with a topic, queue, hosts and times of its own, as kernels.

One encodes them outside of the append lock, another fills in what only the lock knows. The plain way is
`engine.log.prepare.Prepared`, message by message; tests hold the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.format.record import (
    BODY_LENGTH_BACK,
    POSITION_BODY_CRC,
    POSITION_BORN_TIMESTAMP,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    POSITION_TOTAL_SIZE,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
)
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import copy, put32, put64
from engine.log.kernels.jit import compiled
from engine.log.kernels.property_crc import seal_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from engine.format.template import RecordTemplate


class Templates(NamedTuple):
    """What records have in common, a row a template.

    Attributes:
        texts: uint8[any], of each template its fixed part, then its topic.
        rows: int64[t, 5]: position in `texts`, bytes of the fixed part, bytes of the topic, position of storeTimestamp
            in a record, number of the queue (−1: its records have no queue offset).
        reserved: bytes of the property CRC that ends each record; 0: it has none.
    """

    texts: NDArray[np.uint8]
    rows: NDArray[np.int64]
    reserved: int

    @property
    def fixed_sizes(self) -> NDArray[np.int64]:
        """Bytes that a record takes beside body and properties: int64[t]."""
        sizes: NDArray[np.int64] = self.rows[:, 1] + self.rows[:, 2] + PROPERTIES_LENGTH_SIZE + self.reserved
        return sizes

    @classmethod
    def of(cls, templates: Sequence[RecordTemplate], queues: Sequence[int]) -> Templates:
        """Of one template at least, with the number of each one's queue."""
        texts, rows, at = [], [], 0
        for template, queue in zip(templates, queues, strict=True):
            head = template.head(0, 0, 0, template.flag)
            texts += [head, template.topic]
            rows.append((at, len(head), len(template.topic), template.stored_at, queue))
            at += len(head) + len(template.topic)
        table = np.array(rows, dtype=np.int64)
        return cls(np.frombuffer(b"".join(texts), dtype=np.uint8), table, templates[0].reserved)


def that_fit(
    body_length: NDArray[np.int64],
    own_length: NDArray[np.int64],
    which: NDArray[np.int64],
    templates: Templates,
    max_body: int,
    max_record: int,
) -> int:
    """How many of the first messages have a place in the log: bodies, properties and records as long as they may be."""
    wrong = (body_length > max_body) | (own_length + templates.reserved > PROPERTIES_MAX_LENGTH)
    wrong |= body_length + own_length + templates.fixed_sizes[which] > max_record
    return int(wrong.argmax()) if wrong.any() else len(wrong)


def encode(
    bodies: bytes | NDArray[np.uint8],
    body_length: NDArray[np.int64],
    names: bytes | NDArray[np.uint8],
    own_length: NDArray[np.int64],
    which: NDArray[np.int64],
    born: NDArray[np.int64],
    templates: Templates,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The records, one after another, and where each begins: uint8[starts[-1]], int64[n + 1].

    Args:
        bodies, names: bodies one after another, and properties; arrays are read-only.
        body_length, own_length: int64[n], bytes of each.
        which: int64[n], the template of each.
        born: int64[n], ms.
        templates: what they have in common.
    """
    starts = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(body_length + own_length + templates.fixed_sizes[which], out=starts[1:])
    out = np.empty(int(starts[-1]), dtype=np.uint8)
    of_bodies, of_names = (
        text if isinstance(text, np.ndarray) else np.frombuffer(text or b"\0", dtype=np.uint8)
        for text in (bodies, names)
    )
    _encode(
        of_bodies, body_length, of_names, own_length, which, born, templates.texts, templates.rows, templates.reserved,
        starts, out,
    )  # fmt: skip
    return out, starts


def settle(
    records: NDArray[np.uint8],
    starts: NDArray[np.int64],
    which: NDArray[np.int64],
    templates: Templates,
    following: NDArray[np.int64],
    physical_offset: int,
    store_timestamp: int,
) -> NDArray[np.int64]:
    """Fill in what only the append lock knows, then the property CRCs; the queue offset of each, int64[n].

    Args:
        records: uint8[any].
        starts: int64[n + 1], where each record begins in it, and where the last one ends.
        which: int64[n], the template of each.
        templates: what they have in common.
        following: int64[q], the next queue offset of each queue; moved on.
        physical_offset: of the first one.
        store_timestamp: ms.
    """
    offsets = np.zeros(len(which), dtype=np.int64)
    _settle(records, starts, which, templates.rows, following, physical_offset, store_timestamp, offsets)
    if templates.reserved:
        seal_each(records[starts[0] : starts[-1]], starts - starts[0])
    return offsets


@compiled
def _encode(
    bodies: Any, body_length: Any, names: Any, own_length: Any, which: Any, born: Any, texts: Any, rows: Any,
    reserved: int, starts: Any, out: Any,
) -> None:  # fmt: skip
    body, name = 0, 0
    for i in range(len(which)):
        start, size, own = starts[i], body_length[i], own_length[i]
        text, head, topic = rows[which[i], 0], rows[which[i], 1], rows[which[i], 2]
        at = start + head
        copy(out, start, texts, text, head)
        copy(out, at, bodies, body, size)
        put32(out, start + POSITION_TOTAL_SIZE, starts[i + 1] - start)
        put32(out, start + POSITION_BODY_CRC, body_crc(bodies, body, body + size))
        put64(out, start + POSITION_BORN_TIMESTAMP, born[i])
        put32(out, at - BODY_LENGTH_BACK, size)
        at += size
        copy(out, at, texts, text + head, topic)
        at += topic
        out[at] = (own + reserved) >> 8
        out[at + 1] = (own + reserved) & 0xFF
        copy(out, at + PROPERTIES_LENGTH_SIZE, names, name, own)
        body += size
        name += own


@compiled
def _settle(
    records: Any, starts: Any, which: Any, rows: Any, following: Any, physical_offset: int, store_timestamp: int,
    offsets: Any,
) -> None:  # fmt: skip
    for i in range(len(which)):
        start, queue = starts[i], rows[which[i], 4]
        if queue >= 0:
            offsets[i] = following[queue]
            following[queue] += 1
        put64(records, start + POSITION_QUEUE_OFFSET, offsets[i])
        put64(records, start + POSITION_PHYSICAL_OFFSET, physical_offset + start - starts[0])
        put64(records, start + rows[which[i], 3], store_timestamp)
