"""A client of the wire protocol for tests: one connection, frame by frame, with all that a broker says on it.

What stands in the frames is made by `engine.client`, as a real client makes it; the connection is no RemotingClient,
which hides what these tests look at: bytes, flags, serialisation, answers that nobody has asked for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from engine.broker.access import AccessSettings
from engine.broker.deleted import topics_with_queues
from engine.broker.serve import Daemon
from engine.broker.settings.broker_settings import BrokerSettings
from engine.client import pulling, sending
from engine.client.consumer_settings import MessageModel, StartFrom
from engine.client.heartbeats import PUSH, consumer_data, heartbeat_body
from engine.client.queues import MessageQueue
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.config import FlushDiskType, StoreConfig
from engine.files.disk import Disk
from engine.store import MessageStore
from engine.wire.address import parse_address
from engine.wire.codes import RequestCode
from engine.wire.command import ONEWAY, RemotingCommand, SerializeType
from engine.wire.frames import FrameReader, encode

BROKER = "broker-a"
BORN_MS = 1_700_000_000_000
PATIENCE_MS = 60_000
SMALL = {
    "mapped_file_size_commit_log": 4 << 20,
    "max_hash_slot_num": 1000,
    "max_index_num": 5000,
    "sync_flush_timeout": PATIENCE_MS,
    "os_page_cache_busy_time_out_mills": PATIENCE_MS,
    "disk_space_clean_forcibly_ratio": 0.98,
    "disk_space_warning_level_ratio": 0.99,
}
"""Small files; and no put is late, nor one refused because another is, where the machine stands still for a moment, or
its disk is used by others."""


class Client:
    """See the module."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames = FrameReader()
        self.pushed: list[RemotingCommand] = []
        self._waiting: list[RemotingCommand] = []
        self._opaque = count(1)

    @classmethod
    async def to(cls, address: str, tls: ssl.SSLContext | None = None) -> Client:
        return cls(*await asyncio.open_connection(*parse_address(address), ssl=tls))

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """The answer to a request."""
        return await self.answer(self.send(code, ext, body))

    def send(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", flag: int = 0, kind: int = 0
    ) -> int:
        """Send a request; its opaque."""
        opaque = next(self._opaque)
        command = RemotingCommand(code, opaque, flag, None, ext, body, serialize=SerializeType(kind))
        self.writer.writelines(encode(command))
        return opaque

    async def answer(self, opaque: int, timeout_s: float = 60) -> RemotingCommand:
        """The answer to an earlier one. Raises TimeoutError, EOFError."""
        return await self._taken(self._waiting, lambda command: command.opaque == opaque, timeout_s)

    @property
    def unasked(self) -> list[RemotingCommand]:
        """Answers that nobody has asked for."""
        return self._waiting

    async def asked(self, code: int, timeout_s: float = 60) -> RemotingCommand:
        """A request of the broker's: the next one with that code, not answered yet. Raises as `answer`."""
        return await self._taken(self.pushed, lambda command: command.code == code, timeout_s)

    async def _taken(
        self, there: list[RemotingCommand], wanted: Callable[[RemotingCommand], bool], timeout_s: float
    ) -> RemotingCommand:
        """The first command that is wanted of those that are there, or come."""
        async with asyncio.timeout(timeout_s):
            while True:
                for at, command in enumerate(there):
                    if wanted(command):
                        return there.pop(at)
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                for command in self.frames.feed(data):
                    (self._waiting if command.is_response else self.pushed).append(command)

    def reply(self, request: RemotingCommand, code: int = 0, remark: str | None = None, body: bytes = b"") -> None:
        """Answer a request of the broker's."""
        self.writer.writelines(encode(request.answer(code, remark, None, body)))

    async def put(self, topic: str, body: bytes, queue_id: int = 0, properties: str = "") -> RemotingCommand:
        """SEND_MESSAGE_V2."""
        return await self.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)

    async def until_there(self, topic: str, offset: int) -> None:
        """Wait until queue 0 reaches an offset: dispatch is a moment behind the put."""
        while (
            int((await self.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})).fields["offset"])
            < offset
        ):
            await asyncio.sleep(0.001)

    @property
    def client_id(self) -> str:
        """As heartbeats say."""
        return f"c-{id(self)}"

    async def produce(self, group: str) -> None:
        """Become a producer."""
        await self._beat(heartbeat_body(self.client_id, [group], []))

    async def heartbeat(self, group: str, topic: str, expression: str = ALL, version: int = 1, kind: str = TAG) -> None:
        """Become a consumer."""
        wanted = TopicSubscription.of(topic, expression, kind, version)
        mine = consumer_data(group, PUSH, MessageModel.CLUSTERING, StartFrom.FIRST_OFFSET, [wanted])
        await self._beat(heartbeat_body(self.client_id, [], [mine]))

    async def _beat(self, body: bytes) -> None:
        assert (await self.ask(RequestCode.HEART_BEAT, None, body)).code == 0

    async def closed(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            async with asyncio.timeout(60):
                while await self.reader.read(1 << 16):
                    pass
        except ConnectionError:
            pass
        return True


def send_fields(topic: str, queue_id: int = 0, properties: str = "", **more: str) -> dict[str, str]:
    """The header of SEND_MESSAGE_V2. `properties`: just these, joined; `more`: letters of the header."""
    fields = sending.send_fields(topic, 0, 0, properties, BORN_MS, sending.SendRules("PG"))
    request = sending.SendRequest(RequestCode.SEND_MESSAGE_V2, fields, b"", "")
    return {**request.to(MessageQueue(topic, BROKER, queue_id)), **more}


def pull_fields(topic: str, offset: int, group: str = "G", wait_ms: int = 0, queue_id: int = 0) -> dict[str, str]:
    """The header of PULL_MESSAGE with its own subscription; suspended when it may wait."""
    wanted = TopicSubscription.of(topic, ALL, TAG, 0)
    return pulling.pull_fields(group, MessageQueue(topic, BROKER, queue_id), offset, wanted, wait_ms=wait_ms)


@asynccontextmanager
async def daemon(
    root: Path,
    *,
    sync: bool = False,
    disk: Disk | None = None,
    config: StoreConfig | None = None,
    access: AccessSettings | None = None,
    **settings: object,
) -> AsyncIterator[Daemon]:
    """A running daemon on free ports; closed cleanly. `sync`: with SYNC_FLUSH; `disk`: one that fails;
    `config`: instead of small files; `access`: instead of what the settings say.

    A send may wait in its queue as long as the machine takes: after a put of 200 ms all of them do.
    """
    import logging

    loop = asyncio.get_running_loop()
    flush = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
    config = config or StoreConfig(store_path_root_dir=root, flush_disk_type=flush).with_changes(**SMALL)
    before = topics_with_queues(Disk(), config)
    store = MessageStore.open(config, disk, cleaning=True)
    try:
        wanted = BrokerSettings(listen_port=0, name_service_port=0, send_wait_ms=PATIENCE_MS)
        usual = {"listen_port": 0, "name_service_port": 0, "send_wait_ms": PATIENCE_MS}
        made = BrokerSettings.of({}, **{**usual, **settings}) if settings else wanted
        async with Daemon(made, store, loop, logging.getLogger("test"), access, before) as found:
            yield found
    finally:
        await loop.run_in_executor(None, store.close)


__all__ = ["ONEWAY", "SMALL", "Client", "daemon", "pull_fields", "send_fields"]
