"""The ledger of a recovery: by topic and queue, which offsets were lost, rebuilt, repeated or renumbered, and
which groups are affected.

A consumer group whose offset lies above a queue's new maximum is in danger twice: messages that come before it asks
again are never read by it, and a queue whose minimum is 0 is read from the start otherwise (Apache's
DefaultMessageStore#getMessage, OFFSET_OVERFLOW_BADLY). So each such group gets the command that sets it right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.inspect.next_step import arguments, command_line
from engine.inspect.store.consumers import DELIVERY, read_consumers

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.consumers import Consumers
    from engine.log.derive import TopicQueue
    from engine.repair.recover.batch_plan import BatchQueuePlan
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.queue_plan import QueuePlan, Renumbered

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QueueLedger:
    """What becomes of one queue's offsets: spans [start, end) of queue offsets.

    `gone`: units after the new maximum, cut. `repeated`: units whose messages are lost, which show an adjacent
    message, so that no later offset moves. `rebuilt`: units that get their message back. `after`: sound records
    (count, bytes) that go with the end of the log.
    """

    queue: TopicQueue
    gone: tuple[Span, ...]
    repeated: tuple[Span, ...]
    rebuilt: tuple[Span, ...]
    renumbered: tuple[Renumbered, ...]
    after: tuple[int, int]

    def __bool__(self) -> bool:
        return bool(self.gone or self.repeated or self.rebuilt or self.renumbered or self.after[0])

    def to_json(self) -> dict[str, Any]:
        """One line of the plan's ledger."""
        return {
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "lost": _json(self.gone),
            "repeated": _json(self.repeated),
            "rebuilt": _json(self.rebuilt),
            "renumbered": [one._asdict() for one in self.renumbered],
            "recordsLost": self.after[0],
            "bytesLost": self.after[1],
        }


@dataclass(frozen=True, slots=True)
class Above:
    """A consumer group that stands above a queue's new maximum."""

    group: str
    queue: TopicQueue
    offset: int
    max_offset: int
    config: StoreConfig

    @property
    def command(self) -> str | None:
        """What sets it right, None for the broker's own delivery of delayed messages (it corrects itself)."""
        if self.group == DELIVERY:
            return None
        words = arguments(self.group, self.queue.topic, str(self.queue.queue_id), str(self.max_offset))
        return command_line(self.config, "offsets", "set", *words)

    def to_json(self) -> dict[str, Any]:
        """One line of the plan's consumers."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "offset": self.offset,
            "maxOffset": self.max_offset,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """The whole: queues of which something changes, groups that stand too high, what could not be read of config/."""

    queues: tuple[QueueLedger, ...]
    above: tuple[Above, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For the JSON of a plan."""
        return {
            "ledger": [queue.to_json() for queue in self.queues],
            "consumers": [one.to_json() for one in self.above],
        }


def ledger_of(disk: Disk, plan: RecoverPlan, consumers: Consumers | None = None) -> Ledger:
    """The ledger of a plan; `consumers` of its queues, where the caller has read them. Raises StorageError."""
    by_queue = {queue.queue: queue for queue in plan.every_queue}
    after = plan.log.end.after
    lines = [
        line
        for queue in sorted(by_queue.keys() | after.keys())
        if (line := _line(queue, by_queue.get(queue), after.get(queue, (0, 0))))
    ]
    consumers = consumers or read_consumers(disk, plan.files.root, by_queue)
    above = [
        Above(group, queue, offset, queue_plan.max_offset, plan.files.config)
        for queue, queue_plan in sorted(by_queue.items())
        for group, offset in consumers.above(queue, queue_plan.max_offset)
    ]
    return Ledger(tuple(lines), tuple(above), consumers.problems)


def _line(queue: TopicQueue, plan: QueuePlan | BatchQueuePlan | None, after: Span) -> QueueLedger:
    if plan is None:
        return QueueLedger(queue, (), (), (), (), after)
    gone = ((plan.max_offset, plan.cut_end),) if plan.cut_end > plan.max_offset else ()
    repeated = tuple(span for span in (plan.front, *plan.fills) if span[0] < span[1])
    return QueueLedger(queue, gone, repeated, plan.written, plan.renumbered, after)


def _json(spans: tuple[Span, ...]) -> list[list[int]]:
    return [[start, end] for start, end in spans]
