"""What a replay of a repair would put: a plan without a byte written; engine.replay carries it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format.message import Message
from engine.inspect.dump.saved_log import SavedLog, SavedRepair, log_spans
from engine.inspect.dump.whole_records import batches, whole_records
from engine.log.derive import TopicQueue
from engine.log.source import ClosedLog
from engine.repair.replay.choice import Chooser, ReplayRules, Skip

if TYPE_CHECKING:
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.dump.replayed import Run
    from engine.inspect.dump.salvage_scan import ScanReport
    from engine.inspect.dump.whole_records import Found
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.replay.target import ReplayTarget

SHOWN = 20
"""Records that can't be put which are named one by one."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What was asked for. `name`: the repair's, None for the last that saved a record. `into`: None: its own store."""

    name: str | None = None
    into: Path | None = None
    topics: tuple[str, ...] | None = None
    displaced: bool = False
    again: bool = False


@dataclass(slots=True)
class QueueShare:
    """What one queue gets: messages, bytes of their old records, their store times (ms), from which queue offset on."""

    start: int
    messages: int = 0
    size: int = 0
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class ReplayShare:
    """The messages of a replay. `skipped`: records and bytes by reason. `refused`: places that can't be put, and why.

    `at_once`, `waiting`: delayed messages that go to their topic now, or wait again.
    """

    messages: int = 0
    size: int = 0
    queues: dict[TopicQueue, QueueShare] = field(default_factory=dict)
    skipped: dict[Skip, tuple[int, int]] = field(default_factory=dict)
    refused: list[tuple[int, str, str]] = field(default_factory=list)
    at_once: int = 0
    waiting: int = 0
    further_lost: int = 0


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay.

    Attributes:
        files: the store that the repair is of.
        target: where it goes.
        rules: by which each record is judged.
        run: as it is noted when it begins. `runs`: those before it.
        share: what is put.
        report: what is whole and what is lost in what was saved.
        resumed: whether a killed run is resumed.
        consumers: groups that stand above a queue's end: (group, queue, offset, the queue's end now).
        problems: what the operator should know.
        refusal: why it won't be carried out.
    """

    files: StoreFiles
    target: ReplayTarget
    rules: ReplayRules
    run: Run
    runs: tuple[Run, ...]
    share: ReplayShare
    report: ScanReport
    resumed: bool
    consumers: tuple[tuple[str, TopicQueue, int, int], ...]
    problems: tuple[str, ...]
    refusal: RStoreError | None

    @property
    def changed(self) -> bool:
        """Whether carrying it out changes a byte."""
        return self.share.messages > 0 or self.resumed

    @property
    def saved(self) -> SavedRepair:
        """The repair."""
        return self.rules.saved

    def to_json(self, *, done: bool) -> dict[str, Any]:
        """The JSON of `salvage replay`."""
        share = self.share
        return {
            "repair": self.saved.id,
            "into": self.target.root,
            "created": self.target.make,
            "resumed": self.resumed,
            "recovered": self.target.recovery is not None and self.target.recovery.changed,
            "replayedBefore": self.run.messages,
            "messages": share.messages,
            "bytes": share.size,
            "queues": [
                {
                    "topic": queue.topic,
                    "queueId": queue.queue_id,
                    "messages": one.messages,
                    "bytes": one.size,
                    "firstStoreTimestamp": one.first,
                    "lastStoreTimestamp": one.last,
                    "fromOffset": one.start,
                    "toOffset": one.start + one.messages,
                }
                for queue, one in sorted(share.queues.items())
            ],
            "delayed": {"due": share.at_once, "waiting": share.waiting},
            "skipped": [
                {"why": why.name.lower().replace("_", "-"), "records": records, "bytes": size}
                for why, (records, size) in sorted(share.skipped.items(), key=lambda item: item[0].name)
            ],
            "refused": [
                {"physicalOffset": place, "topic": topic, "reason": reason}
                for place, topic, reason in share.refused[:SHOWN]
            ],
            "lost": [lost_range.to_json() for lost_range in self.report.lost],
            "consumersAbove": [
                {"group": group, "topic": queue.topic, "queueId": queue.queue_id, "offset": offset, "maxOffset": end}
                for group, queue, offset, end in self.consumers
            ],
            "problems": list(self.problems),
            "changed": self.changed,
            "done": done,
        }


def messages_of(plan: ReplayPlan, disk: Disk) -> Iterator[tuple[int, Message]]:
    """The messages to put, in log order, each with the place that its record had. Raises StorageError."""
    with SavedLog(disk, log_spans(plan.saved)) as saved, ClosedLog(disk, plan.files.log) as log:
        end = plan.target.log_end if plan.target.own else 1 << 63
        chooser = Chooser(plan.rules, log, end, saved)
        for batch, displaced in batches(read_saved(disk, saved, plan.files.config.max_message_size)):
            for i in range(len(batch)):
                message = chooser.choose(batch, i, displaced=displaced)
                if isinstance(message, Message):
                    yield batch.offset(i), message


def read_saved(disk: Disk, saved: SavedLog, max_message_size: int) -> Iterator[Found]:
    """All that was saved of the log (engine.inspect.dump.whole_records). Raises StorageError."""
    start = saved.segments[0].offset if saved.segments else 0
    return whole_records(disk, saved, start, max_message_size=max_message_size)
