"""Rights on topics and groups; a group's stand under its retry topic. Source: Permission, PlainAccessResource."""

from __future__ import annotations

import enum

from engine.broker.tables.topics import RETRY


class Perm(enum.IntFlag):
    """Rights on a topic or a group. Source: Permission."""

    DENY = 1
    PUB = 4
    SUB = 8


def retry_topic(group: str) -> str:
    """A group's retry topic, under which its rights stand. Source: MixAll#getRetryTopic."""
    return f"{RETRY}{group}"
