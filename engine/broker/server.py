"""The daemon's listeners and its switchboard: which handler answers which code, on which port.

Everything runs in the loop's thread; what waits for a disk or a slave answers later. A handler's error is that
request's answer (SYSTEM_ERROR with what went wrong), never the connection's end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from engine.broker.answers import Answer
from engine.broker.connection import OTHER, Connection
from engine.broker.handlers.admin import AdminHandler
from engine.broker.handlers.back import BackHandler
from engine.broker.handlers.consume import ConsumeHandler
from engine.broker.handlers.pull import PullHandler
from engine.broker.handlers.query import QueryHandler
from engine.broker.handlers.route import RouteHandler
from engine.broker.handlers.send import SendHandler
from engine.errors import RStoreError
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.broker import Broker
    from engine.broker.settings import BrokerSettings
    from engine.wire.command import RemotingCommand

    Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]

_BACKLOG = 1024


class Switchboard:
    """Takes requests of one listener's connections and has them answered.

    Args:
        settings: limits.
        handlers: by request code.
        lost: is told of connections that have gone.
        name: of the listener: broker, vip or names.

    Attributes:
        connections: that are open.
        answers: see Serves.
        refused: connections, as there were too many.
        cut: connections that were cut off, by reason: see Connection.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        handlers: Mapping[int, Handler],
        lost: Callable[[Connection], None],
        log: logging.Logger,
        name: str = "broker",
    ) -> None:
        self._settings = settings
        self._log = log
        self.name = name
        self.connections: set[Connection] = set()
        self.answers: dict[int, dict[int, int]] = {OTHER: {}}
        self.refused = 0
        self.cut = {"frame": 0, "output": 0, "idle": 0}
        self.serve(handlers, lost)

    def serve(self, handlers: Mapping[int, Handler], lost: Callable[[Connection], None]) -> None:
        """Have these answer from now on."""
        self._handlers, self._lost = handlers, lost
        for code in handlers:
            self.answers.setdefault(int(code), {0: 0})

    def opened(self, connection: Connection) -> bool:
        """As of Serves."""
        if len(self.connections) >= self._settings.connections:
            self.refused += 1
            self._log.warning(
                "a connection was refused", extra={"peer": connection.address, "why": "too many connections"}
            )
            return False
        self.connections.add(connection)
        return True

    def lost(self, connection: Connection) -> None:
        """As of Serves."""
        self.connections.discard(connection)
        if connection.fault is not None:
            self.cut[connection.cut] += 1
            self._log.warning("a connection was cut off", extra={"peer": connection.address, "why": connection.fault})
        self._lost(connection)

    def received(self, connection: Connection, request: RemotingCommand) -> None:
        """As of Serves."""
        handler = self._handlers.get(request.code)
        try:
            if handler is None:
                answer: RemotingCommand | None = request.answer(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
                )
            else:
                answer = handler(connection, request)
        except Answer as early:
            answer = request.answer(early.code, early.remark, early.ext)
        except RStoreError as error:
            answer = request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:  # noqa: BLE001 - the request's fault or ours: never the connection's end
            self._log.exception("request failed", extra={"peer": connection.address, "code": request.code})
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None:
            connection.answer(request, answer)

    def close_idle(self, now: float) -> None:
        """Close the connections on which nothing has come or gone for too long. `now`: the loop's time, s."""
        limit = now - self._settings.idle_s
        for connection in [one for one in self.connections if one.active < limit]:
            self.cut["idle"] += 1
            connection.close()


def broker_handlers(broker: Broker, pulls: PullHandler) -> dict[int, Handler]:
    """What the broker's port answers."""
    code = RequestCode
    send, back, consume = SendHandler(broker), BackHandler(broker), ConsumeHandler(broker)
    query, admin = QueryHandler(broker), AdminHandler(broker)
    sends = broker.flow.guard(send.handle)
    return {
        code.SEND_MESSAGE: sends,
        code.SEND_MESSAGE_V2: sends,
        code.SEND_BATCH_MESSAGE: sends,
        code.PULL_MESSAGE: pulls.handle,
        code.LITE_PULL_MESSAGE: pulls.handle,
        code.HEART_BEAT: consume.heartbeat,
        code.UNREGISTER_CLIENT: consume.unregister,
        code.CHECK_CLIENT_CONFIG: consume.client_config,
        code.GET_CONSUMER_LIST_BY_GROUP: consume.members,
        code.QUERY_CONSUMER_OFFSET: consume.query_offset,
        code.UPDATE_CONSUMER_OFFSET: consume.update_offset,
        code.LOCK_BATCH_MQ: consume.lock,
        code.UNLOCK_BATCH_MQ: consume.unlock,
        code.CONSUMER_SEND_MSG_BACK: broker.flow.guard(back.handle),
        code.END_TRANSACTION: broker.transactions.end,
        code.GET_MAX_OFFSET: query.max_offset,
        code.GET_MIN_OFFSET: query.min_offset,
        code.SEARCH_OFFSET_BY_TIMESTAMP: query.by_time,
        code.GET_EARLIEST_MSG_STORETIME: query.earliest,
        code.VIEW_MESSAGE_BY_ID: query.view,
        code.QUERY_MESSAGE: query.by_key,
        code.UPDATE_AND_CREATE_TOPIC: admin.put_topic,
        code.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
        code.GET_ALL_TOPIC_CONFIG: admin.all_topics,
        code.GET_TOPIC_STATS_INFO: admin.topic_stats,
        code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: admin.system_topics,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin.put_group,
        code.DELETE_SUBSCRIPTIONGROUP: admin.delete_group,
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.all_groups,
        code.GET_ALL_CONSUMER_OFFSET: admin.all_offsets,
        code.GET_CONSUMER_CONNECTION_LIST: admin.consumer_connections,
        code.GET_PRODUCER_CONNECTION_LIST: admin.producer_connections,
        code.GET_CONSUME_STATS: admin.consume_stats,
        code.QUERY_TOPIC_CONSUME_BY_WHO: admin.who_consumes,
        code.GET_BROKER_RUNTIME_INFO: admin.runtime,
    }


def name_handlers(broker: Broker) -> dict[int, Handler]:
    """What the name service's port answers."""
    code, route = RequestCode, RouteHandler(broker)
    return {
        code.GET_ROUTEINFO_BY_TOPIC: route.route,
        code.GET_BROKER_CLUSTER_INFO: route.cluster,
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: route.topics,
        code.GET_TOPICS_BY_CLUSTER: route.topics,
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS: route.system_topics,
        code.PUT_KV_CONFIG: route.put_kv,
        code.GET_KV_CONFIG: route.get_kv,
        code.DELETE_KV_CONFIG: route.delete_kv,
        code.GET_KVLIST_BY_NAMESPACE: route.kv_list,
        code.DELETE_TOPIC_IN_NAMESRV: route.delete_topic,
    }


async def listen(
    board: Switchboard, settings: BrokerSettings, loop: asyncio.AbstractEventLoop, port: int
) -> asyncio.Server:
    """A listener. Raises OSError: the port is taken."""
    return await loop.create_server(
        lambda: Connection(board, settings, loop), settings.listen_host, port, backlog=_BACKLOG
    )
