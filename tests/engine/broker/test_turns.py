"""Nothing freezes: long work in turns, requests of a connection in turns, and who held the loop is named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.broker.net.connection import OTHER, Connection
from engine.broker.settings.broker_settings import BrokerSettings
from engine.broker.turns import HELD_S, TURN_S, Turns
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand
from engine.wire.frames import FrameReader, encode
from tests.engine.broker.client import Client, daemon

LOG = logging.getLogger("test.turns")


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counted(clock: Clock, count: int, step_s: float) -> Iterator[int]:
    for number in range(count):
        clock.now += step_s
        yield number


def test_a_long_walk_gives_way_and_walks_take_turns() -> None:
    clock, told = Clock(), []

    async def walk(turns: Turns, name: str) -> None:
        async for number in turns.walk(counted(clock, 100, TURN_S / 4), name):
            told.append((name, number, rounds))

    async def run() -> None:
        nonlocal rounds
        loop = asyncio.get_running_loop()
        turns = Turns(loop, LOG, clock)
        walks = [loop.create_task(walk(turns, name)) for name in "ab"]
        while not all(one.done() for one in walks):
            rounds += 1
            await asyncio.sleep(0)
        assert turns.held == {}

    rounds = 0
    asyncio.run(run())
    for name in "ab":
        assert [number for one, number, _ in told if one == name] == list(range(100))
    by_round: dict[int, list[str]] = {}
    for name, _, at in told:
        by_round.setdefault(at, []).append(name)
    assert max(map(len, by_round.values())) <= 2 * 5  # two turns at most, of five steps each
    assert len(by_round) >= 2 * 100 // 10


def test_who_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    async def run() -> Turns:
        turns = Turns(asyncio.get_running_loop(), LOG, clock)
        turns.note(RequestCode.HEART_BEAT, 0.0)
        assert turns.held == {}
        clock.now = 2 * HELD_S
        turns.note(RequestCode.HEART_BEAT, 0.0)
        turns.note(987_654, 0.0)
        turns.note("a timer", clock.now - HELD_S / 2)
        return turns

    turns = asyncio.run(run())
    assert turns.held.keys() == {"HEART_BEAT", "OTHER"}
    assert turns.held["HEART_BEAT"].times == 1
    assert turns.held["HEART_BEAT"].longest == 2 * HELD_S
    assert [(one.getMessage(), getattr(one, "handler", None)) for one in caplog.records] == [
        ("the loop was held", "HEART_BEAT"),
        ("the loop was held", "OTHER"),
    ]


class Sink:
    """Answers requests, each of which takes `takes_s`."""

    def __init__(self, turns: Turns, clock: Clock, takes_s: float) -> None:
        self.turns, self._clock, self._takes_s = turns, clock, takes_s
        self.answers: dict[int, dict[int, int]] = {OTHER: {}}
        self.got: list[int] = []

    def received(self, connection: Connection, request: RemotingCommand) -> None:
        self._clock.now += self._takes_s
        self.got.append(request.opaque)
        connection.answer(request, request.answer())

    def opened(self, connection: Connection) -> bool:
        return True

    def lost(self, connection: Connection) -> None:
        """Nothing."""

    def holds(self, connection: Connection, size: int) -> None:
        """Nothing."""


class Transport(asyncio.Transport):
    """Keeps what is written, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.frames, self.closing = True, FrameReader(), False
        self.answered: list[int] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing."""

    def writelines(self, list_of_data: Any) -> None:
        self.answered += [one.opaque for one in self.frames.feed(b"".join(list_of_data))]

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True


def requests(first: int, count: int) -> bytes:
    return b"".join(b"".join(encode(RemotingCommand(10, first + n, 0, None, None, b""))) for n in range(count))


def talk(takes_s: float, work: Callable[[Sink, Connection, Transport], Any]) -> None:
    """A connection whose requests take so long; `work` is a coroutine function."""
    clock = Clock()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        sink, transport = Sink(Turns(loop, LOG, clock), clock, takes_s), Transport()
        connection = Connection(sink, BrokerSettings(), loop)
        connection.connection_made(transport)
        await work(sink, connection, transport)

    asyncio.run(run())


def test_requests_of_a_connection_are_handled_in_turns_and_in_order() -> None:
    async def work(sink: Sink, connection: Connection, transport: Transport) -> None:
        connection.data_received(requests(1, 100))
        assert len(sink.got) == 2  # then the turn was over
        assert not transport.reads
        connection.data_received(requests(101, 5))  # what was read already
        most, before = 0, 2
        for _ in range(200):
            await asyncio.sleep(0)
            most, before = max(most, len(sink.got) - before), len(sink.got)
        assert most == 2
        assert sink.got == transport.answered == list(range(1, 106))
        assert transport.reads

    talk(TURN_S * 0.6, work)


def test_one_slow_request_alone_does_not_stop_a_connection() -> None:
    async def work(sink: Sink, connection: Connection, transport: Transport) -> None:
        connection.data_received(requests(1, 1))
        assert (sink.got, transport.reads) == ([1], True)

    talk(TURN_S * 10, work)


def test_no_connection_waits_for_walks() -> None:
    """However many walks wait for their turn, a connection's next requests have theirs in the next round."""

    async def work(sink: Sink, connection: Connection, transport: Transport) -> None:
        walked: list[int] = []
        for number in range(1000):
            sink.turns.next(lambda number=number: walked.append(number))  # type: ignore[misc]
        connection.data_received(requests(1, 4))
        for _ in range(10):
            await asyncio.sleep(0)
        assert transport.answered == [1, 2, 3, 4]
        assert len(walked) <= 11

    talk(TURN_S * 2, work)


@pytest.mark.parametrize("how", ["leave", "lost", "close"])
def test_what_a_turn_has_left_over_is_dropped_with_its_connection(how: str) -> None:
    async def work(sink: Sink, connection: Connection, transport: Transport) -> None:
        connection.data_received(requests(1, 100))
        if how == "lost":
            connection.connection_lost(None)
        else:
            getattr(connection, how)()
        for _ in range(10):
            await asyncio.sleep(0)
        assert sink.got == [1]

    talk(TURN_S * 2, work)


def test_a_handler_that_holds_the_loop_is_in_the_metrics(tmp_path: Path) -> None:
    clock = Clock()

    async def run() -> None:
        async with daemon(tmp_path / "s", metrics_port=0) as found:
            found._turns.clock = clock
            board = found._boards[0]

            def slow(connection: Connection, request: RemotingCommand) -> RemotingCommand:
                clock.now += 0.5
                return request.answer()

            board.serve({RequestCode.GET_MAX_OFFSET: slow}, lambda _: None)
            client = await Client.to(found.listening.broker)
            assert (await client.ask(RequestCode.GET_MAX_OFFSET)).code == 0
            assert found._turns.held["GET_MAX_OFFSET"].seconds == 0.5
            text = await asyncio.to_thread(scraped, found.listening.metrics)
            assert 'rstore_loop_held_seconds_total{handler="GET_MAX_OFFSET"} 0.5' in text

    asyncio.run(run())


def scraped(address: str | None) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text
