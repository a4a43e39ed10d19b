"""What `aclStrict` (on by default) asks of an account beyond Apache's rights; which code asks what is in the table.

Apache lets any account read any message by its id, copy another group's offsets, lock its queues and delete files. Here
a request needs a right on the topic or the group that it is about; one about a message, on that message's own topic.
An admin needs none of this. `engine.broker.requests.table` has the demands, SERVE.md shows them as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from engine.broker.acl.perms import Perm, retry_topic
from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.message import parse_msg_id
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.wire.command import RemotingCommand

TopicOf = Callable[[int], str | None]
"""The topic of the message at a physical offset, None where there is none. Raises UnknownMessage."""


class UnknownMessage(LookupError):
    """Whose message lies at an offset can't be told."""


def no_messages(offset: int) -> None:
    """A TopicOf of a broker without messages."""
    del offset


@dataclass(frozen=True, slots=True)
class Demand:
    """A right on something that a request names.

    Attributes:
        says: in words, as SERVE.md has it.
        names: the topics, groups by their retry topics. Raises Answer, as who handles the request does.
        perm: one of these rights is enough.
        hidden: the denial does not name the topic: who asked does not know it.
    """

    says: str
    names: Callable[[RemotingCommand, TopicOf], Iterable[str]]
    perm: Perm = Perm.SUB
    hidden: bool = False


def on_topic(field: str = "topic", perm: Perm = Perm.SUB) -> Demand:
    """On the topic in a field; a blank one is none."""

    def names(request: RemotingCommand, topic_of: TopicOf) -> Iterable[str]:
        del topic_of
        name = request.fields.get(field, "")
        return (name,) if name.strip() else ()

    return Demand(f"{_words(perm)} on the topic", names, perm)


def on_group(*in_fields: str, perm: Perm = Perm.SUB) -> Demand:
    """On each group in these fields (default: consumerGroup)."""
    where = in_fields or ("consumerGroup",)

    def names(request: RemotingCommand, topic_of: TopicOf) -> Iterable[str]:
        del topic_of
        groups = [request.fields.get(field) for field in where]
        return [retry_topic(group) for group in groups if group is not None]

    return Demand(f"{_words(perm)} on {'the group' if len(where) == 1 else 'both groups'}", names, perm)


def _group_of_body(request: RemotingCommand, topic_of: TopicOf) -> Iterable[str]:
    del topic_of
    group = body_of(request).get("consumerGroup")
    return () if group is None else (retry_topic(str(group)),)


def on_message(offset_of: Callable[[RemotingCommand], int], perm: Perm = Perm.SUB) -> Demand:
    """On the topic of the message at a physical offset."""

    def names(request: RemotingCommand, topic_of: TopicOf) -> Iterable[str]:
        topic = topic_of(offset_of(request))
        return () if topic is None else (topic,)

    return Demand(f"{_words(perm)} on the message's topic", names, perm, hidden=True)


def in_field(name: str) -> Callable[[RemotingCommand], int]:
    """A physical offset in a field."""
    return lambda request: fields.long(request.fields, name)


def in_msg_id(request: RemotingCommand) -> int:
    """The physical offset in an offset message id. Raises Answer."""
    try:
        return parse_msg_id(fields.text(request.fields, "msgId"))[1]
    except InvalidArgument as error:
        raise Answer(ResponseCode.SYSTEM_ERROR, error.message) from None


def _words(perm: Perm) -> str:
    return " or ".join(one.name for one in (Perm.PUB, Perm.SUB) if one in perm and one.name)


def _groups_of_acks(request: RemotingCommand, topic_of: TopicOf) -> Iterable[str]:
    del topic_of
    acks = fields.objects(body_of(request), "acks") if request.body else []
    return sorted({retry_topic(str(ack.get("c", ack.get("consumerGroup")))) for ack in acks})


EITHER = Perm.PUB | Perm.SUB
GROUP_OF_BODY = Demand("SUB on the group", _group_of_body)
GROUPS_OF_ACKS = Demand("SUB on the groups", _groups_of_acks)
