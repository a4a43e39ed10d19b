"""Messages of a store: by queue, time, id, place or key; and what became of one. As `get`, `query`, `trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.console.pages.message_rows import LARGEST, bounded_rows
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.errors import FormatError, InvalidArgument
from engine.format.message import decode
from engine.log.message_reader import END_OF_TIME
from engine.read_queue import BatchQueueReading, QueueReading, QueueRequest, open_reading
from engine.read_store import ReadStore
from engine.store_lives import lives_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.console.web.asked import Asked
    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.inspect.store.survey import StoreFiles

MOST = 32


async def _search(asked: Asked) -> dict[str, Any]:
    """What `rstore get --json` and `rstore query --json` print, a row each."""
    topic, key, one_id = asked.text("topic"), asked.text("key"), asked.text("id")
    queue, offset, time = asked.number("queue", 0), asked.number("offset", -1, -1), asked.time("at")
    place = asked.offset("place")
    redact = not asked.session.may(ConsoleRight.BODIES)
    config = asked.config
    nothing: dict[str, Any] = {"rows": [], "notes": [], "asked": False}
    if not (topic or one_id or place is not None):
        return nothing

    def look(_: Disk, files: StoreFiles) -> dict[str, Any]:
        notes: list[str] = []
        with ReadStore(config, files=files) as store:
            reading = None
            messages: Iterable[StoredMessage]
            if one_id:
                messages = store.find_message(one_id, topic or None)
            elif place is not None:
                messages = [store.message_at(place)]
            elif key:
                messages = map(decode, store.query(topic, key, MOST, 0, END_OF_TIME).messages)
            else:
                request = QueueRequest(topic, queue, MOST, None if offset < 0 else offset, None, time)
                reading = open_reading(store, request)
                messages = _sound(reading, notes)
            rows, more = bounded_rows(messages, redact=redact)
        if reading is not None:
            notes += [*reading.before, *reading.after]
        if more:
            notes.append(f"the others are left out: more than {LARGEST >> 20} MiB")
        return {"rows": rows, "notes": notes, "asked": True}

    return await asked.look(("messages", topic, key, one_id, queue, offset, time, place, redact), look, fresh_s=2.0)


def _sound(reading: QueueReading | BatchQueueReading, notes: list[str]) -> Iterator[StoredMessage]:
    """The messages of a reading; `notes` tells of those that are none."""
    for one in reading:
        if isinstance(one, FormatError):
            notes.append(f"a message of {reading.queue} can't be read: {one.message}")
        else:
            yield one


async def _trace(asked: Asked) -> dict[str, Any]:
    """What `rstore trace --json` prints of a store, by message."""
    topic, key = asked.text("topic"), asked.text("key")
    if not topic and not key:
        return {"lives": [], "asked": False}
    if not topic or not key:
        raise InvalidArgument("a topic and a key are required")
    config, redact = asked.config, not asked.session.may(ConsoleRight.BODIES)

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        from engine.inspect.store.known_names import KnownNames

        with ReadStore(config, files=files) as store:
            lives = lives_in(store, topic, key, MOST)
            if not lives:
                KnownNames.of(disk, store.files).demand_topic(topic)
        return {"lives": [life_json(one, redact=redact) for one in lives], "asked": True}

    return await asked.look(("trace", topic, key, redact), look, fresh_s=2.0)


def life_json(life: Any, *, redact: bool) -> dict[str, Any]:
    """A message's life (engine.client.lives) as a page has it: the lines of `rstore trace --json`, together."""
    return {
        "id": life.id,
        "topic": life.topic,
        "keys": "" if redact else life.keys,
        "events": [one.to_json() for one in life.events],
        "groups": [one.to_json() for one in life.groups],
    }


_FILES = ConsoleRight.FILES
PAGES = (
    Page("/store/messages", "Messages", "store_messages.html", _search, Part.STORE, _FILES, menu=True),
    Page("/store/trace", "Life of a message", "trace.html", _trace, Part.STORE, _FILES, menu=True),
)
