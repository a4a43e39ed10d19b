"""What the tests of replication need: a proxy that fails as networks do, a producer that notes what it was promised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.client.connection import RemotingClient
from engine.errors import PeerLost, StorageError
from engine.format.message import decode
from engine.wire.codes import RequestCode, ResponseCode

PIECE = 1 << 16
WINDOW = 100
BUSY_TRIES = 50
"""How often a message is sent again that a broker refuses as its machine is busy."""
STORED = {ResponseCode.SUCCESS}


class Proxy:
    """Stands between a slave and its master. `cut` ends what goes through; while `stalled`, nothing passes any more."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.stalled = False
        self.delay_s = 0.0
        self.passed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, 5)
                server.settimeout(None)  # Apache's slave says its first word after 5 s
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.stalled and not self._closed:
                    time.sleep(0.01)
                target.sendall(data)
                self.passed += len(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@dataclass
class Produced:
    """What a producer has had acknowledged: bodies, and the highest physical offset among them."""

    bodies: set[bytes] = field(default_factory=set)
    last: int = -1
    refused: int = 0
    codes: set[int] = field(default_factory=set)


@contextlib.contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()


def produce(
    broker: str,
    topic: str,
    count: int,
    size: int = 100,
    name: str = "p",
    pause_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
) -> Produced:
    """Send messages, WINDOW at a time; ends early when the broker goes."""
    return asyncio.run(_produce(broker, topic, count, size, name, pause_s, tls))


async def _produce(
    broker: str, topic: str, count: int, size: int, name: str, pause_s: float, tls: ssl.SSLContext | None
) -> Produced:
    found = Produced()
    lock = asyncio.Semaphore(WINDOW)
    async with await RemotingClient.connect(broker, tls=tls) as client:

        async def one(i: int) -> None:
            body = b"%s-%08d-" % (name.encode(), i)
            body += b"x" * (size - len(body))
            ext = {
                "a": "replicated", "b": topic, "c": "TBW102", "d": "4", "e": str(i % 4), "f": "0",
                "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            async with lock:
                for _ in range(BUSY_TRIES):  # as clients do
                    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, ext, body, timeout_s=20)
                    if answer.code != ResponseCode.SYSTEM_BUSY:
                        break
                    await asyncio.sleep(0.2)
            found.codes.add(answer.code)
            if answer.code in STORED:
                found.bodies.add(body)
                found.last = max(found.last, int(answer.fields["msgId"][-16:], 16))
            else:
                found.refused += 1

        for at in range(0, count, 1000):
            results = await asyncio.gather(*map(one, range(at, min(at + 1000, count))), return_exceptions=True)
            errors = [error for error in results if isinstance(error, BaseException)]
            if any(not isinstance(error, StorageError) for error in errors):
                raise errors[0]
            if errors:
                break
            await asyncio.sleep(pause_s)
    return found


def consume(broker: str, topic: str, queues: int = 4) -> set[bytes]:
    """The bodies of all messages of a topic, pulled as a client does."""
    return asyncio.run(_consume(broker, topic, queues))


async def _consume(broker: str, topic: str, queues: int) -> set[bytes]:
    found: set[bytes] = set()
    async with await RemotingClient.connect(broker) as client:
        for queue_id in range(queues):
            at = 0
            while True:
                ext = {
                    "consumerGroup": "readers", "topic": topic, "queueId": str(queue_id), "queueOffset": str(at),
                    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                    "subscription": "*", "subVersion": "0",
                }  # fmt: skip
                answer = await client.ask(RequestCode.PULL_MESSAGE, ext, timeout_s=20)
                if answer.code != ResponseCode.SUCCESS:
                    break
                data, place = bytes(answer.body), 0
                while place < len(data):
                    one = decode(data, place)
                    found.add(one.body)
                    place += one.total_size
                at = int(answer.fields["nextBeginOffset"])
    return found


def log_end(broker: str) -> int:
    """The physical offset at which a broker's log ends."""

    async def ask() -> int:
        async with await RemotingClient.connect(broker) as client:
            answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        if answer.code != ResponseCode.SUCCESS:  # Apache's, which fails until its first statistics of a second
            raise PeerLost(f"{broker}: {answer.remark}")
        return int(json.loads(bytes(answer.body))["table"]["commitLogMaxOffset"])

    return asyncio.run(ask())


def log_bytes(root: Path, start: int, end: int) -> bytes:
    """The log's bytes from one physical offset to another."""
    pieces = []
    for path in sorted((root / "commitlog").iterdir()):
        base, size = int(path.name), path.stat().st_size
        if base < end and base + size > start:
            with path.open("rb") as file:
                file.seek(max(0, start - base))
                pieces.append(file.read(min(end, base + size) - max(start, base)))
    return b"".join(pieces)


def until(condition: object, seconds: float = 60.0, why: str = "") -> None:
    """A broker that does not answer in time, or is not there yet, is asked again."""
    end = time.monotonic() + seconds
    lost = ""
    while True:
        try:
            if condition():  # type: ignore[operator]
                return
        except PeerLost as error:
            lost = repr(error)
        assert time.monotonic() < end, why or lost
        time.sleep(0.05)
