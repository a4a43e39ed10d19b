"""Topics of one cluster copied to another: messages, and where groups continue.

A copy is resumed by the same call with the same directory, whenever the run before it ended, or was killed. What a
message keeps and what no request can give it: COPYING.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.pace import Pace
from engine.client.task_errors import first_error
from engine.copying import progress as kept
from engine.copying.clusters import make_topic, until_known
from engine.copying.groups import CarriedOffsets, carry_groups
from engine.copying.marker import WayBack
from engine.copying.offset_map import OffsetMap
from engine.copying.plan import plan_copy
from engine.copying.progress import QueueProgress
from engine.copying.queue_copier import CopyWork, QueueCopier
from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format.quantities import counted

if TYPE_CHECKING:
    from engine.client.queues import MessageQueue
    from engine.copying.groups import AwayQueue
    from engine.copying.plan import CopyPlan

_SAVE_S = 0.5
_SAVE_SHARE = 20
"""A map is saved at most for so much of the time: a twentieth."""
_GROUPS_S = 5.0
_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class CopyOrders:
    """What to copy, and how.

    Attributes:
        topics: globs.
        directory: of the offset maps; made where it is not there.
        rate: messages a second at most.
        follow: goes on with what comes, until it is cancelled.
        skips_refused: messages that the target refuses are left out.
        patience_s: how long a broker that is away is waited for.
    """

    topics: tuple[str, ...]
    directory: Path
    rate: float | None = None
    follow: bool = False
    dry_run: bool = False
    skips_refused: bool = False
    patience_s: float = 60.0


class CopyCaller(Protocol):
    """Who has something copied."""

    def note(self, text: str) -> None:
        """Something that a reader should know."""
        ...

    def agrees(self, plan: CopyPlan) -> bool:
        """Whether the plan is to be carried out."""
        ...

    def copied(self, done: int, total: int) -> None:
        """Queue offsets that are done with, of those of the plan."""
        ...


@dataclass(slots=True)
class CopyOutcome:
    """What came of it.

    Attributes:
        copied: messages that this run sent.
        before: messages that were at the target already, by earlier runs.
        doubles, left_out, deleted, refused: of all runs; see QueueProgress.
        missing: queues with messages of which nothing became, and how many.
        is_applied: whether it was done, not only planned.
    """

    plan: CopyPlan
    is_applied: bool = False
    copied: int = 0
    before: int = 0
    doubles: int = 0
    left_out: int = 0
    deleted: int = 0
    refused: int = 0
    missing: dict[MessageQueue, int] = field(default_factory=dict)
    seconds: float = 0.0
    groups: CarriedOffsets = field(default_factory=CarriedOffsets)

    @property
    def is_whole(self) -> bool:
        """Whether something became of each message, and nothing was left out because a broker was away."""
        return not (self.plan.away or self.groups.away or self.missing)


def copy(source: ClientConfig, target: ClientConfig, orders: CopyOrders, caller: CopyCaller) -> CopyOutcome:
    """Copy topics.

    Raises:
        As `plan_copy` and `QueueCopier.copy`. StoreLocked: another process uses the directory. StorageError.
    """
    disk = Disk()
    if orders.dry_run and not orders.directory.exists():
        return asyncio.run(_copy(source, target, orders, caller, disk))
    disk.mkdirs(str(orders.directory))
    with StoreLock(disk, str(orders.directory), what="the directory of the copy"):
        return asyncio.run(_copy(source, target, orders, caller, disk))


async def _copy(
    source: ClientConfig, target: ClientConfig, orders: CopyOrders, caller: CopyCaller, disk: Disk
) -> CopyOutcome:
    began = time.monotonic()
    async with ClusterClient(source) as here, ClusterClient(target) as there:
        plan = await plan_copy(here, there, orders.topics, kept.load(disk, orders.directory))
        outcome = CopyOutcome(plan)
        if orders.dry_run or not caller.agrees(plan):
            return outcome
        await _make_topics(there, plan)
        await _begin(there, plan)
        kept.save(disk, orders.directory, plan.progress)
        bases = {}
        for one in plan.progress.queues.values():
            one.before, bases[one.source] = one.map.copied, one.base
        way_back = WayBack(plan.progress.id, plan.target.values())
        work = CopyWork(
            plan.progress.id,
            here,
            there,
            way_back,
            Pace(orders.rate),
            orders.skips_refused,
            orders.patience_s,
            caller.note,
        )
        try:
            async with _kept(disk, orders, plan, caller):
                await _work(work, plan, orders)
                outcome.groups = await carry_groups(here, there, _copied_queues(plan))
        finally:
            kept.save(disk, orders.directory, plan.progress)
        outcome.is_applied = True
        for one in plan.progress.queues.values():
            outcome.before += one.before
            outcome.copied += one.map.copied - one.before
            if one.base > bases[one.source]:
                outcome.missing[one.source] = one.base - bases[one.source]
            outcome.doubles += one.doubles
            outcome.left_out += one.left_out
            outcome.deleted += one.deleted
            outcome.refused += one.refused
        outcome.seconds = time.monotonic() - began
        return outcome


async def _make_topics(target: ClusterClient, plan: CopyPlan) -> None:
    """Topics and queues that the target lacks. Raises PeerLost, RefusedByBroker."""
    for topic in plan.topics:
        for broker, queues in topic.makes.items():
            address = plan.target[broker].address
            await make_topic(target, address, topic.name, queues, topic.perm, ordered=topic.ordered)
        if topic.makes:
            await until_known(target, topic.name, sum(topic.makes.values()))


async def _begin(target: ClusterClient, plan: CopyPlan) -> None:
    """Maps for the queues that have none: they begin at the end of the target's queue."""
    calls = BrokerCalls(target)
    for topic in plan.topics:
        for queue in topic.queues:
            if not queue.copied:
                base = await calls.max_offset(queue.target)
                plan.progress.queues[queue.source] = QueueProgress(
                    queue.source, queue.target, OffsetMap(base, queue.first), base
                )


async def _work(work: CopyWork, plan: CopyPlan, orders: CopyOrders) -> None:
    """All queues beside each other. Raises the first error, when the others have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for topic in plan.topics:
                for queue in topic.queues:
                    copier = QueueCopier(work, plan.progress.queues[queue.source], plan.source[queue.source.broker])
                    group.create_task(copier.copy(None if orders.follow else queue.end))
            if orders.follow:
                group.create_task(_follow_groups(work, plan))
    except BaseExceptionGroup as problems:
        raise first_error(problems) from None


async def _follow_groups(work: CopyWork, plan: CopyPlan) -> None:
    away: list[AwayQueue] = []
    while True:
        await asyncio.sleep(_GROUPS_S)
        try:
            made = await carry_groups(work.source, work.target, _copied_queues(plan))
        except RStoreError as error:
            work.note(f"consumer offsets were not translated: {error}")
            continue
        if made.away and made.away != away:
            brokers = sorted({f"{one.queue.broker} of the {one.side}" for one in made.away})
            work.note(
                f"consumer offsets of {counted(len(made.away), 'queue')} were not translated: no master of broker "
                f"{', '.join(brokers)}"
            )
        away = made.away


@contextlib.asynccontextmanager
async def _kept(disk: Disk, orders: CopyOrders, plan: CopyPlan, caller: CopyCaller) -> AsyncGenerator[None]:
    """Save the maps from time to time, and tell how far they are."""
    todo = plan.messages
    begin = _followings(plan)

    async def keep() -> None:
        due = time.monotonic() + _SAVE_S
        while True:
            await asyncio.sleep(_TICK_S)
            caller.copied(min(todo, _followings(plan) - begin), todo)
            now = time.monotonic()
            if now >= due:
                kept.save(disk, orders.directory, plan.progress)
                took = time.monotonic() - now
                due = now + max(_SAVE_S, took * _SAVE_SHARE)

    keeping = asyncio.get_running_loop().create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def _followings(plan: CopyPlan) -> int:
    return sum(one.map.following for one in _copied_queues(plan))


def _copied_queues(plan: CopyPlan) -> Iterator[QueueProgress]:
    """Those of this run."""
    return (plan.progress.queues[queue.source] for topic in plan.topics for queue in topic.queues)
