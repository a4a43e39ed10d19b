"""What becomes of each saved record when it is replayed: a message to put, or why there is none.

Rules (sources: Apache 4.9.8, the classes named):
- A record that the log still has, or has again, at its own place is not replayed.
- Prepared and rolled back records are left out: no consumer ever saw them (CommitLogDispatcherBuildConsumeQueue), and
  what they name are offsets of the old log.
- A delayed message that was delivered lies in the log again after it, in its real topic: only that copy is replayed.
  One that was not goes to its real topic at once when it is due, else it waits again, at the shortest level that is
  not too early (ScheduleMessageService). A DELAY that a delivered copy still carries would delay it again: taken off.
- A half message (TransactionalMessageBridge) that was settled is left out; an open one is put again, and the broker
  asks its producer. What settles a half (an operation) counts only while that half is in the log.
- Light queues get their new offsets by the store's own multi-dispatch; the old ones are taken off.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import names, properties, property_crc, sysflag
from engine.format.delay import DelayLevels
from engine.format.message import Message, StoredMessage, decode
from engine.format.record import body_crc_at, prepared_offset_at
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC
from engine.inspect.dump.replayed import Run, mark
from engine.inspect.dump.whole_records import batches
from engine.log.scan import RecordBatch

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.inspect.dump.saved_log import SavedRepair
    from engine.inspect.dump.whole_records import Found
    from engine.log.source import LogSource

_Key: TypeAlias = tuple[str, str | None, int, int, int]
KeptHalf: TypeAlias = Callable[[int, int], bool]
"""Whether the half at (queue id, queue offset) is one that the log had before, and still has."""


class Skip(enum.Enum):
    """Why a whole record is not replayed."""

    IN_LOG = "already in the log"
    REPLAYED = "already replayed"
    OTHER_TOPIC = "of other topics than requested"
    DISPLACED = "displaced records (--displaced replays them, too)"
    INVISIBLE = "prepared or rolled back: consumers never got them"
    DELIVERED = "delayed and delivered: only the delivered copy is replayed"
    SETTLED = "settled half messages"
    STALE_OPERATION = "commits and rollbacks whose half message is not in the log"
    REFUSED = "can't be put: rstore salvage export writes them"


@dataclass(frozen=True, slots=True)
class Special:
    """Places (physical) of records that were dealt with in the log itself, found by reading all that was saved.

    `delivered`: delayed messages whose delivery lies after them. `settled`: halves. `operations`: those that count,
    with the queue offsets that they settle.
    """

    delivered: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    operations: frozenset[tuple[int, str]] = frozenset()


def find_special(events: Iterable[Found], kept_half: KeptHalf) -> Special:
    """Read all that was saved, in log order."""
    search = _Search()
    for batch, displaced in batches(events):
        if not displaced:
            search.feed(batch)
    operations = (
        (place, ",".join(str(offset) for offset in offsets if kept_half(queue_id, offset)))
        for place, queue_id, offsets in search.operations
    )
    return Special(
        frozenset(search.delivered),
        frozenset(search.settled),
        frozenset((place, body) for place, body in operations if body),
    )


class _Search:
    def __init__(self) -> None:
        self.delivered: set[int] = set()
        self.settled: set[int] = set()
        self.operations: list[tuple[int, int, list[int]]] = []
        self._waiting: dict[_Key, list[int]] = {}
        self._crcs: set[int] = set()
        self._halves: dict[tuple[int, int], int] = {}
        self._half_places: set[int] = set()

    def feed(self, batch: RecordBatch) -> None:
        schedule, half, operation = names.SCHEDULE_TOPIC.encode(), HALF_TOPIC.encode(), OP_TOPIC.encode()
        for i, row in enumerate(batch.rows):
            topic, place = batch.topic(i), batch.offset(i)
            crc = body_crc_at(batch.buffer, row.position)
            if topic == schedule:
                message = decode(batch.record(i))
                real = message.properties.get(properties.REAL_TOPIC, "")
                self._waiting.setdefault(_key(message, real), []).append(place)
                self._crcs.add(crc)
            elif topic == half:
                self._halves[row.queue_id, row.queue_offset] = place
                self._half_places.add(place)
            elif topic == operation:
                offsets = settled_offsets(bytes(batch.body(i)))
                self.operations.append((place, row.queue_id, offsets))
                self.settled |= {p for o in offsets if (p := self._halves.get((row.queue_id, o))) is not None}
            elif crc in self._crcs:
                message = decode(batch.record(i))
                waiting = self._waiting.get(_key(message, message.topic))
                if waiting:
                    self.delivered.add(waiting.pop(0))
            if sysflag.transaction_type(row.sys_flag) in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
                prepared = prepared_offset_at(batch.buffer, row.body_position)
                if prepared in self._half_places:
                    self.settled.add(prepared)


def settled_offsets(body: bytes) -> list[int]:
    """The queue offsets of the halves that an operation settles. Source: TransactionalMessageUtil."""
    return [int(n) for word in body.decode("ascii", "replace").split(",") if (n := word.strip()).isdecimal()]


def _key(message: StoredMessage, topic: str) -> _Key:
    """What a delayed message and its delivered copy have in common."""
    unique = message.properties.get(properties.UNIQ_KEY)
    return topic, unique, message.born_timestamp, message.body_crc, message.reconsume_times


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """What a replay was asked for, and what it has to know.

    Attributes:
        saved: the repair.
        own: whether the target is the store that the repair is of: its offsets mean something there.
        cut: physical offset of the first byte that was saved: what lies before it stayed in the log.
        levels: the target's delay levels.
        now_ms: the time at which delayed messages are due or not.
        topics: only these (a delayed message or a half by its real topic); None: all.
        displaced: whether displaced records are replayed.
        runs: earlier runs into the same target whose messages are not put again.
        placed: places of records that an interrupted run has put after what it noted.
        special: see there.
        refused: places of records that can't be put.
    """

    saved: SavedRepair
    own: bool
    cut: int
    levels: DelayLevels
    now_ms: int
    topics: tuple[str, ...] | None
    displaced: bool
    runs: tuple[Run, ...] = ()
    placed: frozenset[int] = frozenset()
    special: Special = Special()
    refused: Collection[int] = frozenset()


class Chooser:
    """Decides by the rules. `log`: the store's, up to the physical offset `log_end`; `saved`: what the repair saved."""

    def __init__(self, rules: ReplayRules, log: LogSource, log_end: int, saved: LogSource) -> None:
        self._rules = rules
        self._log = log
        self._log_end = log_end
        self._saved = saved
        self._operations = dict(rules.special.operations)
        self.other_topics: set[str] = set()
        """Topics of records that were passed over, as others were asked for."""

    def choose(self, batch: RecordBatch, i: int, *, displaced: bool) -> Message | Skip:
        """The message to put for record `i` of a batch, or why there is none."""
        rules, row, place = self._rules, batch.rows[i], batch.offset(i)
        record = batch.record(i)
        try:
            stored = decode(record)
        except FormatError:
            return Skip.REFUSED
        named = stored.properties
        waits = stored.topic in (names.SCHEDULE_TOPIC, HALF_TOPIC)
        topic = named.get(properties.REAL_TOPIC, stored.topic) if waits else stored.topic
        if rules.topics is not None and topic not in rules.topics:
            self.other_topics.add(topic)
            return Skip.OTHER_TOPIC
        if self._is_there(place, record):
            return Skip.IN_LOG
        own = row.stored_offset
        if own != place and (self._is_there(own, record) or self._saved.read(own, row.size) == record):
            return Skip.IN_LOG
        if displaced and not rules.displaced:
            return Skip.DISPLACED
        if not sysflag.is_consumable(row.sys_flag):
            return Skip.INVISIBLE
        if place in rules.refused:
            return Skip.REFUSED
        chosen = self._message(stored, named, place)
        if isinstance(chosen, Message) and (
            place in rules.placed
            or any(run.covers(topic, displaced=displaced) and (run.done or place <= run.position) for run in rules.runs)
        ):
            return Skip.REPLAYED
        return chosen

    def _is_there(self, place: int, record: memoryview) -> bool:
        return place + len(record) <= self._log_end and self._log.read(place, len(record)) == record

    def _message(self, stored: StoredMessage, named: dict[str, str], place: int) -> Message | Skip:
        rules = self._rules
        delay = named.pop(properties.DELAY, "")
        named.pop(properties.INNER_MULTI_QUEUE_OFFSET, None)
        named.pop(property_crc.NAME, None)  # that of the old record
        message = stored.to_message()
        if not (rules.own and 0 < stored.prepared_transaction_offset < rules.cut):
            message = message._replace(prepared_transaction_offset=0)
        if stored.topic == names.SCHEDULE_TOPIC:
            if place in rules.special.delivered:
                return Skip.DELIVERED
            queue_id = named.get(properties.REAL_QID, "0")
            message = message._replace(
                topic=named.get(properties.REAL_TOPIC, ""),
                queue_id=int(queue_id) if queue_id.isdecimal() else 0,
            )
            level = self._level_again(stored, delay)
            if level:
                named[properties.DELAY] = str(level)
        elif stored.topic == HALF_TOPIC:
            if place in rules.special.settled:
                return Skip.SETTLED
            named.pop(properties.TRAN_PREPARED_QUEUE_OFFSET, None)  # it names a place of the old queue
        elif stored.topic == OP_TOPIC:
            body = self._operations.get(place)
            if body is None:
                return Skip.STALE_OPERATION
            message = message._replace(body=body.encode())
        named.pop(properties.REPLAYED, None)
        named[properties.REPLAYED] = mark(rules.saved, place)
        return message._replace(properties=named)

    def _level_again(self, stored: StoredMessage, delay: str) -> int:
        """The level at which a message waits on; 0 when it is due."""
        levels = self._rules.levels
        level = properties.delay_level({properties.DELAY: delay or "0"})
        if level <= 0:
            level = stored.queue_id + 1  # Source: ScheduleMessageService#queueId2DelayLevel
        left = levels.deliver_timestamp(max(level, 1), stored.store_timestamp) - self._rules.now_ms
        if left <= 0:
            return 0
        enough = [(millis, n) for n, millis in enumerate(levels.millis, 1) if millis >= left]
        return min(enough)[1] if enough else levels.max_level


def needs_multi_dispatch(message: StoredMessage, config: StoreConfig) -> bool:
    """Whether it lies in further queues that a store with these settings would not put it into."""
    named = message.properties
    if not named.get(properties.INNER_MULTI_QUEUE_OFFSET):
        return False
    targets = named.get(properties.INNER_MULTI_DISPATCH, "").split(properties.MULTI_DISPATCH_SPLITTER)
    return not config.enable_multi_dispatch or (not config.enable_lmq and any(map(names.is_lmq, targets)))
