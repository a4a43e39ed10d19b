"""`rstore rewind`: the plan. What only this store has goes to salvage, and the log ends at the last common record.

It is a truncation (engine.repair.truncate) whose end is the divergence, and offsets that are brought back. What is
added here is where that is, and what the messages were that the new master does not have.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, Refused
from engine.format.topic_rules import FORBIDDEN
from engine.inspect.next_step import command_line
from engine.inspect.store.layout import arranged, layout_of
from engine.log.source import ClosedLog
from engine.repair.truncate.truncate import TruncatePlan
from engine.repair.truncate.truncate import plan as plan_truncate
from engine.rewind.divergence import Divergence, find_divergence
from engine.rewind.master import facts_json, is_slave
from engine.rewind.offsets import OffsetsPlan, plan_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.client.remote_broker import BrokerFacts
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue
    from engine.repair.recover.ledger import Above
    from engine.rewind.divergence import OtherLog

EXPORTED = "tail.jsonl"
"""The file that the printed commands put the saved messages into."""


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind does. `divergence`: None of a log without a record, where there is nothing to compare or to cut."""

    files: StoreFiles
    master: BrokerFacts
    divergence: Divergence | None
    cut: TruncatePlan | None
    offsets: OffsetsPlan

    @property
    def refusal(self) -> RStoreError | None:
        """Why it is not carried out: damage before the cut."""
        return None if self.cut is None else self.cut.repair.refusal

    @property
    def changes(self) -> bool:
        """Whether carrying it out changes a byte."""
        return bool(self.offsets.writes) or (self.cut is not None and self.cut.repair.would_change)

    @property
    def messages(self) -> int:
        """How many messages go that the new master does not have."""
        return 0 if self.cut is None else self.cut.repair.log.end.records_after

    @property
    def have_read(self) -> tuple[Above, ...]:
        """Groups that have read messages that go, by queue."""
        return () if self.cut is None else self.cut.ledger.above

    @property
    def of_brokers(self) -> int:
        """How many of these are delayed messages, or of transactions: no broker takes such records of a producer."""
        return sum(count for queue, (count, _) in self._after.items() if queue.topic in FORBIDDEN)

    @property
    def _after(self) -> Mapping[TopicQueue, tuple[int, int]]:
        return {} if self.cut is None else self.cut.repair.log.end.after

    def messages_back(self, salvage: str | None) -> tuple[str, ...]:
        """The commands that send the messages that go to the new master, as a shell takes them.

        Where there are others among them (`of_brokers`), those that can be sent, topic by topic.
        """
        topics = sorted({queue.topic for queue in self._after} - FORBIDDEN)
        if not topics:
            return ()
        repair = "ID" if salvage is None else os.path.basename(salvage)
        names = self.master.settings.get("namesrvAddr") or "HOST:PORT"
        export = ("salvage", "export", repair)
        send = shlex.join(("rstore", "send", "--jsonl", EXPORTED, "--namesrv", names))
        every: list[tuple[str, ...]] = [("--topic", topic) for topic in topics] if self.of_brokers else [()]
        lines = [(command_line(self.files.config, *export, *one, "--output", EXPORTED), send) for one in every]
        return tuple(command for pair in lines for command in pair)

    def delayed_back(self, salvage: str | None) -> str | None:
        """The command that puts the others, as what they stand for, into a store of their own; None: there are none."""
        if not self.of_brokers:
            return None
        repair = "ID" if salvage is None else os.path.basename(salvage)
        return command_line(self.files.config, "salvage", "replay", repair, "--into", "DIR")

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The plan as truncate's, with `rewind`."""
        cut = {} if self.cut is None else self.cut.to_json(salvage=salvage)
        problems = [*cut.get("problems", ()), *self.offsets.problems]
        divergence = self.divergence
        return {
            **cut,
            "problems": problems,
            "changed": self.changes,
            "salvage": salvage,
            "rewind": {
                "master": facts_json(self.master),
                "commonEnd": None if divergence is None else divergence.common,
                "comparedFrom": None if divergence is None else divergence.compared_from,
                "bytesFetched": 0 if divergence is None else divergence.fetched,
                "tail": None if divergence is None else divergence.tail.to_json(),
                "read": [
                    {
                        "group": one.group,
                        "topic": one.queue.topic,
                        "queueId": one.queue.queue_id,
                        "messages": one.offset - one.max_offset,
                    }
                    for one in self.have_read
                ],
                "offsets": [one.to_json() for one in self.offsets.back],
                "messagesBack": list(self.messages_back(salvage)),
                "delayedBack": self.delayed_back(salvage),
            },
        }


def plan_rewind(
    disk: Disk,
    files: StoreFiles,
    master: BrokerFacts,
    other: OtherLog,
    *,
    verify_all: bool = False,
    comparing: Callable[[int, int], None] | None = None,
    reading: Callable[[int, int], None] | None = None,
) -> RewindPlan:
    """Plan to go back to where this store's log and the master's diverged. Writes nothing.

    Args:
        disk: how files are reached.
        files: the survey of a closed store.
        master: what it says of itself.
        other: its log.
        verify_all: compare all that both have; else a window before the cut.
        comparing, reading: told how far it is, bytes.

    Raises:
        Refused: nothing is common, or no longer; MASTER is a slave. CannotRepair: damage, other file sizes.
        StorageError, FormatError: one of the two can't be read.
    """
    if is_slave(master):
        raise Refused(
            f"{master.address} is a slave (brokerRole={master.role})",
            hint="name the master: a log is cut by what its master has",
        )
    size = files.config.mapped_file_size_commit_log
    if master.segment_size is not None and files.log and master.segment_size != size:
        raise CannotRepair(
            f"the master's segment size is {master.segment_size}, this store's is {size}",
            path=files.root,
            hint="it is the master of another store",
        )
    placed = arranged(files, layout_of(disk, files))
    with ClosedLog(disk, placed.log) as log:
        begun = next((segment for segment in log.segments if any(log.read(segment.offset, 4))), None)
        if begun is None:
            return RewindPlan(files, master, None, None, OffsetsPlan())
        divergence = find_divergence(
            log,
            files.config,
            other,
            (master.start, master.end),
            broker=master.address,
            whole=verify_all,
            progress=comparing,
        )
    cut = plan_truncate(disk, files, to_offset=divergence.common, progress=reading)
    ends = {queue.queue: queue.max_offset for queue in cut.repair.queues}
    return RewindPlan(files, master, divergence, cut, plan_offsets(disk, files.root, ends))
