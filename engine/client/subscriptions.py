"""What a consumer wants of a topic: tags, or an SQL92 expression that the broker knows. No I/O.

Source: SubscriptionData, FilterAPI#build, PullAPIWrapper#processPullResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.hashing import java_hash

if TYPE_CHECKING:
    from engine.client.messages import ReceivedMessage

ALL = "*"
TAG, SQL92 = "TAG", "SQL92"
"""Kinds of expressions. Source: ExpressionType."""


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """See the module.

    Attributes:
        topic: on the wire.
        expression: `*`, tags `a || b`, or SQL92.
        tags: of an expression of tags; none for all.
        version: ms since 1970; a broker keeps the newest.
    """

    topic: str
    expression: str
    kind: str
    tags: tuple[str, ...]
    version: int

    @classmethod
    def of(cls, topic: str, expression: str, kind: str, version: int) -> TopicSubscription:
        """From an expression as it is written.

        Raises:
            InvalidArgument: it is none.
        """
        if kind not in (TAG, SQL92):
            raise InvalidArgument(f"unknown kind of expression {kind!r}", hint=f"{TAG} or {SQL92}")
        if kind == SQL92:
            if not expression.strip():
                raise InvalidArgument(f"the expression for topic {topic} is empty")
            return cls(topic, expression, kind, (), version)
        tags = tuple(dict.fromkeys(filter(None, (part.strip() for part in expression.split("||")))))
        if tags in ((), (ALL,)):
            if expression.strip() not in ("", ALL):
                raise InvalidArgument(f"the expression {expression!r} for topic {topic} names no tag")
            return cls(topic, ALL, kind, (), version)
        return cls(topic, expression, kind, tags, version)

    def wants(self, message: ReceivedMessage) -> bool:
        """Whether the message has one of the tags: brokers compare hashes, and let others pass."""
        return not self.tags or message.tags in self.tags

    def to_json(self) -> dict[str, Any]:
        """As heartbeats have it."""
        return {
            "classFilterMode": False,
            "codeSet": sorted({java_hash(tag) for tag in self.tags}),
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }
