"""Takes consume queues out of an open store: those of topics that are gone, and those whose messages are all gone.

While a queue goes, dispatch appends to none and the clean service looks at none: both hold what they need for their own
work. A queue that goes begins anew at offset 0 with its topic's next message. Its messages stay in the log until
that expires; a start after a crash may find the newest of them again, as with Apache's.

Sources: DefaultMessageStore#cleanUnusedTopic, #cleanExpiredConsumerQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format import names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from engine.log.commitlog import CommitLog
    from engine.log.consume_queue import ConsumeQueue
    from engine.log.derive import TopicQueue
    from engine.services.clean import CleanService
    from engine.services.dispatch import DispatchService
    from engine.services.queue_table import QueueTable


def _keeps_offsets(topic: str) -> bool:
    """Whether its queues stay, whatever is gone: how far they were delivered is noted by their offsets."""
    return topic in (names.SCHEDULE_TOPIC, names.TIMER_TOPIC) or topic.startswith(names.REVIVE_PREFIX)


class QueueRemoval:
    """See the module. Thread-safe."""

    def __init__(self, log: CommitLog, queues: QueueTable, dispatch: DispatchService, clean: CleanService) -> None:
        self._log = log
        self._queues = queues
        self._dispatch = dispatch
        self._clean = clean

    def unused(self, topics: Collection[str]) -> list[TopicQueue]:
        """Remove the queues of all topics but `topics`, light queues, delayed and timer messages; what went.

        Raises StorageError: what is left goes the next time.
        """
        kept = frozenset(topics)
        return self._remove(
            key
            for key in self._queues.queues()
            if not (key.topic in kept or _keeps_offsets(key.topic) or names.is_lmq(key.topic))
        )

    def expired(self) -> list[TopicQueue]:
        """Remove the queues whose last message lies before the log's first byte; what went. Raises as `unused`."""
        minimum = self._log.min_offset
        keys = (key for key in self._queues.queues() if not _keeps_offsets(key.topic))
        return self._remove(keys, lambda queue: 0 <= queue.max_physical_offset <= minimum)

    def _remove(
        self, keys: Iterable[TopicQueue], condition: Callable[[ConsumeQueue], bool] = lambda _: True
    ) -> list[TopicQueue]:
        gone: list[TopicQueue] = []
        for key in keys:
            with self._clean.between_rounds(), self._dispatch.between_batches():
                queue = self._queues.find(key)
                if queue is None or not condition(queue):
                    continue
                self._queues.forget(key)
                self._log.forget_queue(key)
                queue.destroy()
            gone.append(key)
        return gone
