"""The kinds of rights that requests need; `engine.broker.requests.table` says which code needs which.

Source: PlainAccessValidator#parse; what differs: see the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine.broker.acl.perms import Perm, retry_topic
from engine.broker.acl.strict import Demand
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import body_of
from engine.broker.tables.topics import RETRY
from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.wire.command import RemotingCommand


class BadRequest(ValueError):
    """A request that doesn't say what it is about."""


@dataclass(frozen=True, slots=True)
class Right:
    """What an account must be allowed for one request code.

    Attributes:
        needs: the rights by topic of one request, those on a group under its retry topic. Raises BadRequest.
        admin: only an admin may ask. Source: Permission#ADMIN_CODE.
        strict, strict_admin: what aclStrict asks for, too.
    """

    needs: Callable[[RemotingCommand], Mapping[str, Perm]]
    admin: bool = False
    strict: tuple[Demand, ...] = ()
    strict_admin: bool = False


def publish(topic: str) -> Right:
    """PUB on the topic that this field names; SUB on the group whose retry topic it is, whatever group is named."""

    def needed(request: RemotingCommand) -> Mapping[str, Perm]:
        name = request.fields.get(topic)
        return {} if name is None else {name: Perm.SUB if name.startswith(RETRY) else Perm.PUB}

    return Right(needed)


def subscribe(topic: str | None = None, group: str | None = None, *demands: Demand) -> Right:
    """SUB on the topic and on the group that these fields name."""

    def needed(request: RemotingCommand) -> Mapping[str, Perm]:
        ext = request.fields
        wanted = (ext.get(topic) if topic else None, _retry(ext.get(group)) if group else None)
        return {name: Perm.SUB for name in wanted if name is not None}

    return Right(needed, strict=demands)


def any_account(*demands: Demand) -> Right:
    """The request is signed by an account, whichever it is; with aclStrict, one that has these rights."""
    return Right(_nothing, strict=demands)


def _heartbeat(request: RemotingCommand) -> Mapping[str, Perm]:
    try:
        body = body_of(request)  # as who handles it reads it: what two readers make of one text may differ
        wanted: dict[str, Perm] = {}
        for one in body.get("consumerDataSet") or ():
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
    return None if group is None else retry_topic(group)


def _nothing(request: RemotingCommand) -> Mapping[str, Perm]:
    del request
    return {}


_REPLY_TOPIC = "_REPLY_TOPIC"
ANY_ACCOUNT = any_account()
ADMIN = Right(_nothing, admin=True)
STRICT_ADMIN = Right(_nothing, strict_admin=True)
"""Any account's with Apache, an admin's with aclStrict."""
UNGUARDED = Right(_nothing)
"""What the name service tells: it asks nobody who he is, as Apache's name server."""
NAMES_WRITE = Right(_nothing, admin=True)
"""What changes the name service: where there is an ACL, an admin's, or of an address in namesAllow."""
HEARTBEAT, REPLY = Right(_heartbeat), Right(_reply)
