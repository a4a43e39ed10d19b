"""What mqadmin asks of a broker, by code; each matter has a module of its own (BROKER.md 1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.handlers.admin_broker import BrokerAdmin
from engine.broker.handlers.admin_clients import ClientAdmin
from engine.broker.handlers.admin_groups import GroupAdmin
from engine.broker.handlers.admin_messages import MessageAdmin
from engine.broker.handlers.admin_offsets import OffsetAdmin
from engine.broker.handlers.admin_topics import TopicAdmin
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.broker.broker import Broker
    from engine.broker.server import Handler


def admin_handlers(broker: Broker) -> dict[int, Handler]:
    """What the broker's port answers to administrators, and to slaves that ask for tables."""
    code = RequestCode
    topics, groups, offsets = TopicAdmin(broker), GroupAdmin(broker), OffsetAdmin(broker)
    whole, clients, messages = BrokerAdmin(broker), ClientAdmin(broker), MessageAdmin(broker)
    return {
        code.UPDATE_AND_CREATE_TOPIC: topics.put,
        code.DELETE_TOPIC_IN_BROKER: topics.delete,
        code.GET_ALL_TOPIC_CONFIG: topics.all,
        code.GET_TOPIC_STATS_INFO: topics.stats,
        code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system,
        code.QUERY_TOPIC_CONSUME_BY_WHO: topics.who_consumes,
        code.CLEAN_UNUSED_TOPIC: topics.clean_unused,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.put,
        code.DELETE_SUBSCRIPTIONGROUP: groups.delete,
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all,
        code.GET_CONSUMER_CONNECTION_LIST: groups.consumers,
        code.GET_PRODUCER_CONNECTION_LIST: groups.producers,
        code.GET_ALL_PRODUCER_INFO: groups.all_producers,
        code.GET_ALL_CONSUMER_OFFSET: offsets.all,
        code.GET_ALL_DELAY_OFFSET: offsets.all_delayed,
        code.GET_CONSUME_STATS: offsets.consume_stats,
        code.GET_BROKER_CONSUME_STATS: offsets.all_consume_stats,
        code.QUERY_CONSUME_TIME_SPAN: offsets.time_span,
        code.QUERY_CORRECTION_OFFSET: offsets.correction,
        code.CLONE_GROUP_OFFSET: offsets.clone,
        code.INVOKE_BROKER_TO_RESET_OFFSET: clients.reset_offset,
        code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: clients.consumer_status,
        code.GET_CONSUMER_RUNNING_INFO: clients.running_info,
        code.CONSUME_MESSAGE_DIRECTLY: clients.consume_directly,
        code.QUERY_CONSUME_QUEUE: messages.consume_queue,
        code.RESUME_CHECK_HALF_MESSAGE: messages.resume_check,
        code.GET_BROKER_RUNTIME_INFO: whole.runtime,
        code.VIEW_BROKER_STATS_DATA: whole.stats,
        code.GET_BROKER_CONFIG: whole.config,
        code.UPDATE_BROKER_CONFIG: whole.update_config,
        code.CLEAN_EXPIRED_CONSUMEQUEUE: whole.clean_queues,
        code.DELETE_EXPIRED_COMMITLOG: whole.delete_expired,
    }
