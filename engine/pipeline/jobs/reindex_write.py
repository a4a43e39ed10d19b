"""The half of `reindex` that writes: a queue, an index file, each by one task, with the engine's own builders.

A task writes below a directory of its own attempt: one that Spark lost and runs again, or runs twice, can't disturb
what the other wrote. The driver takes over what the attempts wrote that answered (`reindex.py`).
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from engine.errors import RStoreError, StorageError
from engine.files.disk import Disk
from engine.files.libc import Libc
from engine.format import names
from engine.log.derive import TopicQueue
from engine.pipeline.jobs.reindex_rows import (
    INDEX,
    KEY_SIZE,
    QUEUE,
    Addressed,
    BlobTarget,
    KeyRow,
    UnitRow,
    keys_of,
    units_of,
)
from engine.pipeline.jobs.tasks import Failed
from engine.repair.reach import building
from engine.repair.reindex.build import BuiltQueue, QueueBuilder
from engine.repair.reindex.index import IndexShare, build_share
from engine.repair.trees import same_file

if TYPE_CHECKING:
    from pyspark import Broadcast

    from engine.inspect.store.survey import StoreFiles

APART = "apart"
"""Below the build directory: what tasks write, a directory an attempt."""
NOT_SHARED = "driver and executors must see the build directory under the same path"


class StoreWork(NamedTuple):
    """One store that is rebuilt.

    `into`: where it is built. `begin`: the physical offset from which on. `shares`: the index files that are written.
    `key_starts`: by split, the number of its first key among the store's.
    """

    files: StoreFiles
    into: str
    begin: int
    shares: tuple[IndexShare, ...]
    key_starts: dict[int, int]


class QueuesDone(NamedTuple):
    """Queues that a task built below `place`, and which of them differ from the store's."""

    store: int
    place: str
    built: tuple[BuiltQueue, ...]
    changed: frozenset[TopicQueue]


class IndexDone(NamedTuple):
    """An index file that a task built below `place`, and whether it differs from the store's at its place."""

    store: int
    place: str
    share: IndexShare
    changed: bool


Done: TypeAlias = QueuesDone | IndexDone | Failed


def address(stores: Broadcast[tuple[StoreWork, ...]], row: UnitRow | KeyRow | object) -> Iterator[Addressed]:
    """Where a row goes: units to their queue, keys to the index files that they fall into."""
    if isinstance(row, UnitRow):
        yield BlobTarget(row.store, QUEUE, row.topic, row.queue_id, row.split, row.chunk), row.units
    elif isinstance(row, KeyRow):
        work = stores.value[row.store]
        first = work.key_starts[row.split] + row.first
        begin = bisect_right(work.shares, first, key=lambda share: share.end)
        for number in range(begin, len(work.shares)):
            share = work.shares[number]
            if share.first >= first + row.many:
                break
            low, high = max(first, share.first), min(first + row.many, share.end)
            some = row.keys[(low - first) * KEY_SIZE : (high - first) * KEY_SIZE]
            yield BlobTarget(row.store, INDEX, "", number, row.split, row.first), some
            if high == share.end and number + 1 < len(work.shares):
                yield BlobTarget(row.store, INDEX, "", number + 1, -1, 0), some[-KEY_SIZE:]


def partition(target: BlobTarget) -> int:
    """Which task builds a target (modulo their number): the same on every machine, index files one after another."""
    if target.kind == INDEX:
        return target.store + target.number
    return crc32(f"{target.store}/{target.topic}/{target.number}".encode())


def build(stores: Broadcast[tuple[StoreWork, ...]], rows: Iterator[Addressed]) -> Iterator[Done]:
    """On an executor: build what the rows, sorted by their target, belong to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = "0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
    try:
        for (store, kind), some in groupby(rows, key=lambda row: row[0][:2]):
            work = stores.value[store]
            apart = os.path.join(work.into, APART)
            if not Disk().is_dir(apart):
                raise StorageError("the build directory is missing", path=apart, hint=NOT_SHARED)
            disk = building(Disk(), work.files.config, work.into)
            place = os.path.join(apart, attempt)
            if kind == QUEUE:
                yield _queues(disk, work, store, place, some)
            else:
                yield from _index(disk, work, store, place, some)
    except RStoreError as error:
        yield Failed(error)
    Libc().give_back_freed()


def _queues(disk: Disk, work: StoreWork, store: int, place: str, rows: Iterator[Addressed]) -> QueuesDone:
    disk.mkdirs(place)
    builder = QueueBuilder(disk, work.files, place, work.begin)
    try:
        for target, blob in rows:
            builder.append(TopicQueue(target.topic, target.number), units_of(blob))
    except BaseException:
        with contextlib.suppress(RStoreError):  # what came first is to be reported
            builder.close()
        raise
    builder.close()
    return QueuesDone(store, place, builder.built(), builder.changed())


def _index(disk: Disk, work: StoreWork, store: int, place: str, rows: Iterator[Addressed]) -> Iterator[IndexDone]:
    directory = os.path.join(place, names.INDEX)
    disk.mkdirs(directory)
    for number, some in groupby(rows, key=lambda row: row[0].number):
        share = work.shares[number]
        path = os.path.join(directory, share.name)
        before = share.before or (0, 0)
        blobs = iter(some)
        if share.begun:
            disk.copy_file(os.path.join(work.into, names.INDEX, share.name), path)
        elif share.before is None:
            last = keys_of(next(blobs)[1])
            before = int(last.physical_offset[0]), int(last.store_timestamp[0])
        build_share(disk, path, work.files.index_layout, share, before, (keys_of(blob) for _, blob in blobs))
        disk.sync_dir(directory)
        yield IndexDone(store, place, share, _differs(disk, work.files, share, path))


def _differs(disk: Disk, files: StoreFiles, share: IndexShare, path: str) -> bool:
    """Whether the store has another file at this one's place, names aside."""
    old: Sequence[str] = [there.path for there in files.index]
    return share.place >= len(old) or not same_file(disk, old[share.place], path)
