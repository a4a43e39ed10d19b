"""SEND_MESSAGE in its three forms: checks, the message as it is stored, the put's status as an answer.

Source: SendMessageProcessor, AbstractSendMessageProcessor (4.9.8); remoting.md 2.2, 3.2, 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from engine.broker import fields
from engine.broker.answers import Answer
from engine.broker.handlers.back import demand_group, most_times
from engine.broker.putting import STORED, put
from engine.broker.topics import DLQ, FAQ, FORBIDDEN, PERM_WRITE, RETRY, invalid_topic
from engine.broker.transactions import half_of, is_half
from engine.errors import FormatError
from engine.format import properties, sysflag
from engine.format.message import Message
from engine.log.frames import columns_of
from engine.log.results import PutMessageStatus, PutResult
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.broker import Broker
    from engine.broker.connection import Connection
    from engine.broker.topics import TopicConfig
    from engine.wire.command import RemotingCommand

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
CLUSTER = "CLUSTER"
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
LETTERS = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
"""Short names of SEND_MESSAGE_V2's fields."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A send's header."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    ext: Mapping[str, str]


class SendHandler:
    """Answers sends. `put` results that wait for flush or slave are answered when they are there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE."""
        try:
            ext = request.fields
            if request.code != RequestCode.SEND_MESSAGE:
                ext = {LETTERS.get(name, name): value for name, value in ext.items()}
            wish = self._judge(connection, request, ext)
        except Answer as answer:
            return request.answer(answer.code, answer.remark, {**ALWAYS, **(answer.ext or {})})
        if fields.flag(ext, "batch"):
            return self._batch(connection, request, wish)
        message = self._message(connection, wish, bytes(request.body))
        stored = half_of(message) if is_half(wish.properties) else message
        began = perf_counter_ns()

        def done(result: PutResult) -> None:
            self._count(stored.topic, (result,), began)
            connection.answer(request, self._answer(request, message, result))

        put(self._broker, stored, done, wait=properties.waits_for_flush(wish.properties))
        return None

    # --- checks -----------------------------------------------------------------------------------------------------

    def _judge(self, connection: Connection, request: RemotingCommand, ext: Mapping[str, str]) -> _Wish:
        name, queue_id = self.place(connection, ext)
        said = properties.parse(ext.get("properties", ""))
        said[CLUSTER] = self._broker.settings.cluster_name
        level = properties.delay_level(said)
        if level > MOST_DELAY:
            said[properties.DELAY] = str(MOST_DELAY)
        if name.startswith(RETRY):
            name, queue_id = self._again_or_dead(request, ext, name, queue_id, said)
        return _Wish(name, queue_id, said, ext)

    def place(self, connection: Connection, ext: Mapping[str, str]) -> tuple[str, int]:
        """Topic and queue to send to, by a header with long names; the topic is made where allowed. Raises Answer."""
        name = fields.text(ext, "topic")
        topic = self._topic(name, ext.get("defaultTopic", ""), fields.number(ext, "defaultTopicQueueNums", 4))
        queue_id = fields.number(ext, "queueId")
        if queue_id >= max(topic.read_queues, topic.write_queues):
            raise Answer(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.address}",
            )
        if queue_id < 0:
            queue_id = self._broker.any_queue(topic.write_queues)
        return name, queue_id

    def _topic(self, name: str, default: str, queues: int) -> TopicConfig:
        """The topic, made where that is allowed. Source: AbstractSendMessageProcessor#msgCheck. Raises Answer."""
        broker = self._broker
        if not broker.settings.permission & PERM_WRITE:
            raise Answer(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.settings.broker_ip1}] sending message is forbidden"
            )
        wrong = invalid_topic(name)
        if wrong is not None:
            raise Answer(ResponseCode.SYSTEM_ERROR, wrong)
        if name in FORBIDDEN:
            raise Answer(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        found = broker.topics.for_send(name, default, queues)
        if found is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        return found

    def _again_or_dead(
        self, request: RemotingCommand, ext: Mapping[str, str], name: str, queue_id: int, said: dict[str, str]
    ) -> tuple[str, int]:
        """A consumer gives a message back by a send: it comes again, or goes to the dead letters."""
        group_name = name.removeprefix(RETRY)
        group = demand_group(self._broker, group_name)
        if fields.number(ext, "reconsumeTimes", 0) < most_times(group, request.version, ext):
            return name, queue_id
        dead = self._broker.topics.for_retry(DLQ + group_name)
        said[properties.DELAY] = "0"
        return dead.name, self._broker.any_queue(dead.write_queues)

    # --- the message ------------------------------------------------------------------------------------------------

    def _message(self, connection: Connection, wish: _Wish, body: bytes) -> Message:
        ext = wish.ext
        kind = fields.number(ext, "sysFlag", 0)
        return Message(
            wish.topic,
            body,
            wish.queue_id,
            {name: value for name, value in wish.properties.items() if name != properties.WAIT},
            fields.number(ext, "flag", 0),
            kind & ~(sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6),
            fields.long(ext, "bornTimestamp", 0),
            connection.host,
            self._broker.store_host,
            fields.number(ext, "reconsumeTimes", 0),
        )

    def _batch(self, connection: Connection, request: RemotingCommand, wish: _Wish) -> RemotingCommand | None:
        message = self._message(connection, wish, b"")._replace(properties=wish.properties)
        try:
            columns = columns_of(request.body)
        except FormatError:
            return request.answer(ResponseCode.MESSAGE_ILLEGAL, self._illegal(), ALWAYS)
        if properties.delay_level(wish.properties) > 0 or message.sys_flag & sysflag.TRANSACTION_MASK:
            return request.answer(ResponseCode.MESSAGE_ILLEGAL, self._illegal(), ALWAYS)
        if len(request.body) > self._broker.store.config.max_message_size:
            return request.answer(ResponseCode.MESSAGE_ILLEGAL, self._illegal(), ALWAYS)
        store, loop = self._broker.store, self._broker.loop
        wait = properties.waits_for_flush(wish.properties)
        began = perf_counter_ns()

        def answer_all(answers: tuple[PutResult, ...]) -> None:
            self._count(message.topic, answers, began)
            connection.answer(request, self._answer(request, message, answers[-1], answers))

        def put_all() -> tuple[PutResult, ...]:
            return store.put_columns(message, columns, wait=wait)

        if store.puts_wait:
            loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(answer_all, put_all()))
        else:
            answer_all(put_all())
        return None

    def _count(self, topic: str, results: tuple[PutResult, ...], began: int) -> None:
        stats = self._broker.stats
        for result in results:
            append = result.append
            if append is None:
                stats.failed()
            else:
                stats.put(topic, append.message_count, append.size)
        stats.put_times.add((perf_counter_ns() - began) // 1_000_000)

    # --- the answer -------------------------------------------------------------------------------------------------

    def _answer(
        self, request: RemotingCommand, message: Message, result: PutResult, every: tuple[PutResult, ...] = ()
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
            "queueId": str(message.queue_id),
            "queueOffset": str(first.queue_offset),
        }
        return request.answer(code, remark, ext)

    def _refusal(self, result: PutResult) -> tuple[int, str]:
        if result.status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            return ResponseCode.MESSAGE_ILLEGAL, self._illegal()
        if result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            ratios = " ".join(f"{name}: {ratio:5.2f}" for name, ratio in self._broker.disk_ratios())
            return ResponseCode.SERVICE_NOT_AVAILABLE, _FULL.format(ratios)
        code, remark = _STATUS[result.status]
        return code, remark or "UNKNOWN_ERROR"

    def _illegal(self) -> str:
        return _ILLEGAL.format(self._broker.store.config.max_message_size)
