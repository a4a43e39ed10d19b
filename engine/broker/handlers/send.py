"""SEND_MESSAGE in its three forms: checks, the message as it is stored, the put's status as an answer.

Source: SendMessageProcessor, AbstractSendMessageProcessor (4.9.8); BROKER.md 1.1, 2.2, 2.3.
"""

from __future__ import annotations

from functools import cached_property
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from engine.broker.handlers.back import demand_group, most_times
from engine.broker.handlers.putting import PuttingHandler
from engine.broker.net.headers import frame_of_stored
from engine.broker.put.flow import Busy
from engine.broker.put.putter import STORED
from engine.broker.put.timer_gate import recall_handle
from engine.broker.put.transactions import half_of, is_half
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer, BadField
from engine.broker.tables.topics import DLQ, FAQ, MULTI_TAG, RETRY
from engine.broker.watch.disks import disk_ratios
from engine.errors import FormatError, OutOfDescriptors
from engine.format import properties, sysflag
from engine.format.message import Message
from engine.format.numbers import INT_MIN, LONG_MAX, LONG_MIN
from engine.format.topic_rules import invalid_topic, no_sends
from engine.log.decoded import parsed
from engine.log.frames import columns_of
from engine.log.results import PutMessageStatus, PutResult
from engine.wire.codes import V5_0_0, RequestCode, ResponseCode
from engine.wire.command import RemotingCommand, SerializeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.tables.topics import TopicConfig

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
CLUSTER = "CLUSTER"
RECALL_HANDLE, TRANSACTION_ID = "recallHandle", "transactionId"
MOST_DELAY = 18
_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit {}B, "
    "msg properties length limit 32KB."
)
_FULL = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full [{}], "
    "messages are put to the slave, message store has been shut down, etc."
)
_STATUS: Mapping[PutMessageStatus, tuple[ResponseCode, str | None]] = {
    PutMessageStatus.PUT_OK: (ResponseCode.SUCCESS, None),
    PutMessageStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, None),
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, None),
    PutMessageStatus.SLAVE_NOT_AVAILABLE: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutMessageStatus.OS_PAGECACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
        "maxLmqConsumeQueueNum config num, default limit 2w.",
    ),
    PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}
_OK, _JSON, _SEND_MESSAGE = PutMessageStatus.PUT_OK, SerializeType.JSON, int(RequestCode.SEND_MESSAGE)
_BODY = RemotingCommand._fields.index("body")
_NUMBERS_KEPT = 256
"""Combinations of numbers in the headers of sends that are remembered: queues, as flags are the same as a rule."""
_DIGITS = len(str(INT_MIN))
_made = tuple.__new__
"""As in engine.wire.command."""
_HOSTS = ~sysflag.HOSTS_V6_MASK


LETTERS = dict(zip((
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
), "abcdefghijklmn", strict=True))  # fmt: skip
"""What the fields of SendMessageRequestHeader are called in SendMessageRequestHeaderV2."""


class Names(NamedTuple):
    """What a header's fields are called (SendMessageRequestHeader, SendMessageRequestHeaderV2)."""

    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born: str
    flag: str
    properties: str
    times: str
    most_times: str
    batch: str
    unit: str


LONG = Names(
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "maxReconsumeTimes",
    "batch",
    "unitMode",
)
_SHORT = Names(*(LETTERS[name] for name in LONG))


class SendHandler(PuttingHandler):
    """Answers sends. `put` results that wait for flush or slave are answered when they are there."""

    @cached_property
    def _numbers(self) -> dict[tuple[str | None, ...], tuple[int, int, int, int]]:
        """See `_numbers_of`."""
        return {}

    @cached_property
    def _id_head(self) -> bytes:
        """What the ids of all messages that are put begin with."""
        return self._store_host.encode().hex().upper().encode()

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE."""
        ext = request.fields
        fields_are = LONG if request.code == _SEND_MESSAGE else _SHORT
        try:
            message, pairs = self.message_of(connection, request, ext, fields_are)
            half = is_half(pairs)
            batch = fields.flag(ext, fields_are.batch)
            stored = message if half or batch else self._timers.admit(message)
        except BadField:
            raise
        except Answer as answer:
            return request.answer(answer.code, answer.remark, {**ALWAYS, **(answer.ext or {})})
        if batch:
            return self._batch(connection, request, message)
        waits = self._store.puts_wait
        wait = properties.waits_for_flush(pairs) if waits else False
        more: dict[str, str] = {}
        handle = None if stored is message else recall_handle(stored, self._settings.now.broker_name)
        if handle is not None:
            more[RECALL_HANDLE] = handle
        if half and request.version >= V5_0_0 and properties.UNIQ_KEY in pairs:
            more[TRANSACTION_ID] = pairs[properties.UNIQ_KEY]
        if not half and properties.delay_level(pairs) <= 0:  # those are laid out anew, with all that they said
            pairs.pop(properties.WAIT, None)
        if half:
            stored = half_of(message)
        topic, queue_id = stored.topic, message.queue_id
        if waits:  # thousands may: what is in the log already, they need not hold
            request = _made(RemotingCommand, (*request[:_BODY], b"", *request[_BODY + 1 :]))
        began, stats = perf_counter_ns(), self._stats

        def done(result: PutResult) -> None:
            append = result.append
            if append is None:
                stats.failed()
            else:
                stats.put(topic, 1, append.size)
            stats.put_times.add_ns(perf_counter_ns() - began)
            plain = not more and result.status is _OK and request.serialize is _JSON
            if append is None or not plain:
                connection.answer(request, self._answer(request, queue_id, result, more=more))
            else:
                place = append.physical_offset
                frame = frame_of_stored(request.opaque, self._id_head, place, queue_id, append.queue_offset)
                connection.answer_frame(request, frame)

        self._putter.put(stored, done, wait=wait, refusable=True)
        return None

    # --- the message ------------------------------------------------------------------------------------------------

    def message_of(
        self, connection: Connection, request: RemotingCommand, ext: Mapping[str, str], name: Names
    ) -> tuple[Message, dict[str, str]]:
        """What is sent, as it is stored but for WAIT, and its properties. Raises Answer: it can't be stored."""
        topic_name = ext.get(name.topic, "")
        topic = self._topic(topic_name, ext, name)
        texts = (ext.get(name.queue_id), ext.get(name.sys_flag), ext.get(name.flag), ext.get(name.times))
        known = self._numbers.get(texts)
        queue_id = fields.number(ext, name.queue_id) if known is None else known[0]
        if queue_id >= topic.read_queues and queue_id >= topic.write_queues:
            raise Answer(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.address}",
            )
        if queue_id < 0:
            queue_id = self._turns.next(topic.write_queues)
        pairs = parsed(ext.get(name.properties, ""))
        pairs[CLUSTER] = self._settings.now.cluster_name
        if properties.DELAY in pairs and fields.number(pairs, properties.DELAY) > MOST_DELAY:
            pairs[properties.DELAY] = str(MOST_DELAY)
        times = fields.number(ext, name.times, 0) if known is None else known[3]
        if topic_name.startswith(RETRY) and not fields.flag(ext, name.batch):
            most = ext.get(name.most_times)
            topic_name, queue_id = self._again_or_dead(request, topic_name, queue_id, times, most)
        if known is None:
            known = self._numbers_of(ext, name, texts)
        kind = known[1] & _HOSTS
        if topic.filter_type == MULTI_TAG:
            kind |= sysflag.MULTI_TAGS
        message = _made(
            Message,
            (
                topic_name,
                bytes(request.body),
                queue_id,
                pairs,
                known[2],
                kind,
                fields.number(ext, name.born, None, LONG_MIN, LONG_MAX),
                connection.host,
                self._store_host,
                times,
                0,
            ),
        )
        return message, pairs

    def _numbers_of(
        self, ext: Mapping[str, str], name: Names, texts: tuple[str | None, ...]
    ) -> tuple[int, int, int, int]:
        """Queue id, sysFlag, flag and reconsumeTimes, remembered by their texts. Raises BadField."""
        sys_flag, flag = fields.number(ext, name.sys_flag), fields.number(ext, name.flag)
        numbers = fields.number(ext, name.queue_id), sys_flag, flag, fields.number(ext, name.times, 0)
        if all(text is None or len(text) <= _DIGITS for text in texts):  # zeros before a number may fill a frame
            if len(self._numbers) >= _NUMBERS_KEPT:
                self._numbers.clear()
            self._numbers[texts] = numbers
        return numbers

    def _topic(self, name: str, ext: Mapping[str, str], names: Names) -> TopicConfig:
        """The topic, made where that is allowed. Source: AbstractSendMessageProcessor#msgCheck. Raises Answer."""
        self._demand_writeable()
        forbidden = no_sends(name)
        if forbidden is not None:
            raise Answer(ResponseCode.NO_PERMISSION, forbidden)
        topic = self._topics.find(name)
        if topic is not None:
            return topic
        wrong = invalid_topic(name)
        if wrong is not None:
            raise Answer(ResponseCode.SYSTEM_ERROR, wrong)
        queues = fields.number(ext, names.default_queues, 4)
        unit = fields.flag(ext, names.unit)
        topic = self._topics.for_send(name, ext.get(names.default_topic, ""), queues, unit=unit)
        if topic is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        return topic

    def _again_or_dead(
        self, request: RemotingCommand, name: str, queue_id: int, times: int, most: str | None
    ) -> tuple[str, int]:
        """A consumer gives a message back by a send: it comes again, or goes to the dead letters."""
        group_name = name.removeprefix(RETRY)
        group = demand_group(self._groups, group_name)
        if times < most_times(group, request.version, {} if most is None else {"maxReconsumeTimes": most}):
            return name, queue_id
        dead = self._topics.for_retry(DLQ + group_name)
        return dead.name, self._turns.next(dead.write_queues)

    def _batch(self, connection: Connection, request: RemotingCommand, message: Message) -> RemotingCommand | None:
        """All messages of a batch; what they share is `message`, whose body is theirs."""
        if not message.body:
            raise BadField("the batch has no messages")
        pairs = message.properties
        illegal = properties.delay_level(pairs) > 0 or message.sys_flag & sysflag.TRANSACTION_MASK
        if illegal or len(message.body) > self._store.config.max_message_size:
            return request.answer(ResponseCode.MESSAGE_ILLEGAL, self._illegal(), ALWAYS)
        try:
            columns = columns_of(message.body)
        except FormatError as error:
            raise BadField(f"malformed batch: {error.message}") from None
        shared = message._replace(body=b"")
        wait = properties.waits_for_flush(pairs)
        began = perf_counter_ns()

        def answer_all(answers: tuple[PutResult, ...]) -> None:
            self._count(shared.topic, answers, began)
            connection.answer(request, self._answer(request, shared.queue_id, answers[-1], answers))

        self._putter.put_columns(shared, columns, answer_all, wait=wait)
        return None

    def _count(self, topic: str, results: tuple[PutResult, ...], began: int) -> None:
        stats = self._stats
        for result in results:
            append = result.append
            if append is None:
                stats.failed()
            else:
                stats.put(topic, append.message_count, append.size)
        stats.put_times.add_ns(perf_counter_ns() - began)

    # --- the answer -------------------------------------------------------------------------------------------------

    def _answer(
        self,
        request: RemotingCommand,
        queue_id: int,
        result: PutResult,
        every: tuple[PutResult, ...] = (),
        more: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        append = result.append
        if result.status not in STORED or append is None:
            return request.answer(*self._refusal(result), ALWAYS)
        code, remark = _STATUS[result.status]
        ids = [one.append.msg_id for one in every or (result,) if one.append is not None]
        first = every[0].append if every and every[0].append is not None else append
        ext = {
            **ALWAYS,
            "msgId": ",".join(ids),
            "queueId": str(queue_id),
            "queueOffset": str(first.queue_offset),
            **(more or {}),
        }
        return request.answer(code, remark, ext)

    def _refusal(self, result: PutResult) -> tuple[int, str]:
        if result.status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            return ResponseCode.MESSAGE_ILLEGAL, self._illegal()
        if result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            if isinstance(result.error, OutOfDescriptors):
                return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {result.error}"
            ratios = " ".join(f"{name}: {ratio:5.2f}" for name, ratio in disk_ratios(self._store))
            return ResponseCode.SERVICE_NOT_AVAILABLE, _FULL.format(ratios)
        if isinstance(result.error, Busy):
            return ResponseCode.SYSTEM_BUSY, result.error.message
        code, remark = _STATUS[result.status]
        return code, remark or "UNKNOWN_ERROR"

    def _illegal(self) -> str:
        return _ILLEGAL.format(self._store.config.max_message_size)
