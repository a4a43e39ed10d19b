"""Every request code that the daemon answers: who answers it, and which right it needs. Declared here, and only here.

A row without a right, or a code that stands twice, is an error when this module is imported: the daemon does not start.
What Apache asks for less of than we do: `engine.broker.acl`.

Sources: BrokerController#registerProcessor, PlainAccessValidator#parse, Permission#ADMIN_CODE, DefaultRequestProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from engine.broker.acl.perms import Perm
from engine.broker.acl.rights import (
    ADMIN,
    ANY_ACCOUNT,
    HEARTBEAT,
    NAMES_WRITE,
    REPLY,
    STRICT_ADMIN,
    UNGUARDED,
    Right,
    any_account,
    publish,
    subscribe,
)
from engine.broker.acl.strict import (
    EITHER,
    GROUP_OF_BODY,
    GROUPS_OF_ACKS,
    in_field,
    in_msg_id,
    on_group,
    on_message,
    on_topic,
)
from engine.dataclass import dataclass
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.broker.handlers.admin_broker import BrokerAdmin
    from engine.broker.handlers.admin_clients import ClientAdmin
    from engine.broker.handlers.admin_groups import GroupAdmin
    from engine.broker.handlers.admin_messages import MessageAdmin
    from engine.broker.handlers.admin_offsets import OffsetAdmin
    from engine.broker.handlers.admin_topics import TopicAdmin
    from engine.broker.handlers.assignments import AssignmentHandler
    from engine.broker.handlers.consume import LockHandler, MemberHandler, OffsetHandler
    from engine.broker.handlers.name_admin import NameAdmin
    from engine.broker.handlers.pull import PullHandler
    from engine.broker.handlers.query import QueryHandler
    from engine.broker.handlers.recall import RecallHandler
    from engine.broker.handlers.reply import ReplyHandler
    from engine.broker.handlers.route import RouteHandler
    from engine.broker.pop.acks import AckHandler
    from engine.broker.pop.pops import PopHandler
    from engine.broker.put.transactions import Transactions
    from engine.broker.requests.handler import Handler

Parts = TypeVar("Parts")


class UndeclaredRight(LookupError):
    """A request code would be answered, and nobody has declared what it needs. `code`: which."""

    def __init__(self, code: int) -> None:
        super().__init__(f"request code {int(code)} has a handler, but no declared right")
        self.code = int(code)


@dataclass(frozen=True, slots=True)
class BrokerHandlers:
    """Who answers on the broker's port. `send`, `back`: after flow control."""

    send: Handler
    back: Handler
    reply: ReplyHandler
    pull: PullHandler
    pop: PopHandler
    acks: AckHandler
    recall: RecallHandler
    members: MemberHandler
    offsets: OffsetHandler
    locks: LockHandler
    assignments: AssignmentHandler
    query: QueryHandler
    transactions: Transactions
    broker_admin: BrokerAdmin
    topic_admin: TopicAdmin
    group_admin: GroupAdmin
    offset_admin: OffsetAdmin
    client_admin: ClientAdmin
    message_admin: MessageAdmin


@dataclass(frozen=True, slots=True)
class NameHandlers:
    """Who answers on the name service's port."""

    route: RouteHandler
    admin: NameAdmin


class AclHandlers(Protocol):
    """Who answers what is about the accounts. `put`, `delete`: of one."""

    @property
    def put(self) -> Handler: ...

    @property
    def delete(self) -> Handler: ...

    @property
    def white(self) -> Handler: ...

    @property
    def version(self) -> Handler: ...


@dataclass(frozen=True, slots=True)
class RequestEntry(Generic[Parts]):
    """One request code.

    Attributes:
        handler: which of the parts answers.
        right: what it needs; None: nobody has said, which no table takes.
        on_vip: whether the VIP port answers it, too.
        local: it changes the daemon's settings or deletes files: without an ACL, only this machine and adminAllow may.
    """

    code: RequestCode
    handler: Callable[[Parts], Handler]
    right: Right | None = None
    on_vip: bool = True
    local: bool = False


class RequestTable(Generic[Parts]):
    """Requests of one port.

    Attributes:
        rights: what each code needs.
        local: the codes that are `RequestEntry.local`.

    Raises:
        UndeclaredRight: a request has none. ValueError: a code stands twice.
    """

    def __init__(self, requests: Sequence[RequestEntry[Parts]]) -> None:
        rights: dict[int, Right] = {}
        for one in requests:
            if one.right is None:
                raise UndeclaredRight(one.code)
            if one.code in rights:
                raise ValueError(f"request code {int(one.code)} is declared twice")
            rights[one.code] = one.right
        self._requests = tuple(requests)
        self.rights: Mapping[int, Right] = rights
        self.local = frozenset(int(one.code) for one in requests if one.local)

    def bind(self, parts: Parts) -> dict[int, Handler]:
        """Who answers, by request code."""
        return {one.code: one.handler(parts) for one in self._requests}

    def on_vip(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Those of the handlers that the VIP port has, too."""
        elsewhere = {one.code for one in self._requests if not one.on_vip}
        return {code: handler for code, handler in handlers.items() if code not in elsewhere}


_C = RequestCode
_ON_TOPIC = any_account(on_topic(perm=EITHER))
_SUB_ON_BOTH = any_account(on_topic(), on_group())
_SUB_ON_TOPIC_AND_GROUP = any_account(on_topic(), on_group("group"))

BROKER: RequestTable[BrokerHandlers] = RequestTable(
    [
        # messages
        RequestEntry(_C.SEND_MESSAGE, lambda h: h.send, publish("topic")),
        RequestEntry(_C.SEND_MESSAGE_V2, lambda h: h.send, publish("b")),
        RequestEntry(_C.SEND_BATCH_MESSAGE, lambda h: h.send, publish("b")),
        RequestEntry(_C.SEND_REPLY_MESSAGE, lambda h: h.reply.handle, REPLY),
        RequestEntry(_C.SEND_REPLY_MESSAGE_V2, lambda h: h.reply.handle, REPLY),
        RequestEntry(
            _C.CONSUMER_SEND_MSG_BACK, lambda h: h.back, subscribe(None, "group", on_message(in_field("offset")))
        ),
        RequestEntry(
            _C.END_TRANSACTION,
            lambda h: h.transactions.end,
            any_account(on_message(in_field("commitLogOffset"), Perm.PUB)),
        ),
        RequestEntry(_C.RECALL_MESSAGE, lambda h: h.recall.recall, publish("topic")),
        RequestEntry(_C.PULL_MESSAGE, lambda h: h.pull.handle, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.LITE_PULL_MESSAGE, lambda h: h.pull.handle, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.POP_MESSAGE, lambda h: h.pop.pop, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.PEEK_MESSAGE, lambda h: h.pop.peek, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.NOTIFICATION, lambda h: h.pop.notify, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.POLLING_INFO, lambda h: h.pop.polling, subscribe("topic", "consumerGroup"), on_vip=False),
        RequestEntry(_C.ACK_MESSAGE, lambda h: h.acks.ack, any_account(on_group()), on_vip=False),
        RequestEntry(_C.BATCH_ACK_MESSAGE, lambda h: h.acks.ack_all, any_account(GROUPS_OF_ACKS), on_vip=False),
        RequestEntry(_C.CHANGE_MESSAGE_INVISIBLETIME, lambda h: h.acks.change, any_account(on_group()), on_vip=False),
        RequestEntry(_C.QUERY_MESSAGE, lambda h: h.query.by_key, subscribe("topic")),
        RequestEntry(_C.VIEW_MESSAGE_BY_ID, lambda h: h.query.view, any_account(on_message(in_field("offset")))),
        # queues
        RequestEntry(_C.GET_MAX_OFFSET, lambda h: h.query.max_offset, _ON_TOPIC),
        RequestEntry(_C.GET_MIN_OFFSET, lambda h: h.query.min_offset, _ON_TOPIC),
        RequestEntry(_C.SEARCH_OFFSET_BY_TIMESTAMP, lambda h: h.query.by_time, _ON_TOPIC),
        RequestEntry(_C.GET_EARLIEST_MSG_STORETIME, lambda h: h.query.earliest, _ON_TOPIC),
        RequestEntry(_C.QUERY_CONSUME_QUEUE, lambda h: h.message_admin.consume_queue, _SUB_ON_BOTH),
        RequestEntry(_C.RESUME_CHECK_HALF_MESSAGE, lambda h: h.message_admin.resume_check, STRICT_ADMIN),
        # members of groups
        RequestEntry(_C.HEART_BEAT, lambda h: h.members.heartbeat, HEARTBEAT),
        RequestEntry(_C.UNREGISTER_CLIENT, lambda h: h.members.unregister, subscribe(group="consumerGroup")),
        RequestEntry(_C.CHECK_CLIENT_CONFIG, lambda h: h.members.client_config, ANY_ACCOUNT),
        RequestEntry(_C.GET_CONSUMER_LIST_BY_GROUP, lambda h: h.members.members, subscribe(group="consumerGroup")),
        RequestEntry(_C.LOCK_BATCH_MQ, lambda h: h.locks.lock, any_account(GROUP_OF_BODY)),
        RequestEntry(_C.UNLOCK_BATCH_MQ, lambda h: h.locks.unlock, any_account(GROUP_OF_BODY)),
        RequestEntry(_C.QUERY_ASSIGNMENT, lambda h: h.assignments.query, any_account(GROUP_OF_BODY)),
        RequestEntry(_C.SET_MESSAGE_REQUEST_MODE, lambda h: h.assignments.set_mode, STRICT_ADMIN),
        RequestEntry(_C.GET_CONSUMER_RUNNING_INFO, lambda h: h.client_admin.running_info, any_account(on_group())),
        RequestEntry(
            _C.CONSUME_MESSAGE_DIRECTLY,
            lambda h: h.client_admin.consume_directly,
            any_account(on_group(), on_message(in_msg_id)),
        ),
        # offsets of groups
        RequestEntry(_C.QUERY_CONSUMER_OFFSET, lambda h: h.offsets.query_offset, _SUB_ON_BOTH),
        RequestEntry(_C.UPDATE_CONSUMER_OFFSET, lambda h: h.offsets.update_offset, subscribe("topic", "consumerGroup")),
        RequestEntry(_C.GET_ALL_CONSUMER_OFFSET, lambda h: h.offset_admin.all, ANY_ACCOUNT),
        RequestEntry(_C.GET_ALL_DELAY_OFFSET, lambda h: h.offset_admin.all_delayed, ANY_ACCOUNT),
        RequestEntry(_C.GET_TIMER_CHECK_POINT, lambda h: h.offset_admin.timers, ANY_ACCOUNT),
        RequestEntry(_C.GET_CONSUME_STATS, lambda h: h.offset_admin.consume_stats, _SUB_ON_BOTH),
        RequestEntry(_C.GET_BROKER_CONSUME_STATS, lambda h: h.offset_admin.all_consume_stats, STRICT_ADMIN),
        RequestEntry(_C.QUERY_CONSUME_TIME_SPAN, lambda h: h.offset_admin.time_span, _SUB_ON_TOPIC_AND_GROUP),
        RequestEntry(
            _C.QUERY_CORRECTION_OFFSET,
            lambda h: h.offset_admin.correction,
            any_account(on_topic(), on_group("compareGroup")),
        ),
        RequestEntry(
            _C.CLONE_GROUP_OFFSET,
            lambda h: h.offset_admin.clone,
            any_account(on_topic(), on_group("srcGroup", "destGroup")),
        ),
        RequestEntry(_C.INVOKE_BROKER_TO_RESET_OFFSET, lambda h: h.client_admin.reset_offset, _SUB_ON_TOPIC_AND_GROUP),
        RequestEntry(
            _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, lambda h: h.client_admin.consumer_status, _SUB_ON_TOPIC_AND_GROUP
        ),
        # topics
        RequestEntry(_C.UPDATE_AND_CREATE_TOPIC, lambda h: h.topic_admin.put, ADMIN),
        RequestEntry(_C.DELETE_TOPIC_IN_BROKER, lambda h: h.topic_admin.delete, ADMIN),
        RequestEntry(_C.GET_ALL_TOPIC_CONFIG, lambda h: h.topic_admin.all, ANY_ACCOUNT),
        RequestEntry(_C.GET_TOPIC_CONFIG, lambda h: h.topic_admin.one, ANY_ACCOUNT),
        RequestEntry(_C.GET_TOPIC_STATS_INFO, lambda h: h.topic_admin.stats, _ON_TOPIC),
        RequestEntry(_C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, lambda h: h.topic_admin.system, ANY_ACCOUNT),
        RequestEntry(_C.QUERY_TOPIC_CONSUME_BY_WHO, lambda h: h.topic_admin.who_consumes, _ON_TOPIC),
        RequestEntry(_C.CLEAN_UNUSED_TOPIC, lambda h: h.topic_admin.clean_unused, STRICT_ADMIN, local=True),
        # groups
        RequestEntry(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, lambda h: h.group_admin.put, ADMIN),
        RequestEntry(_C.DELETE_SUBSCRIPTIONGROUP, lambda h: h.group_admin.delete, ADMIN),
        RequestEntry(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda h: h.group_admin.all, ANY_ACCOUNT),
        RequestEntry(_C.GET_SUBSCRIPTIONGROUP_CONFIG, lambda h: h.group_admin.one, ANY_ACCOUNT),
        RequestEntry(_C.GET_CONSUMER_CONNECTION_LIST, lambda h: h.group_admin.consumers, any_account(on_group())),
        RequestEntry(
            _C.GET_PRODUCER_CONNECTION_LIST,
            lambda h: h.group_admin.producers,
            any_account(on_group("producerGroup", perm=EITHER)),
        ),
        RequestEntry(_C.GET_ALL_PRODUCER_INFO, lambda h: h.group_admin.all_producers, STRICT_ADMIN),
        # the broker
        RequestEntry(_C.GET_BROKER_RUNTIME_INFO, lambda h: h.broker_admin.runtime, ANY_ACCOUNT),
        RequestEntry(_C.VIEW_BROKER_STATS_DATA, lambda h: h.broker_admin.stats, ANY_ACCOUNT),
        RequestEntry(_C.GET_BROKER_CONFIG, lambda h: h.broker_admin.config, ANY_ACCOUNT),
        RequestEntry(_C.UPDATE_BROKER_CONFIG, lambda h: h.broker_admin.update_config, ADMIN, local=True),
        RequestEntry(_C.CLEAN_EXPIRED_CONSUMEQUEUE, lambda h: h.broker_admin.clean_queues, STRICT_ADMIN, local=True),
        RequestEntry(_C.DELETE_EXPIRED_COMMITLOG, lambda h: h.broker_admin.delete_expired, STRICT_ADMIN, local=True),
    ]
)
"""What the broker's port answers, and the VIP port."""

ACL: RequestTable[AclHandlers] = RequestTable(
    [
        RequestEntry(_C.UPDATE_AND_CREATE_ACL_CONFIG, lambda h: h.put, ADMIN, local=True),
        RequestEntry(_C.DELETE_ACL_CONFIG, lambda h: h.delete, ADMIN, local=True),
        RequestEntry(_C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, lambda h: h.white, ADMIN, local=True),
        RequestEntry(_C.GET_BROKER_CLUSTER_ACL_INFO, lambda h: h.version, ANY_ACCOUNT),
    ]
)
"""What both answer, too: of the accounts, or that there are none."""


def _route(
    code: RequestCode, handler: Callable[[RouteHandler], Handler], right: Right = UNGUARDED
) -> RequestEntry[NameHandlers]:
    """Answered from the routes, our own broker among them."""
    return RequestEntry(code, lambda h: h.route.with_own(handler(h.route)), right)


NAMES: RequestTable[NameHandlers] = RequestTable(
    [
        _route(_C.REGISTER_BROKER, lambda route: route.register, NAMES_WRITE),
        _route(_C.UNREGISTER_BROKER, lambda route: route.unregister, NAMES_WRITE),
        _route(_C.QUERY_DATA_VERSION, lambda route: route.data_version, NAMES_WRITE),
        _route(_C.GET_ROUTEINFO_BY_TOPIC, lambda route: route.route),
        _route(_C.GET_BROKER_CLUSTER_INFO, lambda route: route.cluster),
        _route(_C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda route: route.topics),
        _route(_C.GET_TOPICS_BY_CLUSTER, lambda route: route.topics_of_cluster),
        _route(_C.GET_SYSTEM_TOPIC_LIST_FROM_NS, lambda route: route.system_topics),
        _route(_C.GET_UNIT_TOPIC_LIST, lambda route: route.unit_topics),
        _route(_C.GET_HAS_UNIT_SUB_TOPIC_LIST, lambda route: route.unit_topics),
        _route(_C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, lambda route: route.unit_topics),
        _route(_C.WIPE_WRITE_PERM_OF_BROKER, lambda route: route.wipe_write_perm, NAMES_WRITE),
        _route(_C.ADD_WRITE_PERM_OF_BROKER, lambda route: route.add_write_perm, NAMES_WRITE),
        _route(_C.DELETE_TOPIC_IN_NAMESRV, lambda route: route.delete_topic, NAMES_WRITE),
        _route(_C.PUT_KV_CONFIG, lambda route: route.put_kv, NAMES_WRITE),
        _route(_C.GET_KV_CONFIG, lambda route: route.get_kv),
        _route(_C.DELETE_KV_CONFIG, lambda route: route.delete_kv, NAMES_WRITE),
        _route(_C.GET_KVLIST_BY_NAMESPACE, lambda route: route.kv_list),
        RequestEntry(_C.GET_NAMESRV_CONFIG, lambda h: h.admin.config, UNGUARDED),
        RequestEntry(_C.UPDATE_NAMESRV_CONFIG, lambda h: h.admin.update_config, NAMES_WRITE, local=True),
    ]
)
"""What the name service's port answers."""

RIGHTS: Mapping[int, Right] = {**BROKER.rights, **ACL.rights}
"""What each request needs where there are accounts."""


def demand_rights(codes: Mapping[int, object]) -> None:
    """Raises UndeclaredRight: one of the codes is in neither of the tables that have rights."""
    for code in codes:
        if code not in RIGHTS:
            raise UndeclaredRight(code)
