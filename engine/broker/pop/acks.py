"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: what became of messages that were popped.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor (5.3.3).
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from engine.broker.pop.judged import UNSAID, illegal_queue, with_fields
from engine.broker.pop.orders import ILLEGAL
from engine.broker.pop.receipts import ORDER_QUEUE, Acknowledged, PopCheckpoint, Receipt, topic_of_kind
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.topics import FAQ
from engine.errors import FormatError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.pop.held import HeldPops
    from engine.broker.pop.journal import PopJournal
    from engine.broker.pop.orders import Place, PopOrders
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

_NOT_STORED = "the acknowledgement could not be stored"
_NO_TIMES = {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"}
_BITS_MOST = 1 << 10
"""Bytes of a batch's bits: a pop gives 32 messages."""


class AckHandler:
    """See the module. For the loop's thread alone."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        journal: PopJournal,
        orders: PopOrders,
        held: HeldPops,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._journal = journal
        self._orders = orders
        self._held = held
        self._now_ms = now_ms

    def ack(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """ACK_MESSAGE."""
        topic, queue_id, offset = self._place(connection, request)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset <= high:
            raise Answer(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}",
            )
        receipt = _receipt(request)
        if receipt.revive_queue == ORDER_QUEUE:
            place = (topic, fields.text(request.fields, "consumerGroup"), queue_id)
            wrong = self._ack_in_order(connection, place, offset, receipt.pop_time, receipt.invisible_ms)
            return request.answer() if wrong is None else request.answer(ResponseCode.MESSAGE_ILLEGAL, wrong)
        self._journal.acknowledge(
            self._acked(request, receipt, topic, queue_id, offset),
            receipt.revive_queue,
            receipt.pop_time + receipt.invisible_ms,
            lambda done: connection.answer(request, _answer(request, done)),
        )
        return None

    def ack_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """BATCH_ACK_MESSAGE."""
        body = body_of(request) if request.body else {}
        acks = fields.objects(body, "acks")
        if not acks:
            raise Answer(ResponseCode.NO_MESSAGE)
        wanted, wrong = [], None
        for acked, revive_queue, popped, invisible in filter(
            None, (self._batch(ack, str(body.get("brokerName") or "")) for ack in acks)
        ):
            if revive_queue != ORDER_QUEUE:
                wanted.append((acked, revive_queue, popped + invisible))
                continue
            for offset in acked.offsets:
                place = (acked.topic, acked.group, acked.queue_id)
                wrong = self._ack_in_order(connection, place, offset, popped, invisible) or wrong
        if not wanted:
            return request.answer() if wrong is None else request.answer(ResponseCode.MESSAGE_ILLEGAL, wrong)
        left, failed = len(wanted), 0

        def done(stored: bool) -> None:
            nonlocal left, failed
            left -= 1
            failed += not stored
            if not left:
                connection.answer(request, _answer(request, not failed))

        for acked, revive_queue, due_ms in wanted:
            self._journal.acknowledge(acked, revive_queue, due_ms, done)
        return None

    def _ack_in_order(
        self, connection: Connection, place: Place, offset: int, pop_time: int, invisible_ms: int
    ) -> str | None:
        """A message that was popped in order; what is wrong with it. Source: AckMessageProcessor#ackOrderly."""
        topic, group, queue_id = place
        old = self._offset(place)
        if offset < old:
            return None
        following = self._orders.committed(place, offset, pop_time)
        if following == ILLEGAL:
            key = f"{topic}@{group}@{queue_id}"
            return f"offset is illegal, key:{key}, old:{old}, commit:{offset}, next:-1, /{connection.address}"
        if following >= 0:
            self._offsets.commit(group, topic, queue_id, following)
            if not self._orders.blocks(place, None, invisible_ms):
                self._held.wake(topic, group, queue_id)
        return None

    def _offset(self, place: Place) -> int:
        topic, group, queue_id = place
        offset = self._offsets.get(group, topic, queue_id)
        return -1 if offset is None else offset

    def change(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """CHANGE_MESSAGE_INVISIBLETIME: another checkpoint for the message, then it is off the first one."""
        return with_fields(request, _NO_TIMES, lambda: self._change(connection, request))

    def _change(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        topic, queue_id, offset = self._place(connection, request)
        if not self._store.min_offset(topic, queue_id) <= offset < self._store.max_offset(topic, queue_id):
            raise Answer(ResponseCode.NO_MESSAGE, UNSAID)
        receipt, now = _receipt(request), self._now_ms()
        group, invisible = fields.text(request.fields, "consumerGroup"), fields.long(request.fields, "invisibleTime")
        if receipt.revive_queue == ORDER_QUEUE:
            place = (topic, group, queue_id)
            if offset < self._offset(place):
                return request.answer(remark=UNSAID, ext=_NO_TIMES)
            popped, visible = receipt.pop_time, now + invisible
            self._orders.change(place, offset, popped, visible)
            times = {"popTime": str(popped), "invisibleTime": str(visible - popped), "reviveQid": str(ORDER_QUEUE)}
            return request.answer(remark=UNSAID, ext=times)
        again = PopCheckpoint(topic, group, queue_id, offset, now, invisible, receipt.broker_name, (offset,))
        ext = {"popTime": str(now), "invisibleTime": str(invisible), "reviveQid": str(receipt.revive_queue)}

        def noted(done: bool) -> None:
            if not done:
                connection.answer(request, request.answer(ResponseCode.SYSTEM_ERROR, _NOT_STORED, _NO_TIMES))
                return
            self._journal.acknowledge(
                self._acked(request, receipt, topic, queue_id, offset),
                receipt.revive_queue,
                receipt.pop_time + receipt.invisible_ms,
                lambda _: connection.answer(request, request.answer(remark=UNSAID, ext=ext)),
            )

        self._journal.note(again, receipt.revive_queue, noted)
        return None

    def _place(self, connection: Connection, request: RemotingCommand) -> tuple[str, int, int]:
        ext = request.fields
        name = fields.text(ext, "topic")
        topic = self._topics.find(name)
        if topic is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        queue_id = fields.number(ext, "queueId")
        if not 0 <= queue_id < topic.read_queues:
            raise Answer(ResponseCode.MESSAGE_ILLEGAL, illegal_queue(connection, topic, queue_id))
        return name, queue_id, fields.long(ext, "offset")

    @staticmethod
    def _acked(request: RemotingCommand, receipt: Receipt, topic: str, queue_id: int, offset: int) -> Acknowledged:
        group = fields.text(request.fields, "consumerGroup")
        return Acknowledged(
            topic, group, queue_id, receipt.start_offset, receipt.pop_time, receipt.broker_name, (offset,)
        )

    def _batch(self, ack: Mapping[str, Any], broker_name: str) -> tuple[Acknowledged, int, int, int] | None:
        """One checkpoint's part of a batch, its revive queue, pop time and invisible time; None: it is not there."""
        group, kind = str(_of(ack, "c", "consumerGroup")), str(_of(ack, "r", "retry"))
        topic = topic_of_kind(str(_of(ack, "t", "topic")), group, kind)
        start, queue_id, revive, popped, invisible = (
            fields.whole({"value": _of(ack, *names)}, "value", 0)
            for names in (
                ("so", "startOffset"), ("q", "queueId"), ("rq", "reviveQueueId"), ("pt", "popTime"),
                ("it", "invisibleTime"),
            )
        )  # fmt: skip
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        offsets = tuple(start + bit for bit in _bits(_of(ack, "b", "bitSet")) if low <= start + bit <= high)
        if not offsets or self._topics.find(topic) is None:
            return None
        acked = Acknowledged(topic, group, queue_id, start, popped, broker_name, offsets)
        return acked, revive, popped, invisible


def _receipt(request: RemotingCommand) -> Receipt:
    try:
        receipt = Receipt.parse(fields.text(request.fields, "extraInfo"))
    except FormatError as error:
        raise Answer(ResponseCode.SYSTEM_ERROR, error.message) from None
    if not 0 <= receipt.revive_queue <= ORDER_QUEUE:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"invalid extraInfo: revive queue {receipt.revive_queue}")
    return receipt


def _answer(request: RemotingCommand, done: bool) -> RemotingCommand:
    return request.answer() if done else request.answer(ResponseCode.SYSTEM_ERROR, _NOT_STORED)


def _of(ack: Mapping[str, Any], name: str, long: str) -> Any:
    """A value under its short or its long name."""
    return ack.get(name, ack.get(long))


def _bits(value: Any) -> list[int]:
    """The numbers of the bits that are set: fastjson writes a BitSet's bytes in base 64. Raises Answer."""
    try:
        content = base64.b64decode(str(value or ""), validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) > _BITS_MOST:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"a batch of acknowledgements has {len(content)} bytes of bits")
    number = int.from_bytes(content, "little")
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]
