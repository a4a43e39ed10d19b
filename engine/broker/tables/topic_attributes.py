"""Attributes of a topic, which RocketMQ 5 has: how a request changes them, and which there are.

Those that would need another kind of queue (batch queues, compaction) are refused: no message of such a topic would be
where a broker of RocketMQ 5 looks for it.

Source: TopicAttributes, AttributeParser#parseToMap, AttributeUtil#alterCurrentAttributes, TopicMessageType (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.requests.answers import Answer
from engine.format.numbers import LONG_MAX, parse_int
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGE_TYPE, _RESERVE, _QUEUE_TYPE, _CLEANUP = "message.type", "reserve.time", "queue.type", "cleanup.policy"
_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_VALUES = {_MESSAGE_TYPE: _TYPES, _QUEUE_TYPE: ("SimpleCQ", "BatchCQ"), _CLEANUP: ("DELETE", "COMPACTION")}
_CHANGEABLE = (_MESSAGE_TYPE, _RESERVE)
_NOT_SERVED = {(_QUEUE_TYPE, "BatchCQ"), (_CLEANUP, "COMPACTION")}


def altered(now: Mapping[str, str], wanted: str, *, created: bool) -> dict[str, str]:
    """The attributes when `wanted` (`+name=value,-name`) is done. `created`: the topic is new.

    Raises:
        Answer: that can't be done.
    """
    attributes, seen = dict(now), set()
    for word in filter(None, wanted.split(",")):
        sign, name, value = word[:1], word[1:].partition("=")[0], word.partition("=")[2]
        if "=" in word and sign != "+":
            raise _refusal(f"add/alter attribute format is wrong: {word.partition('=')[0]}")
        if "=" not in word and sign != "-":
            raise _refusal(f"delete attribute format is wrong: {word}")
        if name in seen:
            raise _refusal(f"alter duplication key. key: {name}")
        seen.add(name)
        if created and sign == "-":
            raise _refusal(f"only add attribute is supported while creating topic. key: {name}")
        if sign == "-" and name not in now:
            raise _refusal(f"attempt to delete a nonexistent key: {name}")
        if name not in (*_VALUES, _RESERVE):
            raise _refusal(f"unsupported key: {name}")
        if not created and name not in _CHANGEABLE:
            raise _refusal(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del attributes[name]
        else:
            _demand_value(name, value)
            attributes[name] = value
    return attributes


def _demand_value(name: str, value: str) -> None:
    """Raises Answer."""
    if name == _RESERVE:
        try:
            parse_int(value, -1, LONG_MAX)
        except ValueError:
            raise _refusal(f"value is not in range(-1, {LONG_MAX})") from None
    elif value not in _VALUES[name]:
        raise _refusal(f"value is not in set: [{', '.join(_VALUES[name])}]")
    elif (name, value) in _NOT_SERVED:
        raise _refusal(f"{name}={value} is not supported: this broker has plain consume queues alone")


def _refusal(remark: str) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, remark)
