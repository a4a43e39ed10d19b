"""A connection of `engine.client` for who waits: raw requests and their answers, whatever they say.

For load, attacks and hostile frames that no producer or consumer would send. What a real client sends goes through one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from engine.client.clock import now_ms
from engine.client.connection import RemotingClient
from engine.client.consumer_settings import MessageModel, StartFrom
from engine.client.heartbeats import PUSH, consumer_data, heartbeat_body
from engine.client.pulling import pull_fields
from engine.client.queues import MessageQueue
from engine.client.sending import SendRequest, SendRules, send_fields
from engine.client.subscriptions import ALL, TAG, TopicSubscription
from engine.drill.loop_thread import LoopThread
from engine.format import properties as property_words
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand

BROKER = "broker-a"


class Wire:
    """See the module. A context manager.

    Args:
        address: `ip:port`.
        timeout_s: how long anything is waited for.

    Raises:
        PeerLost: nobody listens there. So do all methods: the connection is lost, or there is no answer in time.
    """

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._loop = LoopThread("wire")
        try:
            self._peer = self._loop.run(RemotingClient.connect(address, timeout_s=timeout_s))
        except BaseException:
            self._loop.close()
            raise

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """The answer to a request."""
        return self.begin(code, ext, body).result()

    def begin(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Future[RemotingCommand]:
        """Send a request; its answer comes later."""
        return self._loop.begin(self._peer.ask(code, ext, body, timeout_s=self._timeout_s))

    def ask_all(self, requests: Sequence[tuple[int, Mapping[str, str], bytes]]) -> list[RemotingCommand]:
        """The answers to requests that are sent in one go: code, fields and body of each."""

        async def ask() -> list[RemotingCommand]:
            asked = (self._peer.ask(*one, timeout_s=self._timeout_s) for one in requests)
            return list(await asyncio.gather(*asked))

        return self._loop.run(ask())

    def put(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        """SEND_MESSAGE_V2."""
        return self.ask(*put_request(topic, queue_id, body, properties))

    def heartbeat(
        self, *, producers: Sequence[str] = (), consumer: str | None = None, topics: Sequence[str] = ()
    ) -> None:
        """Become a member of groups."""
        wanted = [TopicSubscription.of(topic, ALL, TAG, now_ms()) for topic in topics]
        model, start = MessageModel.CLUSTERING, StartFrom.FIRST_OFFSET
        consumers = [] if consumer is None else [consumer_data(consumer, PUSH, model, start, wanted)]
        self.ask(RequestCode.HEART_BEAT, None, heartbeat_body(f"{id(self)}@wire", producers, consumers))

    def close(self) -> None:
        """Hang up."""
        self._loop.run(self._peer.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def put_request(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str] | None = None,
    *,
    group: str = "producers",
    sys_flag: int = 0,
) -> tuple[RequestCode, dict[str, str], bytes]:
    """SEND_MESSAGE_V2: code, fields and body. `properties`: just these."""
    words = property_words.join(properties or {})
    fields = send_fields(topic, 0, sys_flag, words, now_ms(), SendRules(group))
    request = SendRequest(RequestCode.SEND_MESSAGE_V2, fields, body, "")
    return request.code, request.to(MessageQueue(topic, BROKER, queue_id)), body


def pull_request(
    group: str,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    most: int = 32,
    wait_ms: int = 0,
    expression: str = ALL,
    kind: str = TAG,
) -> tuple[RequestCode, dict[str, str], bytes]:
    """PULL_MESSAGE with its own subscription: code, fields and no body."""
    wanted = TopicSubscription.of(topic, expression, kind, 0)
    queue = MessageQueue(topic, BROKER, queue_id)
    return RequestCode.PULL_MESSAGE, pull_fields(group, queue, offset, wanted, most=most, wait_ms=wait_ms), b""
