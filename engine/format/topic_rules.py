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


def no_sends(name: str) -> str | None:
    """Why a client sends nothing to this topic. Source: Validators#isNotAllowedSendTopic."""
    return f"Sending message to topic[{name}] is forbidden." if name in FORBIDDEN else None
