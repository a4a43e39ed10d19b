"""What a test has put, what of it was acknowledged, and the proof that a store still has it.

The expected bytes of a record are made here from message and answer, not read from the store under test.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.config import FlushDiskType, StoreConfig
from engine.files.disk import Disk
from engine.format import properties
from engine.format.batch import BatchItem
from engine.format.message import Message, decode, encode, patch
from engine.log.results import PutResult
from engine.read_store import ReadStore
from engine.repair.apply import apply
from engine.repair.plan import RecoverPlan
from engine.repair.recover import plan_recover
from engine.store import MessageStore

LOG_FILE = 16384
SIZES = {
    "mapped_file_size_commit_log": LOG_FILE,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
"""Files so small that every kind of them rolls over within a hundred messages."""

TOPICS = ("Orders", "Audit", "T")
QUEUES = 2


def settings(root: Path, **changes: object) -> StoreConfig:
    """SYNC_FLUSH with small files; queues and checkpoint are flushed all the time."""
    often = {"flush_interval_consume_queue": 5, "flush_consume_queue_thorough_interval": 10}
    found = StoreConfig(store_path_root_dir=root, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    return found.with_changes(**SIZES, **often, **changes)


@dataclass(frozen=True)
class Stored:
    """One message that the store said it has: the whole record as it must lie there."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    unique: str
    properties: bytes
    record: bytes

    @property
    def end(self) -> int:
        """Physical offset behind it."""
        return self.physical_offset + len(self.record)


@dataclass
class Clock:
    """Each look at it is `step` ms later: with more than three seconds, recovery starts in the middle of the log."""

    now: int = 1_700_000_000_000
    step: int = 700

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@dataclass
class Ledger:
    """Makes messages, the same for the same seed, and notes what became of them.

    Attributes:
        appended: everything that was ever put and came into the log, by physical offset.
        acknowledged: what was answered PUT_OK after a flush.
    """

    seed: int = 0
    body: int = 900
    appended: dict[int, list[Stored]] = field(default_factory=dict)
    acknowledged: list[Stored] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = itertools.count()

    def put(self, store: MessageStore, *, wait: bool = True) -> PutResult:
        """Put one message, or now and then a batch; note it when it was acknowledged."""
        topic, queue_id = self._random.choice(TOPICS), self._random.randrange(QUEUES)
        items = [self._item(queue_id) for _ in range(self._random.choice([1, 1, 1, 1, 2, 5]))]
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

    def add(self, new: Iterable[Stored]) -> None:
        """They are in the log, acknowledged or not."""
        for one in new:
            self.appended.setdefault(one.physical_offset, []).append(one)

    def _item(self, queue_id: int) -> BatchItem:
        unique = f"U{self.seed:04d}{next(self._numbers):06d}"
        body = self._random.randbytes(self._random.choice([0, 10, self._random.randrange(1, self.body)]))
        raw = properties.join({"UNIQ_KEY": unique, "KEYS": f"k{self._random.randrange(9)}", "TAGS": "ab"[queue_id % 2]})
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


def recover(root: Path, *, cut: bool = False) -> RecoverPlan:
    """Plan and apply; the plan."""
    plan = plan_recover(Disk(), settings(root), cut=cut)
    apply(Disk(), plan)
    return plan


def check_store(store: MessageStore | ReadStore, expected: Sequence[Stored], ledger: Ledger) -> None:
    """Every one of `expected` is there by queue offset, key and physical offset; nothing is there that wasn't put."""
    seen = set()
    for topic, queue_id in itertools.product(TOPICS, range(QUEUES)):
        at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while at < end:
            got = store.get(topic, queue_id, at, 32)
            assert got.messages, (topic, queue_id, at, got.status)
            for record in got.messages:
                found = decode(record)
                assert found.crc_ok
                assert (found.topic, found.queue_id, found.queue_offset) == (topic, queue_id, at)
                assert is_one_of(bytes(record), ledger.appended.get(found.physical_offset, [])), found
                assert found.physical_offset not in seen
                seen.add(found.physical_offset)
                at += 1
    for one in expected:
        assert one.physical_offset in seen, f"{one.topic}/{one.queue_id} {one.queue_offset}: lost"
        there = store.look_message(one.physical_offset)
        assert there is not None
        assert there.properties["UNIQ_KEY"] == one.unique
        got = store.get(one.topic, one.queue_id, one.queue_offset, 1)
        assert [bytes(record) for record in got.messages] == [one.record]
        assert store.query(one.topic, one.unique).offsets == (one.physical_offset,), f"{one.unique}: key lost"


def is_one_of(record: bytes, put: Sequence[Stored]) -> bool:
    """Whether it is a record that was put there, or one with zeros in its properties.

    The format has no checksum over properties: of a message that nobody was told of, a sector that was lost
    there can't be seen.
    """
    for one in put:
        rest = len(one.record) - len(one.properties)
        torn = all(a in (0, b) for a, b in zip(record[rest:], one.properties, strict=False))
        if record == one.record or (len(record) == len(one.record) and record[:rest] == one.record[:rest] and torn):
            return True
    return False


def check_recovered(root: Path, expected: Sequence[Stored], ledger: Ledger) -> None:
    """The recovered store has all of `expected`, is stable, reads, opens, and takes new messages where they belong."""
    again = plan_recover(Disk(), settings(root))
    assert again.refusal is None
    assert not again.changed, again.to_json()
    with ReadStore(settings(root)) as view:
        check_store(view, expected, ledger)
    new = Ledger(seed=ledger.seed + 5000)
    with MessageStore.open(settings(root)) as store:
        check_store(store, expected, ledger)
        while len(new.acknowledged) < 5:
            assert new.put(store).ok
        assert store.wait_dispatched(10_000)
        assert not store.errors
        assert not store.findings
        both = Ledger(appended={offset: list(put) for offset, put in ledger.appended.items()})
        both.add(new.acknowledged)
        check_store(store, [*expected, *new.acknowledged], both)
