"""What brokers ask of clients: what became of a transaction, where a consumer stands, to begin elsewhere, to consume a
message now; and what they tell: consumers have changed, a reply is there.

mqadmin's consumerStatus, resetOffsetByTime and consumeMessage, and dashboards, come by these. Source:
ClientRemotingProcessor, ConsumerRunningInfo, ProcessQueueInfo, ConsumeMessageDirectlyResult, ResetOffsetBody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from engine.client import namespaces
from engine.client.consumer_settings import ConsumeOutcome
from engine.client.messages import received
from engine.client.queues import MessageQueue
from engine.errors import FormatError, RStoreError
from engine.format.message import decode
from engine.format.properties import PGROUP
from engine.wire import object_keys
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Coroutine, Mapping

    from engine.client.client import ClientConfig
    from engine.client.connection import RemotingClient
    from engine.client.consumer_settings import Handler
    from engine.client.group_member import GroupMember
    from engine.client.process_queue import ProcessQueue
    from engine.client.producer import Producer
    from engine.client.replies import Replies
    from engine.wire.command import RemotingCommand

_MIB = 1 << 20


class BrokerRequests:
    """Takes each request of a broker to whom it is about. For one loop.

    Args:
        producers, consumers: of the client, by group without namespace.
        background: has something done beside.
    """

    def __init__(
        self,
        producers: Mapping[str, Producer],
        consumers: Mapping[str, GroupMember],
        replies: Replies,
        config: ClientConfig,
        background: Callable[[Coroutine[None, None, None]], None],
        log: logging.Logger,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._config = config
        self._background = background
        self._log = log
        self._handlers: dict[int, Callable[[RemotingClient, RemotingCommand], None]] = {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: replies.take,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def take(self, peer: RemotingClient, request: RemotingCommand) -> None:
        """A request has come. What is wrong with it is answered or logged."""
        handler = self._handlers.get(request.code)
        if handler is not None:
            handler(peer, request)
        elif not request.is_oneway:
            remark = f" request type {request.code} not supported"
            peer.answer(request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _check_transaction(self, peer: RemotingClient, request: RemotingCommand) -> None:
        namespace = self._config.namespace
        try:
            half = received(decode(request.body), request.fields.get("bname", ""), namespace)
        except RStoreError as error:
            self._log.warning("%s asks for a transaction with an unreadable message: %s", peer.address, error)
            return
        producer = self._producers.get(namespaces.unwrapped(namespace, half.properties.get(PGROUP, "")))
        if producer is not None:
            self._background(producer.answer_check(peer.address, dict(request.fields), half))

    def _members_changed(self, peer: RemotingClient, request: RemotingCommand) -> None:
        for consumer in self._consumers.values():
            consumer.rebalance_soon()

    def _reset_offsets(self, peer: RemotingClient, request: RemotingCommand) -> None:
        consumer = self._consumer_of(request)
        if consumer is None:
            return
        try:
            offsets = reset_table(request.body)
        except FormatError as error:
            self._log.warning("%s resets offsets with a malformed table: %s", peer.address, error)
            return
        self._background(consumer.begin_at(offsets))

    def _running_info(self, peer: RemotingClient, request: RemotingCommand) -> None:
        consumer = self._consumer_of(request)
        if consumer is None:
            _no_consumer(peer, request)
        else:
            peer.answer(request.answer(body=running_info(consumer, ";".join(self._config.name_servers))))

    def _consume_directly(self, peer: RemotingClient, request: RemotingCommand) -> None:
        consumer = self._consumer_of(request)
        if consumer is None or consumer.handler is None:
            _no_consumer(peer, request)
        else:
            self._background(consume_directly(peer, request, consumer.handler, self._config.namespace))

    def _consumer_of(self, request: RemotingCommand) -> GroupMember | None:
        """The consumer that a request is about."""
        wire = request.fields.get("consumerGroup") or request.fields.get("group") or ""
        return self._consumers.get(namespaces.unwrapped(self._config.namespace, wire))


def _no_consumer(peer: RemotingClient, request: RemotingCommand) -> None:
    group = request.fields.get("consumerGroup")
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    peer.answer(request.answer(ResponseCode.SYSTEM_ERROR, remark))


def reset_table(body: bytes | memoryview) -> dict[MessageQueue, int]:
    """Where to begin with each queue. Raises FormatError."""
    rows = object_keys.read(bytes(body).decode("utf-8", "replace"), "offsetTable")
    try:
        return {
            MessageQueue(str(key["topic"]), str(key["brokerName"]), int(key["queueId"])): int(offset)
            for key, offset in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"malformed offsetTable: {error!r}") from None


def running_info(consumer: GroupMember, names: str) -> bytes:
    """The body of the answer to GET_CONSUMER_RUNNING_INFO. `names`: the name servers' addresses."""
    queues = object_keys.write(
        (
            {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic},
            _queue_info(held, offset),
        )
        for queue, held, offset in consumer.state()
    )
    fields = {
        "properties": {**consumer.running_properties(), "PROP_NAMESERVER_ADDR": names},
        "statusTable": {topic: _status(consumer, topic) for topic in consumer.topics},
        "subscriptionSet": consumer.heartbeat()["subscriptionDataSet"],
    }
    return orjson.dumps(fields)[:-1] + b',"mqTable":' + queues + b"}"


def _queue_info(held: ProcessQueue, offset: int | None) -> dict[str, Any]:
    low, high = held.bounds() or (0, 0)
    return {
        "cachedMsgCount": len(held),
        "cachedMsgMaxOffset": high,
        "cachedMsgMinOffset": low,
        "cachedMsgSizeInMiB": held.size // _MIB,
        "commitOffset": -1 if offset is None else offset,
        "droped": held.dropped,
        "lastConsumeTimestamp": held.consumed_ms,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": held.pulled_ms,
        "locked": False,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _status(consumer: GroupMember, topic: str) -> dict[str, float]:
    """Rates since the consumer was started, messages a second; ms a message."""
    counts = consumer.counts
    passed_s = max(time.time() - consumer.started_ms / 1000, 1.0)
    consumed, failed = counts.consumed[topic], counts.failed[topic]
    return {
        "consumeFailedMsgs": failed,
        "consumeFailedTPS": failed / passed_s,
        "consumeOKTPS": consumed / passed_s,
        "consumeRT": counts.spent_s.get(topic, 0.0) * 1000 / max(consumed + failed, 1),
        "pullRT": 0.0,
        "pullTPS": (consumed + failed) / passed_s,
    }


async def consume_directly(peer: RemotingClient, request: RemotingCommand, handler: Handler, namespace: str) -> None:
    """Give the message of a request to the handler, and answer what came of it; no offset is changed."""
    began = time.monotonic()
    remark = None
    try:
        message = received(decode(request.body), request.fields.get("brokerName", ""), namespace)
    except RStoreError as error:
        peer.answer(request.answer(ResponseCode.SYSTEM_ERROR, str(error)))
        return
    try:
        outcome = await handler([message])
        result = "CR_LATER" if outcome is ConsumeOutcome.LATER else "CR_SUCCESS"
    except Exception as error:  # noqa: BLE001 - the application's: it is what was asked for
        result, remark = "CR_THROW_EXCEPTION", repr(error)
    spent_ms = round((time.monotonic() - began) * 1000)
    body = {
        "autoCommit": True, "consumeResult": result, "order": False, "remark": remark, "spentTimeMills": spent_ms
    }  # fmt: skip
    peer.answer(request.answer(body=orjson.dumps(body)))
