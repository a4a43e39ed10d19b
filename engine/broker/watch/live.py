"""What the running daemon is like now: read when somebody asks (status, top, a scrape), kept by nobody.

One JSON object, as `rstore status`, `rstore top` and the control socket have it. Times in ms, sizes in bytes; counts
are since the daemon has started, so that whoever asks twice has the rates in between.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.broker.put.transactions import GROUP
from engine.broker.watch.disks import disk_ratios
from engine.broker.watch.stats import TopicCounter
from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.broker.ha.role import Role
    from engine.broker.handlers.pull import PullHandler
    from engine.broker.net.switchboard import Switchboard
    from engine.broker.put.flow import FlowControl
    from engine.broker.put.schedule import ScheduleService
    from engine.broker.put.timers import TimerService
    from engine.broker.put.transactions import Transactions
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.broker.turns import Turns
    from engine.broker.watch.archiving import Archiving
    from engine.broker.watch.scrubbing import Scrubbing
    from engine.broker.watch.stats import Stats, StatsRate
    from engine.store import MessageStore


class Lag(NamedTuple):
    """Messages of a topic that a group has not consumed. `members`: that are there now."""

    group: str
    topic: str
    messages: int
    members: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The parts of a running daemon that are looked at, and only looked at.

    Attributes:
        pulls: that wait.
        boards: of all listeners.
        turns: of the loop.
        address: `ip:port` that clients get.
        scrubbing, archiving: which may be off.
        started_ms: when the daemon has started, ms since 1970; `now_ms`: the clock.
    """

    store: MessageStore
    stats: Stats
    topics: TopicTable
    offsets: ConsumerOffsets
    members: Members
    flow: FlowControl
    role: Role
    schedule: ScheduleService
    timers: TimerService
    transactions: Transactions
    pulls: PullHandler
    boards: Sequence[Switchboard]
    turns: Turns
    address: str
    started_ms: int
    now_ms: Callable[[], int]
    scrubbing: Scrubbing
    archiving: Archiving


class Live:
    """See the module. For the loop's thread alone.

    Args:
        watched: what is asked.

    Attributes:
        lags: of all groups, as of the last `refresh`.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.lags: list[Lag] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._backup: tuple[int, float] | None = None

    # --- parts ------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Bring `lags` up to date: of all groups that have offsets. Others are served meanwhile, and who asks while
        somebody else does has the same answer.

        Queues of a group without an offset count from their first message.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def backed_up(self, end: int, lag_ms: int) -> None:
        """A follower has told how far its backup is: physical offset, and since when it has not had all."""
        self._backup = end, time.monotonic() - lag_ms / 1000

    @property
    def backup_lag(self) -> tuple[float, int] | None:
        """Seconds since a backup had all of the log, and bytes that it lacks; None: no follower has told."""
        if self._backup is None:
            return None
        end, covered = self._backup
        return time.monotonic() - covered, max(0, self.watched.store.log.max_offset - end)

    def _refreshed(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None

    async def _refresh(self) -> None:
        lags: list[Lag] = []
        async for lag in self.watched.turns.walk(self._lags(), "lags of groups"):
            if lag is not None:
                lags.append(lag)
        self.lags = lags

    def _lags(self) -> Iterator[Lag | None]:
        """Of each group in each topic; None: a step on the way there.

        What a topic's queues hold is counted once; of each group only the queues are looked at in which it has offsets.
        """
        watched = self.watched
        members, offsets = watched.members.consumers, watched.offsets
        queues_of: dict[str, list[int]] = {}
        for topic, queue_id in watched.store.queues.names():
            queues_of.setdefault(topic, []).append(queue_id)
            yield None
        for topic in offsets.topics():
            config = watched.topics.find(topic)
            read = 0 if config is None else config.read_queues
            held: dict[int, tuple[int, int]] = {}
            for queue_id in queues_of.get(topic, ()):
                held[queue_id] = self._extent(topic, queue_id)
                yield None
            total = sum(high - low for queue_id, (low, high) in held.items() if queue_id < read)
            for group in offsets.groups_of(topic):
                if group == GROUP:
                    continue
                messages = total
                for queue_id, done in offsets.of(group, topic).items():
                    low, high = held.get(queue_id, (0, 0))
                    messages -= high - low if queue_id < read else 0
                    messages += max(high - max(done, low), 0)
                    yield None
                there = members.get(group)
                yield Lag(group, topic, messages, 0 if there is None else len(there.members))

    def _extent(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first queue offset, and the next one."""
        store = self.watched.store
        low = max(store.min_offset(topic, queue_id), 0)
        return low, max(store.max_offset(topic, queue_id), low)

    def gets(self) -> dict[str, TopicCounter]:
        """What was handed out, by topic."""
        counters: dict[str, TopicCounter] = {}
        for (_, topic), counter in self.watched.stats.groups.items():
            total = counters.setdefault(topic, TopicCounter())
            total.times += counter.times
            total.messages += counter.messages
            total.size += counter.size
        return counters

    def answers(self) -> list[tuple[int, int, int]]:
        """(request code or OTHER, response code, how often)."""
        total: dict[tuple[int, int], int] = {}
        for board in self.watched.boards:
            for request, counts in board.answers.items():
                for response, count in counts.items():
                    total[request, response] = total.get((request, response), 0) + count
        return [(request, response, count) for (request, response), count in sorted(total.items()) if count]

    def disks(self) -> dict[str, float]:
        """How full the disks are, parts of 1; empty where the system doesn't say."""
        try:
            return dict(disk_ratios(self.watched.store))
        except StorageError:
            return {}

    @property
    def writeable(self) -> bool:
        """False while puts are refused: a full disk, no space for the log's next file, a failure."""
        store = self.watched.store
        try:
            return store.flags.writeable and store.out_of_space is None
        except StorageError:  # the system does not say how much space there is: the last put found none
            return False

    def log_files_that_fit(self) -> int | None:
        """Files of the log that its disks have space for; None where the system doesn't say."""
        try:
            return self.watched.store.log_files_that_fit
        except StorageError:
            return None

    @property
    def output_waiting(self) -> int:
        """Bytes that clients have not taken yet."""
        return sum(connection.output_waiting for board in self.watched.boards for connection in board.connections)

    # --- the whole --------------------------------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """All of it; `refresh` comes first."""
        watched = self.watched
        store, stats, flow = watched.store, watched.stats, watched.flow
        totals, rates, gets = stats.totals(), stats.rates(), self.gets()
        names = {*stats.topics, *gets}
        dispatched = store.dispatch.position
        return {
            "source": "daemon",
            "pid": os.getpid(),
            "address": watched.address,
            "time": watched.now_ms(),
            "uptime": watched.now_ms() - watched.started_ms,
            "connections": {board.name: len(board.connections) for board in self.watched.boards},
            "heldPulls": self.watched.pulls.held,
            "outputWaiting": self.output_waiting,
            "log": {
                "minOffset": store.log.min_offset,
                "maxOffset": store.log.max_offset,
                "flushed": store.log.flushed_where,
                "dispatched": dispatched,
            },
            "flushLag": max(store.log.max_offset - store.log.flushed_where, 0),
            "dispatchLag": store.dispatch_lag,
            "disks": self.disks(),
            "writeable": self.writeable,
            "errors": [str(error) for error in store.errors],
            "totals": {"putMessages": totals.put, "putFailed": totals.put_failed, "getMessages": totals.transferred},
            "rates": {"put": _rate(rates.put), "get": _rate(rates.transferred)},
            "replication": watched.role.to_json(),
            "archive": watched.archiving.to_json(),
            "flowControl": {
                "inWorkerThread": flow.in_worker_thread,
                "waiting": flow.queued + flow.waiting,
                "slowPuts": flow.slow_puts,
                "refused": dict(flow.refused),
            },
            "topics": {
                name: {
                    "putMessages": puts.messages,
                    "putBytes": puts.size,
                    "getMessages": got.messages,
                    "getBytes": got.size,
                }
                for name in sorted(names)
                for puts, got in [(stats.topics.get(name, TopicCounter()), gets.get(name, TopicCounter()))]
            },
            "groups": [
                {"group": lag.group, "topic": lag.topic, "lag": lag.messages, "members": lag.members}
                for lag in self.lags
            ],
        }


def code_name(code: int) -> str:
    """A response code by its Apache name, or as a number."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)


def _rate(rate: StatsRate) -> dict[str, float | None]:
    return {"10s": rate.ten, "60s": rate.minute, "600s": rate.ten_minutes}
