"""Sends messages: one, many at once, batches, half messages of transactions, requests that wait for a reply.

A send is tried again, on another broker where there is one, after a lost connection and after the refusals that
another broker may not give. What was not answered in time may be stored all the same: as with Apache's client, a send
that is tried again can store a message twice, and its id (UNIQ_KEY) is the same then.

Source: DefaultMQProducerImpl, DefaultMQProducer, MQFaultStrategy.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.client import namespaces
from engine.client.clock import now_ms
from engine.client.latency import FaultTable
from engine.client.messages import CORRELATION_ID, REPLY_TO_CLIENT, TTL, OutgoingMessage, ReceivedMessage
from engine.client.queues import MessageQueue
from engine.client.selecting import RoundRobin, Selector
from engine.client.sending import (
    PREPARED,
    SendRequest,
    SendResult,
    SendRules,
    SendStatus,
    item_size,
    request_of,
    request_of_batch,
    result_of,
)
from engine.client.tracing import SendTrace
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NoRoute, PeerLost, RefusedByBroker, RStoreError
from engine.format import properties as property_words
from engine.format import sysflag
from engine.format.compression import CompressionType, demand_type
from engine.format.message import parse_msg_id
from engine.format.topic_rules import refused_group
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from engine.client.client import ClusterClient
    from engine.client.routes import TopicRoute

_TRIED_AGAIN = frozenset(
    {
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
        *(ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT),
    }
)
"""Source: DefaultMQProducer#retryResponseCodes."""


class TransactionState(enum.Enum):
    """What becomes of a half message. UNKNOWN: the broker asks later."""

    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK
    UNKNOWN = sysflag.TRANSACTION_NONE


Settling = TransactionState | Awaitable[TransactionState]
Check = Callable[[ReceivedMessage], Settling]
"""Says what became of the transaction of a half message that a broker asks for."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Under the defaults of DefaultMQProducer.

    Attributes:
        timeout_s: of a send, with all that it is tried again.
        retries: how often it is tried again (retryTimesWhenSendFailed).
        retry_not_stored_ok: also after an answer that is no SEND_OK (retryAnotherBrokerWhenNotStoreOK).
        max_size: bytes of a body, and of a batch.
        compress_above: bytes of a body from which on it is compressed (compressMsgBodyOverHowmuch); batches are not.
        compression: with what (compressType): clients before 4.9.3 read ZLIB alone. LZ4 and ZSTD need
            `rstore[compression]`. `compress_level`: 0 to 9 of ZLIB, 1 to 22 of ZSTD; LZ4 has none.
        latency_faults: slow and failed brokers are passed over for a while (sendLatencyFaultEnable).
        trace: what was sent is told in the trace topic.
    """

    timeout_s: float = 3.0
    retries: int = 2
    retry_not_stored_ok: bool = False
    max_size: int = 4 << 20
    compress_above: int = 4096
    compression: CompressionType = CompressionType.ZLIB
    compress_level: int = 5
    new_topic_queues: int = 4
    latency_faults: bool = False
    trace: bool = False


class Producer:
    """See the module. Made by `ClusterClient.producer`; for its loop.

    Args:
        group: without namespace.
        check: answers brokers that ask for transactions; None: they are left open.

    Raises:
        InvalidArgument: no name of a group, no level of the compression. NotInstalled: that needs a package.
    """

    def __init__(self, client: ClusterClient, group: str, settings: ProducerSettings, check: Check | None) -> None:
        reason = refused_group(group)
        if reason is not None:
            raise InvalidArgument(reason)
        demand_type(settings.compression, settings.compress_level)
        self.group = group
        self._client = client
        self._settings = settings
        self._check = check
        self._faults = FaultTable() if settings.latency_faults else None
        self._trace = SendTrace(client.tracer(group, "PRODUCE"), group) if settings.trace else None
        self._turns: dict[str, RoundRobin] = {}
        self._rules = SendRules(
            client.wire_name(group),
            client.config.namespace,
            settings.compress_above,
            settings.compression,
            settings.compress_level,
            settings.new_topic_queues,
        )

    async def send(
        self,
        message: OutgoingMessage,
        *,
        select: Selector | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored.

        Args:
            select: chooses the queue; the send is not tried again then. `queue`: this one.
            timeout_s: instead of the settings'.

        Raises:
            InvalidArgument: no broker would take it. NoRoute. PeerLost: it may be stored or not.
            RefusedByBroker: it is not stored.
        """
        message.demand(self._settings.max_size)
        request = request_of(message, self._client.new_id(), now_ms(), self._rules)
        return await self._send(request, [message], select, queue, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[OutgoingMessage],
        *,
        select: Selector | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic, in as few batches as the largest size of one allows: a result a batch.

        A batch is stored whole or not at all; of several the first ones may be stored when a later one fails.

        Raises:
            As `send`; InvalidArgument also: they can't be one batch. All is judged before the first batch is sent.
        """
        for message in messages:
            message.demand(self._settings.max_size)
        requests = [
            (request_of_batch(part, [self._client.new_id() for _ in part], now_ms(), self._rules), part)
            for part in self._parts(messages)
        ]
        return [await self._send(request, part, select, queue, timeout_s) for request, part in requests]

    async def send_oneway(
        self, message: OutgoingMessage, *, select: Selector | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send a message without an answer: nobody says whether it is stored.

        Raises:
            InvalidArgument. NoRoute. PeerLost: the broker is not there.
        """
        message.demand(self._settings.max_size)
        request = request_of(message, self._client.new_id(), now_ms(), self._rules)
        route = await self._route(message.topic)
        chosen = self._choose(route, message.topic, select, queue, None)
        await self._client.peers.tell(_master(route, chosen), request.code, request.to(chosen), request.body)

    async def send_transaction(
        self,
        message: OutgoingMessage,
        work: Callable[[OutgoingMessage], TransactionState | Awaitable[TransactionState]],
    ) -> tuple[SendResult, TransactionState]:
        """Send a half message, do the work that it belongs to, and commit it or roll it back.

        Where `work` raises, the transaction is left open and the error goes on; the broker asks `check` later. It does
        so, too, where it is gone by then: that is logged, and no error, for the work is done.
        Source: DefaultMQProducerImpl#sendMessageInTransaction.

        Raises:
            As `send`: `work` was not begun.
        """
        system = {**message.system, PREPARED: "true", property_words.PGROUP: self._rules.group}
        half = replace(message, delay_level=0, system=system)
        sent = await self.send(half)
        state, problem = TransactionState.ROLLBACK, None
        if sent.status is SendStatus.SEND_OK:
            state = TransactionState.UNKNOWN
            try:
                state = await _settled(work(message))
            except Exception as error:  # noqa: BLE001 - the application's; it goes on once the broker is told
                problem = error
        try:
            _, physical_offset = parse_msg_id(sent.offset_id)
            await self._end_transaction(
                _master(await self._route(message.topic), sent.queue),
                {
                    "producerGroup": self._rules.group,
                    "tranStateTableOffset": str(sent.queue_offset),
                    "commitLogOffset": str(physical_offset),
                    "commitOrRollback": str(state.value),
                    "fromTransactionCheck": "false",
                    "msgId": sent.id,
                    "bname": sent.queue.broker,
                    **({} if sent.transaction_id is None else {"transactionId": sent.transaction_id}),
                },
            )
        except RStoreError as error:
            self._client.log.warning("the end of transaction %s was not sent: %s", sent.id, error)
        if self._trace is not None:
            self._trace.settled(half, sent.id, sent.address, sent.transaction_id, state.name)
        if problem is not None:
            raise problem
        return sent, state

    async def request(self, message: OutgoingMessage, timeout_s: float = 3.0) -> ReceivedMessage:
        """Send a message and wait for the reply of who consumes it.

        Raises:
            As `send`. PeerLost: it is sent, and nobody has replied in time.
        """
        correlation = str(uuid.uuid4())
        system = {
            **message.system,
            CORRELATION_ID: correlation,
            REPLY_TO_CLIENT: self._client.id,
            TTL: str(round(timeout_s * 1000)),
        }
        asked = replace(message, system=system)
        await self._route(message.topic)  # its brokers know us then, and where to push the reply
        with self._client.replies.expected(correlation) as reply:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.send(asked, timeout_s=timeout_s)
                    return await reply
            except TimeoutError:
                raise PeerLost(f"nobody has replied to a message of topic {message.topic} in {timeout_s:g} s") from None

    async def answer_check(self, address: str, fields: dict[str, str], half: ReceivedMessage) -> None:
        """A broker asks what became of a half message: ask `check`, and say so. Never raises what a peer causes."""
        if self._check is None:
            return
        try:
            state = await _settled(self._check(half))
        except Exception as error:  # noqa: BLE001 - the application's, and nobody waits for it
            self._client.log.warning("the check of transaction %s failed: %s", half.id, error)
            state = TransactionState.UNKNOWN
        try:
            await self._end_transaction(
                address,
                {
                    "producerGroup": self._rules.group,
                    "tranStateTableOffset": fields.get("tranStateTableOffset", "0"),
                    "commitLogOffset": fields.get("commitLogOffset", "0"),
                    "commitOrRollback": str(state.value),
                    "fromTransactionCheck": "true",
                    "msgId": half.id,
                    "transactionId": fields.get("transactionId", half.id),
                    "bname": half.queue.broker,
                },
            )
        except RStoreError as error:
            self._client.log.warning("the end of transaction %s was not sent: %s", half.id, error)

    # --- how ----------------------------------------------------------------------------------------------------------

    async def _send(
        self,
        request: SendRequest,
        messages: Sequence[OutgoingMessage],
        select: Selector | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
    ) -> SendResult:
        began_ms = now_ms()
        result = await self._send_on(request, messages[0].topic, select, queue, timeout_s)
        if self._trace is not None:
            self._trace.sent(messages, result, began_ms)
        return result

    async def _send_on(
        self,
        request: SendRequest,
        topic: str,
        select: Selector | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
    ) -> SendResult:
        settings = self._settings
        end = time.monotonic() + (settings.timeout_s if timeout_s is None else timeout_s)
        tries = 1 if select is not None or queue is not None else 1 + settings.retries
        last: str | None = None
        problem: PeerLost | RefusedByBroker | None = None
        result: SendResult | None = None
        for _ in range(tries):
            left = end - time.monotonic()
            if left <= 0:
                break
            try:
                route = await self._route(topic)
                chosen = self._choose(route, topic, select, queue, last)
                address = _master(route, chosen)
            except (NoRoute, PeerLost) as error:
                if result is None:
                    raise problem or error from None  # what was tried before may be stored: no route does not say so
                break
            last = chosen.broker
            try:
                result = await self._try(request, chosen, address, left)
            except PeerLost as error:
                problem = error
                self._client.forget_route(chosen.topic)
                continue
            except RefusedByBroker as error:
                problem = error
                if error.response not in _TRIED_AGAIN:
                    break
                continue
            if result.status is SendStatus.SEND_OK or not settings.retry_not_stored_ok:
                return result
        if result is not None:
            return result
        raise problem or PeerLost(f"a send to topic {topic} was not done in time")

    async def _try(self, request: SendRequest, queue: MessageQueue, address: str, left_s: float) -> SendResult:
        began = time.monotonic()
        failed = True
        try:
            answer = await self._client.peers.ask(
                address, request.code, request.to(queue), request.body, timeout_s=left_s
            )
            given = queue._replace(topic=namespaces.unwrapped(self._rules.namespace, queue.topic))
            result = result_of(answer, request, given, address)
            failed = False
        finally:
            if self._faults is not None:
                now = time.monotonic()
                self._faults.note(queue.broker, round((now - began) * 1000), round(now * 1000), failed=failed)
        return result

    async def _route(self, topic: str) -> TopicRoute:
        return await self._client.route(self._client.wire_name(topic), create=self._settings.new_topic_queues)

    def _choose(
        self,
        route: TopicRoute,
        topic: str,
        select: Selector | None,
        queue: MessageQueue | None,
        last_broker: str | None,
    ) -> MessageQueue:
        """A queue, with the topic as the wire has it."""
        wire = self._client.wire_name(topic)
        if queue is not None:
            return queue._replace(topic=wire)
        queues = route.write_queues(wire)
        if not queues:
            raise NoRoute(f"no broker takes messages of topic {topic}", hint="no queue of it is writable")
        if select is not None:
            return select([one._replace(topic=topic) for one in queues])._replace(topic=wire)
        turn = self._turns.setdefault(wire, RoundRobin(time.monotonic_ns() % len(queues), self._faults))
        return turn.select(queues, last_broker, round(time.monotonic() * 1000))

    def _parts(self, messages: Sequence[OutgoingMessage]) -> Iterator[Sequence[OutgoingMessage]]:
        """The messages, cut where a batch would become too large."""
        size, start = 0, 0
        example = self._client.new_id()
        for at, message in enumerate(messages):
            own = item_size(message, example)
            if at > start and size + own > self._settings.max_size:
                yield messages[start:at]
                size, start = 0, at
            size += own
        if messages:
            yield messages[start:]
        else:
            raise InvalidArgument("a batch needs messages")

    async def _end_transaction(self, address: str, fields: dict[str, str]) -> None:
        await self._client.peers.tell(address, RequestCode.END_TRANSACTION, fields)


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    """The address that takes messages of a queue. Raises NoRoute."""
    address = route.address(queue.broker, only=True)
    if address is None:
        raise NoRoute(f"broker {queue.broker} has no master that is registered")
    return address


async def _settled(state: Settling) -> TransactionState:
    return await state if inspect.isawaitable(state) else state
