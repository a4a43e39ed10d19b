"""Namespaces of clients: `NAMESPACE%TOPIC` on the wire, TOPIC to who uses the client. Source: NamespaceUtil."""

from __future__ import annotations

from engine.format.names import DLQ_PREFIX, RETRY_PREFIX
from engine.format.topic_rules import is_brokers_own

SEPARATOR = "%"
_SYSTEM_GROUP = "CID_RMQ_SYS_"


def _parts(name: str) -> tuple[str, str]:
    """%RETRY% or %DLQ%, or nothing; and what follows."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_system(name: str) -> bool:
    """Whether a topic or group belongs to brokers themselves. Source: TopicValidator, MixAll#isSysConsumerGroup."""
    return is_brokers_own(name) or name.startswith(_SYSTEM_GROUP)


def wrapped(namespace: str, name: str) -> str:
    """A topic or group as the wire has it; one that has the namespace already, or a system's, as it is."""
    prefix, rest = _parts(name)
    if not namespace or not name or _is_system(name) or rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def unwrapped(namespace: str, name: str) -> str:
    """A topic or group without the namespace, where it has it."""
    prefix, rest = _parts(name)
    if not namespace or not rest.startswith(namespace + SEPARATOR) or _is_system(name):
        return name
    return prefix + rest.removeprefix(namespace + SEPARATOR)
