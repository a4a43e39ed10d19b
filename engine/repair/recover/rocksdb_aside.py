"""What a recovery does with consume queues in RocksDB: it leaves the database as it is, or sets it aside.

A database whose units all are those of the log stays, also where units of the last records are missing: its broker's
next start puts them. Another one, and one that can't be read, is set aside, file by file: a 5.3.3 or 5.5.0 broker that
finds none builds the queues again from the whole log, if it starts as after a crash. Its normal start would leave out
the message at physical offset 0 (RocksDBConsumeQueueStore#getMaxPhyOffsetInConsumeQueue is 0 then). So the abort file
stays, or is made. Units are not written into the database: its format is that of the broker's own library.

It can't build what no record says: where messages before others of their queue are lost, a recovery refuses. No broker
gets past a queue offset without a unit in RocksDB: 5.5.0 answers pulls that reach it with a NullPointerException, and
5.3.3 has consumers begin again at offset 0 (RocksDBConsumeQueueTable#rangeQuery, DefaultMessageStore#getMessage).

Where queues have files, too (rocksdbCQDoubleWriteEnable), these are what is compared and repaired.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import CannotRepair, NewerStore
from engine.files.rocksdb import has_rocksdict
from engine.format.quantities import counted
from engine.inspect.store.newer import ROCKSDB_QUEUES
from engine.inspect.store.odd import OddFile
from engine.repair.recover.not_dispatched import standing_queues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.planned_rows import PlannedRows
    from engine.repair.recover.queue_plan import QueuePlan

_WHY = "RocksDB's consume queues, which are not those of the log"


@dataclass(frozen=True, slots=True)
class RocksDBPlan:
    """What becomes of the database: `aside`: its files, where they are set aside.

    `alone`: no queue has files, so that none is planned. `starts_again`: its broker is to start as after a crash.
    `refusal`: why its broker could not go on with it.
    """

    aside: tuple[OddFile, ...] = ()
    alone: bool = False
    starts_again: bool = False
    refusal: RStoreError | None = None


def files_to_plan(files: StoreFiles) -> StoreFiles:
    """The survey whose queues are compared with the log: those of files alone, where queues have both.

    Raises:
        NewerStore: the package that reads the database is not installed.
    """
    newer = files.newer
    if not newer.has(ROCKSDB_QUEUES):
        return files
    if newer.unread is not None and newer.queue_database and not newer.queues_set_aside and not has_rocksdict():
        raise NewerStore(
            f"the store has its {ROCKSDB_QUEUES} ({newer.where(ROCKSDB_QUEUES)}), which can't be read",
            path=files.root,
            hint=str(newer.unread),
        )
    plain = tuple(queue for queue in files.queues if queue.source is None)
    return replace(files, queues=plain) if plain else files


def plan_rocksdb(
    disk: Disk, files: StoreFiles, queues: Sequence[QueuePlan], writes: PlannedRows, *, log_changes: bool
) -> RocksDBPlan:
    """What becomes of the database, by how the `queues` would change. `log_changes`: of the log more than its end.

    Raises StorageError.
    """
    newer = files.newer
    if not newer.has(ROCKSDB_QUEUES):
        return RocksDBPlan()
    alone = not any(queue.source is None for queue in files.queues)
    lost = sum(queue.units_filled for queue in queues) if alone else 0
    if alone and newer.unread is not None and (log_changes or not newer.queues_set_aside):
        lost = writes.missing()  # all units are to be built, from the records alone
    if lost:
        return RocksDBPlan(alone=True, refusal=_stuck(files, lost))
    if newer.queues_set_aside or not newer.queue_database:
        return RocksDBPlan(alone=alone, starts_again=alone)
    changed = any(queue.changed for queue in queues)
    if newer.unread is None and not log_changes:
        if not changed:
            return RocksDBPlan(alone=alone)
        if alone and standing_queues(disk, files, queues, writes) is not None:
            return RocksDBPlan(alone=True, starts_again=True)
    directory = os.path.join(files.root, newer.queue_database)
    database = sorted((one for one in disk.scandir(directory) if one.is_file), key=lambda one: one.path)
    return RocksDBPlan(tuple(OddFile(one.path, one.size, _WHY, movable=True) for one in database), alone, True)


def _stuck(files: StoreFiles, lost: int) -> CannotRepair:
    """Messages in the middle of queues are lost."""
    return CannotRepair(
        f"{counted(lost, 'queue offset')} would be without a message, and no broker gets past one in RocksDB "
        f"({files.newer.where(ROCKSDB_QUEUES)})",
        path=files.root,
        hint="recover --cut --whole ends the log before the damage, and saves what follows: rstore salvage replay puts "
        "that into another store. A broker with its queues in files (storeType=default) has no such limit",
    )
