"""A client of the daemon for drills and tests: one socket, one thread, requests and their answers as Apache's wire has
them (REMOTING.md 1, BROKER.md 1.1, 1.2). It waits, and it never hides an answer: what a broker says is what the
caller gets.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import orjson

from engine.format import properties as property_words
from engine.wire.codes import PULL_COMMIT, PULL_SUBSCRIPTION, PULL_SUSPEND, RequestCode
from engine.wire.command import ONEWAY, RemotingCommand
from engine.wire.correlation import Correlation
from engine.wire.frames import FrameReader, encode

_CHUNK = 1 << 18


class Gone(ConnectionError):
    """The other side has closed the connection, or was never there."""


class WireClient:
    """See the module. For one thread. Also a context manager.

    Args:
        address: `ip:port`.
        timeout_s: how long anything is waited for.
        pushed: is called with requests of the broker.

    Attributes:
        local: `ip:port` of this end.
        id: its client id.

    Raises:
        Gone: nobody listens there.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = 30.0,
        pushed: Callable[[WireClient, RemotingCommand], None] | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._timeout = timeout_s
        self._pushed = pushed
        self._requests: Correlation[None] = Correlation()
        self._frames = FrameReader()
        self._answers: deque[RemotingCommand] = deque()
        try:
            self._socket = socket.create_connection((host, int(port)), timeout_s)
        except OSError as error:
            raise Gone(str(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self._socket.getsockname()[:2]
        self.local = f"{host}:{port}"
        self.id = f"{port}@drill"

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """The answer to a request. Raises Gone, TimeoutError."""
        return self.answer(self.request(code, ext, body))

    def request(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *, oneway: bool = False
    ) -> int:
        """Send a request without waiting; its opaque. Raises Gone."""
        opaque = self._requests.next_opaque() if oneway else self._requests.begin(None)
        head, rest = encode(RemotingCommand(code, opaque, ONEWAY if oneway else 0, None, ext, body))
        try:
            self._socket.sendall(b"".join((head, rest)))
        except OSError as error:
            raise Gone(str(error)) from None
        return opaque

    def answer(self, opaque: int | None = None) -> RemotingCommand:
        """The answer to an earlier request; to any, with None. Raises Gone, TimeoutError."""
        deadline = time.monotonic() + self._timeout
        while True:
            for at, command in enumerate(self._answers):
                if opaque is None or command.opaque == opaque:
                    del self._answers[at]
                    return command
            self._read(deadline)

    def listen(self, seconds: float) -> None:
        """Take what the broker says by itself for a while. Raises Gone."""
        with contextlib.suppress(TimeoutError):
            self._read(time.monotonic() + seconds)

    def _read(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {self._timeout} s")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout} s") from None
        except OSError as error:
            raise Gone(str(error)) from None
        if not data:
            raise Gone("the broker has closed the connection")
        for command in self._frames.feed(data):
            if command.is_response:
                self._requests.settle(command.opaque)
                self._answers.append(command)  # one that nobody waits for, too
            elif self._pushed is not None:
                self._pushed(self, command)

    def close(self) -> None:
        """Hang up; from any thread: one that waits for an answer is told."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- what clients ask -------------------------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str] | None = None,
        *,
        group: str = "producers",
        sys_flag: int = 0,
    ) -> RemotingCommand:
        """SEND_MESSAGE_V2. Raises Gone, TimeoutError."""
        return self.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties, group, sys_flag), body)

    def heartbeat(
        self, *, producer: str | None = None, consumer: str | None = None, topics: tuple[str, ...] = ()
    ) -> None:
        """Become a member of groups. Raises Gone, TimeoutError."""
        body = {
            "clientID": self.id,
            "producerDataSet": [{"groupName": producer}] if producer else [],
            "consumerDataSet": [
                {
                    "groupName": consumer,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics],
                }
            ]
            if consumer
            else [],
        }
        self.ask(RequestCode.HEART_BEAT, None, orjson.dumps(body))

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Where a group continues: what it has committed, or the queue's first message. Raises Gone, TimeoutError."""
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        if answer.code:
            answer = self.ask(RequestCode.GET_MIN_OFFSET, place)
        return int(answer.fields.get("offset", "0"))


def send_fields(
    topic: str, queue_id: int, properties: Mapping[str, str] | None = None, group: str = "producers", sys_flag: int = 0
) -> dict[str, str]:
    """The header of SEND_MESSAGE_V2."""
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": property_words.join(properties or {}),
        "j": "0",
        "m": "false",
    }


def pull_fields(
    group: str, topic: str, queue_id: int, offset: int, *, wait_ms: int = 0, commit: int | None = None, tags: str = "*"
) -> dict[str, str]:
    """The header of PULL_MESSAGE with its own subscription. `wait_ms`: how long it may be held."""
    flags = PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_ms else 0) | (PULL_COMMIT if commit is not None else 0)
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(flags),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": tags,
        "subVersion": "0",
    }
