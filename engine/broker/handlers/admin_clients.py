"""What an administrator asks of clients through the broker (BROKER.md 1.2, 1.4; Broker2Client, #callConsumer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from engine.broker.handlers.admin_topics import NOT_SET
from engine.broker.requests import bodies, fields
from engine.broker.requests.answers import Answer
from engine.errors import FormatError, InvalidArgument, RStoreError
from engine.format.message import parse_msg_id
from engine.wire.codes import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, LanguageCode, RequestCode, ResponseCode
from engine.wire.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.members import Client, Members
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.broker.tables.topics import TopicTable
    from engine.store import MessageStore

CLIENT_S = 10.0
"""How long a client has to answer. Source: Broker2Client#callClient."""
STATUS_S = 5.0
"""Source: Broker2Client#getConsumeStatus."""
_TO_THE_END = -1


class ClientAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        members: Members,
        settings: CurrentSettings,
        later: Later,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._settings = settings
        self._later = later

    # --- one consumer is asked --------------------------------------------------------------------------------------

    def running_info(self, connection: Connection, request: RemotingCommand) -> None:
        """GET_CONSUMER_RUNNING_INFO."""
        ext = request.fields
        group, client_id = fields.text(ext, "consumerGroup"), fields.text(ext, "clientId")
        member = self._demand_consumer(group, client_id)
        self._later.answer(connection, request, self._call(member, request, group, client_id))

    def consume_directly(self, connection: Connection, request: RemotingCommand) -> None:
        """CONSUME_MESSAGE_DIRECTLY: the consumer gets the message with the question."""
        ext = request.fields
        group, client_id = fields.text(ext, "consumerGroup"), ext.get("clientId") or ""
        record = self._record(fields.text(ext, "msgId"))
        member = self._demand_consumer(group, client_id)
        asked = request._replace(ext={**ext, "brokerName": self._settings.now.broker_name}, body=record)
        self._later.answer(connection, request, self._call(member, asked, group, client_id))

    def _record(self, msg_id: str) -> bytes:
        try:
            record = self._store.record_at(parse_msg_id(msg_id)[1])
        except (InvalidArgument, RStoreError) as error:
            raise Answer(ResponseCode.SYSTEM_ERROR, error.message) from None
        if record is None:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"no message with ID {msg_id}")
        return bytes(record)

    def _demand_consumer(self, group: str, client_id: str) -> Connection:
        online = self._members.consumers.get(group)
        members = {} if online is None else online.members
        consumer = next(((member, client) for member, client in members.items() if client.client_id == client_id), None)
        if consumer is None:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        member, client = consumer
        if client.version < V3_1_8_SNAPSHOT:
            raise Answer(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        return member

    async def _call(self, member: Connection, request: RemotingCommand, group: str, client_id: str) -> RemotingCommand:
        try:
            answer = await member.ask(RemotingCommand(request.code, ext=request.ext, body=request.body), CLIENT_S)
        except TimeoutError:
            raise Answer(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: wait response on the channel <{member.address}> timeout, "
                f"{CLIENT_S * 1000:.0f}(ms)",
            ) from None
        except ConnectionError as error:
            raise Answer(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from None
        return request.answer(answer.code, answer.remark, answer.ext, bytes(answer.body))

    # --- all of a group ---------------------------------------------------------------------------------------------

    def reset_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET: the members are told where to continue (RESET_CONSUMER_CLIENT_OFFSET)."""
        ext = request.fields
        topic, group, timestamp = fields.text(ext, "topic"), fields.text(ext, "group"), fields.long(ext, "timestamp")
        force, name = fields.flag(ext, "isForce"), self._settings.now.broker_name

        async def reset() -> RemotingCommand:
            targets = self._targets(topic, group, timestamp, force=force)
            walk = self._later.turns.walk(targets, request.code)
            rows = [(bodies.message_queue(name, topic, at), to) async for at, to in walk]
            members = self._demand_members(
                group,
                Answer(
                    ResponseCode.CONSUMER_NOT_ONLINE,
                    f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                    f"Timestamp: {timestamp}",
                ),
            )
            plain = bodies.with_raw({}, "offsetTable", await self._later.object_of(rows, request))
            items = await self._later.list_of(({**queue, "offset": offset} for queue, offset in rows), request)
            for_c = bodies.with_raw({}, "offsetTable", items)
            head = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "false"}
            body = for_c if request.language == LanguageCode.CPP else plain
            for member in members:
                member.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, head, body)
            return request.answer(remark=NOT_SET, body=plain)

        self._later.answer(connection, request, reset())

    def _targets(self, name: str, group: str, timestamp: int, *, force: bool) -> Iterator[tuple[int, int]]:
        """Where the group is to continue in each queue; without force never forwards. Raises Answer."""
        topic = self._topics.find(name)
        if topic is None:
            raise Answer(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
            )
        done = self._offsets.of(group, name)
        for queue_id in range(topic.write_queues):
            if done.get(queue_id, -1) == -1:
                raise Answer(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            if timestamp == _TO_THE_END:
                offset = self._store.max_offset(name, queue_id)
            else:
                offset = self._store.offset_by_time(name, queue_id, timestamp)
            offset = max(offset, 0)
            yield queue_id, offset if force or offset < done[queue_id] else done[queue_id]

    def consumer_status(self, connection: Connection, request: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where each member stands; one that doesn't answer is left out."""
        ext = request.fields
        topic, group, wanted = fields.text(ext, "topic"), fields.text(ext, "group"), ext.get("clientAddr", "")
        nobody = Answer(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        members = self._demand_members(group, nobody)

        async def collect() -> RemotingCommand:
            asked = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext={"topic": topic, "group": group})
            tables = []
            for member, client in members.items():
                if wanted.strip() and client.client_id != wanted:
                    continue
                try:
                    answer = await member.ask(asked, STATUS_S)
                    if answer.code == ResponseCode.SUCCESS and len(answer.body):
                        table = bodies.raw_object(bytes(answer.body), "messageQueueTable")
                        tables.append(orjson.dumps(client.client_id) + b":" + table)
                except (TimeoutError, ConnectionError, FormatError):
                    continue
            body = bodies.with_raw({"messageQueueTable": {}}, "consumerTable", b"{" + b",".join(tables) + b"}")
            return request.answer(remark=NOT_SET, body=body)

        self._later.answer(connection, request, collect())

    def _demand_members(self, group: str, nobody: Answer) -> dict[Connection, Client]:
        online = self._members.consumers.get(group)
        if online is None or not online.members:
            raise nobody
        old = next((client.version for client in online.members.values() if client.version < V3_0_7_SNAPSHOT), None)
        if old is not None:
            raise Answer(ResponseCode.SYSTEM_ERROR, f"the client does not support this feature. version={old}")
        return dict(online.members)
