"""Which timer messages of RocketMQ 5 are yet to be delivered, by the log alone: records that wait against deliveries.

Theory: a broker that delivers a message puts a copy of it into its own topic, with TIMER_DEQUEUE_MS beside the
properties that it had; one that is due later than the wheel reaches is put into the timer's topic again in that way.
So a record of rmq_sys_wheel_timer is done with where such a copy lies after it. A log that was cut has lost the copies
after its end: their messages wait again, whatever config/timercheck says.

The whole log need not be read. Due times are delivered in their order, each before the next one begins. So the log is
read backwards, segment by segment, until all copies of the latest due time in it are there (one of an earlier due time
lies before them): what was due before that is done with, but for messages that were stored after their time, whose
copies follow them at once. And as no unit waits longer than the wheel reaches, no record that was stored before that
need be looked at (`_REACH_MS`).

Source: TimerMessageStore#dequeue (a latch for each due time), #convert, #putMessageToTimerWheel (messages whose time is
over are delivered at once, with TIMER_ENQUEUE_MS of Long.MAX_VALUE), #doEnqueue.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names, properties
from engine.format.message import decode
from engine.format.numbers import LONG_MAX
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.timer_records import TimerRecords, as_long
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.config import StoreConfig
    from engine.format.message import StoredMessage
    from engine.log.source import LogSource, Segment

_REACH_MS = 8 * 24 * 3600 * 1000
"""How long a unit waits at most: seven days, and one for a broker that was behind. Source: TIMER_WHEEL_TTL_DAY."""
_LATE_MS = 3000
"""A message that is stored less than this before its time may have been late for its slot."""
_MARK = b"TIMER_DEQUEUE_MS\x01"
_SEGMENTS = 2
"""Segments at the log end that are read in any case."""


@dataclass(frozen=True, slots=True)
class TimerMessage:
    """A record of the timer's topic, by its place in the timer's queue and in the log (bytes). Times in ms."""

    queue_offset: int
    physical_offset: int
    size: int
    deliver_time: int
    store_time: int
    topic: str
    deletes: bool
    was_rolled: bool
    identity: bytes


@dataclass(frozen=True, slots=True)
class PendingTimers:
    """The messages that are yet to be delivered, by queue offset, and the physical offset from which on the log was
    read for it.
    """

    messages: tuple[TimerMessage, ...]
    read_from: int


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A copy that was delivered. `slot`: its due time, in units of the precision; None: it was delivered at once."""

    physical_offset: int
    identity: bytes
    slot: int | None


Row = tuple[int, int, int]
"""Queue offset, physical offset, size of a unit of the timer's queue."""


def rows_of(queue: QueueRows, start: int, end: int) -> Iterator[Row]:
    """The units that a queue holds at queue offsets [start, end), filling left out. Raises StorageError."""
    for first, chunk in queue.chunks(start, end):
        for i in is_real(chunk).nonzero()[0].tolist():
            yield first + i, int(chunk["physical_offset"][i]), int(chunk["size"][i])


def pending(log: LogSource, config: StoreConfig, rows: Sequence[Row], end: int, precision: int) -> PendingTimers:
    """What is yet to be delivered of the messages that these units of the timer's queue name.

    Args:
        log: the log, as it will be.
        config: of the store.
        rows: by queue offset; those after the log end don't count.
        end: of the log (physical).
        precision: timerPrecisionMs.

    Raises:
        StorageError.
    """
    rows = [row for row in rows if row[1] + row[2] <= end]
    scanner = Scanner(log, check_crc=False, max_message_size=config.max_message_size)
    records = TimerRecords(log, config)
    segments = [segment for segment in log.segments if segment.offset < end]
    deliveries: list[_Delivery] = []
    read_from = end
    begun_at = 0  # store time at `read_from`
    for number, segment in enumerate(reversed(segments), 1):
        some, stored = _deliveries(scanner, segment, end, precision)
        deliveries[:0] = some
        read_from, begun_at = segment.offset, stored or begun_at
        if number < _SEGMENTS and segment is not segments[0]:
            continue
        slots = [one.slot for one in deliveries if one.slot is not None]
        whole = not rows or read_from <= rows[0][1] or segment is segments[0]
        if not whole and (not slots or min(slots) == max(slots)):
            continue
        latest = max(slots, default=-1)
        messages = list(_messages(records, _recent(records, rows, latest * precision - _REACH_MS)))
        left = _undelivered(messages, deliveries)
        unsure = (one for one in left if one.physical_offset < read_from)
        if whole or not any(latest <= one.deliver_time // precision and one.deliver_time < begun_at for one in unsure):
            return PendingTimers(tuple(one for one in left if _waits(one, latest, read_from, precision)), read_from)
    return PendingTimers((), read_from)


def _waits(one: TimerMessage, latest: int, read_from: int, precision: int) -> bool:
    """Whether a message without a delivery waits, where `latest` is the latest due time that was delivered."""
    if one.deliver_time // precision >= latest:
        return True
    late = one.store_time > one.deliver_time - _LATE_MS
    return late and one.physical_offset >= read_from and not one.deletes


def _undelivered(messages: Sequence[TimerMessage], deliveries: Sequence[_Delivery]) -> list[TimerMessage]:
    """Those of the messages (by queue offset) that no delivery after them has, one for each."""
    events: list[tuple[int, int, TimerMessage | None, bytes]] = []
    for one in messages:
        if one.was_rolled:
            events.append((one.physical_offset, 0, None, one.identity))
        events.append((one.physical_offset, 1, one, one.identity))
    events += [(one.physical_offset, 0, None, one.identity) for one in deliveries]
    waiting: dict[bytes, list[TimerMessage]] = {}
    for _, _, message, identity in sorted(events, key=lambda event: event[:2]):
        if message is not None:
            waiting.setdefault(identity, []).append(message)
        elif identity in waiting:
            some = waiting[identity]
            some.pop(0)
            if not some:
                del waiting[identity]
    return sorted((one for some in waiting.values() for one in some), key=lambda one: one.queue_offset)


def _recent(records: TimerRecords, rows: Sequence[Row], since: int) -> Sequence[Row]:
    """The rows from the first on whose record was stored at `since` (ms) or later. One without a record tells nothing:
    the next one that has one stands for it.
    """

    def stored(number: int) -> int:
        for _, physical_offset, size in rows[number:]:
            one = records.read(physical_offset, size)
            if not isinstance(one, str):
                return one.store_timestamp
        return LONG_MAX

    return rows[bisect_left(range(len(rows)), since, key=stored) :] if since > 0 else rows


def _messages(records: TimerRecords, rows: Sequence[Row]) -> Iterator[TimerMessage]:
    """The sound records that rows name, each once; what is none is not delivered by any broker."""
    seen = -1
    for queue_offset, physical_offset, size in rows:
        if physical_offset <= seen:
            continue
        stored = records.read(physical_offset, size)
        if isinstance(stored, str):
            continue
        seen = physical_offset
        named = stored.properties
        deliver_time = as_long(named[properties.TIMER_OUT_MS])
        assert deliver_time is not None  # `not_timed`
        yield TimerMessage(
            queue_offset,
            physical_offset,
            size,
            deliver_time,
            stored.store_timestamp,
            named[properties.REAL_TOPIC],
            properties.TIMER_DEL_UNIQKEY in named,
            properties.TIMER_DEQUEUE_MS in named,
            _identity(stored),
        )


def _deliveries(scanner: Scanner, segment: Segment, end: int, precision: int) -> tuple[list[_Delivery], int]:
    """The deliveries in a segment, in their order, and when its first record was stored (ms; 0: there is none)."""
    some: list[_Delivery] = []
    first = 0
    for event in scanner.scan(segment.offset, min(segment.end, end), resume=True):
        if isinstance(event, RecordBatch):
            first = first or event.first_store_timestamp
            some += _in_batch(event, precision)
    return some, first


def _in_batch(batch: RecordBatch, precision: int) -> Iterator[_Delivery]:
    places: list[int] = []
    data = bytes(batch.buffer)
    at = data.find(_MARK)
    while at >= 0:
        places = places or [batch.offset(i) - batch.base for i in range(len(batch))]
        i = bisect_right(places, at) - 1
        if i >= 0 and at < places[i] + len(batch.record(i)):
            delivery = _delivery(batch, i, precision)
            if delivery is not None:
                yield delivery
            at = places[i] + len(batch.record(i)) - 1
        at = data.find(_MARK, at + 1)


def _delivery(batch: RecordBatch, i: int, precision: int) -> _Delivery | None:
    stored = decode(batch.record(i))
    named = stored.properties
    due = as_long(named.get(properties.TIMER_OUT_MS, ""))
    if stored.topic == names.TIMER_TOPIC or properties.TIMER_DEQUEUE_MS not in named or due is None:
        return None
    at_once = as_long(named.get(properties.TIMER_ENQUEUE_MS, "")) == LONG_MAX
    return _Delivery(batch.offset(i), _identity(stored), None if at_once else due // precision)


def _identity(stored: StoredMessage) -> bytes:
    """What a message and its copies have in common, 16 bytes."""
    named = stored.properties
    names = (properties.REAL_TOPIC, properties.TIMER_OUT_MS, properties.UNIQ_KEY, properties.KEYS)
    text = "\1".join([*(named.get(name, "") for name in names), str(stored.born_timestamp), str(stored.body_crc)])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
