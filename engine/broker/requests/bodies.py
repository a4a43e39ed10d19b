"""JSON bodies as Apache's fastjson has them: maps whose keys are message queues, written as objects.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}` is no standard JSON; Java and Go clients read it
(BROKER.md 1.5).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from engine.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)


def message_queue(broker_name: str, topic: str, queue_id: int) -> dict[str, Any]:
    """A MessageQueue."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def by_queue(rows: Iterable[tuple[dict[str, Any], Any]]) -> bytes:
    """A map by message queue."""
    return b"{" + b",".join(orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in rows) + b"}"


def with_raw(fields: dict[str, Any], name: str, raw: bytes) -> bytes:
    """An object, and in it one more field whose JSON is there already."""
    head = b"".join(orjson.dumps(key) + b":" + orjson.dumps(value) + b"," for key, value in fields.items())
    return b"{" + head + orjson.dumps(name) + b":" + raw + b"}"


def raw_object(text: bytes, name: str) -> bytes:
    """The object that a field of fastjson's text holds, as it stands there; `{}` when there is none.

    Raises:
        FormatError: it does not end.
    """
    match = re.search(rb'"%s"\s*:\s*(?=\{)' % re.escape(name.encode()), text)
    if match is None:
        return b"{}"
    depth = 0
    for step in _STEP.finditer(text, match.end()):
        depth += {b"{": 1, b"}": -1}.get(step[0], 0)
        if depth == 0:
            return text[match.end() : step.end()]
    raise FormatError(f"{name} is incomplete", offset=match.end())
