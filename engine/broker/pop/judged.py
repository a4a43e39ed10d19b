"""What requests of consumers that pop have in common: a topic and a group that may be read.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor, PeekMessageProcessor (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.requests import fields
from engine.broker.requests.answers import Answer, BadField
from engine.broker.tables.topics import FAQ, PERM_READ
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.topics import TopicConfig, TopicTable
    from engine.wire.command import RemotingCommand


UNSAID = "not set any response code"
"""Apache's remark where nobody has set one, though the answer is complete."""


def with_fields(
    request: RemotingCommand, fields_are: Mapping[str, str], work: Callable[[], RemotingCommand | None]
) -> RemotingCommand | None:
    """What `work` answers, a refusal with these fields, as Java's header has them that nobody has set."""
    try:
        return work()
    except BadField:
        raise
    except Answer as refusal:
        return request.answer(refusal.code, refusal.remark, fields_are)


class PopJudge:
    """See the module."""

    def __init__(self, topics: TopicTable, groups: GroupTable, settings: CurrentSettings) -> None:
        self._topics = topics
        self._groups = groups
        self._settings = settings

    def demand_readable(self, what: str) -> None:
        """Raises Answer: brokerPermission lets nobody read."""
        settings = self._settings.now
        if not settings.permission & PERM_READ:
            raise Answer(ResponseCode.NO_PERMISSION, f"the broker[{settings.broker_ip1}] {what} message is forbidden")

    def queues(self, connection: Connection, request: RemotingCommand) -> tuple[TopicConfig, str, list[int]]:
        """Topic, group and queue ids of a request; a negative queue id is all. Raises Answer."""
        ext = request.fields
        name, group_name = fields.text(ext, "topic"), fields.text(ext, "consumerGroup")
        topic = self._topics.find(name)
        if topic is None:
            raise Answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        if not topic.perm & PERM_READ:
            raise Answer(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        queue_id = fields.number(ext, "queueId")
        if queue_id >= topic.read_queues:
            raise Answer(ResponseCode.INVALID_PARAMETER, illegal_queue(connection, topic, queue_id))
        group = self._groups.find(group_name)
        if group is None:
            raise Answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist, {FAQ}"
            )
        if not group.consume_enable:
            raise Answer(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        return topic, group_name, list(range(topic.read_queues)) if queue_id < 0 else [queue_id]


def illegal_queue(connection: Connection, topic: TopicConfig, queue_id: int) -> str:
    """The remark to a queue that a topic does not have."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums:[{topic.read_queues}] "
        f"consumer:[/{connection.address}]"
    )
