"""The client of the wire protocol: many requests at a time, and every way in which a peer can fail it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from engine.broker.net.client import RemotingClient
from engine.config import StoreConfig
from engine.errors import InvalidArgument, StorageError
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
                await client.ask(28, timeout_s=0.2)
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
