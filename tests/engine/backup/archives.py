"""Stores with archives for tests, and what they hold, read queue by queue."""

from __future__ import annotations

from pathlib import Path

from engine.backup.archive.archive import archive_of
from engine.backup.archive.keeping import ArchiveKeeper
from engine.backup.archive.reading import ArchivedStore
from engine.backup.repository import Repository
from engine.config import StoreConfig, of_store
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format.message import StoredMessage
from engine.read_queue import QueueReading, QueueRequest
from engine.read_store import ReadStore
from engine.repair.change import Outcome, carry_out
from engine.repair.expire.change import ExpireChange
from engine.repair.expire.expire import ExpirePlan, ExpireRules

NOW = ExpireRules(forced=True, reserved_hours=0)


def expire(
    repository: Repository, store: Path | StoreConfig, disk: Disk | None = None, rules: ExpireRules = NOW
) -> Outcome[ExpirePlan]:
    """A round of `rstore expire --archive` on a store whose snapshots are named `a`."""
    config = store if isinstance(store, StoreConfig) else of_store(store)
    change = ExpireChange(rules, None, ArchiveKeeper(repository, "a"))
    return carry_out(change, disk or Disk(), config)


def opened(repository: Repository, store: Path | StoreConfig) -> ArchivedStore:
    """The store with its archive."""
    config = store if isinstance(store, StoreConfig) else of_store(store)
    return ArchivedStore(config, archive_of(Disk(), config, repository))


def messages(store: ReadStore, tags: str | None = None) -> dict[str, list[StoredMessage | FormatError]]:
    """All messages, queue by queue, from each queue's min offset on."""
    read = {}
    for queue in store.queues():
        request = QueueRequest(queue.topic, queue.queue_id, 1 << 30, tags=tags)
        some = list(QueueReading(store, request))
        if some:
            read[str(queue)] = some
    return read
