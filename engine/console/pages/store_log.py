"""The log of a store: the strip of segments, what lies in a part of it, bytes beside their fields."""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any

from engine.console.pages.store_state import FRESH_S, STALE_S, state_of
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.errors import NotFound
from engine.format import record
from engine.format.field_map import record_places
from engine.inspect.dump.dump import MESSAGE, dump_log
from engine.inspect.status.log_map import log_map
from engine.inspect.store.known import known_places
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from engine.console.web.asked import Asked
    from engine.files.disk import Disk
    from engine.inspect.dump.dump import LogRow
    from engine.inspect.store.survey import StoreFiles

ROWS = 64
"""Records, blanks and damaged ranges of one part."""
BACK = 2 << 20
FURTHEST = 8 << 20
"""Bytes of log that one part reads at most: less than a page may."""
BYTES = 4096
"""Bytes of a record that are shown: of a longer one its first and its last."""
LARGEST = 8 << 20
"""Bytes of a record that are read."""
AROUND = 256
"""Bytes that are shown where no record begins."""


async def _log(asked: Asked) -> dict[str, Any]:
    """The strip: segments, what is flushed and dispatched, and the damage that the last check or verification met."""
    state = await state_of(asked)
    end = state["commitlog"]["maxOffset"]

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        return log_map(disk, files, end).to_json()

    strip = await asked.look(("log map", end), look, fresh_s=FRESH_S, stale_s=STALE_S)
    daemon = state["daemon"]
    verified = asked.console.runs.last.get("verify-crc")
    damage = [] if verified is None or verified.answer is None else verified.answer["damage"]
    if not damage and state["commitlog"]["damage"] is not None:
        damage = [{**state["commitlog"]["damage"], "file": ""}]
    return {
        **strip,
        "minOffset": state["commitlog"]["minOffset"],
        "maxOffset": end,
        "flushed": None if daemon is None else daemon["log"]["flushed"],
        "dispatched": end - state["dispatch"]["bytes"] if daemon is None else daemon["log"]["dispatched"],
        "live": daemon is not None,
        "checkpoint": state["checkpoint"],
        "maxStoreTimestamp": state["commitlog"]["maxStoreTimestamp"],
        "damage": damage,
        "verified": None if verified is None else verified.to_json(whole=False),
        "time": state["time"],
        "state": state["state"],
        "why": state["why"],
    }


async def _records(asked: Asked) -> dict[str, Any]:
    """What lies in the log from an offset on: records, blanks, damage; and bridges where there are some."""
    start = asked.offset("from")

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        bridged = known_places(disk, files.root).bridged
        first = max(start or 0, files.log[0].offset) if files.log else start or 0
        log = dump_log(disk, files, start=first, end=first + FURTHEST, back=BACK)
        rows = [_row(one, bridged) for one in islice(log, ROWS)]
        first = rows[0]["physicalOffset"] if rows else first
        end = rows[-1]["physicalOffset"] + rows[-1]["length"] if rows else first
        return {
            "from": first,
            "end": end,
            "rows": rows,
            "minOffset": files.log[0].offset if files.log else 0,
            "maxOffset": files.log[-1].end if files.log else 0,
            "more": len(rows) == ROWS,
        }

    document = await asked.look(("records", start), look, fresh_s=FRESH_S)
    if asked.session.may(ConsoleRight.BODIES):
        return document
    rows = [{**one, "keys": "(redacted)"} if "keys" in one else one for one in document["rows"]]
    return {**document, "rows": rows}


def _row(row: LogRow, bridged: Any) -> dict[str, Any]:
    line: dict[str, Any] = {"kind": row.kind, "physicalOffset": row.offset, "length": row.length}
    if row.kind == MESSAGE and row.message is not None:
        message = row.message
        line |= {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "storeTimestamp": message.store_timestamp,
            "keys": message.properties.get("KEYS", ""),
            "bridge": row.offset in bridged,
        }
    if row.reason is not None:
        line |= {"reason": row.reason, "file": os.path.basename(row.path or "")}
    return line


async def _bytes(asked: Asked) -> dict[str, Any]:
    """The bytes at a physical offset, each with the field that it belongs to."""
    at = asked.offset("at") or 0
    may_see = asked.session.may(ConsoleRight.BODIES)

    def look(disk: Disk, files: StoreFiles) -> dict[str, Any]:
        with ClosedLog(disk, files.log) as log:
            segment = log.segment_at(at)
            if segment is None:
                raise NotFound(f"no segment holds the physical offset {at}", hint="see the log for what there is")
            head = log.read(at, min(record.BLANK_SIZE, segment.end - at))
            size, magic = record.SIZE_AND_MAGIC.unpack(head) if len(head) == record.BLANK_SIZE else (0, 0)
            is_record = magic in (*record.MAGICS, record.BLANK_MAGIC) and size >= record.BLANK_SIZE
            length = min(size if is_record else AROUND, LARGEST, segment.end - at)
            data = log.read(at, length)
        places = record_places(data)[: None if is_record else 0]
        shown = [(0, length)] if length <= BYTES else [(0, BYTES // 2), (length - BYTES // 2, length)]
        return {
            "at": at,
            "file": segment.path,
            "position": at - segment.offset,
            "size": size if is_record else None,
            "shown": sum(end - start for start, end in shown),
            "blank": magic == record.BLANK_MAGIC,
            "fields": [one.to_json() for one in places],
            "pieces": [{"start": start, "data": bytes(data[start:end]).hex()} for start, end in shown],
        }

    document = await asked.look(("bytes", at), look, fresh_s=FRESH_S)
    if may_see:
        return {**document, "lines": hex_lines(document)}
    fields = [{**one, "value": "(redacted)"} if one["name"] in _PRIVATE else one for one in document["fields"]]
    return {**document, "fields": fields, "pieces": [], "lines": hex_lines(document, hidden=_PRIVATE)}


_PRIVATE = frozenset(("body", "properties", "filling", ""))
"""Fields that hold what producers sent; bytes of no field may be of anything."""


def hex_lines(document: dict[str, Any], *, hidden: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Rows of 16 bytes for people: the position, and runs of bytes of one field. Those of `hidden` fields are ··."""
    starts = [one["start"] for one in document["fields"]]
    rows = []
    for piece in document["pieces"]:
        data = bytes.fromhex(piece["data"])
        for first in range(0, len(data), 16):
            runs: list[dict[str, Any]] = []
            line = data[first : first + 16]
            for i, byte in enumerate(line):
                name = _owner(document["fields"], starts, piece["start"] + first + i)
                if not runs or runs[-1]["field"] != name:
                    runs.append({"field": name, "hex": [], "text": ""})
                is_hidden = name in hidden
                runs[-1]["hex"].append("··" if is_hidden else f"{byte:02x}")
                runs[-1]["text"] += "·" if is_hidden or not 32 <= byte < 127 else chr(byte)
            at = document["at"] + piece["start"] + first
            rows.append({"at": at, "runs": runs, "pad": 3 * (16 - len(line))})
    return rows


def _owner(fields: list[dict[str, Any]], starts: list[int], at: int) -> str:
    """The name of the field that has a byte; empty: none has."""
    number = bisect_right(starts, at) - 1
    if number < 0 or at >= starts[number] + fields[number]["length"]:
        return ""
    name: str = fields[number]["name"]
    return name


_FILES = ConsoleRight.FILES
PAGES = (
    Page("/store/log", "Log", "store_log.html", _log, Part.STORE, _FILES, menu=True),
    Page(
        "/store/log/records",
        "Records",
        "store_records.html",
        _records,
        Part.STORE,
        _FILES,
        under="/store/log",
    ),
    Page("/store/log/bytes", "Bytes", "store_bytes.html", _bytes, Part.STORE, _FILES, under="/store/log"),
)
