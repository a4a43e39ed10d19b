"""The client of the wire protocol: many requests at a time, and every way in which a peer can fail it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.connection import RemotingClient
from engine.client.peers import Peers
from engine.client.routes import TopicRoute
from engine.config import StoreConfig
from engine.errors import InvalidArgument, PeerLost, StorageError
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from engine.wire.frames import FrameReader, encode
from tests.engine.broker.client import SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound


@contextlib.asynccontextmanager
async def peer(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def test_many_requests_at_a_time_to_a_broker(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found, await RemotingClient.connect(found.listening.broker) as client:
            asked = [client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"%d" % i) for i in range(50)]
            answers = await asyncio.gather(*asked)
            assert sorted(int(one.fields["queueOffset"]) for one in answers) == list(range(50))
            assert (await client.ask(9999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(run())


def test_requests_of_one_turn_go_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is sent right before the end is sent: nobody waits for a request without an answer."""
    got: list[RemotingCommand] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            for command in frames.feed(data):
                got.append(command)
                if not command.is_oneway:
                    writer.writelines(encode(command.answer(0, None)))
        ended.set()
        writer.close()

    writes = 0
    plain = asyncio.StreamWriter.writelines

    def counted(self: asyncio.StreamWriter, data: list[bytes]) -> None:
        nonlocal writes
        writes += any(len(part) > 8 and b'"code":5' in bytes(part) for part in data)
        plain(self, data)

    async def run() -> None:
        monkeypatch.setattr(asyncio.StreamWriter, "writelines", counted)
        async with peer(serve) as address:
            async with await RemotingClient.connect(address) as client:
                await asyncio.gather(*(client.ask(5) for _ in range(20)))
                assert writes == 1
                await client.tell(6)
            await asyncio.wait_for(ended.wait(), 30)
        assert [one.code for one in got] == [5] * 20 + [6]

    asyncio.run(run())


def test_answers_in_another_order_and_requests_of_the_peer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, got = FrameReader(), []
        while len(got) < 2:
            got += frames.feed(await reader.read(1 << 16))
        writer.writelines(encode(RemotingCommand(40, 77, 2, None, {"consumerGroup": "G"})))
        for command in reversed(got):
            writer.writelines(encode(command.answer(0, str(command.code))))

    async def run() -> None:
        async with peer(serve) as address, await RemotingClient.connect(address) as client:
            one, two = await asyncio.gather(client.ask(1), client.ask(2))
            assert (one.remark, two.remark) == ("1", "2")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "was closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "invalid frame length"),
        (None, r"did not answer request 28 within 0"),
    ],
)
def test_a_peer_that_fails(said: bytes | None, why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()

    async def run() -> None:
        async with peer(serve) as address, await RemotingClient.connect(address) as client:
            with pytest.raises(StorageError, match=why):
                await client.ask(28, timeout_s=0.2 if said is None else 60)
            if said is not None:
                assert not client.is_open
                with pytest.raises(StorageError, match=why):
                    await client.ask(28)

    asyncio.run(run())


@pytest.mark.parametrize("address", ["here", ":1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
        asyncio.run(RemotingClient.connect(address))


def test_nobody_there() -> None:
    with pytest.raises(StorageError, match="cannot connect to"):
        asyncio.run(RemotingClient.connect("127.0.0.1:1"))


def nothing_left_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """What a collection finds of tests before this one is said now, and not counted."""
    gc.collect()
    caplog.clear()


def test_many_requests_to_a_peer_that_has_just_gone(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio wrote a line of its own to the terminal for each send behind the fifth."""
    nothing_left_of_others(caplog)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def run() -> None:
            async with await RemotingClient.connect(f"127.0.0.1:{listening.getsockname()[1]}") as client:
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()  # a reset: the loop, which is in here, has not heard of it
                told = [client.tell(1) for _ in range(10)]
                asked = [client.ask(1) for _ in range(10)]
                answers = await asyncio.gather(*told, *asked, return_exceptions=True)
                assert {type(one) for one in answers} <= {PeerLost, type(None)}
                assert not client.is_open

        asyncio.run(run())
    assert not caplog.records


def test_a_peer_that_goes_while_it_is_sent_to_is_no_word_of_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    """The request failed in its send, nobody asked for its answer's error, and asyncio said so on the terminal."""
    nothing_left_of_others(caplog)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def run() -> None:
            async with await RemotingClient.connect(f"127.0.0.1:{listening.getsockname()[1]}") as client:
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                asked = asyncio.create_task(client.ask(1, None, bytes(15 << 20)))
                await asyncio.sleep(0)  # it has begun, and waits for the peer to take the rest
                accepted.close()
                with pytest.raises(PeerLost):
                    await asked

        asyncio.run(run())
    gc.collect()
    assert not caplog.records


def test_a_client_that_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            (connection,) = found._boards[0].connections
            client.writer.close()
            async with asyncio.timeout(60):
                while connection.is_open:
                    await asyncio.sleep(0.001)
            with pytest.raises(ConnectionError):
                await connection.ask(RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO), 0.5)

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


# --- a client, and what others say to it, or do not ------------------------------------------------------------------


def test_an_address_that_can_not_be_is_the_clusters_error(tmp_path: Path) -> None:
    """And the user's where the user gave it."""

    async def run() -> None:
        peers = Peers(lambda _, __: None)
        for address in ("127.0.0.1:0", "127.0.0.1:99999", "", "x"):
            with pytest.raises(PeerLost, match="a broker is registered with an invalid address"):
                await peers.ask(address, RequestCode.HEART_BEAT)
        with pytest.raises(InvalidArgument, match="'x' is not HOST:PORT"):
            ClusterClient(ClientConfig(("x",)))

    asyncio.run(run())


def test_mute_brokers_do_not_keep_a_client_from_leaving(tmp_path: Path) -> None:
    """Forty brokers take heartbeats, and say nothing when a group is left."""
    mute: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mute.add(writer)
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            for command in frames.feed(data):
                if command.code == RequestCode.HEART_BEAT:
                    writer.writelines(encode(command.answer(0, None)))

    async def run() -> None:
        async with AsyncExitStack() as stack:
            brokers = [await stack.enter_async_context(peer(serve)) for _ in range(40)]
            async with daemon(tmp_path / "s") as served:
                client = ClusterClient(ClientConfig((str(served.listening.names),)))
                async with client:
                    client.producer("P")
                    route = TopicRoute((), {f"b{at}": {0: address} for at, address in enumerate(brokers)}, {})
                    await client._greet(route)
                    assert client._greeted >= set(brokers)
                    loop = asyncio.get_running_loop()
                    began = loop.time()
                assert loop.time() - began < 30  # 3 s for each of them, one after the other, would be 120
            for writer in mute:
                writer.close()

    asyncio.run(run())


def test_an_unforeseen_error_ends_no_heartbeats(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served, ClusterClient(ClientConfig((str(served.listening.names),))) as one:
            times = 0
            often = asyncio.Event()

            async def work() -> None:
                nonlocal times
                times += 1
                if times == 3:
                    often.set()
                raise KeyError("unforeseen")

            one.background(one._repeat(0.01, work))
            async with asyncio.timeout(60):
                await often.wait()
        assert "work failed" in caplog.text

    asyncio.run(run())
