"""A peer that answers nonsense: it stands before a real daemon, and changes one of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.wire.command import RemotingCommand
from engine.wire.frames import FrameReader, encode

ODD = (
    *(b"null", b"-1", b"1e999", b"99999999999999999999", b"1.5", b"true", b"NaN", b"[]", b"{}", b"[null]", b'{"a":1}'),
    *(b'"x"', b'""', b'"\\u001b[31m"', b'"\\ud800"', b'"\\u202e"', b"[" * 2000, b'"' + b"9" * 5000 + b'"'),
)
ODD_TEXTS = ("", "x", "-1", "9" * 30, "1e5", "\x1b]0;t\x07", "null", "0", "\u202e")
CODES = (0, 1, 17, 22, 206, 9999, -7)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}\[\]:,]')


class Mutating:
    """See the module. `names`, `broker`: where it listens for each. For a thread of its own.

    Attributes:
        asked: codes of the requests that were answered, in their order.
        swapped: a piece of bodies, and what stands in its place.
    """

    def __init__(self, names: str, broker: str) -> None:
        self._upstream = {"names": names, "broker": broker}
        self.names = self.broker = ""
        self.swapped: tuple[bytes, bytes] = (b"", b"")
        self.asked: list[int] = []
        self._at: int | None = None
        self._chance = random.Random(0)

    def begin(self, at: int | None = None, seed: int = 0) -> None:
        """The next answers: the one with this number is changed (None: none is)."""
        self.asked.clear()
        self._at, self._chance = at, random.Random(seed)

    async def _serve(self, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream[kind].rsplit(":", 1)
        there, onward = await asyncio.open_connection(host, int(port))
        codes: dict[int, int] = {}

        async def requests() -> None:
            frames = FrameReader()
            while data := await reader.read(1 << 16):
                for one in frames.feed(data):
                    codes[one.opaque] = one.code
                    onward.writelines(encode(one))
            onward.close()

        async def answers() -> None:
            frames = FrameReader()
            while data := await there.read(1 << 16):
                for one in frames.feed(data):
                    writer.writelines(encode(self._answer(codes.get(one.opaque, -1), one)))
            writer.close()

        with contextlib.suppress(OSError):
            await asyncio.gather(requests(), answers())

    def _answer(self, code: int, answer: RemotingCommand) -> RemotingCommand:
        body = bytes(answer.body).replace(self._upstream["broker"].encode(), self.broker.encode())
        if self.swapped[0]:
            body = body.replace(*self.swapped)
        fields = dict(answer.fields)
        result, remark = answer.code, answer.remark
        if len(self.asked) == self._at:
            match self._chance.randrange(6):
                case 0:
                    result, remark = self._chance.choice(CODES), self._chance.choice(ODD_TEXTS)
                case 1 if fields:
                    fields[self._chance.choice(sorted(fields))] = self._chance.choice(ODD_TEXTS)
                case 2 if fields:
                    del fields[self._chance.choice(sorted(fields))]
                case _:
                    body = mutated(body, self._chance)
        self.asked.append(code)
        return RemotingCommand(result, answer.opaque, answer.flag, remark, fields, body)


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Another body."""
    tokens = list(_TOKEN.finditer(body)) if body[:1] in (b"{", b"[") else []
    match chance.randrange(6):
        case 0:
            return chance.choice(ODD)
        case 1:
            return body[: chance.randrange(len(body) + 1)]
        case 2 if body:
            changed = bytearray(body)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            return bytes(changed)
        case 3 if len(tokens) > 4:  # a piece is missing
            first = chance.randrange(len(tokens) - 3)
            return body[: tokens[first].start()] + body[tokens[first + chance.choice((1, 2, 3))].end() :]
        case _ if tokens:
            one = chance.choice(tokens)
            return body[: one.start()] + chance.choice(ODD) + body[one.end() :]
    return body + b"\0"


@contextmanager
def mutating(names: str, broker: str) -> Iterator[Mutating]:
    """A running one, before a daemon's name server and broker."""
    peer = Mutating(names, broker)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def run() -> None:
        servers = {}
        for kind in ("names", "broker"):
            servers[kind] = await asyncio.start_server(
                lambda reader, writer, kind=kind: peer._serve(kind, reader, writer),  # type: ignore[misc]
                "127.0.0.1",
                0,
            )
        peer.names, peer.broker = (
            f"127.0.0.1:{servers[kind].sockets[0].getsockname()[1]}" for kind in ("names", "broker")
        )
        ready.set()
        await stop.wait()
        for server in servers.values():
            server.close()
        own = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not own:
                task.cancel()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        ready.wait()
        yield peer
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
