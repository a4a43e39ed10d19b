"""Which rights a request needs, by its code. Source: PlainAccessValidator#parse; what differs: see the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.broker.acl.accounts import Perm
from engine.broker.answers import Answer
from engine.broker.handlers.consume import body_of
from engine.broker.topics import RETRY
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.wire.command import RemotingCommand

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    }
)
"""What only an admin may ask. Source: Permission#ADMIN_CODE."""


class BadRequest(ValueError):
    """A request that doesn't say what it is about."""


def needs(request: RemotingCommand) -> Mapping[str, Perm]:
    """Rights by topic; those on a group under its retry topic. Raises BadRequest."""
    found = _NEEDS.get(request.code)
    return {} if found is None else found(request)


def _send(topic: str, group: str) -> Callable[[RemotingCommand], Mapping[str, Perm]]:
    def needed(request: RemotingCommand) -> Mapping[str, Perm]:
        ext = request.fields
        name = ext.get(topic)
        if name is None:
            return {}
        if name.startswith(RETRY):
            return {_retry(ext.get(group)) or name: Perm.SUB}
        return {name: Perm.PUB}

    return needed


def _sub(topic: str | None = None, group: str | None = None) -> Callable[[RemotingCommand], Mapping[str, Perm]]:
    def needed(request: RemotingCommand) -> Mapping[str, Perm]:
        ext = request.fields
        wanted = (ext.get(topic) if topic else None, _retry(ext.get(group)) if group else None)
        return {name: Perm.SUB for name in wanted if name is not None}

    return needed


def _heartbeat(request: RemotingCommand) -> Mapping[str, Perm]:
    try:
        said = body_of(request)  # as who handles it reads it: what two readers make of one text may differ
        wanted: dict[str, Perm] = {}
        for one in said.get("consumerDataSet") or ():
            group = _retry(one.get("groupName"))
            topics = [subscription.get("topic") for subscription in one.get("subscriptionDataSet") or ()]
            wanted.update((str(name), Perm.SUB) for name in (group, *topics) if name is not None)
    except (AttributeError, TypeError, Answer) as error:
        raise BadRequest(f"malformed heartbeat: {error}") from None
    return wanted


def _reply(request: RemotingCommand) -> Mapping[str, Perm]:
    """Replies are stored, in the topic that the header names, by either of its names."""
    wanted = (request.fields.get(name) for name in ("topic", "b"))
    return {name: Perm.PUB for name in wanted if name is not None and not name.endswith(_REPLY_TOPIC)}


def _retry(group: Any) -> str | None:
    """A group's retry topic. Source: MixAll#getRetryTopic."""
    return None if group is None else f"{RETRY}{group}"


_REPLY_TOPIC = "_REPLY_TOPIC"
_PULL = _sub("topic", "consumerGroup")
_NEEDS: Mapping[int, Callable[[RemotingCommand], Mapping[str, Perm]]] = {
    RequestCode.SEND_MESSAGE: _send("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b", "a"),
    RequestCode.SEND_REPLY_MESSAGE: _reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: _sub(group="group"),
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.QUERY_MESSAGE: _sub("topic"),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _sub(group="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _sub(group="consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _sub("topic", "consumerGroup"),
}
