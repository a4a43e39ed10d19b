"""Two stores that were one, and have diverged: the old master, closed, and the new one, open, with its service."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.broker.ha.master import MasterService
from engine.client.ha_reader import HaReader
from engine.client.remote_broker import BrokerFacts
from engine.config import BrokerRole, StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message
from engine.inspect.store.survey import survey
from engine.log.scan import Blank, Event, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.rewind.divergence import OtherLog
from engine.rewind.rewind import RewindPlan, plan_rewind
from engine.store import MessageStore
from tests.engine.broker.ha.pair import LOG, QUICK
from tests.engine.opening import small

QUEUES = 3


@dataclass
class Diverged:
    """The stores, and what the old master alone was promised to keep: bodies by topic and queue."""

    old: Path
    new: MessageStore
    port: int
    common: int
    end: int
    lost: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def closed(self) -> int:
        """Where both logs go on when the next message fits in neither's segment: the blank record is common."""
        size = self.config.mapped_file_size_commit_log
        return -(-self.common // size) * size

    @property
    def facts(self) -> BrokerFacts:
        return facts_of(self.new, self.port)

    @property
    def config(self) -> StoreConfig:
        return small(self.old, **self.sizes)

    def plan(
        self, *, facts: BrokerFacts | None = None, other: OtherLog | None = None, verify_all: bool = False
    ) -> RewindPlan:
        disk = Disk()
        with HaReader("127.0.0.1", self.port) as reader:
            return plan_rewind(
                disk, survey(disk, self.config), facts or self.facts, other or reader, verify_all=verify_all
            )


def facts_of(store: MessageStore, port: int) -> BrokerFacts:
    size = store.config.mapped_file_size_commit_log
    log = store.log
    start, end = max(log.min_offset, 0), log.max_offset
    return BrokerFacts("127.0.0.1:10911", "broker-a", "ASYNC_MASTER", size, start, end, port, {})


def fill(store: MessageStore, rng: random.Random, count: int, name: str) -> list[Message]:
    sent = []
    for i in range(count):
        body = b"%s-%06d-" % (name.encode(), i) + rng.randbytes(rng.randrange(0, 400))
        one = Message("T", body, rng.randrange(QUEUES), {"KEYS": f"k{i}"})
        assert store.put(one, wait=False).append
        sent.append(one)
    return sent


def records(root: Path) -> list[int]:
    """Where records begin."""
    return [offset for event in events(root) if isinstance(event, RecordBatch) for offset in event.offsets().tolist()]


def blanks(root: Path) -> list[int]:
    """Where the blank records are that close segments."""
    return [event.offset for event in events(root) if isinstance(event, Blank)]


def events(root: Path) -> list[Event]:
    """What a scan of a closed store's log meets."""
    disk = Disk()
    files = survey(disk, small(root))
    with ClosedLog(disk, files.log) as log:
        return list(Scanner(log).scan(files.log[0].offset))


@contextmanager
def diverged(place: Path, seed: int, before: int, ours: int, theirs: int) -> Iterator[Diverged]:
    """`before` messages that both have, then `ours` of the old master's and `theirs` of the new one's."""
    rng = random.Random(seed)
    old, new = place / "old", place / "new"
    with MessageStore.open(small(old)) as store:
        fill(store, rng, before, "both")
        common = store.log.max_offset
    shutil.copytree(old, new)
    result: dict[tuple[str, int], list[bytes]] = {}
    with MessageStore.open(small(old)) as store:
        for one in fill(store, rng, ours, "old"):
            result.setdefault((one.topic, one.queue_id), []).append(one.body)
        end = store.log.max_offset
    with served(new) as (store, port):
        fill(store, rng, theirs, "new")
        yield Diverged(old, store, port, common, end, result)


@contextmanager
def served(root: Path, **sizes: int) -> Iterator[tuple[MessageStore, int]]:
    """A store with a master's service."""
    store = MessageStore.open(small(root, broker_role=BrokerRole.ASYNC_MASTER, **sizes))
    service = MasterService(store, "127.0.0.1", 0, QUICK, LOG)
    try:
        yield store, service.start()
    finally:
        service.stop()
        store.close()
