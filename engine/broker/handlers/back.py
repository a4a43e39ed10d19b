"""CONSUMER_SEND_MSG_BACK: a consumer could not consume a message; it comes again later, or goes to the dead letters.

Source: AbstractSendMessageProcessor#consumerSendMsgBack (4.9.8); BROKER.md 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.handlers.putting import PuttingHandler
from engine.broker.put.flow import Busy
from engine.broker.put.putter import STORED
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.tables.topics import DLQ, FAQ, PERM_WRITE, RETRY, UNIT_SUB
from engine.errors import RStoreError
from engine.format import properties, sysflag
from engine.wire.codes import V3_4_9, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.tables.groups import GroupConfig, GroupTable
    from engine.format.message import Message
    from engine.log.results import PutResult
    from engine.wire.command import RemotingCommand

RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
_FIRST_LEVEL = 3


class BackHandler(PuttingHandler):
    """See the module."""

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """CONSUMER_SEND_MSG_BACK."""
        message = self._message(request)
        if message is None:
            return request.answer()
        message = self._timers.admit(message)

        def done(result: PutResult) -> None:
            stored = result.status in STORED
            if stored and result.append is not None:
                stats = self._stats
                stats.put(message.topic, 1, result.append.size)
                stats.sent_back(request.fields["group"], message.properties[RETRY_TOPIC])
            connection.answer(request, request.answer() if stored else _refusal(request, result))

        self._putter.put(message, done, wait=False, refusable=True)
        return None

    def _message(self, request: RemotingCommand) -> Message | None:
        """What is to be put; None: nothing. Raises Answer."""
        ext = request.fields
        name = fields.text(ext, "group")
        group = demand_group(self._groups, name)
        self._demand_writeable()
        if group.retry_queues <= 0:
            return None
        target = self._topics.for_retry(
            RETRY + name, group.retry_queues, UNIT_SUB if fields.flag(ext, "unitMode") else 0
        )
        if not target.perm & PERM_WRITE:
            raise Answer(ResponseCode.NO_PERMISSION, f"the topic[{target.name}] sending message is forbidden")
        offset = fields.long(ext, "offset")
        try:
            stored = self._store.look_message(offset)
        except RStoreError:
            stored = None
        if stored is None:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        pairs = stored.properties
        pairs.setdefault(RETRY_TOPIC, stored.topic)
        pairs.setdefault(ORIGIN_MESSAGE_ID, ext.get("originMsgId") or stored.msg_id)
        pairs[properties.WAIT] = "false"
        level = fields.number(ext, "delayLevel")
        if stored.reconsume_times >= most_times(group, request.version, ext) or level < 0:
            target = self._topics.for_retry(DLQ + name)
            pairs[properties.DELAY] = "0"
        else:
            pairs[properties.DELAY] = str(level or _FIRST_LEVEL + stored.reconsume_times)
        return stored.to_message()._replace(
            topic=target.name,
            queue_id=self._turns.next(target.write_queues),
            properties=pairs,
            sys_flag=stored.sys_flag & ~sysflag.HOSTS_V6_MASK,
            reconsume_times=stored.reconsume_times + 1,
            store_host=self._store_host,
            prepared_transaction_offset=0,
        )


def demand_group(groups: GroupTable, name: str) -> GroupConfig:
    """The group whose message comes again. Raises Answer."""
    group = groups.find(name)
    if group is None:
        raise Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
    return group


def most_times(group: GroupConfig, version: int, ext: Mapping[str, str]) -> int:
    """How often a message comes again before it is dead: as the client says, where it is new enough to say so."""
    if version >= V3_4_9 and "maxReconsumeTimes" in ext:
        return fields.number(ext, "maxReconsumeTimes")
    return group.retry_max_times


def _refusal(request: RemotingCommand, result: PutResult) -> RemotingCommand:
    if isinstance(result.error, Busy):
        return request.answer(ResponseCode.SYSTEM_BUSY, result.error.message)
    return request.answer(ResponseCode.SYSTEM_ERROR, result.status.value)
