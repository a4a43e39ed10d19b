"""RECALL_MESSAGE: a timer message that is still waiting is taken back, by the handle that its send was answered with.

Source: RecallMessageProcessor, RecallMessageHandle (5.3.3); BROKER.md 2.8.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, NamedTuple

from engine.broker.put.putter import STORED
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer, BadField
from engine.format import properties
from engine.format.message import Message
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.ha.role import Role
    from engine.broker.net.connection import Connection
    from engine.broker.put.putter import Putter
    from engine.broker.put.timer_gate import TimerGate
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.topics import TopicTable
    from engine.format.hosts import Host
    from engine.log.results import PutResult
    from engine.wire.command import RemotingCommand

_TAG = "_RECALL_TAG_"
_REGION = {"MSG_REGION": "DefaultRegion"}


class RecallHandle(NamedTuple):
    """What a handle says. `time`: ms, as text."""

    topic: str
    broker_name: str
    time: str
    key: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Raises Answer: it is none."""
        try:
            words = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            words = []
        if len(words) < 5 or words[0] != "v1":
            raise Answer(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        return cls(*words[1:5])


class RecallHandler:
    """See the module."""

    def __init__(
        self,
        *,
        putter: Putter,
        timers: TimerGate,
        topics: TopicTable,
        settings: CurrentSettings,
        role: Role,
        store_host: Host,
        now_ms: Callable[[], int],
    ) -> None:
        self._putter = putter
        self._timers = timers
        self._topics = topics
        self._settings = settings
        self._role = role
        self._store_host = store_host
        self._now_ms = now_ms

    def recall(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """RECALL_MESSAGE."""
        try:
            message, key = self._message(connection, request)
        except BadField:
            raise
        except Answer as refusal:
            return request.answer(refusal.code, refusal.remark, _REGION)

        def done(result: PutResult) -> None:
            if result.status in STORED:
                connection.answer(request, request.answer(ext={**_REGION, "msgId": key}))
            else:
                remark = "recall failed, execute error"
                connection.answer(request, request.answer(ResponseCode.SYSTEM_ERROR, remark, _REGION))

        self._putter.put(message, done)
        return None

    def _message(self, connection: Connection, request: RemotingCommand) -> tuple[Message, str]:
        """What takes it back, and its key. Raises Answer."""
        settings, ext, now = self._settings.now, request.fields, self._now_ms()
        if not settings.recall:
            raise Answer(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._role.is_slave:
            raise Answer(ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available")
        name = fields.text(ext, "topic")
        if self._topics.find(name) is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{name}] not exist")
        handle = RecallHandle.parse(fields.text(ext, "recallHandle"))
        if handle.topic != name:
            raise Answer(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != settings.broker_name:
            raise Answer(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        try:
            left = parse_int(handle.time, LONG_MIN, LONG_MAX) - now
        except ValueError:
            left = -1
        if not 0 < left < settings.timer_most_s * 1000:
            raise Answer(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        pairs = {
            properties.TAGS: _TAG,
            properties.TIMER_DEL_UNIQKEY: f"{name}+{handle.key}",
            properties.UNIQ_KEY: handle.key,
            properties.TIMER_DELIVER_MS: handle.time,
            "BORN_TIMESTAMP": str(now),
        }
        if ext.get("producerGroup"):
            pairs[properties.PGROUP] = ext["producerGroup"]
        message = Message(
            name, b"0", 0, pairs, born_timestamp=now, born_host=connection.host, store_host=self._store_host
        )
        try:
            return self._timers.admit(message), handle.key
        except Answer:
            raise Answer(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
