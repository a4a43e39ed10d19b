"""Topics of RocketMQ 5 whose queue type is BatchCQ, by their attribute in config/topics.json.

A broker goes by it alone: where it dispatches a record, and whether it starts over the queues that it finds. Sources
(5.3.3): QueueTypeUtils#getCQType, ConsumeQueueStore#findOrCreateConsumeQueue, #queueTypeShouldBe.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from engine.errors import RStoreError
from engine.format import fastjson, names

if TYPE_CHECKING:
    from engine.files.disk import Disk

_TABLE = "topics.json"
_TYPE, _BATCH = "queue.type", "BatchCQ"
BATCH_ATTRIBUTES = {_TYPE: _BATCH}
"""What a topic's entry in topics.json needs, or no 5.x broker starts over its batch queues."""


def batch_by_attribute(disk: Disk, root: str) -> frozenset[str]:
    """Their names; none where the table can't be read: a broker reads its .bak then, and so is done here."""
    for name in (_TABLE, f"{_TABLE}.bak"):
        path = os.path.join(root, names.CONFIG, name)
        with contextlib.suppress(RStoreError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            data = disk.read_file(path)
            if _BATCH.encode() not in data and data.strip():  # most stores: their table is not taken apart
                return frozenset()
            topics = fastjson.loads(data.decode("utf-8", "replace"))["topicConfigTable"]
            return frozenset(
                topic
                for topic, one in topics.items()
                if isinstance(one, dict) and (one.get("attributes") or {}).get(_TYPE) == _BATCH
            )
    return frozenset()
