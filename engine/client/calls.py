"""What brokers are asked about queues and groups: a method a request, its answer judged.

All names of topics and groups are those of the wire. Each method raises NoRoute (nobody has the queue), PeerLost,
RefusedByBroker and FormatError. Source: MQClientAPIImpl, MQAdminImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from engine.client.pulling import Pull, PullResult, pull_fields
from engine.client.queues import MessageQueue
from engine.client.routes import MASTER
from engine.client.subscriptions import TAG, TopicSubscription
from engine.errors import FormatError, InvalidArgument, NoRoute, RefusedByBroker
from engine.format.hashing import java_order
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.peer_object import PeerObject

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.client.client import ClusterClient
    from engine.client.messages import ReceivedMessage
    from engine.wire.command import RemotingCommand

_HELD_MS = 15_000
"""How long a broker may hold a pull. Source: BROKER_SUSPEND_MAX_TIME_MILLIS."""
_PULL_S = 30.0
_BACK_S = 5.0


class BrokerCalls:
    """See the module. For the client's loop.

    Args:
        masters_only: no slave is asked; a slave may lack the last messages.
    """

    def __init__(self, client: ClusterClient, *, masters_only: bool = False) -> None:
        self._client = client
        self._masters_only = masters_only

    async def address(self, queue: MessageQueue, broker_id: int = MASTER) -> str:
        """Who has a queue: this broker id, or another one of the name where slaves may be asked."""
        route = await self._client.route(queue.topic)
        address = route.address(queue.broker, broker_id, only=self._masters_only)
        if address is None:
            self._client.forget_route(queue.topic)
            who = "master of broker" if self._masters_only else "broker"
            raise NoRoute(f"no {who} {queue.broker} is registered")
        return address

    async def pull(
        self,
        group: str,
        queue: MessageQueue,
        offset: int,
        subscription: TopicSubscription | None,
        *,
        most: int = 32,
        wait: bool = False,
        commit: int | None = None,
        broker_id: int = MASTER,
    ) -> PullResult:
        """Messages from a queue offset on.

        Args:
            wait: the broker holds the pull until there is one, for 15 s at most.
        """
        route = await self._client.route(queue.topic)
        address = await self.address(queue, broker_id)
        is_master = address == route.address(queue.broker, only=True)
        fields = pull_fields(
            group,
            queue,
            offset,
            subscription,
            most=most,
            wait_ms=_HELD_MS if wait else 0,
            commit=commit if is_master else None,
        )
        answer = await self._client.peers.ask(address, RequestCode.PULL_MESSAGE, fields, timeout_s=_PULL_S)
        return Pull(queue, offset, most, address).result(answer, self._client.config.namespace)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One more than the last offset of a queue."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset of a queue."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at this time or later."""
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=str(time_ms))

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Where a group continues; None: it has committed nothing."""
        address = await self.address(queue)
        answer = await self._client.peers.ask(
            address, RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, **_place(queue)}
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _number(_good(answer, address), "offset", address)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store where a group continues."""
        fields = {"consumerGroup": group, **_place(queue), "commitOffset": str(offset)}
        address = await self.address(queue)
        _good(await self._client.peers.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields), address)

    async def members(self, group: str, topic: str) -> list[str]:
        """Client ids of a group, sorted as each consumer sorts them; asked of any broker that serves the topic."""
        address = await self._any_broker(topic)
        answer = await self._client.peers.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        body = _json(_good(answer, address), address, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        return sorted(body.texts("consumerIdList"), key=java_order)

    async def demand_sense(self, group: str, subscription: TopicSubscription) -> None:
        """Ask a broker whether it understands an expression, before anything is pulled with it.

        To a pull with one that it does not understand Apache's broker answers with all messages. Tags need no question.

        Raises:
            InvalidArgument: it does not.
        """
        if subscription.kind == TAG:
            return
        address = await self._any_broker(subscription.topic)
        body = {"clientId": self._client.id, "group": group, "subscriptionData": subscription.to_json()}
        answer = await self._client.peers.ask(address, RequestCode.CHECK_CLIENT_CONFIG, {}, orjson.dumps(body))
        if answer.code != ResponseCode.SUCCESS:
            raise InvalidArgument(
                f"{address} does not take the expression {subscription.expression!r}: {answer.remark or answer.code}",
                hint="SQL92 needs enablePropertyFilter=true at the broker",
            )

    async def lock(self, group: str, broker: str, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Take the locks of queues of one broker; those that are ours now."""
        address = await self.address(next(iter(queues)))
        answer = await self._client.peers.ask(
            address, RequestCode.LOCK_BATCH_MQ, {"bname": broker}, self._lock_body(group, queues)
        )
        locked = _json(_good(answer, address), address, RequestCode.LOCK_BATCH_MQ).objects("lockOKMQSet")
        return {MessageQueue(one.text("topic"), one.text("brokerName"), one.number("queueId")) for one in locked}

    async def unlock(self, group: str, broker: str, queues: Collection[MessageQueue]) -> None:
        """Give locks back."""
        address = await self.address(next(iter(queues)))
        body = self._lock_body(group, queues)
        _good(await self._client.peers.ask(address, RequestCode.UNLOCK_BATCH_MQ, {"bname": broker}, body), address)

    async def send_back(self, group: str, message: ReceivedMessage, delay_level: int, most_times: int) -> None:
        """Have a message consumed again later: the broker keeps it for the group.

        Args:
            delay_level: 0: the broker goes by how often it has failed; below 0: to the dead letter queue.
            most_times: after how many failures it goes there.
        """
        fields = {
            "offset": str(message.stored.physical_offset),
            "group": group,
            "delayLevel": str(delay_level),
            "originMsgId": message.stored.msg_id,
            "originTopic": message.stored.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(most_times),
            "bname": message.queue.broker,
        }
        address = await self.address(message.queue)
        answer = await self._client.peers.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_s=_BACK_S)
        _good(answer, address)

    async def _any_broker(self, topic: str) -> str:
        """Any broker that serves a topic: each knows all of a group."""
        route = await self._client.route(topic)
        address = next((at for at in map(route.address, sorted(route.brokers)) if at is not None), None)
        if address is None:
            raise NoRoute(f"no broker serves topic {topic}")
        return address

    async def _offset(self, queue: MessageQueue, code: int, **more: str) -> int:
        address = await self.address(queue)
        answer = await self._client.peers.ask(address, code, {**_place(queue), **more})
        return _number(_good(answer, address), "offset", address)

    def _lock_body(self, group: str, queues: Collection[MessageQueue]) -> bytes:
        return orjson.dumps(
            {
                "clientId": self._client.id,
                "consumerGroup": group,
                "mqSet": [
                    {"topic": one.topic, "brokerName": one.broker, "queueId": one.queue_id} for one in sorted(queues)
                ],
            }
        )


def _place(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker}


def _good(answer: RemotingCommand, address: str) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedByBroker.of(answer.code, answer.remark, address)
    return answer


def _number(answer: RemotingCommand, name: str, address: str) -> int:
    try:
        return parse_int(answer.fields.get(name, ""), LONG_MIN, LONG_MAX)
    except ValueError:
        raise FormatError(f"malformed answer of {address}: no number in {name}") from None


def _json(answer: RemotingCommand, address: str, code: RequestCode) -> PeerObject:
    return PeerObject.parse(answer.body, f"answer of {address} to {code.name}")
