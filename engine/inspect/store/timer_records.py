"""The messages of RocketMQ 5's timer: records of topic rmq_sys_wheel_timer, read where a unit says that they are.

A message is believed when a sound record lies where the unit says, of the length and the topic that it says: its
properties have the topic and queue that it goes to, and the time.

Units of one due time point all over the log. So many of them are read at once, in the order of the log, with one read
for records that lie close together (`read_many`); what is not a plain record is judged alone, by the same rules.

Source: HookUtils#transformTimerMessage, TimerMessageStore#convertMessage.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import message, names, properties
from engine.format.hashing import java_hash
from engine.format.message import ENCODE_OVERHEAD
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.format.record import MAGICS, MIN_RECORD_SIZE, SIZE_AND_MAGIC
from engine.log.incoming import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import StoreConfig
    from engine.format.message import StoredMessage
    from engine.format.timer_log import TimerUnit
    from engine.log.source import LogSource

_AT_ONCE = 1 << 16
"""Bytes of a record that are read before it is known to be one."""
_NAMED = properties.parser_of(
    *(properties.REAL_TOPIC, properties.REAL_QID, properties.TIMER_OUT_MS),
    *(properties.UNIQ_KEY, properties.TIMER_DEL_UNIQKEY),
)
_TOPIC = names.TIMER_TOPIC.encode()
_WINDOW = 1 << 20
"""Bytes of the log that one read takes, about."""
_GAP = 1 << 13
"""Bytes between two records from which on each has a read of its own."""
_INT_DIGITS, _LONG_DIGITS = 9, 18
"""Digits of which each number is an int, or a long."""


class Timed(NamedTuple):
    """A timer message, and what its properties say: topic and queue that it goes to (`queue` as it stands there), and
    when it is to be delivered (ms). `named`: those of its properties that the timer goes by.
    """

    record: bytes
    named: dict[str, str]
    topic: str
    queue: str
    queue_id: int
    deliver_time: int

    @property
    def message(self) -> StoredMessage:
        """All of it."""
        return message.decode(self.record)


class TimerRecords:
    """The records that units name.

    Attributes:
        with_topic: whether messages are deleted by topic and key (appendTopicForTimerDeleteKey); None: by either.
    """

    def __init__(self, log: LogSource, config: StoreConfig) -> None:
        self._log = log
        self._largest = max(config.max_message_size, LARGEST) + ENCODE_OVERHEAD
        given = config.other.get("appendTopicForTimerDeleteKey")
        self.with_topic = None if given is None else given.strip().lower() == "true"

    def read(self, physical_offset: int, size: int) -> StoredMessage | str:
        """The timer message there, or why there is none. Raises StorageError."""
        segments = self._log.segments
        if segments and physical_offset < segments[0].offset:
            return "its message was deleted: the log starts later"
        data = self._log.read(physical_offset, max(MIN_RECORD_SIZE, min(size, _AT_ONCE)))
        if len(data) < MIN_RECORD_SIZE:
            return "its message is after the log end, or in a missing segment"
        total, magic = SIZE_AND_MAGIC.unpack_from(data)
        if magic not in MAGICS or total != size or total > self._largest:
            return "no record of its size is where its message should be"
        try:
            stored = message.decode(data if size <= _AT_ONCE else self._log.read(physical_offset, size))
        except FormatError as error:
            return f"no sound record is where its message should be: {error.message}"
        if not stored.crc_ok:
            return "the body of its message has a CRC mismatch"
        if stored.physical_offset != physical_offset:
            return f"its record belongs at physical offset {stored.physical_offset}"
        return not_timed(stored) or stored

    def timed(self, physical_offset: int, size: int) -> Timed | str:
        """As `read`, with what the properties say. Raises StorageError."""
        stored = self.read(physical_offset, size)
        if isinstance(stored, str):
            return stored
        named = _named(stored.properties_raw)
        return Timed(
            bytes(self._log.read(physical_offset, size)), named, named[properties.REAL_TOPIC],
            named[properties.REAL_QID], parse_int(named[properties.REAL_QID]),
            parse_int(named[properties.TIMER_OUT_MS], LONG_MIN, LONG_MAX),
        )  # fmt: skip

    def read_many(self, places: Sequence[tuple[int, int]]) -> list[Timed | str]:
        """As `timed` of each (physical offset, size), in their order. Raises StorageError."""
        out: list[Timed | str] = [""] * len(places)
        order = sorted(range(len(places)), key=places.__getitem__)
        at = 0
        while at < len(order):
            first, stop = places[order[at]][0], 0
            window: list[int] = []
            for place in range(at, len(order)):
                i = order[place]
                offset, size = places[i]
                if window and (offset > max(stop, first) + _GAP or offset + size > first + _WINDOW):
                    break
                window.append(i)
                stop = max(stop, offset + size)
            at += len(window)
            whole = MIN_RECORD_SIZE <= stop - first <= _WINDOW and first >= 0
            data = self._log.read(first, stop - first) if whole else memoryview(b"")
            for i in window:
                offset, size = places[i]
                own = data[offset - first : offset - first + size]
                out[i] = (self._plain(own, offset, size) if len(own) == size else None) or self.timed(offset, size)
        return out

    def _plain(self, record: memoryview, offset: int, size: int) -> Timed | None:
        """The message of a sound record; None: it is to be judged alone."""
        if not MIN_RECORD_SIZE <= size <= self._largest:
            return None
        data = bytes(record)
        raw = message.sound_properties(data, offset, _TOPIC)
        if raw is None:
            return None
        named = _named(raw)
        try:
            topic, queue, time = (
                named[properties.REAL_TOPIC],
                named[properties.REAL_QID],
                named[properties.TIMER_OUT_MS],
            )
        except KeyError:
            return None
        if queue.isdecimal() and time.isdecimal() and len(queue) <= _INT_DIGITS and len(time) <= _LONG_DIGITS:
            return Timed(data, named, topic, queue, int(queue), int(time)) if (queue + time).isascii() else None
        return None


def _named(raw: bytes) -> dict[str, str]:
    return _NAMED(raw.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class UnitFault:
    """Why a broker must not deliver what a unit that waits names. `orphaned`: no sound timer message is there;
    else there is one, which the unit does not match.
    """

    orphaned: bool
    detail: str


def unit_fault(unit: TimerUnit, records: TimerRecords, end: int) -> UnitFault | None:
    """What is wrong with a unit that waits, by its message. `end`: of the log (physical). Raises StorageError."""
    physical = unit.physical_offset
    if physical + unit.message_size > end:
        return UnitFault(True, f"{physical}: after the log end")
    stored = records.read(physical, unit.message_size)
    if isinstance(stored, str):
        return UnitFault(True, f"{physical}: {stored}")
    topic = stored.properties[properties.REAL_TOPIC]
    due = as_long(stored.properties[properties.TIMER_OUT_MS]) or 0
    if java_hash(topic) != unit.topic_hash:
        return UnitFault(False, f"{physical}: of another topic than {topic}")
    if not unit.rolls and due > unit.due_time:
        return UnitFault(False, f"{physical}: due at {unit.due_time}, its message at {due}")
    return None


def not_timed(stored: StoredMessage) -> str | None:
    """Why a message is none that the timer delivers. Source: HookUtils#transformTimerMessage."""
    named = stored.properties
    if stored.topic != names.TIMER_TOPIC:
        return f"its record is a message of topic {stored.topic!r}"
    if not named.get(properties.REAL_TOPIC):
        return f"its message has no {properties.REAL_TOPIC}"
    try:
        parse_int(named.get(properties.REAL_QID, ""))
    except ValueError:
        return f"its message has no {properties.REAL_QID}"
    if as_long(named.get(properties.TIMER_OUT_MS, "")) is None:
        return f"its message has no {properties.TIMER_OUT_MS}"
    return None


def as_long(text: str) -> int | None:
    """A number of 64 bits, as Java reads it; None: it is none."""
    try:
        return parse_int(text, LONG_MIN, LONG_MAX)
    except ValueError:
        return None


def keys_of(named: dict[str, str], with_topic: bool | None) -> set[bytes]:
    """What a message is deleted by, 16 bytes each. Source: TimerMessageStore#buildDeleteKey, of 5.5.0 and of 5.3.3."""
    key = named.get(properties.UNIQ_KEY)
    if key is None:
        return set()
    plain, whole = key_digest(key), key_digest(f"{named[properties.REAL_TOPIC]}+{key}")
    return {plain, whole} if with_topic is None else {whole if with_topic else plain}


def key_digest(key: str) -> bytes:
    """What stands for the key of a message that is deleted."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
