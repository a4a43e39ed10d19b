"""The half of `reindex` that reads: each split's records derived to units, queue by queue, and keys.

Deriving needs nothing of other splits. What a split says of damage is judged on the driver, who knows whether sound
records lie after it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.libc import Libc
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, Units, joined
from engine.log.scan import Damage, RecordBatch
from engine.pipeline.jobs.reindex_rows import KEY_SIZE, KeyRow, Scanned, UnitRow, key_blobs, unit_blobs
from engine.pipeline.jobs.tasks import Failed
from engine.pipeline.splits import events, open_log
from engine.pipeline.worker import settle
from engine.repair.reindex.reindex import by_queue, keys_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.pipeline.splits import Split
    from engine.repair.reindex.reindex import Scope

AT_ONCE = 1 << 18
"""Records that are derived before their units and keys are passed on: some 25 MB of them, of usual messages."""


class ScanWork(NamedTuple):
    """A split to read. `begin`: the physical offset from which on all is rebuilt."""

    store: int
    number: int
    split: Split
    begin: int
    scope: Scope


def scan_group(group: Sequence[ScanWork]) -> Iterator[UnitRow | KeyRow | Scanned | Failed]:
    """On an executor: the rows of some splits, and what is said of each."""
    for work in group:
        try:
            yield from _scan(work)
        except RStoreError as error:
            yield Failed(error)
            return
        Libc().give_back_freed()  # a worker lives on, and what it keeps adds up
    settle()


def _scan(work: ScanWork) -> Iterator[UnitRow | KeyRow | Scanned]:
    config = work.split.store.config
    rules = DeriveRules.of(config)
    deriver = Deriver(replace(rules, index=rules.index and work.scope.index), QueueNumbers())
    out = _Out(work, deriver.queues)
    held: list[tuple[Units, Keys]] = []
    many = records = messages = 0
    end: int | None = None
    damage: list[Damage] = []
    with open_log(work.split, Disk()) as log:
        for event in events(work.split, log, check_crc=config.check_crc_on_recover):
            if isinstance(event, Damage):
                damage.append(event)
            elif isinstance(event, RecordBatch):
                held.append(deriver.derive(event))
                many += len(event)
                records += len(event)
                messages += event.messages
                end = event.end
                if many >= AT_ONCE:
                    yield from out.rows(*joined(held))
                    held.clear()
                    many = 0
    if held:
        yield from out.rows(*joined(held))
    yield Scanned(work.store, work.number, records, messages, end, out.units, out.keys, tuple(damage))


@dataclass(slots=True)
class _Out:
    """Makes rows, and counts what is in them."""

    work: ScanWork
    numbers: QueueNumbers
    units: int = 0
    keys: int = 0
    chunk: int = 0

    def rows(self, units: Units, keys: Keys) -> Iterator[UnitRow | KeyRow]:
        work, scope = self.work, self.work.scope
        if scope.queues:
            for number, some in by_queue(units, work.begin):
                topic, queue_id = self.numbers[number]
                if scope.topic in (None, topic):
                    self.units += len(some)
                    for blob in unit_blobs(some):
                        yield UnitRow(work.store, topic, queue_id, work.number, self.chunk, blob)
                        self.chunk += 1
        for blob in key_blobs(keys_from(keys, work.begin)):
            yield KeyRow(work.store, work.number, self.keys, blob)
            self.keys += len(blob) // KEY_SIZE
