"""A queue's copy when a side loses what it had acknowledged: brokers are played, so that they lose it at one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.client.calls import BrokerCalls
from engine.client.pace import Pace
from engine.client.pulling import PullResult, PullStatus
from engine.client.queues import MessageQueue
from engine.client.routes import TopicRoute
from engine.copying import patient_queue
from engine.copying.marker import BrokerPlace, WayBack
from engine.copying.offset_map import OffsetMap
from engine.copying.progress import QueueProgress
from engine.copying.queue_copier import CopyWork, QueueCopier
from engine.errors import FormatError, NoRoute, PeerLost, Refused

TOTAL = 200
SOURCE, TARGET = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
LIMIT_S = 60


def message(offset: int, properties: Mapping[str, str]) -> Any:
    stored = SimpleNamespace(
        total_size=100,
        queue_id=0,
        queue_offset=offset,
        store_timestamp=1,
        born_timestamp=offset,
        sys_flag=0,
        reconsume_times=0,
    )
    return SimpleNamespace(queue_offset=offset, properties=dict(properties), stored=stored)


class PlayedQueue:
    """Answers as a master does: ten messages a pull, and the end where a pull begins behind it."""

    def __init__(self, messages: list[Mapping[str, str]]) -> None:
        self.messages = messages
        self.before_pull: Callable[[int], None] = lambda _at: None

    async def pull(self, _group: str, _queue: Any, at: int, _wanted: Any, *, most: int, **_: Any) -> PullResult:
        self.before_pull(at)
        end = len(self.messages)
        page = tuple(message(at + i, one) for i, one in enumerate(self.messages[at : at + min(most, 10)]))
        status = PullStatus.FOUND if page else PullStatus.NO_NEW_MESSAGE if at == end else PullStatus.OFFSET_ILLEGAL
        return PullResult(status, page, at + len(page) if page else end, 0, end, 0)

    async def max_offset(self, _queue: MessageQueue) -> int:
        return len(self.messages)

    async def address(self, _queue: MessageQueue) -> str:
        return "played"


@dataclass
class Played:
    """A copy between two such queues."""

    source: PlayedQueue = field(default_factory=lambda: PlayedQueue([{"n": str(i)} for i in range(TOTAL)]))
    target: PlayedQueue = field(default_factory=lambda: PlayedQueue([]))
    progress: QueueProgress = field(default_factory=lambda: QueueProgress(SOURCE, TARGET, OffsetMap(0, 0), 0))
    notes: list[str] = field(default_factory=list)
    before_send: Callable[[], None] = lambda: None
    after_send: Callable[[], None] = lambda: None
    first: int | None = None
    connection: object = None

    def work(self, source: object | None = None, patience_s: float = LIMIT_S) -> CopyWork:
        async def connected(_address: str) -> object:
            return self.connection

        peers = SimpleNamespace(to=connected)
        client = cast("Any", SimpleNamespace(forget_route=lambda _topic: None, peers=peers))
        here = cast("Any", source) or client
        return CopyWork("id", here, client, WayBack("id", []), Pace(None), False, patience_s, self.notes.append)

    def copy(self, patience_s: float = LIMIT_S) -> None:
        copier: Any = QueueCopier(self.work(patience_s=patience_s), self.progress, BrokerPlace("c", "a", "1:1"))
        copier._source.calls, copier._target.calls, copier._send = self.source, self.target, self.send

        async def run() -> None:
            async with asyncio.timeout(LIMIT_S):
                await copier.copy(TOTAL)

        asyncio.run(run())

    async def send(self, together: list[tuple[Any, dict[str, str]]]) -> Any:
        self.before_send()
        first = len(self.target.messages)
        self.target.messages.extend(own for _, own in together)
        self.after_send()
        return SimpleNamespace(queue_offset=first if self.first is None else self.first)

    def numbers(self) -> list[int]:
        return [int(one["n"]) for one in self.target.messages]

    def demand_whole_map(self) -> None:
        """Each message is at the target, where the map says."""
        numbers = self.numbers()
        assert [numbers[self.progress.map.target_of(i)] for i in range(TOTAL)] == list(range(TOTAL))
        assert self.progress.map.copied == TOTAL
        assert len(numbers) - TOTAL == self.progress.doubles


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No played queue shows later what it does not show now."""
    monkeypatch.setattr(patient_queue, "_AGAIN_S", 0.01)
    monkeypatch.setattr(patient_queue, "_DISPATCH_S", 0.0)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_target_that_loses_its_end_during_a_run(is_seen: bool) -> None:
    """With an error of the send that the crash hits, and between two sends."""
    played = Played()
    losses = [70]

    def lose() -> None:
        if len(played.target.messages) == 100 and losses:
            del played.target.messages[losses.pop() :]
            if is_seen:
                raise PeerLost("connection lost")

    played.before_send = lose
    played.copy()
    played.demand_whole_map()
    assert played.progress.doubles == (0 if is_seen else 1)
    assert any("T/0 of b of the target has lost its end" in note and "30 messages" in note for note in played.notes)
    played.copy()
    played.demand_whole_map()


def test_a_target_that_loses_its_end_and_is_filled_by_others_between_two_sends() -> None:
    """No send fails, and none gets an offset that is known: only the connection tells that there was a crash."""
    for others in (30, 45):
        played = Played()
        losses = [70]

        def lose(played: Played = played, losses: list[int] = losses, others: int = others) -> None:
            if len(played.target.messages) == 100 and losses:
                played.target.messages[losses.pop() :] = [{"n": "-1"}] * others
                played.connection = object()

        played.after_send = lose
        played.copy()
        assert [n for n in played.numbers() if n >= 0] == list(range(TOTAL))
        assert played.progress.map.copied == TOTAL
        assert played.progress.doubles == 0


def test_a_target_that_loses_its_end_after_the_last_send() -> None:
    played = Played()
    losses = [150]

    def lose() -> None:
        if len(played.target.messages) == TOTAL and losses:
            del played.target.messages[losses.pop() :]

    played.after_send = lose
    played.copy()
    played.demand_whole_map()


def test_a_target_whose_lost_end_is_written_over_before_the_next_run() -> None:
    played = Played()
    played.copy()
    played.target.messages[120:] = [{"n": "-1"}] * 150
    played.copy()
    assert played.numbers() == [*range(120), *[-1] * 150, *range(120, TOTAL)]
    assert played.progress.map.copied == TOTAL
    del played.target.messages[:]
    played.copy()
    played.demand_whole_map()


def test_an_offset_that_is_given_twice_and_not_lost_is_an_error() -> None:
    played = Played()

    def forge() -> None:
        if len(played.target.messages) == 100:
            played.first = 70

    played.before_send = forge
    with pytest.raises(FormatError, match="has given offset 70 a second time"):
        played.copy()
    assert played.progress.map.copied == 100


def test_a_source_that_shows_less_than_it_had() -> None:
    """At the place that is read, it is waited for; before that place, it is not what it was."""
    played = Played()
    late = played.source.messages[100:]
    del played.source.messages[100:]
    with pytest.raises(PeerLost, match="T/0 of a shows no message at offset 100 any more"):
        played.copy(patience_s=0.1)
    assert played.progress.map.following == 100
    played.notes.clear()

    def come_back(_at: int) -> None:
        if played.notes:
            played.source.messages.extend(late)
            late.clear()

    played.source.before_pull = come_back
    played.copy()
    played.demand_whole_map()


def test_a_source_that_becomes_shorter_during_a_run() -> None:
    played = Played()

    def lose(at: int) -> None:
        if at == 100:
            del played.source.messages[90:]

    played.source.before_pull = lose
    with pytest.raises(Refused, match="ends at offset 90 of the source, and messages up to 100 were copied"):
        played.copy()
    assert played.numbers() == list(range(100))


def test_no_slave_is_asked_for_messages() -> None:
    route = TopicRoute((), {"a": {1: "10.0.0.1:10911"}}, {"a": "c"})

    async def give(_topic: str) -> TopicRoute:
        return route

    client = cast("Any", SimpleNamespace(route=give, forget_route=lambda _topic: None))
    assert asyncio.run(BrokerCalls(client).address(SOURCE)) == "10.0.0.1:10911"
    played = Played()
    copier = QueueCopier(played.work(client, patience_s=0.0), played.progress, BrokerPlace("c", "a", "1:1"))
    with pytest.raises(NoRoute, match="no master of broker a is registered"):
        asyncio.run(copier.copy(TOTAL))
