"""What each file of config/ holds, and what Apache's broker can't read of it.

fastjson (1.2.69) turns a number in quotes into a number and cuts a fraction off; one entry of another type and the
whole file counts as broken. Sources: TopicConfigSerializeWrapper, SubscriptionGroupManager, ConsumerOffsetManager,
LmqConsumerOffsetManager, DelayOffsetSerializeWrapper, ConsumerFilterManager, and fastjson asked itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from engine.dataclass import dataclass
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
CONSUMERS, LMQ_CONSUMERS = "consumerOffset.json", "lmqConsumerOffset.json"
DELAYS, FILTERS = "delayOffset.json", "consumerFilter.json"
TOPIC_TABLE, GROUP_TABLE = "topicConfigTable", "subscriptionGroupTable"
OFFSET_TABLE, LMQ_TABLE = "offsetTable", "lmqOffsetTable"
VERSION = "dataVersion"

_NAMED = 3
_INTEGER = re.compile(r"[+-]?[0-9]{1,25}")
_TRUE, _FALSE = ("true", "1", "y", "t", "yes"), ("false", "0", "f", "n", "no")


def as_long(value: object, low: int = LONG_MIN, high: int = LONG_MAX) -> int | None:
    """The number that fastjson makes of a value, None where it makes none. Source: TypeUtils#castToLong."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if _INTEGER.fullmatch(value) else None
    elif isinstance(value, float):
        value = math.trunc(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and low <= value <= high else None


def as_int(value: object) -> int | None:
    """As `as_long`, of 32 bits."""
    return as_long(value, INT_MIN, INT_MAX)


def _is_int(value: object) -> bool:
    return value is None or isinstance(value, bool) or as_int(value) is not None


def _is_long(value: object) -> bool:
    return value is None or as_long(value) is not None


def _is_flag(value: object) -> bool:
    return (
        value is None or isinstance(value, bool | int) or (isinstance(value, str) and value.lower() in _TRUE + _FALSE)
    )


def _is_text(value: object) -> bool:
    return not isinstance(value, dict | list)


def as_flag(value: object, default: bool = True) -> bool:
    """The truth value that fastjson makes of a value."""
    if isinstance(value, str):
        return value.lower() in _TRUE
    return default if value is None else value == 1


_Judge = Callable[[object], bool]

_TOPIC: dict[str, _Judge] = {
    **dict.fromkeys(("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"), _is_int),
    "topicName": _is_text,
    "order": _is_flag,
}
_GROUP: dict[str, _Judge] = {
    **dict.fromkeys(("retryQueueNums", "retryMaxTimes"), _is_int),
    **dict.fromkeys(("brokerId", "whichBrokerWhenConsumeSlowly"), _is_long),
    **dict.fromkeys(
        ("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "notifyConsumerIdsChangedEnable"), _is_flag
    ),
    "groupName": _is_text,
}
_VERSION: dict[str, _Judge] = {"counter": _is_long, "timestamp": _is_long}

TABLES = {
    TOPICS: (TOPIC_TABLE,),
    GROUPS: (GROUP_TABLE,),
    CONSUMERS: (OFFSET_TABLE,),
    LMQ_CONSUMERS: (OFFSET_TABLE, LMQ_TABLE),
    DELAYS: (OFFSET_TABLE,),
    FILTERS: ("filterDataByTopic",),
}
"""The files of config/ that a broker must be able to read, and the tables that each holds."""


@dataclass(slots=True)
class Shape:
    """What was read of a file. `tables`: by key, entries that can be read; `faults`: what can't, a few by name.

    `whole`: the file and its tables are objects.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    count: int = 0
    whole: bool = True

    def fault(self, text: str) -> None:
        """Note something that Apache can't read."""
        self.count += 1
        if len(self.faults) < _NAMED:
            self.faults.append(text)

    @property
    def problem(self) -> str | None:
        """All of it in one sentence, None when there is nothing."""
        if not self.count:
            return None
        more = self.count - len(self.faults)
        return "; ".join(self.faults) + (f"; {more} more" if more else "")


def judge(name: str, value: Any) -> Shape:
    """Read the tables of the file `name`. Entries that Apache can't read are left out, and named; numbers are such."""
    shape = Shape({key: {} for key in TABLES[name]})
    if value is None or value == []:  # fastjson makes null of both: nothing is loaded, and that is no error
        return shape
    if not isinstance(value, dict):
        shape.fault("not a JSON object")
        shape.whole = False
        return shape
    if name in (TOPICS, GROUPS):
        _bean(shape, VERSION, value.get(VERSION), _VERSION, absent=True)
    for key in TABLES[name]:
        table = value.get(key, {})
        if not isinstance(table, dict):
            shape.fault(f"{key} is not a JSON object")
            shape.whole = False
            continue
        _table(shape, name, key, table)
    return shape


def _table(shape: Shape, name: str, key: str, table: dict[str, Any]) -> None:
    out = shape.tables[key]
    if name in (TOPICS, GROUPS):
        rules = _TOPIC if name == TOPICS else _GROUP
        for entry, value in table.items():
            kept = _bean(shape, entry, value, rules)
            if kept is not None:
                out[entry] = kept
    elif name == DELAYS or key == LMQ_TABLE:
        out.update(_longs(shape, key, table, numbered=name == DELAYS))
    elif name == FILTERS:
        for entry, value in table.items():
            if isinstance(value, dict):
                out[entry] = value
            else:
                shape.fault(f"{entry}: {_shown(value)}")
    else:
        for entry, value in table.items():
            if isinstance(value, dict):
                out[entry] = _longs(shape, entry, value, numbered=True)
            else:
                shape.fault(f"{entry}: {_shown(value)}")


def _bean(
    shape: Shape, entry: str, bean: Any, rules: dict[str, _Judge], *, absent: bool = False
) -> dict[str, Any] | None:
    """An object of known fields; what it holds beside them stays."""
    if bean is None and absent:
        return None
    if not isinstance(bean, dict):
        shape.fault(f"{entry}: {_shown(bean)}")
        return None
    kept = dict(bean)
    for name, is_right in rules.items():
        if name in kept and not is_right(kept[name]):
            shape.fault(f"{entry}: {name}: {_shown(kept.pop(name))}")
    return kept


def _longs(shape: Shape, entry: str, table: dict[str, Any], *, numbered: bool) -> dict[str, int]:
    out: dict[str, int] = {}
    for key, value in table.items():
        number = as_long(value)
        if number is None or (numbered and as_int(key) is None):
            shape.fault(f"{entry}: {key}: {_shown(value)}")
        else:
            out[str(as_int(key)) if numbered else key] = number
    return out


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 256 else "a number that is too large"
    return text if len(text) <= 60 else text[:60] + "…"
