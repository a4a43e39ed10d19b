"""JSON bodies as Apache's fastjson has them: maps whose keys are message queues, written as objects.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}` is no standard JSON; Java and Go clients read it
(BROKER.md 1.5).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests.answers import Answer
from engine.errors import FormatError
from engine.wire.codes import ResponseCode
from engine.wire.frames import MAX_FRAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STEP = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)


def message_queue(broker_name: str, topic: str, queue_id: int) -> dict[str, Any]:
    """A MessageQueue."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def by_queue(rows: Iterable[tuple[dict[str, Any], Any]]) -> bytes:
    """A map by message queue."""
    return b"{" + b",".join(orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in rows) + b"}"


def entries_of(out: bytearray, rows: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Append the entries of a map to `out`, one a step. Raises Answer: no frame holds them."""
    comma = b""
    for key, value in rows:
        out += comma + orjson.dumps(key) + b":" + orjson.dumps(value)
        comma = b","
        demand_fits(out)
        yield


def items_of(out: bytearray, values: Iterable[Any]) -> Iterator[None]:
    """Append the items of a list to `out`, one a step. Raises Answer: no frame holds them."""
    comma = b""
    for value in values:
        out += comma + orjson.dumps(value)
        comma = b","
        demand_fits(out)
        yield


def demand_fits(body: bytes | bytearray) -> None:
    """Raises Answer: it is longer than a frame, which no client reads; it isn't made to its end."""
    if len(body) > MAX_FRAME:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"the answer has more than {MAX_FRAME} bytes: ask for less at a time")


def with_raw(fields: dict[str, Any], name: str, raw: bytes | bytearray) -> bytes:
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
