"""Transactions: half messages, their end, and asking producers about those that nobody has ended.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC, which no consumer reads. A commit puts the real message; commit and
rollback put an operation: the half's queue offset, in RMQ_SYS_TRANS_OP_HALF_TOPIC. What has no operation is asked
about: it is put anew, after all others, and its producer is told the place of the new copy. How far both topics are
settled is kept as offsets of the group CID_RMQ_SYS_TRANS.

Sources: TransactionalMessageServiceImpl, TransactionalMessageBridge, EndTransactionProcessor (4.9.8); BROKER.md 2.5.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from engine.broker.put.putter import STORED
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.tables.offsets import at_most_the_end
from engine.broker.turns import TURN_S
from engine.errors import RStoreError
from engine.format import properties, sysflag
from engine.format.message import Message, StoredMessage, decode, encode, patch
from engine.format.topic_rules import DISCARDED, HALF_TOPIC, OP_TOPIC
from engine.log.results import PutMessageStatus
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.put.putter import Putter
    from engine.broker.put.timer_gate import TimerGate
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.members import Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.broker.turns import Turns
    from engine.broker.watch.stats import Stats
    from engine.format.hosts import Host
    from engine.log.results import PutResult
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

GROUP = "CID_RMQ_SYS_TRANS"
CHECKS = "transaction checks"
"""As the log calls them."""
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
FIRST_PLACE = "TRAN_PREPARED_QUEUE_OFFSET"
"""Of a copy that was made while its message was immune: the queue offset of the first one."""
_DONE_TAG = "d"
_STEPS = 16
"""After so many a check looks whether its turn is over."""
_PULL = 32
_ENDS: Mapping[PutMessageStatus, tuple[ResponseCode, str | None]] = {
    **dict.fromkeys(STORED, (ResponseCode.SUCCESS, None)),
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: (ResponseCode.SYSTEM_ERROR, "Create mapped file failed."),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
    PutMessageStatus.OS_PAGECACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "OS page cache busy, please try another machine",
    ),
}
"""How a commit ends. Source: EndTransactionProcessor#sendFinalMessage."""
_HOUR_MS = 3_600_000
_DIGITS = 9
_KINDS = (sysflag.TRANSACTION_NONE, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK)


def is_half(pairs: dict[str, str]) -> bool:
    """Whether a message with these properties is a half one."""
    return pairs.get(properties.TRAN_MSG, "").lower() == "true"


def half_of(message: Message) -> Message:
    """The message as it waits. Source: TransactionalMessageBridge#parseHalfMessageInner."""
    pairs = {
        **message.properties,
        properties.REAL_TOPIC: message.topic,
        properties.REAL_QID: str(message.queue_id),
    }
    kind = message.sys_flag & ~sysflag.TRANSACTION_MASK
    return message._replace(topic=HALF_TOPIC, queue_id=0, properties=pairs, sys_flag=kind)


class _Todo(NamedTuple):
    """What a check puts for a half message. `asks`: the producer is asked about it."""

    message: Message
    asks: bool = False


_ENDED = _Todo(Message("", b""))
"""Nothing: it has its end."""
_Round = Generator["Message | None", "PutResult | None", None]
"""A check: gives messages to put, and None where nothing was to be put: others may have their turn."""


class _Put:
    """One put of a check: its result, where it was there at once; else `go_on` is told."""

    def __init__(self, go_on: Callable[[PutResult], None]) -> None:
        self._go_on = go_on
        self.result: PutResult | None = None
        self.waits = False

    def done(self, result: PutResult) -> None:
        self.result = result
        if self.waits:
            self._go_on(result)


class Transactions:
    """See the module. For the loop's thread alone."""

    def __init__(
        self,
        *,
        store: MessageStore,
        putter: Putter,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        members: Members,
        stats: Stats,
        settings: CurrentSettings,
        role: Role,
        store_host: Host,
        turns: Turns,
        now_ms: Callable[[], int],
        timers: TimerGate,
    ) -> None:
        self._store = store
        self._putter = putter
        self._turns = turns
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._settings = settings
        self._role = role
        self._store_host = store_host
        self._now_ms = now_ms
        self._timers = timers
        self._copied: set[int] = set()
        self._copied_and_ended: set[int] = set()
        self._ending: set[int] = set()
        self._ended: set[int] = set()
        self._round: _Round | None = None
        self._stopped = False

    def load(self) -> None:
        """How far half messages and operations are settled; once the offsets of groups were read."""
        store, offsets = self._store, self._offsets
        for topic in (HALF_TOPIC, OP_TOPIC):
            offset = offsets.get(GROUP, topic, 0)
            if offset is not None:
                offsets.commit(GROUP, topic, 0, at_most_the_end(store, topic, 0, offset))

    # --- the end ----------------------------------------------------------------------------------------------------

    def end(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """END_TRANSACTION."""
        if self._role.is_slave:
            raise Answer(ResponseCode.SLAVE_NOT_AVAILABLE)
        ext = request.fields
        kind = fields.number(ext, "commitOrRollback")
        if kind not in _KINDS:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"commitOrRollback = {kind}")
        if kind == sysflag.TRANSACTION_NONE:
            return None
        half = self._half(request)

        def settled(result: PutResult) -> None:
            self._ending.discard(half.queue_offset)
            self._count(result)
            if result.status in STORED:
                self._settle(half)
            code, remark = _ENDS.get(result.status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"))
            connection.answer(request, request.answer(code, remark))

        if kind == sysflag.TRANSACTION_COMMIT:
            real = self._timers.admit(self._real(half))
            self._ending.add(half.queue_offset)
            self._putter.put(real, settled)
            return None
        self._settle(half)
        return request.answer(remark="not set any response code")

    def _half(self, request: RemotingCommand) -> StoredMessage:
        ext = request.fields
        offset = fields.long(ext, "commitLogOffset")
        try:
            half = self._store.look_message(offset)
        except RStoreError:
            half = None
        if half is None:
            raise Answer(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if half.properties.get(properties.PGROUP) != ext.get("producerGroup"):
            raise Answer(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != fields.long(ext, "tranStateTableOffset"):
            raise Answer(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.physical_offset != offset or half.topic != HALF_TOPIC:
            raise Answer(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return half

    def _real(self, half: StoredMessage) -> Message:
        """The message that consumers see. Source: EndTransactionProcessor#endMessageTransaction."""
        pairs = half.properties
        return half.to_message()._replace(
            topic=pairs.get(properties.REAL_TOPIC, ""),
            queue_id=_number(pairs.get(properties.REAL_QID), 0),
            sys_flag=half.sys_flag & ~sysflag.HOSTS_V6_MASK & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset,
            store_host=self._store_host,
        )

    def _settle(self, half: StoredMessage) -> None:
        """Note that a half message has its end."""
        self._ended.add(half.queue_offset)  # its operation is found by the next check, but not yet by one under way
        operation = Message(
            OP_TOPIC,
            str(half.queue_offset).encode(),
            half.queue_id,
            {properties.WAIT: "true", properties.TAGS: _DONE_TAG},
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        self._putter.put(operation, self._count, wait=False)

    def _count(self, result: PutResult) -> None:
        if result.append is not None:
            self._stats.stored(result.append.size)

    # --- what nobody has ended --------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Half messages without an end, about: those after the last that is settled, but for the operations there."""
        store, offsets = self._store, self._offsets

        def unread(topic: str) -> int:
            start = max(offsets.get(GROUP, topic, 0) or 0, store.min_offset(topic, 0), 0)
            return max(store.max_offset(topic, 0) - start, 0)

        return max(unread(HALF_TOPIC) - unread(OP_TOPIC), 0)

    def check(self) -> None:
        """Ask about the half messages that are old enough; those without an answer for too long are set aside.

        Nothing when the last check is not over: its messages wait for the disk.
        """
        if self._round is None and not self._stopped:
            self._topics.there_soon(HALF_TOPIC)
            self._round = self._check()
            self._go_on(None)

    def stop(self) -> None:
        """Check no more: the broker stops. A check that is under way ends with the message that it is at."""
        self._stopped = True

    def _go_on(self, result: PutResult | None) -> None:
        """Put the messages of a check one after another, as far as puts don't wait, in turns of the loop."""
        began, steps = self._turns.clock(), 0
        while self._round is not None:
            steps += 1
            if steps % _STEPS == 0 and self._turns.clock() - began >= TURN_S:
                self._turns.note(CHECKS, began)
                self._turns.next(functools.partial(self._go_on, result))
                return
            put_now = _Put(self._go_on)
            try:
                message = self._round.send(result)
                result = None
                if message is None:
                    continue
                self._putter.put(message, put_now.done, wait=False)
            except StopIteration:
                self._round = None
                return
            except BaseException:
                self._round = None
                raise
            result = put_now.result
            if result is None:
                put_now.waits = True
                return

    def _check(self) -> _Round:
        """One round; a message that could not be put ends it, and is tried again by the next."""
        store, offsets = self._store, self._offsets
        end = store.max_offset(HALF_TOPIC, 0)
        half_at = min(max(offsets.get(GROUP, HALF_TOPIC, 0) or 0, store.min_offset(HALF_TOPIC, 0)), end)
        operations: list[tuple[int, int]] = []
        for operation in self._operations():
            operations.append(operation)
            yield None
        ended = {half for _, half in operations}
        self._copied_and_ended |= self._copied & ended
        begun = self._now_ms()
        for half in self._read(HALF_TOPIC, half_at, end):
            if self._stopped:
                break
            at = half.queue_offset
            if at not in ended and at not in self._ended:
                todo = None if at in self._ending else self._judge(half, begun)
                if todo is None:
                    break
                if todo is not _ENDED:
                    result = yield todo.message
                    assert result is not None
                    self._count(result)
                    if result.append is None:
                        break
                    if todo.asks:
                        self._tell_producer(todo.message, result)
            half_at = at + 1
            yield None
        offsets.commit(GROUP, HALF_TOPIC, 0, half_at)
        self._ended = {at for at in self._ended if half_at <= at < store.max_offset(HALF_TOPIC, 0)}
        for at, half_offset in operations:
            if half_offset >= half_at:
                break
            offsets.commit(GROUP, OP_TOPIC, 0, at + 1)
            yield None

    def _operations(self) -> Iterator[tuple[int, int]]:
        """(queue offset, the half's queue offset) of each operation that may still count."""
        store = self._store
        start = max(self._offsets.get(GROUP, OP_TOPIC, 0) or 0, store.min_offset(OP_TOPIC, 0))
        for operation in self._read(OP_TOPIC, start, store.max_offset(OP_TOPIC, 0)):
            for word in operation.body.decode("utf-8", "replace").split(","):  # 5.x has many in one
                if word.isdecimal():
                    yield operation.queue_offset, int(word)

    def _read(self, topic: str, start: int, end: int) -> Iterator[StoredMessage]:
        while start < end:
            messages = self._store.get(topic, 0, start, _PULL)
            for record in messages.messages:
                yield decode(record)
            if messages.next_begin_offset <= start:
                return
            start = messages.next_begin_offset

    def _judge(self, half: StoredMessage, begun_ms: int) -> _Todo | None:
        """Ask about one, set it aside, or put it off; None when it, and all after it, is too young.

        Source: TransactionalMessageServiceImpl#check.
        """
        pairs = half.properties
        settings, age_ms = self._settings.now, self._now_ms() - half.born_timestamp
        first = _number(pairs.get(FIRST_PLACE), half.queue_offset)
        if first in self._copied_and_ended:
            self._forget(first)
            return _ENDED
        times = _number(pairs.get(CHECK_TIMES), 0)
        pairs[CHECK_TIMES] = str(times + 1)
        message = half.to_message()._replace(store_host=self._store_host, properties=pairs)
        if times >= settings.transaction_check_max or age_ms > self._store.config.file_reserved_time * _HOUR_MS:
            self._forget(first)
            topic = self._topics.there_soon(DISCARDED)
            return _Todo(message._replace(topic=topic.name, queue_id=0))
        if half.store_timestamp >= begun_ms:
            return None
        immune_s = pairs.get(IMMUNITY_S)
        if immune_s is None:
            if 0 <= age_ms < settings.transaction_timeout_ms:
                return None
        elif age_ms < (_number(immune_s, settings.transaction_timeout_ms // 1000) * 1000):
            return self._later(message, first, times)
        return _Todo(message, asks=True)

    def _later(self, message: Message, first: int, times: int) -> _Todo:
        """One that is immune goes after the others, that they need not wait for it; nobody is asked."""
        pairs = {**message.properties, FIRST_PLACE: str(first), properties.WAIT: "false", CHECK_TIMES: str(times)}
        if not times:
            del pairs[CHECK_TIMES]
        self._copied.add(first)
        return _Todo(message._replace(properties=pairs))

    def _forget(self, first: int) -> None:
        self._copied.discard(first)
        self._copied_and_ended.discard(first)

    def _tell_producer(self, message: Message, result: PutResult) -> None:
        """CHECK_TRANSACTION_STATE to any producer of the group. Source: AbstractTransactionalMessageCheckListener."""
        pairs, append = message.properties, result.append
        assert append is not None
        members = self._members.producers.get(pairs.get(properties.PGROUP, ""), {})
        connection = next((one for one in members if one.is_open), None)
        if connection is None:
            return
        real = message._replace(
            topic=pairs.get(properties.REAL_TOPIC, ""),
            queue_id=_number(pairs.get(properties.REAL_QID), 0),
            properties={**pairs, properties.WAIT: "false"},
        )
        record = encode(real)
        patch(
            record,
            0,
            queue_offset=append.queue_offset,
            physical_offset=append.physical_offset,
            store_timestamp=append.store_timestamp,
        )
        key = pairs.get(properties.UNIQ_KEY, "")
        ext = {
            "tranStateTableOffset": str(append.queue_offset),
            "commitLogOffset": str(append.physical_offset),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": append.msg_id,
        }
        connection.tell(RequestCode.CHECK_TRANSACTION_STATE, ext, bytes(record))


def _number(text: str | None, default: int) -> int:
    """A number that a client may have written; `default` where it is none, or none that Java could read."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= _DIGITS else default
