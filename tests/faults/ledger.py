"""What a fault test has put (engine.drill.ledger), as assertions: what was acknowledged is there, and nothing else.

The expected bytes of a record are made from message and answer, not read from the store under test.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from engine.config import FlushDiskType, StoreConfig
from engine.drill.ledger import QUEUES, TOPICS, Clock, DrillLedger, Stored, is_one_of, missing, stored, strangers
from engine.files.disk import Disk
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.support.checking import check_clean

__all__ = [
    "Clock",
    "DrillLedger",
    "Stored",
    "check_recovered",
    "check_store",
    "is_one_of",
    "recover",
    "settings",
    "stored",
]

LOG_FILE = 16384
SIZES = {
    "mapped_file_size_commit_log": LOG_FILE,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
"""Files so small that every kind of them rolls over within a hundred messages."""


def settings(root: Path, **changes: object) -> StoreConfig:
    """SYNC_FLUSH with small files; queues and checkpoint are flushed all the time."""
    often = {"flush_interval_consume_queue": 5, "flush_consume_queue_thorough_interval": 10}
    found = StoreConfig(store_path_root_dir=root, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    return found.with_changes(**{**SIZES, **often, **changes})


def recover(root: Path, *, cut: bool = False) -> RecoverPlan:
    """Plan and apply; the plan."""
    plan = plan_recover(Disk(), settings(root), cut=cut)
    apply(Disk(), plan)
    return plan


MOST_KEYS = 40
"""So many messages of a store are looked up by key, which takes a walk through all of its index files; of a recovered
store `check` holds each entry of the index against the log."""


def check_store(store: MessageStore | ReadStore, expected: Sequence[Stored], ledger: DrillLedger) -> None:
    """Every one of `expected` is there by queue offset, key and physical offset; nothing is there that wasn't put."""
    queues = itertools.product(TOPICS, range(QUEUES))
    strange = list(strangers(store, queues, ledger))
    assert not strange, strange
    lost = list(missing(store, expected, most_keys=MOST_KEYS))
    assert not lost, lost


LOST_PROPERTIES = ("unit-tags", "index-key", "record-suspect", "unit-witness", "index-witness")
"""What check may find behind a power cut: properties have no checksum, so those of the last, unacknowledged record may
be lost under a sound body."""


def check_recovered(root: Path, expected: Sequence[Stored], ledger: DrillLedger, *, known: Sequence[str] = ()) -> None:
    """The recovered store has all of `expected`, is stable, reads, opens, and takes new messages where they belong."""
    again = plan_recover(Disk(), settings(root))
    assert again.refusal is None
    assert not again.changed, again.to_json()
    check_clean(root, settings(root), known=known, why="properties have no checksum" if known else "")
    with ReadStore(settings(root)) as view:
        check_store(view, expected, ledger)
    new = DrillLedger(seed=ledger.seed + 5000)
    with MessageStore.open(settings(root)) as store:
        check_store(store, expected, ledger)
        while len(new.acknowledged) < 5:
            assert new.put(store).ok
        assert store.wait_dispatched()
        assert not store.errors
        assert not store.findings
        both = DrillLedger(appended={offset: list(put) for offset, put in ledger.appended.items()})
        both.add(new.acknowledged)
        check_store(store, [*expected, *new.acknowledged], both)
