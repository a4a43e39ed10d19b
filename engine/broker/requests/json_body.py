"""JSON bodies of requests, as clients write them: one reader for handlers and ACL, so that both see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests.answers import Answer
from engine.errors import FormatError
from engine.format import fastjson
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.wire.command import RemotingCommand

BODY_MAX = 4 << 20
"""The largest JSON body that is read, bytes: a heartbeat of ten thousand groups takes half of it."""
LENIENT_MAX = 1 << 18
"""The same for what isn't standard JSON."""


def body_of(request: RemotingCommand) -> dict[str, Any]:
    """The JSON object in a request's body, as clients write it. Raises Answer."""
    body = request.body
    if len(body) > BODY_MAX:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"JSON body has {len(body)} bytes, at most {BODY_MAX} are allowed")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = _lenient(bytes(body))
    if not isinstance(fields, dict):
        raise Answer(ResponseCode.SYSTEM_ERROR, "body is not a JSON object")
    return fields


def _lenient(body: bytes) -> Any:
    """What Apache's fastjson takes besides, which is slow to read. Raises Answer."""
    try:
        return fastjson.loads(body[:LENIENT_MAX].decode("utf-8", "replace"))
    except FormatError as error:
        raise Answer(ResponseCode.SYSTEM_ERROR, error.message) from None
