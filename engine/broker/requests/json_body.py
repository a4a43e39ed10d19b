"""JSON bodies of requests, as clients write them: one reader for handlers and ACL, so that both see the same.

A usual body is read where it is needed. A large one is read once, beside the loop and in pieces: who needs it is told
that it is NotRead yet, and the switchboard has the request handled again with the body that was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import large_json
from engine.broker.requests.answers import Answer
from engine.errors import FormatError
from engine.format import fastjson
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.requests.handler import Handler
    from engine.wire.command import RemotingCommand

BODY_MAX = 4 << 20
"""The largest JSON body that is read, bytes: a heartbeat of ten thousand groups takes half of it."""
MARKS_MAX = 200_000
"""The most commas and brackets in one, for they are what takes the time: a heartbeat of 10,000 subscriptions in 5,000
groups has 130,000."""
AT_ONCE = 16 << 10
"""Bytes of a body that is read in one turn of the loop: usual ones have some hundred, and a filter 8 KiB at most."""
LENIENT_MAX = 1 << 16
"""The largest body that isn't standard JSON, bytes: it takes ten to a hundred times as long, about 10 ms."""
_NO_MARKS = bytes(set(range(256)) - set(b",[{"))


class ReadBody(bytes):
    """A body that was read. `fields`: the JSON object in it."""

    fields: dict[str, Any]


class NotRead(Exception):
    """A body is to be read beside the loop first.

    Attributes:
        work: reads it, and what else is better done there, in any thread; gives the request with its ReadBody. Raises
            Answer.
        then: who handles that request; None: who was to handle this one.
    """

    def __init__(self, work: Callable[[], RemotingCommand], then: Handler | None = None) -> None:
        super().__init__()
        self.work = work
        self.then = then


def body_of(request: RemotingCommand) -> dict[str, Any]:
    """The JSON object in a request's body, as clients write it. Raises Answer; NotRead: it is large."""
    body = request.body
    if isinstance(body, ReadBody):
        return body.fields
    if len(body) > AT_ONCE:
        raise NotRead(lambda: with_read(request))
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = _lenient(bytes(body))
    return _object(fields)


def with_read(request: RemotingCommand) -> RemotingCommand:
    """The same request with its body read, in any thread. Raises Answer."""
    body = ReadBody(request.body)
    if len(body) > BODY_MAX:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"JSON body has {len(body)} bytes, at most {BODY_MAX} are allowed")
    if len(body) > MARKS_MAX:
        marks = len(body.translate(None, _NO_MARKS))
        if marks > MARKS_MAX:
            why = f"JSON body has {marks} commas and brackets, at most {MARKS_MAX} are allowed"
            raise Answer(ResponseCode.SYSTEM_ERROR, why)
    try:
        fields = large_json.loads(body)
    except large_json.NotJson:
        fields = _lenient(body)
    except large_json.BeyondBounds as error:
        raise Answer(ResponseCode.SYSTEM_ERROR, f"JSON body has {error}") from None
    body.fields = _object(fields)
    return request._replace(body=body)


def _object(value: Any) -> dict[str, Any]:
    """Raises Answer."""
    if not isinstance(value, dict):
        raise Answer(ResponseCode.SYSTEM_ERROR, "body is not a JSON object")
    return value


def _lenient(body: bytes) -> Any:
    """What Apache's fastjson takes besides, which is slow to read. Raises Answer."""
    if len(body) > LENIENT_MAX:
        why = f"body has {len(body)} bytes that are not standard JSON, of which at most {LENIENT_MAX} bytes are read"
        raise Answer(ResponseCode.SYSTEM_ERROR, why)
    try:
        return fastjson.loads(body.decode("utf-8", "replace"))
    except FormatError as error:
        raise Answer(ResponseCode.SYSTEM_ERROR, error.message) from None
