"""Queues and index of a store, against its log."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from engine.console.pages.store_state import FRESH_S, STALE_S, state_of
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.format import record
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.dump.dump import dump_index, dump_index_headers, dump_queue
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.queue_rows import QueueRows
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from engine.console.web.asked import Asked
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

ON_A_PAGE = 100
UNITS = 50


async def _topics(asked: Asked) -> dict[str, Any]:
    """Topics of the store by size, as `rstore status --json` has them, a page at a time."""
    state = await state_of(asked)
    wanted = asked.text("q").lower()
    rows = [one for one in state["topics"] if wanted in one["topic"].lower()]
    pages = max(1, -(-len(rows) // ON_A_PAGE))
    page = asked.number("page", 1, 1, pages) if asked.text("page") else 1
    return {
        "topics": rows[(page - 1) * ON_A_PAGE : page * ON_A_PAGE],
        "all": len(rows),
        "page": page,
        "pages": pages,
        "estimated": state["estimated"],
        "consumequeue": state["consumequeue"],
    }


async def _topic(asked: Asked) -> dict[str, Any]:
    """The queues of a topic: files, lowest and highest queue offset."""
    topic = asked.needed("topic")

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        KnownNames.of(disk, files).demand_topic(topic)
        rows = []
        for queue in files.queues:
            if queue.queue.topic == topic:
                units = QueueRows(disk, queue)
                rows.append(
                    {
                        "queueId": queue.queue.queue_id,
                        "files": len(queue.files),
                        "first": units.first,
                        "end": units.extent,
                        "bytes": (units.extent - units.first) * UNIT_SIZE,
                    }
                )
        return {"topic": topic, "queues": sorted(rows, key=lambda one: one["queueId"])}

    return await asked.look(("topic", topic), look, fresh_s=FRESH_S)


async def _units(asked: Asked) -> dict[str, Any]:
    """Units of a queue, as `rstore dump consumequeue --json` prints them, each with what lies where it points."""
    topic, queue_id = asked.needed("topic"), asked.number("queue", 0, 0, (1 << 31) - 1)
    start = asked.number("from", -1, -1)

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        first = None if start < 0 else start
        units = list(islice(dump_queue(disk, files, topic, queue_id, start=first), UNITS))
        with ClosedLog(disk, files.log) as log:
            rows = [{**one, "there": _there(log, one["physicalOffset"], one["size"])} for one in units]
        return {"topic": topic, "queueId": queue_id, "rows": rows, "more": len(rows) == UNITS}

    return await asked.look(("units", topic, queue_id, start), look, fresh_s=FRESH_S)


def _there(log: ClosedLog, offset: int, size: int) -> str:
    """What begins at an offset of the log: whether it is a record of that size, by its head."""
    segment = log.segment_at(offset)
    if segment is None:
        return "outside of the log"
    head = log.read(offset, min(record.BLANK_SIZE, segment.end - offset))
    if len(head) < record.BLANK_SIZE:
        return "end of a segment"
    total, magic = record.SIZE_AND_MAGIC.unpack(head)
    if magic == record.BLANK_MAGIC:
        return "blank"
    if magic not in record.MAGICS:
        return "no record"
    return "record" if total == size else "record of another size"


async def _index(asked: Asked) -> dict[str, Any]:
    """Index files, as `rstore dump index --headers --json` prints them; with ?file= the entries of one."""
    name = asked.text("file") or None
    number = asked.number("from", 1, 1)

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        headers = [one.to_json() for one in dump_index_headers(disk, files)]
        entries: list[dict[str, Any]] = []
        if name is not None:
            rows = (one for one in dump_index(disk, files, file=name, first=number) if isinstance(one, dict))
            entries = list(islice(rows, ON_A_PAGE))
        return {"files": headers, "file": name, "entries": entries, "from": number, "more": len(entries) == ON_A_PAGE}

    return await asked.look(("index", name, number), look, fresh_s=FRESH_S, stale_s=STALE_S)


_FILES = ConsoleRight.FILES
PAGES = (
    Page("/store/queues", "Queues", "store_queues.html", _topics, Part.STORE, _FILES, menu=True),
    Page(
        "/store/queues/{topic}",
        "Queues",
        "store_topic.html",
        _topic,
        Part.STORE,
        _FILES,
        under="/store/queues",
    ),
    Page(
        "/store/queues/{topic}/{queue}",
        "Queue units",
        "store_units.html",
        _units,
        Part.STORE,
        _FILES,
        under="/store/queues",
    ),
    Page("/store/index", "Index", "store_index.html", _index, Part.STORE, _FILES, menu=True),
)
