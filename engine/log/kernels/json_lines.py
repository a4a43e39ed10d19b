"""Records as lines of JSON (engine.format.message_json), written as bytes without an object a record.

It takes plain records only (engine.log.kernels.sound), whose topic and properties are UTF-8, and each property whole
and named once. Anything else is left to the caller, record by record, so that the rules stand in one place: tests hold
the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dataclass import dataclass
from engine.format.hosts import V4_SIZE
from engine.format.record import (
    INT,
    POSITION_BODY_CRC,
    POSITION_BORN_HOST,
    POSITION_BORN_TIMESTAMP,
    POSITION_FLAG,
    POSITION_MAGIC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_PREPARED,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_RECONSUME_TIMES,
    POSITION_STORE_HOST,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
    V4_HEAD_SIZE,
)
from engine.format.sysflag import COMPRESSED, HOSTS_V6_MASK
from engine.log.kernels.crc import body_crc
from engine.log.kernels.intrinsics import big32, big64, copy
from engine.log.kernels.jit import compiled, inlined
from engine.log.kernels.json_text import (
    ESCAPED,
    SLACK,
    as_base64,
    big_hex,
    decimal,
    escaped,
    position_of,
    upper_hex,
)
from engine.log.kernels.sound import PLAIN_MAGIC, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

BLOCK = 2 << 20
"""Bytes of lines that are made at once; a record that may take more is left to the caller."""
_NAME_VALUE, _SEPARATOR = 1, 2
_MOST_PROPERTIES = 64
_IP_SIZE, _HOST_SIZE = V4_SIZE - INT.size, V4_SIZE
_HEAD = '"msgId":"'
_LABELS = (
    '","topic":"',
    '","queueId":',
    ',"queueOffset":',
    ',"physicalOffset":',
    ',"storeSize":',
    ',"bodyCRC":',
    ',"flag":',
    ',"sysFlag":',
    ',"bornTimestamp":',
    ',"bornHost":"',
    '","storeTimestamp":',
    ',"storeHost":"',
    '","reconsumeTimes":',
    ',"preparedTransactionOffset":',
    ',"properties":{',
    '},"bodyLength":',
    ',"storedPhysicalOffset":',
    ',"body":"',
    ',"bodyBase64":"',
    '"}\n',
    "}\n",
)
"""What stands before each value, in the order of engine.format.message_json, and after the last."""
_TEXT = np.frombuffer("".join(_LABELS).encode(), dtype=np.uint8)
_LENGTHS = tuple(map(len, _LABELS))
_STARTS = tuple(sum(_LENGTHS[:i]) for i in range(len(_LENGTHS)))
(
    _TOPIC, _QUEUE_ID, _QUEUE_OFFSET, _PHYSICAL, _SIZE, _CRC, _FLAG, _SYS_FLAG, _BORN, _BORN_HOST, _STORED,
    _STORE_HOST, _AGAIN, _PREPARED, _PROPERTIES, _BODY_LENGTH, _STORED_PHYSICAL, _BODY, _BASE64, _END_TEXT, _END,
) = range(len(_LABELS))  # fmt: skip
_LEAST = -(1 << 63)
_NUMBERS = 16 * 20 + 2 * 27 + 32
_ROOM = len(_TEXT) + _NUMBERS + SLACK
"""Bytes that a line takes at most, but for its head, topic, properties and body."""


@dataclass(frozen=True, slots=True)
class LineForm:
    """How lines look.

    Attributes:
        kind: what they begin with; None: nothing.
        redact: without bodies.
        topic: only of this topic, as stored; None: of all.
        sound_only: a record that says another place, or whose body has not its CRC, is left to the caller.
    """

    kind: str | None = None
    redact: bool = False
    topic: bytes | None = None
    sound_only: bool = False


class LineMaker:
    """Makes lines. `plain` makes those of what the kernel leaves: of a place in the arrays, None for no line."""

    def __init__(self, form: LineForm) -> None:
        self._form = form
        kind = "" if form.kind is None else f'"kind":"{form.kind}",'
        self._head = _array(f"{{{kind}{_HEAD}".encode())
        self._topic = _array(form.topic or b"")

    def blocks(
        self,
        buffer: Buffer,
        at: NDArray[np.int64],
        sizes: NDArray[np.int64],
        places: NDArray[np.int64],
        plain: Callable[[int], bytes | None],
        *,
        most: int | None = None,
    ) -> Iterator[tuple[Buffer, int]]:
        """Lines, some at a time, and how many of them.

        Args:
            buffer: bytes of the log.
            at: positions of records in it.
            sizes: their bytes.
            places: their physical offsets.
            plain: the line of the record of a number that is none for the kernel; None where it is not asked for.
            most: lines, at most.
        """
        form = self._form
        data = _array(buffer)
        names = np.empty(2 * _MOST_PROPERTIES, dtype=np.int64)
        out = np.empty(BLOCK, dtype=np.uint8)
        first, left = 0, len(at) if most is None else most
        while first < len(at) and left > 0:
            first, written, lines, is_odd = _lines(
                data, at, sizes, places, first, form.sound_only, form.redact, form.topic is not None, self._topic,
                self._head, left, names, BLOCK // 2, out,
            )  # fmt: skip
            if written:
                yield out[:written].data, lines
                left -= lines
                out = out[written:] if len(out) - written > BLOCK // 2 else np.empty(BLOCK, dtype=np.uint8)
            if is_odd and left > 0:
                line = plain(first)
                first += 1
                if line is not None:
                    yield line, 1
                    left -= 1


def _array(buffer: Buffer) -> NDArray[np.uint8]:
    data = np.frombuffer(buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    return data


@compiled
def _lines(
    data: Any, ats: Any, sizes: Any, places: Any, first: int, sound_only: bool, redact: bool,
    filtered: bool, topic: Any, head: Any, most: int, names: Any, largest: int, out: Any,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """Fills `out` (uint8[BLOCK at most]) from record `first` on: (next record, bytes, lines, whether that one is odd).

    A record that is not odd has no room any more, or the lines are enough. `largest`: room that is always there.
    """
    written = 0
    count = 0
    for i in range(first, len(ats)):
        if count == most:
            return i, written, count, False
        at, size, place = ats[i], sizes[i], places[i]
        if at < 0 or size < V4_HEAD_SIZE or at > len(data) - size or big32(data, at) != size:
            return i, written, count, True
        flags, body_at, body, topic_at, topic_length, own_at, properties = parts(data, at, at + size)
        stored = big64(data, at + POSITION_PHYSICAL_OFFSET)
        is_plain = big32(data, at + POSITION_MAGIC) == PLAIN_MAGIC and body_at != 0 and not flags & HOSTS_V6_MASK
        if not is_plain or place < 0 or stored == _LEAST or (sound_only and stored != place):
            return i, written, count, True
        if filtered and not _is_topic(data, topic_at, topic_length, topic):
            continue
        room = len(head) + _ROOM + ESCAPED * (topic_length + properties + (0 if redact else body))
        if room > len(out) - written:
            return i, written, count, written == 0 and room > largest
        if sound_only and body and body_crc(data, body_at, body_at + body) != big32(data, at + POSITION_BODY_CRC):
            return i, written, count, True
        end = _header(out, written, data, at, place, topic_at, topic_length, head)
        if end >= 0:
            end = _pairs(out, end, data, own_at, own_at + properties, names)
        if end < 0:
            return i, written, count, True
        end = decimal(out, _label(out, end, _BODY_LENGTH), body)
        if stored != place:
            end = decimal(out, _label(out, end, _STORED_PHYSICAL), stored)
        written = _label(out, end, _END) if redact else _body(out, end, data, body_at, body_at + body, flags)
        count += 1
    return len(ats), written, count, False


@inlined
def _label(out: Any, at: int, number: int) -> int:
    copy(out, at, _TEXT, _STARTS[number], _LENGTHS[number])
    return at + _LENGTHS[number]


@compiled
def _is_topic(data: Any, at: int, length: int, topic: Any) -> bool:
    same = length == len(topic)
    i = 0
    while same and i < length:
        same = data[at + i] == topic[i]
        i += 1
    return same


@compiled
def _header(out: Any, written: int, data: Any, at: int, place: int, topic_at: int, topic_length: int, head: Any) -> int:
    """The line up to its properties; −1: the topic is no UTF-8, or a number the least that there is."""
    copy(out, written, head, 0, len(head))
    end = upper_hex(out, written + len(head), data, at + POSITION_STORE_HOST, _HOST_SIZE)
    end = _label(out, big_hex(out, end, place), _TOPIC)
    end = escaped(out, end, data, topic_at, topic_at + topic_length)
    if end < 0:
        return -1
    queue_offset, born = big64(data, at + POSITION_QUEUE_OFFSET), big64(data, at + POSITION_BORN_TIMESTAMP)
    stored, prepared = big64(data, at + POSITION_STORE_TIMESTAMP), big64(data, at + POSITION_PREPARED)
    if min(queue_offset, born, stored, prepared) == _LEAST:
        return -1
    end = decimal(out, _label(out, end, _QUEUE_ID), big32(data, at + POSITION_QUEUE_ID))
    end = decimal(out, _label(out, end, _QUEUE_OFFSET), queue_offset)
    end = decimal(out, _label(out, end, _PHYSICAL), place)
    end = decimal(out, _label(out, end, _SIZE), big32(data, at))
    end = decimal(out, _label(out, end, _CRC), big32(data, at + POSITION_BODY_CRC))
    end = decimal(out, _label(out, end, _FLAG), big32(data, at + POSITION_FLAG))
    end = decimal(out, _label(out, end, _SYS_FLAG), big32(data, at + POSITION_SYS_FLAG))
    end = decimal(out, _label(out, end, _BORN), born)
    end = _host(out, _label(out, end, _BORN_HOST), data, at + POSITION_BORN_HOST)
    end = decimal(out, _label(out, end, _STORED), stored)
    end = _host(out, _label(out, end, _STORE_HOST), data, at + POSITION_STORE_HOST)
    end = decimal(out, _label(out, end, _AGAIN), big32(data, at + POSITION_RECONSUME_TIMES))
    return _label(out, decimal(out, _label(out, end, _PREPARED), prepared), _PROPERTIES)


@compiled
def _host(out: Any, end: int, data: Any, at: int) -> int:
    for i in range(_IP_SIZE):
        end = decimal(out, end, np.int64(data[at + i]))
        out[end] = ord(".") if i < _IP_SIZE - 1 else ord(":")
        end += 1
    return decimal(out, end, big32(data, at + _IP_SIZE))


@compiled
def _pairs(out: Any, end: int, data: Any, begin: int, stop: int, names: Any) -> int:
    """The properties of data[begin:stop]; −1 where something is odd about them (engine.format.properties.parse)."""
    if stop > begin and data[stop - 1] == _SEPARATOR:
        stop -= 1
        if stop == begin:
            return -1
    count = 0
    while begin < stop:
        piece_end = position_of(data, begin, stop, _SEPARATOR)
        name_end = position_of(data, begin, piece_end, _NAME_VALUE)
        if name_end == begin or name_end >= piece_end - 1 or count == _MOST_PROPERTIES or piece_end == stop - 1:
            return -1
        for i in range(count):
            if _is_same(data, names[2 * i], names[2 * i + 1], begin, name_end - begin):
                return -1
        names[2 * count], names[2 * count + 1] = begin, name_end - begin
        if count:
            out[end] = ord(",")
            end += 1
        out[end] = ord('"')
        end = escaped(out, end + 1, data, begin, name_end)
        if end < 0:
            return -1
        out[end], out[end + 1], out[end + 2] = ord('"'), ord(":"), ord('"')
        end = escaped(out, end + 3, data, name_end + 1, piece_end)
        if end < 0:
            return -1
        out[end] = ord('"')
        end += 1
        count += 1
        begin = piece_end + 1
    return end


@inlined
def _is_same(data: Any, one: int, length: int, other: int, other_length: int) -> bool:
    same = length == other_length
    i = 0
    while same and i < length:
        same = data[one + i] == data[other + i]
        i += 1
    return same


@compiled
def _body(out: Any, end: int, data: Any, begin: int, stop: int, flags: int) -> int:
    """The body as text, or, where it is compressed or no UTF-8, as base64; and the line's end."""
    after = -1
    if not flags & COMPRESSED:
        after = escaped(out, _label(out, end, _BODY), data, begin, stop)
    if after < 0:
        after = as_base64(out, _label(out, end, _BASE64), data, begin, stop)
    return _label(out, after, _END_TEXT)
