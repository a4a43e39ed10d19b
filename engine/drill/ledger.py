"""What a drill has put, what of it was acknowledged, and whether a store still has it.

Theory: the expected bytes of a record are made here from message and answer, never read from the store under test. A
message is *acknowledged* when its put was answered PUT_OK after a flush. What was acknowledged must be there by queue
offset, key and physical offset; and nothing may be there that wasn't put.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.format import properties
from engine.format.batch import BatchItem
from engine.format.message import (
    Message,
    decode,
    encode,
    patch,
)
from engine.format.record import LONG_SIZE, store_timestamp_position, sys_flag_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.format.message import StoredMessage
    from engine.log.message_reader import MessageReader
    from engine.log.results import PutResult
    from engine.store import MessageStore

TOPICS = ("Orders", "Audit", "T")
QUEUES = 2
_BATCHES = (1, 1, 1, 1, 2, 5)
"""How many messages a put has: now and then it is a batch."""
_KEYS = 9
_PULL = 32
"""Where a record's sysFlag is; bytes of a time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One message that the store said it has: the whole record as it must lie there. Offsets and sizes in bytes.

    `timed`: with its store time, which a client of the daemon isn't told.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    unique: str
    properties: bytes
    record: bytes
    timed: bool = True

    def is_record(self, record: bytes) -> bool:
        """Whether these are its bytes."""
        if self.timed or len(record) != len(self.record):
            return record == self.record
        at = store_timestamp_position(sys_flag_at(self.record))
        return record[:at] + bytes(LONG_SIZE) + record[at + LONG_SIZE :] == self.record

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.physical_offset + len(self.record)

    @property
    def name(self) -> str:
        """How people call it."""
        return f"{self.topic}/{self.queue_id} {self.queue_offset}"


@dataclass
class Clock:
    """Each look at it is `step` ms later: with more than three seconds, recovery starts in the middle of the log."""

    now: int = 1_700_000_000_000
    step: int = 700

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@dataclass
class DrillLedger:
    """Makes messages, the same for the same seed, and notes what became of them.

    Attributes:
        body: bytes that no body exceeds.
        topics: names to choose from.
        queues: queues of each topic.
        appended: everything that was ever put and came into the log, by physical offset.
        acknowledged: what was answered PUT_OK after a flush.
        made: messages that were made, in the log or not.
    """

    seed: int = 0
    body: int = 900
    topics: Sequence[str] = TOPICS
    queues: int = QUEUES
    appended: dict[int, list[Stored]] = field(default_factory=dict)
    acknowledged: list[Stored] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def copy(self) -> DrillLedger:
        """One that continues from here by itself."""
        appended = {offset: list(put) for offset, put in self.appended.items()}
        other = DrillLedger(
            self.seed, self.body, self.topics, self.queues, appended, list(self.acknowledged), self.made
        )
        other._chance.setstate(self._chance.getstate())
        return other

    def put(self, store: MessageStore, *, wait: bool = True) -> PutResult:
        """Put one message, or now and then a batch; note it when it was acknowledged."""
        chance = self._chance
        topic, queue_id = chance.choice(self.topics), chance.randrange(self.queues)
        items = [self._item(queue_id) for _ in range(chance.choice(_BATCHES))]
        if len(items) == 1:
            message = Message(topic, items[0].body, queue_id, properties.parse(items[0].properties_raw.decode()))
            result = store.put(message, wait=wait)
        else:
            result = store.put_batch(Message(topic, queue_id=queue_id), items, wait=wait)
        if result.append is not None:
            new = list(stored(topic, queue_id, items, result))
            self.add(new)
            if result.ok and wait:
                self.acknowledged += new
        return result

    def make(self) -> tuple[str, int, BatchItem]:
        """A message that nobody has put yet: its topic, queue, and the rest; no client sends an empty body."""
        topic, queue_id = self._chance.choice(self.topics), self._chance.randrange(self.queues)
        return topic, queue_id, self._item(queue_id, least=1)

    def add(self, new: Iterable[Stored]) -> None:
        """They are in the log, acknowledged or not."""
        for one in new:
            self.appended.setdefault(one.physical_offset, []).append(one)

    def forget(self, gone: Callable[[Stored], bool]) -> int:
        """Drop what was given up on purpose: it may not come back either. How many of them were acknowledged."""
        before = len(self.acknowledged)
        self.acknowledged = [one for one in self.acknowledged if not gone(one)]
        kept = {offset: [one for one in put if not gone(one)] for offset, put in self.appended.items()}
        self.appended = {offset: put for offset, put in kept.items() if put}
        return before - len(self.acknowledged)

    def all(self) -> Iterator[Stored]:
        """Everything that came into the log."""
        for put in self.appended.values():
            yield from put

    def _item(self, queue_id: int, *, least: int = 0) -> BatchItem:
        chance = self._chance
        unique = f"U{self.seed:04d}{self.made:06d}"
        self.made += 1
        body = chance.randbytes(chance.choice([least, 10, chance.randrange(1, self.body)]))
        key = f"k{chance.randrange(_KEYS)}"
        raw = properties.join({"UNIQ_KEY": unique, "KEYS": key, "TAGS": "ab"[queue_id % 2]})
        return BatchItem(body, 0, raw.encode())


def stored(topic: str, queue_id: int, items: Sequence[BatchItem], result: PutResult) -> Iterator[Stored]:
    """The records of an append that was answered."""
    append = result.append
    assert append is not None
    for i, (item, offset) in enumerate(zip(items, append.offsets, strict=True)):
        record = encode(Message(topic, item.body, queue_id), item.properties_raw)
        number = append.queue_offset + i
        patch(record, 0, queue_offset=number, physical_offset=offset, store_timestamp=append.store_timestamp)
        raw = item.properties_raw
        unique = properties.parse(raw.decode())["UNIQ_KEY"]
        yield Stored(topic, queue_id, number, offset, unique, raw, bytes(record))


# --- is it all there? -------------------------------------------------------------------------------------------------


def missing(store: MessageReader, expected: Sequence[Stored], *, most_keys: int | None = None) -> Iterator[str]:
    """Says of each of `expected` what is not as it should be: by physical offset, by queue offset, by key.

    Args:
        store: what is read.
        expected: what must be there.
        most_keys: so many of them are looked up by key, first and last among them (default: all). Each look-up walks
            all index files, so that all of them take the square of the messages' number.
    """
    step = 1 if most_keys is None else max(1, -(-len(expected) // most_keys))
    for number, one in enumerate(expected):
        try:
            fault = _fault(store, one, by_key=number % step == 0 or number == len(expected) - 1)
        except RStoreError as error:
            fault = str(error)
        if fault is not None:
            yield f"{one.name}, log {one.physical_offset}: {fault}"


def _fault(store: MessageReader, one: Stored, *, by_key: bool) -> str | None:
    there = store.look_message(one.physical_offset)
    if there is None:
        return "lost"
    if there.properties.get("UNIQ_KEY") != one.unique:
        return "another message has its offset"
    got = store.get(one.topic, one.queue_id, one.queue_offset, 1)
    if len(got.messages) != 1 or not one.is_record(bytes(got.messages[0])):
        return f"not read by its queue offset ({got.status.value})"
    if by_key and store.query(one.topic, one.unique).offsets != (one.physical_offset,):
        return "not found by its key"
    return None


def strangers(
    store: MessageReader,
    queues: Iterable[tuple[str, int]],
    ledger: DrillLedger,
    *,
    repeats: bool = False,
) -> Iterator[str]:
    """Says of each message that is read by queue why it should not be there: never put, twice, or under another offset.

    Args:
        store: what is read.
        queues: (topic, queue id) of all its queues.
        ledger: what was put.
        repeats: a unit may repeat an adjacent one, as a repair fills what was lost (RECOVERY.md, "Bridges").
    """
    seen: set[int] = set()
    for topic, queue_id in queues:
        at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while at < end:
            got = store.get(topic, queue_id, at, _PULL)
            if not got.messages:
                yield f"{topic}/{queue_id} {at}: no message is read there ({got.status.value})"
                at = max(at + 1, got.next_begin_offset)
                continue
            for record in got.messages:
                message = decode(record)
                why = _stranger(record, message, (topic, queue_id, at), seen, ledger, repeats=repeats)
                if why is not None:
                    yield f"{topic}/{queue_id} {at}, log {message.physical_offset}: {why}"
                seen.add(message.physical_offset)
                at += 1


def _stranger(
    record: memoryview,
    message: StoredMessage,
    place: tuple[str, int, int],
    seen: set[int],
    ledger: DrillLedger,
    *,
    repeats: bool,
) -> str | None:
    if not message.crc_ok:
        return "body CRC mismatch"
    if not is_one_of(bytes(record), ledger.appended.get(message.physical_offset, [])):
        return "never put"
    if (message.topic, message.queue_id, message.queue_offset) != place:
        repeated = repeats and (message.topic, message.queue_id) == place[:2]
        return None if repeated else f"it is {message.topic}/{message.queue_id} {message.queue_offset}"
    return "read twice" if message.physical_offset in seen and not repeats else None


def is_one_of(record: bytes, put: Sequence[Stored]) -> bool:
    """Whether it is a record that was put there, or one with zeros in its properties.

    The format has no checksum over properties: of a message that nobody was told of, a sector that was lost
    there can't be seen.
    """
    for one in put:
        rest = len(one.record) - len(one.properties)
        torn = all(a in (0, b) for a, b in zip(record[rest:], one.properties, strict=False))
        if one.is_record(record) or (len(record) == len(one.record) and record[:rest] == one.record[:rest] and torn):
            return True
    return False
