"""What a topic may be called, and which ones a client may send to.

Apache asks twice: the client before it sends (Validators#checkTopic, #isNotAllowedSendTopic), the broker where it makes
a topic (TopicValidator#validateTopic). The rule is one; order and words differ. A store itself takes any name.
"""

from __future__ import annotations

import re

from engine.format import names

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where half messages go whose producers have been asked for too long."""
SELF_TEST = "SELF_TEST_TOPIC"
OFFSET_MOVED = "OFFSET_MOVED_EVENT"
FORBIDDEN = frozenset({names.SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, DISCARDED, SELF_TEST, OFFSET_MOVED})
"""Topics that clients may not send to. Source: TopicValidator."""

TBW102 = "TBW102"
"""Whose settings and route stand for topics that a send creates. Source: TopicValidator."""
_BROKERS_OWN = FORBIDDEN | {TBW102, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
GROUP_MAX_LENGTH = 255
"""Source: Validators#CHARACTER_MAX_LENGTH."""
ALLOWED = "^[%|a-zA-Z0-9_-]+$"
"""The characters of a topic's name, in Apache's words."""
_ALLOWED = re.compile(ALLOWED[1:-1])


def invalid_topic(name: str) -> str | None:
    """Why a broker makes no topic of this name. Source: TopicValidator#validateTopic."""
    if not name.strip():
        return "The specified topic is blank."
    if not _ALLOWED.fullmatch(name):
        return f"The specified topic contains illegal characters, allowing only {ALLOWED}"
    if len(name) > names.TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def refused_by_client(name: str) -> str | None:
    """Why a client refuses a topic of this name before it sends. Source: Validators#checkTopic."""
    if not name.strip():
        return "The specified topic is blank"
    if len(name.encode("utf-16-le", "surrogatepass")) // 2 > names.TOPIC_MAX_LENGTH:
        return f"The specified topic is longer than topic max length {names.TOPIC_MAX_LENGTH}."
    if not _ALLOWED.fullmatch(name):
        return f"The specified topic[{name}] contains illegal characters, allowing only {ALLOWED}"
    return None


def refused_group(name: str) -> str | None:
    """Why a client refuses a group of this name, with the name escaped. Source: Validators#checkGroup."""
    if not name.strip():
        return "the specified group is blank"
    if not _ALLOWED.fullmatch(name):
        return f"the specified group[{escaped(name)}] contains illegal characters, allowing only {ALLOWED}"
    if len(name) > GROUP_MAX_LENGTH:
        return f"the specified group is longer than group max length {GROUP_MAX_LENGTH}."
    return None


def is_brokers_own(topic: str) -> bool:
    """Whether a topic belongs to brokers, and not to an application. Source: TopicValidator#isSystemTopic."""
    return topic in _BROKERS_OWN or topic.startswith(names.SYSTEM_PREFIX)


def escaped(name: str) -> str:
    """A name from who knows where, safe for a terminal and for a log; its beginning, where it is long."""
    shown = name[:GROUP_MAX_LENGTH]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def no_sends(name: str) -> str | None:
    """Why a client sends nothing to this topic. Source: Validators#isNotAllowedSendTopic."""
    return f"Sending message to topic[{name}] is forbidden." if name in FORBIDDEN else None
