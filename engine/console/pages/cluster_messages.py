"""Messages of a cluster: by id, key, queue offset or time; one of them whole; and its life. As `rstore admin message`,
`rstore consume` and `rstore trace`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson

from engine.client.admin.messages import message_at, message_by_id, messages_by_key, queue_of, traces_of
from engine.client.admin.rows import to_row
from engine.client.cluster_lives import lives_of
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.console.pages.message_rows import LARGEST, bounded_rows, message_row
from engine.console.pages.store_messages import life_json
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.errors import InvalidArgument
from engine.format.message_json import inflate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.console.web.asked import Asked
    from engine.format.message import StoredMessage

MOST, MOST_BY_KEY = 64, 32
"""Messages on a page; those with a key come whole from each broker."""
HEX_BYTES = 2048


async def _search(asked: Asked) -> dict[str, Any]:
    """What `rstore admin message id`, `key` or `offset` print; or messages of a topic that were stored since a time."""
    topic, key, one_id = asked.text("topic"), asked.text("key"), asked.text("id")
    queue, offset = asked.text("queue"), asked.text("offset")
    time = asked.time("at")
    if key and not topic:
        raise InvalidArgument("a topic is required with a key")
    if not topic and not one_id:
        return {"rows": [], "asked": False, "more": False}
    admin = await asked.admin()
    if topic:
        asked.session.demand_topic(topic)
    messages: list[StoredMessage]
    if one_id:
        messages = [await message_by_id(admin, one_id, topic or None)]
        asked.session.demand_topic(messages[0].topic)
    elif key:
        messages = list(await messages_by_key(admin, topic, key, begin_ms=time or 0, most=MOST_BY_KEY))
    elif offset:
        place = await queue_of(admin, topic, asked.text("broker") or None, asked.number("queue", 0))
        messages = [await message_at(await asked.client(), place, asked.number("offset", 0))]
    else:
        messages = await since(asked, topic, time, asked.number("queue", 0) if queue else None)
    rows, more = await message_rows(messages[:MOST], asked)
    return {"rows": rows, "asked": True, "more": more or len(rows) == MOST}


async def message_rows(messages: Sequence[StoredMessage], asked: Asked) -> tuple[list[dict[str, Any]], bool]:
    """As bounded_rows, beside the loop: bodies are decompressed."""
    return await asyncio.to_thread(bounded_rows, messages, redact=not asked.session.may(ConsoleRight.BODIES))


async def since(asked: Asked, topic: str, time: int | None, queue: int | None) -> list[StoredMessage]:
    """Messages of a topic, or one queue id of it, from a time (ms) on, None: from the first; no more than a page has.

    Raises:
        InvalidArgument: no such topic. As TopicReader.
    """
    client = await asked.client()
    await (await asked.admin()).demand_topic(topic)
    begin = ReadFrom(first=True) if time is None else ReadFrom(time_ms=time)
    messages: list[StoredMessage] = []
    size = 0
    async with aclosing(TopicReader(client, topic, queue_id=queue).messages(begin)) as reading:
        async for one in reading:
            messages.append(one.stored)
            size += one.stored.total_size
            if len(messages) >= MOST or size > LARGEST:
                break
    return sorted(messages, key=lambda one: (one.store_timestamp, one.queue_id, one.queue_offset))


async def _named(asked: Asked) -> StoredMessage:
    """The message that an address names. Raises NotFound, NotAllowed."""
    topic = asked.text("topic")
    message = await message_by_id(await asked.admin(), asked.needed("id"), topic or None)
    asked.session.demand_topic(topic or message.topic)
    asked.session.demand_topic(message.topic)
    return message


async def _message(asked: Asked) -> dict[str, Any]:
    """What `rstore admin message id --json` prints, with the body as text, JSON and bytes."""
    message = await _named(asked)
    traces = await traces_of(await asked.admin(), message)
    if not asked.session.may(ConsoleRight.BODIES):
        return {**message_row(message, redact=True), "groups": to_row(traces), "pretty": None, "hex": []}
    plain = await asyncio.to_thread(inflate, message)
    body = message.body if plain is None else plain
    return {
        **await asyncio.to_thread(message_row, message, redact=False),
        "groups": to_row(traces),
        "pretty": _pretty(body),
        "hex": [
            {"at": at, "hex": body[at : at + 16].hex(" "), "text": _printed(body[at : at + 16])}
            for at in range(0, min(len(body), HEX_BYTES), 16)
        ],
    }


def _printed(data: bytes) -> str:
    return "".join(chr(one) if 32 <= one < 127 else "·" for one in data)


def _pretty(body: bytes) -> str | None:
    """The body as JSON for people; None: it is none."""
    if not body[:1].strip() or body.lstrip()[:1] not in b"{[" or len(body) > LARGEST:
        return None
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        return None


async def _body(asked: Asked) -> dict[str, Any]:
    """The body as the producer sent it."""
    message = await _named(asked)
    plain = await asyncio.to_thread(inflate, message)
    return {"name": f"{message.msg_id}.body", "data": (message.body if plain is None else plain).hex()}


async def _trace(asked: Asked) -> dict[str, Any]:
    """What `rstore trace --namesrv --json` prints, by message; and who was not asked."""
    topic, key = asked.text("topic"), asked.text("key")
    if not topic and not key:
        return {"lives": [], "notes": [], "asked": False}
    if not topic or not key:
        raise InvalidArgument("a topic and a key are required")
    asked.session.demand_topic(topic)
    told = await lives_of(await asked.client(), topic, key, 16)
    redact = not asked.session.may(ConsoleRight.BODIES)
    return {
        "lives": [life_json(one, redact=redact) for one in told.lives],
        "notes": list(told.notes(topic)),
        "asked": True,
    }


_BODIES = ConsoleRight.BODIES
PAGES = (
    Page("/messages", "Messages", "messages.html", _search, Part.CLUSTER, menu=True),
    Page("/messages/view", "Message", "message.html", _message, Part.CLUSTER, under="/messages"),
    Page("/messages/body", "Body", "", _body, Part.CLUSTER, _BODIES, under="/messages", download=True),
    Page("/trace", "Life of a message", "trace.html", _trace, Part.CLUSTER, menu=True),
)
