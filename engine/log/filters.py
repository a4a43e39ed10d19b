"""Which messages of a queue a reader wants: judged by the queue unit first, by the record only then.

Source of the two steps: MessageFilter, DefaultMessageFilter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from engine.format import properties
from engine.format.hashing import tags_code
from engine.format.message import decode

if TYPE_CHECKING:
    from engine.format.queue_ext import ExtUnit

ALL = "*"


class MessageFilter(Protocol):
    """The two steps."""

    @property
    def terms(self) -> int:
        """What the second step of one record takes, in terms of an expression; 0: next to nothing."""
        ...

    def matches_queue(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """By the unit: the hash of the tags (None: not known), and the extension unit where there is one."""
        ...

    def matches_log(self, record: memoryview) -> bool:
        """By the record's bytes."""
        ...


class TagFilter:
    """Messages with one of some tags.

    Args:
        tags: the tags; "*" takes all.
        exact: compare the tags themselves, too, where Apache leaves that to the client: a hash may be another tag's.
        star: whether "*" has that meaning.
    """

    terms = 0

    def __init__(self, tags: Iterable[str], *, exact: bool = True, star: bool = True) -> None:
        self._tags = frozenset(tags)
        self._codes = frozenset(map(tags_code, self._tags))
        self._all = star and ALL in self._tags
        self._exact = exact and not self._all

    @classmethod
    def parse(cls, expression: str, *, exact: bool = True) -> TagFilter:
        """From an expression like `TagA || TagB`. Source: FilterAPI#buildSubscriptionData."""
        return cls([tag.strip() for tag in expression.split("||") if tag.strip()] or [ALL], exact=exact)

    def matches_queue(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Whether the hash is one of the tags'; a hash that is not known may be."""
        del ext
        return self._all or tags_code is None or tags_code in self._codes

    def takes(self, tags: str | None) -> bool:
        """Whether a message's own tags are one of them."""
        return self._all or tags in self._tags

    def matches_log(self, record: memoryview) -> bool:
        """Whether the tags are one of them."""
        return not self._exact or decode(record).properties.get(properties.TAGS) in self._tags
