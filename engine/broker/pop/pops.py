"""POP_MESSAGE and what looks without taking: PEEK_MESSAGE, NOTIFICATION, POLLING_INFO.

A pop takes messages of any queue of a topic, and of the group's retry topic, from where the group's last pop ended.
What it takes is noted as a checkpoint before it is answered; then it is invisible to the group until its time is over.
One pop in five looks into the retry topic first, the others last. What finds nothing may wait (`held`).

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor (5.3.3).
"""

from __future__ import annotations

import random
from dataclasses import field, replace
from typing import TYPE_CHECKING

from engine.broker.handlers.pull import BadTags
from engine.broker.pop.held import ALL_QUEUES, HeldPop
from engine.broker.pop.judged import UNSAID, with_fields
from engine.broker.pop.receipts import (
    MOST_POPPED,
    ORDER_QUEUE,
    PopCheckpoint,
    Receipt,
    kind_of,
    offset_info,
    retry_topic,
    start_info,
)
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.format.message import decode, encode, patch
from engine.log.filters import ALL
from engine.log.results import GetMessageStatus, GetResult
from engine.log.sql import BadExpression
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.handlers.pull import PullHandler
    from engine.broker.net.connection import Connection
    from engine.broker.pop.held import HeldPops
    from engine.broker.pop.journal import PopJournal
    from engine.broker.pop.judged import PopJudge
    from engine.broker.pop.orders import PopOrders
    from engine.broker.pop.positions import PopPositions, PopSpan
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.topics import TopicConfig, TopicTable
    from engine.broker.watch.stats import Stats
    from engine.format.message import StoredMessage
    from engine.log.filters import TagFilter
    from engine.log.sql import SqlFilter
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

POP_CK = "POP_CK"
_RETRY_FIRST = 20
"""Of a hundred pops. Source: BrokerConfig#popFromRetryProbability."""
_LATE_MS, _EARLY_MS = 500, 50
_MOVED = frozenset(
    {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.OFFSET_FOUND_NULL}
)
_PASSED = frozenset(
    {
        GetMessageStatus.NO_MATCHED_MESSAGE,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)
_NO_TIMES = {"invisibleTime": "0", "popTime": "0", "restNum": "0", "reviveQid": "0"}
_FOUND, _NOTHING = "FOUND", "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True, eq=False)
class _PopRequest:
    """A pop that has passed its checks. Times in ms."""

    connection: Connection
    request: RemotingCommand
    topic: TopicConfig
    group: str
    queue_id: int
    queues: list[int]
    most: int
    invisible_ms: int
    mode: int
    tags: TagFilter | SqlFilter
    ends_ms: int
    order: bool
    attempt: str | None


@dataclass(slots=True)
class _Taken:
    """What a pop found. `rest`: messages that are left in the queues that it looked into; `counts`: orderCountInfo."""

    checkpoints: list[tuple[PopCheckpoint, PopSpan, list[bytes]]] = field(default_factory=list)
    count: int = 0
    rest: int = 0
    counts: list[str] = field(default_factory=list)


class PopHandler:
    """See the module. For the loop's thread alone."""

    def __init__(
        self,
        *,
        store: MessageStore,
        judge: PopJudge,
        topics: TopicTable,
        positions: PopPositions,
        journal: PopJournal,
        orders: PopOrders,
        held: HeldPops,
        pulls: PullHandler,
        stats: Stats,
        settings: CurrentSettings,
        later: Later,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._judge = judge
        self._topics = topics
        self._positions = positions
        self._journal = journal
        self._orders = orders
        self._held = held
        self._pulls = pulls
        self._stats = stats
        self._settings = settings
        self._later = later
        self._now_ms = now_ms

    # --- POP_MESSAGE ------------------------------------------------------------------------------------------------

    def pop(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """POP_MESSAGE."""
        return with_fields(request, _NO_TIMES, lambda: self._begin(connection, request))

    def _begin(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        one = self._judged(connection, request)
        if one.tags.terms:
            self._later.answer(connection, request, self._pop_in_turn(one))
            return None
        self._pop(one)
        return None

    async def _pop_in_turn(self, one: _PopRequest) -> RemotingCommand | None:
        began = await self._later.turns.begin()
        if one.connection.is_open:
            self._pop(one)
        self._later.turns.note(one.request.code, began)
        return None

    def _judged(self, connection: Connection, request: RemotingCommand) -> _PopRequest:
        ext, settings, now = request.fields, self._settings.now, self._now_ms()
        born = fields.long(ext, "bornTime", 0) or now
        ends = born + fields.long(ext, "pollTime")
        if now - ends > _LATE_MS:
            remark = f"the broker[{settings.broker_ip1}] pop message is timeout too much"
            raise Answer(ResponseCode.POLLING_TIMEOUT, remark)
        self._judge.demand_readable("pop")
        most = fields.number(ext, "maxMsgNums")
        if most > MOST_POPPED:
            remark = f"the broker[{settings.broker_ip1}] pop message's num is greater than 32"
            raise Answer(ResponseCode.INVALID_PARAMETER, remark)
        if not settings.timer_messages:
            remark = f"the broker[{settings.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            raise Answer(ResponseCode.SYSTEM_ERROR, remark)
        topic, group, queues = self._judge.queues(connection, request)
        try:
            tags = self._pulls.filter_of(ext.get("expType") or "TAG", ext.get("exp") or ALL)
        except (BadExpression, BadTags):
            remark = "parse the consumer's subscription failed"
            raise Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        queue_id = fields.number(ext, "queueId")
        return _PopRequest(
            connection, request, topic, group, max(queue_id, ALL_QUEUES), queues, max(1, most),
            fields.long(ext, "invisibleTime"), fields.number(ext, "initMode"), tags, ends,
            fields.flag(ext, "order"), ext.get("attemptId"),
        )  # fmt: skip

    def _pop(self, one: _PopRequest) -> None:
        """Answer a pop, or let it wait."""
        if self._try(one):
            return
        if self._now_ms() > one.ends_ms - _EARLY_MS:
            self._answer_nothing(one, ResponseCode.POLLING_TIMEOUT)
            return
        kept = replace(one, request=one.request._replace(ext=None, body=b"", remark=None))
        waiting = HeldPop(
            one.connection, one.topic.name, one.group, one.queue_id, one.ends_ms,
            lambda: self._try(kept), lambda: self._answer_nothing(kept, ResponseCode.POLLING_TIMEOUT),
        )  # fmt: skip
        if not self._held.hold(waiting):
            self._answer_nothing(one, ResponseCode.POLLING_FULL)
        elif self._has_more(one):  # it came before anybody was told that somebody waits
            self._held.wake(one.topic.name, one.group, one.queue_id)

    def _has_more(self, one: _PopRequest) -> bool:
        return any(self._rest(one.topic.name, one.group, queue_id) > 0 for queue_id in one.queues)

    def _try(self, one: _PopRequest) -> bool:
        """Answer with what is there; whether there was anything."""
        now = self._now_ms()
        taken = self._take(one, now)
        if not taken.checkpoints:
            return False
        if one.order:
            pairs = [(checkpoint, records) for checkpoint, _, records in taken.checkpoints]
            self._answer(one, pairs, taken, now, ORDER_QUEUE)
            return True
        revive = self._journal.next_queue()
        given: list[tuple[PopCheckpoint, list[bytes]]] = []
        left = len(taken.checkpoints)
        for checkpoint, span, records in taken.checkpoints:

            def stored(
                done: bool, checkpoint: PopCheckpoint = checkpoint, span: PopSpan = span, records: list[bytes] = records
            ) -> None:
                nonlocal left
                left -= 1
                place = (checkpoint.topic, checkpoint.group, checkpoint.queue_id, span)
                if done:
                    self._positions.stored(*place)
                    given.append((checkpoint, records))
                else:
                    self._positions.failed(*place)
                if not left:
                    self._answer(one, given, taken, now, revive)

            self._journal.note(checkpoint, revive, stored)
        return True

    def _take(self, one: _PopRequest, now: int) -> _Taken:
        taken, turn = _Taken(), random.randrange(100)
        retry = None if one.order else self._topics.find(retry_topic(one.topic.name, one.group))
        retries = [] if retry is None else [(retry.name, queue_id) for queue_id in range(retry.read_queues)]
        normal = [(one.topic.name, queue_id) for queue_id in one.queues]
        retries, normal = _rotated(retries, turn), _rotated(normal, turn)
        for topic, queue_id in retries + normal if turn < _RETRY_FIRST else normal + retries:
            self._take_of(one, topic, queue_id, taken, now)
        return taken

    def _take_of(self, one: _PopRequest, topic: str, queue_id: int, taken: _Taken, now: int) -> None:
        positions, group = self._positions, one.group
        offset = positions.next(topic, group, queue_id, one.mode)
        if one.order and self._orders.blocks((topic, group, queue_id), one.attempt, one.invisible_ms):
            return
        if taken.count >= one.most:
            taken.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            return
        result = self._get(one, topic, queue_id, offset, one.most - taken.count)
        if result is None:
            return
        if result.status in _MOVED and result.next_begin_offset != offset:
            span = positions.take(topic, group, queue_id, offset, result.next_begin_offset)
            positions.stored(topic, group, queue_id, span)
            offset = result.next_begin_offset
            result = self._get(one, topic, queue_id, offset, one.most - taken.count)
            if result is None:
                return
        messages = result.decoded() if result.status is GetMessageStatus.FOUND else []
        if messages:
            self._stats.got(group, topic, len(messages), result.total_size)
            checkpoint = PopCheckpoint(
                topic, group, queue_id, offset, now, one.invisible_ms, self._settings.now.broker_name,
                tuple(message.queue_offset for message in messages),
            )  # fmt: skip
            if one.order:
                taken.counts += self._orders.took(
                    (topic, group, queue_id), one.attempt, now, one.invisible_ms, checkpoint.offsets
                )
                span = positions.settle(topic, group, queue_id, offset)
            else:
                span = positions.take(topic, group, queue_id, offset, result.next_begin_offset)
            taken.checkpoints.append((checkpoint, span, [bytes(record) for record in result.messages]))
            taken.count += len(messages)
        elif result.status in _PASSED and result.next_begin_offset > offset:
            span = positions.take(topic, group, queue_id, offset, result.next_begin_offset)
            positions.stored(topic, group, queue_id, span)
        taken.rest += max(0, result.max_offset - result.next_begin_offset)

    def _get(self, one: _PopRequest, topic: str, queue_id: int, offset: int, most: int) -> GetResult | None:
        try:
            return self._store.get(topic, queue_id, offset, most, one.tags)
        except RStoreError:
            return None

    def _answer(
        self, one: _PopRequest, given: list[tuple[PopCheckpoint, list[bytes]]], taken: _Taken, now: int, revive: int
    ) -> None:
        if not given:
            self._answer_nothing(one, ResponseCode.POLLING_TIMEOUT)
            return
        checkpoints = [checkpoint for checkpoint, _ in given]
        ext = {
            **self._head(one, taken.rest, now, revive),
            "startOffsetInfo": start_info(checkpoints),
            "msgOffsetInfo": offset_info(checkpoints),
            **({"orderCountInfo": ";".join(taken.counts)} if one.order else {}),
        }
        body = b"".join(
            record for checkpoint, records in given for record in self._records(one, checkpoint, records, revive)
        )
        one.connection.answer(one.request, one.request.answer(ResponseCode.SUCCESS, _FOUND, ext, body))

    def _records(self, one: _PopRequest, checkpoint: PopCheckpoint, records: list[bytes], revive: int) -> list[bytes]:
        """As stored; those of the retry topic under the topic that the client knows, with their receipt."""
        if checkpoint.topic == one.topic.name:
            return records
        receipt = Receipt(
            checkpoint.start_offset, checkpoint.pop_time, checkpoint.invisible_ms, revive, kind_of(checkpoint.topic),
            checkpoint.broker_name, checkpoint.queue_id,
        )  # fmt: skip
        return [_renamed(decode(record), one.topic.name, receipt) for record in records]

    def _answer_nothing(self, one: _PopRequest, code: ResponseCode) -> None:
        ext = {**self._head(one, 0, self._now_ms(), 0), "startOffsetInfo": "", "msgOffsetInfo": ""}
        if one.order:
            ext |= {"reviveQid": str(ORDER_QUEUE), "orderCountInfo": ""}
        one.connection.answer(one.request, one.request.answer(code, _NOTHING, ext))

    @staticmethod
    def _head(one: _PopRequest, rest: int, now: int, revive: int) -> dict[str, str]:
        return {
            "popTime": str(now),
            "invisibleTime": str(one.invisible_ms),
            "reviveQid": str(revive),
            "restNum": str(rest),
        }

    # --- what takes nothing -----------------------------------------------------------------------------------------

    def peek(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """PEEK_MESSAGE."""
        return with_fields(request, _NO_TIMES, lambda: self._peek(connection, request))

    def _peek(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self._judge.demand_readable("peeking")
        topic, group, queues = self._judge.queues(connection, request)
        most = max(1, min(fields.number(request.fields, "maxMsgNums"), MOST_POPPED))
        records: list[bytes] = []
        rest = 0
        for name, queue_id in self._places(topic, group, queues):
            offset = self._positions.next(name, group, queue_id, begins=False)
            if len(records) >= most:
                rest += max(0, self._store.max_offset(name, queue_id) - offset)
                continue
            result = self._store.get(name, queue_id, offset, most - len(records), self._pulls.filter_of("TAG", ALL))
            records += [bytes(record) for record in result.messages]
            rest += max(0, result.max_offset - offset)
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
        ext = {**_NO_TIMES, "restNum": str(rest)}
        return request.answer(code, _FOUND if records else _NOTHING, ext, b"".join(records))

    def notify(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """NOTIFICATION: whether there is anything to pop; it may wait for that."""
        no = {"hasMsg": "false", "pollingFull": "false"}
        return with_fields(request, no, lambda: self._notify(connection, request))

    def _notify(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self._judge.demand_readable("peeking")
        topic, group, queues = self._judge.queues(connection, request)
        places = self._places(topic, group, queues)
        order, attempt = fields.flag(request.fields, "order"), request.fields.get("attemptId")

        def has() -> bool:
            return any(
                self._rest(name, group, queue_id) > 0
                for name, queue_id in places
                if not (order and self._orders.blocks((topic.name, group, queue_id), attempt, 0))
            )

        def answer(there: bool, full: bool = False) -> RemotingCommand:
            return request.answer(remark=UNSAID, ext={"hasMsg": str(there).lower(), "pollingFull": str(full).lower()})

        def again() -> bool:
            if has():
                connection.answer(request, answer(True))
                return True
            return False

        if has():
            return answer(True)
        now = self._now_ms()
        ends = (fields.long(request.fields, "bornTime", 0) or now) + fields.long(request.fields, "pollTime")
        if now > ends - _EARLY_MS:
            return answer(False)
        queue_id = max(fields.number(request.fields, "queueId"), ALL_QUEUES)
        waiting = HeldPop(
            connection, topic.name, group, queue_id, ends, again, lambda: connection.answer(request, answer(False))
        )
        return None if self._held.hold(waiting) else answer(False, full=True)

    def polling(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """POLLING_INFO: how many pops wait."""
        return with_fields(request, {"pollingNum": "0"}, lambda: self._polling(connection, request))

    def _polling(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self._judge.demand_readable("peeking")
        topic, group, _ = self._judge.queues(connection, request)
        count = self._held.waiting(topic.name, group, fields.number(request.fields, "queueId"))
        return request.answer(remark=UNSAID, ext={"pollingNum": str(count)})

    def _places(self, topic: TopicConfig, group: str, queues: list[int]) -> list[tuple[str, int]]:
        retry = self._topics.find(retry_topic(topic.name, group))
        retries = [] if retry is None else [(retry.name, queue_id) for queue_id in range(retry.read_queues)]
        return [(topic.name, queue_id) for queue_id in queues] + retries

    def _rest(self, topic: str, group: str, queue_id: int) -> int:
        return self._store.max_offset(topic, queue_id) - self._positions.next(topic, group, queue_id, begins=False)


def _rotated(places: list[tuple[str, int]], turn: int) -> list[tuple[str, int]]:
    """The places, from another one on each time."""
    at = turn % len(places) if places else 0
    return places[at:] + places[:at]


def _renamed(stored: StoredMessage, topic: str, receipt: Receipt) -> bytes:
    """A record of a retry topic as if it were of this topic."""
    pairs = stored.properties
    pairs.setdefault(POP_CK, receipt.of(stored.queue_offset))
    record = encode(stored.to_message()._replace(topic=topic, properties=pairs), crc=stored.body_crc)
    patch(
        record,
        0,
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        store_timestamp=stored.store_timestamp,
    )
    return bytes(record)
