"""What is told in traces of sends, settled transactions and consuming: the records, made when it happens.

A broker that writes no traces of its own messages (TRACE_ON false) is told none. Unlike Java's client, each message of
a batch has a record of its own, so that it is there under its id. Source: SendMessageTraceHookImpl,
EndTransactionTraceHookImpl, ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.clock import now_ms
from engine.client.messages import MSG_REGION, TRACE_ON
from engine.client.sending import PREPARED, REGION, SendStatus
from engine.client.trace import TRACE_TOPIC, ConsumeCode, TracedType, TraceKind, TraceRecord
from engine.format.properties import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.messages import OutgoingMessage, ReceivedMessage
    from engine.client.sending import SendResult
    from engine.client.trace_writer import TraceWriter

_STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}
"""Java's LocalTransactionState."""


class SendTrace:
    """Of a producer. `group`: without namespace."""

    def __init__(self, writer: TraceWriter, group: str) -> None:
        self._writer = writer
        self._group = group

    def sent(self, messages: Sequence[OutgoingMessage], result: SendResult, began_ms: int) -> None:
        """A send, or a batch, was answered."""
        if not result.is_traced or result.queue.topic.startswith(TRACE_TOPIC):
            return
        cost_ms = max(0, now_ms() - began_ms) // len(messages)
        offset_ids = result.offset_id.split(",")
        self._writer.note(
            [
                TraceRecord(
                    TraceKind.SENT,
                    one_id,
                    self._group,
                    began_ms,
                    result.region,
                    result.queue.topic,
                    message.tags,
                    " ".join(message.keys) or None,
                    result.address,
                    len(message.body),
                    cost_ms,
                    _type_of(message),
                    offset_ids[number] if len(offset_ids) == len(messages) else result.offset_id,
                    result.status is SendStatus.SEND_OK,
                )
                for number, (message, one_id) in enumerate(zip(messages, result.id.split(","), strict=True))
            ]
        )

    def settled(
        self, message: OutgoingMessage, message_id: str, address: str, transaction_id: str | None, state: str
    ) -> None:
        """A transaction was committed, rolled back or left open. `state`: of TransactionState."""
        self._writer.note(
            [
                TraceRecord(
                    TraceKind.SETTLED,
                    message_id,
                    self._group,
                    now_ms(),
                    REGION,
                    message.topic,
                    message.tags,
                    " ".join(message.keys) or None,
                    address,
                    message_type=TracedType.COMMIT,
                    transaction_id=transaction_id or message_id,
                    state=_STATES[state],
                )
            ]
        )


class ConsumeTrace:
    """Of a consumer. `group`: without namespace."""

    def __init__(self, writer: TraceWriter, group: str) -> None:
        self._writer = writer
        self._group = group

    def begins(self, messages: Sequence[ReceivedMessage]) -> list[TraceRecord]:
        """A handler is given messages; what `ended` needs of it."""
        request_id, begun_ms = self._writer.new_request_id(), now_ms()
        records = [
            TraceRecord(
                TraceKind.CONSUMING,
                message.id,
                self._group,
                begun_ms,
                message.properties.get(MSG_REGION) or REGION,
                keys=message.properties.get(KEYS),
                request_id=request_id,
                retries=message.reconsume_times,
            )
            for message in messages
            if message.properties.get(TRACE_ON) != "false"
        ]
        self._writer.note(records)
        return records

    def ended(self, begun: Sequence[TraceRecord], code: ConsumeCode) -> None:
        """The handler has returned, or was ended."""
        if not begun:
            return
        cost_ms = max(0, now_ms() - begun[0].time_ms) // len(begun)
        self._writer.note(
            [
                TraceRecord(
                    TraceKind.CONSUMED,
                    one.id,
                    one.group,
                    now_ms(),
                    keys=one.keys,
                    request_id=one.request_id,
                    cost_ms=cost_ms,
                    success=code is ConsumeCode.SUCCESS,
                    code=code,
                )
                for one in begun
            ]
        )


def _type_of(message: OutgoingMessage) -> TracedType:
    if message.system.get(PREPARED) == "true":
        return TracedType.HALF
    return TracedType.DELAYED if message.delay_level else TracedType.NORMAL
