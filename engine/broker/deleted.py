"""Topics that were deleted: recovery finds their messages in the log, makes queues for them, and those go again.

The log keeps messages until it expires. Recovery can't tell a topic that was deleted from one whose queues were lost,
so it makes the queues anew; here topics.json decides. A topic counts as deleted only when topics.json is there and
doesn't name it, and it had no queue before recovery. (Apache's broker makes such queues for the newest messages of the
log alone, and keeps them: with a topic of that name made again, they would be back.)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format import names

if TYPE_CHECKING:
    from engine.broker.tables.topics import TopicTable
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.derive import TopicQueue
    from engine.store import MessageStore


def topics_with_queues(disk: Disk, config: StoreConfig) -> frozenset[str]:
    """To be asked before the store is opened. Raises StorageError."""
    base = os.fspath(config.store_path_root_dir / names.CONSUMEQUEUE)
    if not disk.exists(base):
        return frozenset()
    topics = (entry for entry in disk.scandir(base) if entry.is_directory)
    return frozenset(entry.name for entry in topics if disk.listdir(entry.path))


def remove_revived(store: MessageStore, topics: TopicTable, before: frozenset[str]) -> list[TopicQueue]:
    """Take the queues of deleted topics away; `before`: of `topics_with_queues`. Raises StorageError."""
    if not topics.was_kept:
        return []
    known = {*topics.topics, *topics.system}
    every = {queue.topic for queue in store.queues.queues()}
    revived = {topic for topic in every - known - before if not names.is_system_topic(topic)}
    return store.removal.unused(every - revived) if revived else []
