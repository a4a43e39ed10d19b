"""`rstore promote`: the plan. A slave's store is made one that a master starts on, and what that means is said.

A slave has the log up to where its master had sent it, and the master's tables as it copied them last (every 10 s:
BrokerController#handleSlaveSynchronize, 4.9.8). What a master acknowledged after that is on the old master alone. So
the plan says how far the log goes, how old the tables are, which groups have read what, what is yet to be delivered.

The store itself needs no more than a recovery, and offsets that are not beyond their queues; whether a broker is master
or slave, its configuration says: brokerRole, and brokerId, which is 0 of a master.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.errors import Refused
from engine.format import names
from engine.format.topic_rules import HALF_TOPIC
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS
from engine.inspect.store.consumers import DELIVERY, Consumers, read_consumers
from engine.log.derive import TopicQueue
from engine.repair.expire.half_messages import GROUP as TRANSACTIONS
from engine.repair.recover.recover import plan_recover
from engine.rewind.offsets import OffsetsPlan, plan_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan
    from engine.rewind.conf_edit import ConfEdit
    from engine.rewind.old_master import OldMaster

MASTER_KEYS = {"brokerRole": BrokerRole.ASYNC_MASTER.value, "brokerId": "0"}
"""What a master's configuration says."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group, over all its queues: messages that it has not read, and offsets that are beyond the end of a queue."""

    group: str
    unread: int
    beyond: int

    def to_json(self) -> dict[str, Any]:
        """One line of a plan."""
        return {"group": self.group, "unread": self.unread, "beyond": self.beyond}


@dataclass(frozen=True, slots=True)
class PromotePlan:
    """What a promotion does, and what is known.

    Attributes:
        files: the survey.
        repair: the recovery that a start would make.
        old: the old master.
        force: whether it may answer.
        groups: by name.
        offsets: that are brought back.
        delayed: delayed messages that are yet to be delivered, by level.
        half: half messages that are yet to be settled, at most.
        tables_ms: when the tables of offsets were written last, ms by file name.
        conf: the change of the broker's configuration file; None: no file was named.
        problems: what could not be read, a sentence each.
    """

    files: StoreFiles
    repair: RecoverPlan
    old: OldMaster
    force: bool
    groups: tuple[GroupState, ...]
    offsets: OffsetsPlan
    delayed: Mapping[int, int]
    half: int
    tables_ms: Mapping[str, int]
    conf: ConfEdit | None
    problems: tuple[str, ...]

    @property
    def end(self) -> int:
        """Physical offset at which the log ends."""
        return self.repair.log.end.end

    @property
    def rebuilt(self) -> int:
        """Messages of the log's end that no queue had yet: the slave had not dispatched them."""
        return sum(queue.units_rebuilt for queue in self.repair.queues)

    @property
    def behind(self) -> int | None:
        """Bytes that the old master's log has more; None: it did not say."""
        return None if self.old.facts is None else max(0, self.old.facts.end - self.end)

    @property
    def refusal(self) -> RStoreError | None:
        """Why it is not carried out: the old master answers, or a recovery would lose data."""
        if self.old.answers and not self.force:
            return Refused(
                f"the old master answers at {self.old.address}: with two masters of one name, what each gets the other "
                "lacks",
                hint="stop it first; --force promotes all the same",
            )
        return self.repair.refusal

    @property
    def changes(self) -> bool:
        """Whether carrying it out changes a byte."""
        edited = self.conf is not None and bool(self.conf.changes)
        return self.repair.would_change or bool(self.offsets.writes) or edited

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The plan as recover's, with `promote`."""
        plan = self.repair.to_json(salvage=salvage)
        return {
            **plan,
            "problems": [*plan["problems"], *self.problems],
            "changed": self.changes,
            "promote": {
                "oldMaster": self.old.to_json(),
                "bytesBehind": self.behind,
                "lastStoreTimestamp": self.repair.log.end.last_store_timestamp or None,
                "rebuilt": self.rebuilt,
                "groups": [group.to_json() for group in self.groups],
                "offsets": [one.to_json() for one in self.offsets.back],
                "delayed": [{"level": level, "messages": count} for level, count in sorted(self.delayed.items())],
                "halfMessages": self.half,
                "tablesWritten": dict(self.tables_ms),
                "conf": None if self.conf is None else self.conf.to_json(),
            },
        }


def plan_promote(
    disk: Disk,
    files: StoreFiles,
    old: OldMaster,
    *,
    conf: ConfEdit | None = None,
    force: bool = False,
    locked: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PromotePlan:
    """Plan to make a slave's store a master's. Writes nothing.

    Args:
        disk: how files are reached.
        files: the survey of a closed store.
        old: what is known of the old master.
        conf: the change of the broker's configuration, where it is to be made.
        force: promote while the old master answers.
        locked: the caller holds the store's lock.
        progress: told how much of the log is read, bytes.

    Raises:
        CannotRepair: there is no log to start on. StorageError.
    """
    repair = plan_recover(disk, files, locked=locked, progress=progress)
    ends = {queue.queue: queue.max_offset for queue in repair.queues}
    consumers = read_consumers(disk, files.root, ends)
    offsets = plan_offsets(disk, files.root, ends)
    delivered = {
        queue.queue_id + 1: max(0, end - consumers.offsets.get(queue, {}).get(DELIVERY, 0))
        for queue, end in ends.items()
        if queue.topic == names.SCHEDULE_TOPIC
    }
    return PromotePlan(
        files,
        repair,
        old,
        force,
        _groups(ends, consumers),
        offsets,
        {level: count for level, count in delivered.items() if count},
        sum(
            max(0, end - consumers.offsets.get(queue, {}).get(TRANSACTIONS, 0))
            for queue, end in ends.items()
            if queue.topic == HALF_TOPIC
        ),
        _written(disk, files.root),
        conf,
        (*_told_once(consumers.problems, offsets.problems), *offsets.problems),
    )


def _told_once(problems: Iterable[str], longer: Iterable[str]) -> Iterator[str]:
    """Those that no longer sentence begins with."""
    return (one for one in problems if not any(text.startswith(one) for text in longer))


def _groups(ends: Mapping[TopicQueue, int], consumers: Consumers) -> tuple[GroupState, ...]:
    unread: dict[str, int] = {}
    beyond: dict[str, int] = {}
    for queue, end in ends.items():
        for group, offset in consumers.offsets.get(queue, {}).items():
            if group not in (DELIVERY, TRANSACTIONS):
                unread[group] = unread.get(group, 0) + max(0, end - offset)
                beyond[group] = beyond.get(group, 0) + (offset > end)
    return tuple(GroupState(group, unread[group], beyond[group]) for group in sorted(unread))


def _written(disk: Disk, root: str) -> dict[str, int]:
    written = {}
    for name in (CONSUMERS, DELAYS):
        path = os.path.join(root, names.CONFIG, name)
        if disk.exists(path):
            written[name] = disk.stat(path).mtime_ns // 1_000_000
    return written
