"""A consume queue's units, and half messages whose check was given up (BROKER.md 1.4; AdminBrokerProcessor)."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.handlers.admin_topics import NOT_SET
from engine.broker.put.transactions import CHECK_TIMES
from engine.broker.requests import fields
from engine.errors import InvalidArgument, RStoreError
from engine.format import fastjson, queue_unit, sysflag
from engine.format.topic_rules import HALF_TOPIC
from engine.log.results import PutMessageStatus
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.broker.put.putter import Putter
    from engine.broker.tables.consumer_filters import ConsumerFilters
    from engine.broker.tables.members import Members
    from engine.broker.watch.stats import Stats
    from engine.log.consume_queue import ConsumeQueue
    from engine.log.results import PutResult
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

_NOT_PUT = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_FAILED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class MessageAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        members: Members,
        filters: ConsumerFilters,
        stats: Stats,
    ) -> None:
        self._store = store
        self._putter = putter
        self._members = members
        self._filters = filters
        self._stats = stats

    def consume_queue(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE: at most as many units as one file has."""
        del connection
        ext = request.fields
        topic, queue_id, index = fields.text(ext, "topic"), fields.number(ext, "queueId"), fields.long(ext, "index")
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body: dict[str, Any] = {"maxQueueIndex": queue.max_offset, "minQueueIndex": queue.min_offset}
        group = ext.get("consumerGroup")
        if group is not None:
            body |= self._subscription(group, topic)
        count = max(fields.number(ext, "count"), 0)
        selected = queue.select(index, count) if index >= 0 else None
        if selected is None:
            return request.answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        with selected:
            units = bytes(selected.view[: selected.size // queue_unit.UNIT_SIZE * queue_unit.UNIT_SIZE])
        body["queueData"] = [
            _unit(queue, queue_unit.decode(units, at)) for at in range(0, len(units), queue_unit.UNIT_SIZE)
        ]
        return request.answer(remark=NOT_SET, body=orjson.dumps(body))

    def _subscription(self, group: str, topic: str) -> dict[str, Any]:
        online = self._members.consumers.get(group)
        wanted = None if online is None else online.subscriptions.get(topic)
        if wanted is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        filter_data = self._filters.get(topic, group)
        return {
            "subscriptionData": orjson.Fragment(wanted.entry),
            "filterData": "null" if filter_data is None else fastjson.dumps(filter_data.to_json()),
        }

    def resume_check(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """RESUME_CHECK_HALF_MESSAGE: what was given up goes to the half messages again, its checks counted anew."""
        try:
            half = self._store.look_by_msg_id(fields.text(request.fields, "msgId"))
        except (InvalidArgument, RStoreError):
            half = None
        if half is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, _FAILED)
        message = half.to_message()._replace(
            topic=HALF_TOPIC,
            queue_id=0,
            properties={**half.properties, CHECK_TIMES: "0"},
            sys_flag=half.sys_flag & ~sysflag.HOSTS_V6_MASK,
        )

        def done(result: PutResult) -> None:
            if result.append is not None:
                self._stats.stored(result.append.size)
            ok = result.status is PutMessageStatus.PUT_OK
            answer = request.answer() if ok else request.answer(ResponseCode.SYSTEM_ERROR, _NOT_PUT)
            connection.answer(request, answer)

        self._putter.put(message, done, wait=False)
        return None


def _unit(queue: ConsumeQueue, unit: queue_unit.QueueUnit) -> dict[str, Any]:
    """ConsumeQueueData."""
    fields_of_unit: dict[str, Any] = {
        "eval": False,
        "physicOffset": unit.physical_offset,
        "physicSize": unit.size,
        "tagsCode": unit.tags_code,
    }
    if queue.ext is None or not queue_unit.is_ext_address(unit.tags_code):
        return fields_of_unit
    ext_unit = queue.ext_unit(unit.tags_code)
    if ext_unit is None:
        return {**fields_of_unit, "msg": f"Cq extend not exist!addr: {unit.tags_code}"}
    bit_map = bytes(ext_unit.bit_map)
    more = {"filterBitMap": base64.b64encode(bit_map).decode(), "bitMapSize": len(bit_map)} if bit_map else {}
    extended = {"msgStoreTime": ext_unit.store_timestamp, "tagsCode": ext_unit.tags_code, **more}
    fields_of_unit["extendDataJson"] = orjson.dumps(extended).decode()
    if bit_map:  # as Apache prints it, the last byte first: BitsArray#toString
        last_first = reversed(list(enumerate(bit_map)))
        fields_of_unit["bitMap"] = "".join(f"{byte:08b}" + ("" if at % 8 else "\n") for at, byte in last_first)
    return fields_of_unit
