"""QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE: which queues a consumer of RocketMQ 5 reads, and whether it pops them.

Such a consumer (clientRebalance=false) asks its broker every 20 s, topic by topic. Where its group pops, all clients
get all queues of each broker, as queue -1, or share them with the next clients.

Source: QueryAssignmentProcessor (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.broker.handlers.admin_topics import when_kept
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.request_modes import MODES, POP, RequestMode
from engine.broker.tables.topics import RETRY
from engine.client.allocate import Averagely, AveragelyByCircle, Strategy
from engine.client.queues import MessageQueue
from engine.errors import InvalidArgument
from engine.format.hashing import java_order
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.broker.names.topic_queues import TopicQueues
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.members import Members
    from engine.broker.tables.request_modes import RequestModes
    from engine.broker.tables.topics import TopicTable
    from engine.wire.command import RemotingCommand

ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""
_BROADCASTING, _CLUSTERING = "BROADCASTING", "CLUSTERING"
_STRATEGIES: Mapping[str, Strategy] = {one.name: one for one in (Averagely(), AveragelyByCircle())}


class AssignmentHandler:
    """See the module. For the loop's thread alone."""

    def __init__(
        self,
        *,
        modes: RequestModes,
        topics: TopicTable,
        groups: GroupTable,
        members: Members,
        queues: TopicQueues,
        later: Later,
    ) -> None:
        self._modes = modes
        self._topics = topics
        self._groups = groups
        self._members = members
        self._queues = queues
        self._later = later

    def query(self, connection: Connection, request: RemotingCommand) -> None:
        """QUERY_ASSIGNMENT."""
        body = body_of(request)
        topic, group = _text(body, "topic"), _text(body, "consumerGroup")
        if body.get("messageModel") not in (_BROADCASTING, _CLUSTERING):
            raise Answer(ResponseCode.SYSTEM_ERROR, "messageModel is required")

        async def answer() -> RemotingCommand:
            mode = self._modes.get(topic, group)
            queues = await self._queues.of(topic)
            if queues is not None and body["messageModel"] == _CLUSTERING:
                queues = await self._share(body, mode, queues)
            if queues is None:
                return request.answer(body=b"{}")
            rows = (_row(queue, mode.mode) for queue in queues)
            shared = await self._later.list_of(rows, request)
            return request.answer(body=b'{"messageQueueAssignments":%b}' % shared)

        self._later.answer(connection, request, answer())

    async def _share(
        self, body: Mapping[str, Any], mode: RequestMode, queues: Sequence[MessageQueue]
    ) -> tuple[MessageQueue, ...] | None:
        """A client's queues; None: it is to go on with those that it has. Source: #doLoadBalance."""
        group = self._members.consumers.get(mode.group)
        strategy = _STRATEGIES.get(str(body.get("strategyName")))
        if group is None or strategy is None:
            return None
        clients = sorted((client.client_id for client in group.members.values()), key=java_order)
        client = str(body.get("clientId") or "")
        try:
            return await self._later.in_thread(
                lambda: tuple(dict.fromkeys(_allocated(strategy, client, queues, clients, mode)))
            )
        except InvalidArgument:
            return None

    def set_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SET_MESSAGE_REQUEST_MODE."""
        body = body_of(request)
        topic, group = _text(body, "topic"), _text(body, "consumerGroup")
        if topic.startswith(RETRY):
            return request.answer(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.find(topic) is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            return request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if body.get("mode", MODES[0]) not in MODES:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"mode = {body['mode']!r} is neither {' nor '.join(MODES)}")
        self._modes.put(RequestMode.of_json(body), when_kept(connection, request, request.answer))
        return None


def _allocated(
    strategy: Strategy, client: str, queues: Sequence[MessageQueue], clients: Sequence[str], mode: RequestMode
) -> list[MessageQueue]:
    """Source: #allocate4Pop. Raises InvalidArgument."""
    if mode.mode != POP:
        return strategy.allocate(client, queues, clients)
    if mode.share <= 0 or mode.share >= len(clients) - 1:
        return [MessageQueue(queue.topic, queue.broker, ALL_QUEUES) for queue in queues]
    if len(clients) > len(queues):  # each client gets a queue
        if not client or not queues:
            raise InvalidArgument("an allocation needs a client id and queues")
        return [queues[clients.index(client) % len(queues)]] if client in clients else []
    allocated = strategy.allocate(client, queues, clients)
    if client in clients:
        at = clients.index(client)
        for step in range(1, mode.share + 1):
            allocated += strategy.allocate(clients[(at + step) % len(clients)], queues, clients)
    return allocated


def _row(queue: MessageQueue, mode: str) -> dict[str, Any]:
    """MessageQueueAssignment."""
    where = {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}
    return {"messageQueue": where, "mode": mode}


def _text(body: Mapping[str, Any], name: str) -> str:
    """Raises Answer: it is not there."""
    if body.get(name) is None:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"{name} is required")
    return str(body[name])
