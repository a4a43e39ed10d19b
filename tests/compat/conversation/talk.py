"""Speaks to one broker, and writes down what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson

from engine.wire.codes import RequestCode
from engine.wire.command import ONEWAY, RemotingCommand, SerializeType
from engine.wire.frames import FrameReader, encode
from tests.compat.conversation.normal import Names, answer_of

WAIT_S = 12.0
NOTHING_S = 1.5
"""How long is waited for what is not to come."""

Fields = Mapping[str, Any]


@dataclass(slots=True)
class Talk:
    """One broker.

    Attributes:
        answers: by step, flat.
        names: of its ports and places.
    """

    broker: str
    name_service: str
    names: Names
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _peers: list[Peer] = field(default_factory=list)

    async def peer(self, name: str, *, names: bool = False, vip: bool = False) -> Peer:
        """A connection of its own. `name`: what its address is called."""
        host, _, port = (self.name_service if names else self.broker).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port) - (2 if vip else 0))
        mine = writer.get_extra_info("sockname")
        self.names.call(f"{mine[0]}:{mine[1]}", name)
        found = Peer(self, name, reader, writer)
        self._peers.append(found)
        return found

    def note(self, step: str, said: Mapping[str, Any]) -> None:
        """Write down what was seen at a step."""
        assert step not in self.answers, f"two steps are called {step}"
        self.answers[step] = dict(said)

    def close(self) -> None:
        """Hang up."""
        for peer in self._peers:
            peer.close()


class Peer:
    """One connection to a broker."""

    def __init__(self, talk: Talk, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talk, self.name = talk, name
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._opaque = count(1)
        self._answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._pushed: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self._extra: list[RemotingCommand] = []
        self._closed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def ask(
        self,
        step: str,
        code: int,
        ext: Fields | None = None,
        body: bytes | Any = b"",
        *,
        kind: int = 0,
        version: int = 409,
        language: int = 0,
        wait_s: float = WAIT_S,
        loose: Iterable[str] = (),
    ) -> RemotingCommand | None:
        """One step: a request and its answer.

        Args:
            body: bytes, or what is said in JSON.
            kind: of the header's serialisation.
            loose: fields that are left to chance.
        """
        opaque = self.send(code, ext, body, kind=kind, version=version, language=language)
        found = await self.answer(opaque, wait_s)
        self._note(step, found, code, loose)
        return found

    async def quiet(self, code: int, ext: Fields | None = None, body: bytes | Any = b"") -> RemotingCommand:
        """A request that is no step: to find out whether the broker is so far."""
        found = await self.answer(self.send(code, ext, body), WAIT_S)
        assert found is not None
        return found

    def send(
        self,
        code: int,
        ext: Fields | None = None,
        body: bytes | Any = b"",
        *,
        kind: int = 0,
        version: int = 409,
        language: int = 0,
        flag: int = 0,
    ) -> int:
        """Only the request; its opaque."""
        opaque = next(self._opaque)
        said = None if ext is None else {name: str(value) for name, value in ext.items() if value is not None}
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        command = RemotingCommand(code, opaque, flag, None, said, raw, language, version, SerializeType(kind))
        self._answers[opaque] = asyncio.get_running_loop().create_future()
        self._writer.writelines(encode(command))
        return opaque

    async def later(
        self, step: str, opaque: int, code: int, wait_s: float = WAIT_S, loose: Iterable[str] = ()
    ) -> RemotingCommand | None:
        """The step of a request sent before."""
        found = await self.answer(opaque, wait_s)
        self._note(step, found, code, loose)
        return found

    async def answer(self, opaque: int, wait_s: float) -> RemotingCommand | None:
        """The answer to a request; None when there is none in time."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._answers[opaque]), wait_s)
        except (TimeoutError, ConnectionError):
            return None

    def is_answered(self, opaque: int) -> bool:
        """Whether a request has its answer now."""
        return self._answers[opaque].done()

    async def tell(self, step: str, code: int, ext: Fields | None = None, body: bytes | Any = b"") -> None:
        """One step: a one-way request; that nothing is answered."""
        self._note(step, await self.answer(self.send(code, ext, body, flag=ONEWAY), NOTHING_S), code, ())

    async def pushed(
        self, step: str, wait_s: float = WAIT_S, code: int | None = None, loose: Iterable[str] = ()
    ) -> RemotingCommand | None:
        """One step: the next request of the broker's own, or that there is none."""
        found = await self.next_push(wait_s, code)
        self._note(step, found, 0 if found is None else found.code, loose)
        return found

    async def next_push(self, wait_s: float, code: int | None = None) -> RemotingCommand | None:
        """The next request of the broker's own (of a code), None when there is none in time."""
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    found = await self._pushed.get()
                    if code is None or found.code == code:
                        return found
        except TimeoutError:
            return None

    async def forget_pushed(self) -> None:
        """What the broker has asked so far is of no interest: that is here when something else is answered."""
        await self.quiet(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
        while not self._pushed.empty():
            self._pushed.get_nowait()

    def reply(self, request: RemotingCommand, code: int, remark: str | None = None, body: bytes = b"") -> None:
        """Answer a request of the broker's."""
        self._writer.writelines(encode(request.answer(code, remark, None, body)))

    async def raw(self, step: str, data: bytes, code: int, opaque: int = 0, wait_s: float = WAIT_S) -> None:
        """One step: bytes as they are; the answer to `opaque`, or that the connection was closed."""
        self._answers[opaque] = asyncio.get_running_loop().create_future()
        self._writer.write(data)
        found = await self.answer(opaque, wait_s)
        self._note(step, found, code, ())
        await asyncio.sleep(0.1)
        self.talk.answers[step]["closed"] = self._closed.is_set()

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)

    def close(self) -> None:
        """Hang up."""
        self._reading.cancel()
        self._writer.close()

    def _note(self, step: str, found: RemotingCommand | None, code: int, loose: Iterable[str]) -> None:
        said = answer_of(found, code, step, self.talk.names)
        for name in loose:
            if said.get(name, "<0>") != "<0>":
                said[name] = "<by chance>"
        self.talk.note(step, said)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                for command in self._frames.feed(data):
                    if not command.is_response:
                        self._pushed.put_nowait(command)
                    elif (waiting := self._answers.get(command.opaque)) is not None and not waiting.done():
                        waiting.set_result(command)
                    else:
                        self._extra.append(command)
        except ConnectionError:
            pass
        self._closed.set()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("closed"))
                waiting.exception()
