"""The body of a heartbeat: who a client is, and what its consumers want. No I/O.

Source: HeartbeatData, ProducerData, ConsumerData, MQClientInstance#prepareHeartbeatData.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.client.consumer_settings import MessageModel, StartFrom
    from engine.client.subscriptions import TopicSubscription

PUSH, PULL = "CONSUME_PASSIVELY", "CONSUME_ACTIVELY"
"""Kinds of consumers. Source: ConsumeType."""


def heartbeat_body(client_id: str, producers: Iterable[str], consumers: Iterable[Mapping[str, Any]]) -> bytes:
    """The body. Groups are those of the wire.

    Args:
        producers: groups.
        consumers: a `consumer_data` each.
    """
    return orjson.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": list(consumers),
        }
    )


def consumer_data(
    group: str, kind: str, model: MessageModel, start: StartFrom, subscriptions: Iterable[TopicSubscription]
) -> dict[str, Any]:
    """One consumer. `kind`: PUSH or PULL."""
    return {
        "consumeFromWhere": start.value,
        "consumeType": kind,
        "groupName": group,
        "messageModel": model.value,
        "subscriptionDataSet": [one.to_json() for one in subscriptions],
        "unitMode": False,
    }
