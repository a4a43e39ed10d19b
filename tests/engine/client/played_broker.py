"""A peer that is name server and broker at once, on a real socket, and answers pulls as it is told: nonsense, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from engine.format.message import Message, encode, patch
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from engine.wire.frames import FrameReader
from engine.wire.frames import encode as frame

BROKER, TOPIC = "played", "T"
Pulled = tuple[int, Mapping[str, str], bytes]
"""Code, fields and body of an answer."""


def record(offset: int, *, topic: str = TOPIC, queue_id: int = 0, body: bytes = b"x", sys_flag: int = 0) -> bytes:
    """A stored record."""
    made = encode(Message(topic, body, queue_id, sys_flag=sys_flag))
    patch(made, 0, queue_offset=offset, physical_offset=offset * 1000, store_timestamp=1)
    return bytes(made)


def pulled(code: int, following: object, *records: bytes, **more: str) -> Pulled:
    """An answer to a pull."""
    fields = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": "10", "suggestWhichBrokerId": "0"}
    return int(code), {**fields, **more}, b"".join(records)


class PlayedBroker:
    """See the module.

    Attributes:
        answer: to a pull from an offset.
        pulls: offsets of T that were asked for.
        has_route: whether anybody serves a topic.
    """

    def __init__(self, answer: Callable[[int], Pulled]) -> None:
        self.answer = answer
        self.address = ""
        self.pulls: list[int] = []
        self.has_route = True
        self._ids: list[str] = []
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        frames = FrameReader()
        try:
            while data := await reader.read(1 << 16):
                for request in frames.feed(data):
                    if not request.is_oneway:
                        code, fields, body = self._answer(request)
                        answer = RemotingCommand(code, request.opaque, 1, None, dict(fields), body)
                        writer.writelines(frame(answer))
        except OSError:
            pass
        finally:
            writer.close()

    def _answer(self, request: RemotingCommand) -> Pulled:
        match request.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC if not self.has_route or request.fields["topic"] != TOPIC:
                return ResponseCode.TOPIC_NOT_EXIST, {}, b""
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return ResponseCode.SUCCESS, {}, json.dumps(self._route()).encode()
            case RequestCode.GET_MAX_OFFSET:
                return ResponseCode.SUCCESS, {"offset": "10"}, b""
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                return ResponseCode.SUCCESS, {}, json.dumps({"consumerIdList": self._ids}).encode()
            case RequestCode.HEART_BEAT:
                self._ids = [json.loads(bytes(request.body))["clientID"]]
            case RequestCode.PULL_MESSAGE:
                offset = int(request.fields["queueOffset"])
                self.pulls.append(offset)
                self.asked.set()
                return self.answer(offset)
        return ResponseCode.SUCCESS, {"offset": "0"}, b""

    def _route(self) -> dict[str, object]:
        return {
            "queueDatas": [
                {"brokerName": BROKER, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
            ],
            "brokerDatas": [{"cluster": "c", "brokerName": BROKER, "brokerAddrs": {"0": self.address}}],
        }

    async def until_pulls(self, count: int) -> None:
        """Until so many pulls came."""
        while len(self.pulls) < count:
            self.asked.clear()
            await self.asked.wait()


@asynccontextmanager
async def played_broker(answer: Callable[[int], Pulled]) -> AsyncIterator[PlayedBroker]:
    """A running one."""
    broker = PlayedBroker(answer)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield broker
    finally:
        server.close()
