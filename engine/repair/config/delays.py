"""delayOffset.json made again: how far each level was delivered, as the log tells.

A delayed message waits in SCHEDULE_TOPIC_XXXX; delivered, it is in the log a second time, in its own topic, with the
same properties but DELAY (ScheduleMessageService#messageTimeup). A level is delivered in order, so it continues at its
first message that has no such copy: one whose copy is lost, or whose topic was deleted, is delivered again, and what
stands after it, rather than lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import FormatError
from engine.format import message as messages
from engine.format import names, properties
from engine.format.delay import queue_of_level
from engine.format.quantities import counted
from engine.inspect.store.config_shapes import OFFSET_TABLE, as_int
from engine.log.derive import TopicQueue
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.config.evidence import real_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.repair.config.evidence import Evidence
    from engine.repair.config.sources import Source

_SCHEDULE = names.SCHEDULE_TOPIC.encode()
_REAL = properties.REAL_TOPIC.encode()


class _Identity(NamedTuple):
    """What a message and its delivered copy have in common."""

    topic: str
    queue_id: str
    unique: str
    born: int
    body_crc: int
    reconsumed: int


def rebuilt_delays(
    disk: Disk,
    sources: Sequence[Source],
    evidence: Evidence,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, int], list[str]]:
    """Offset by level, and what is said of each. Raises StorageError."""
    levels = {
        queue.queue_id + 1: span for queue, span in evidence.ranges.items() if queue.topic == names.SCHEDULE_TOPIC
    }
    known: dict[int, int] = {}
    for source in sources:
        for text, offset in source.table.tables[OFFSET_TABLE].items() if source.own else ():
            level = as_int(text)
            if level is not None and level > 0 and offset >= 0:
                known.setdefault(level, offset)
    first = _undelivered(disk, evidence, progress) if any(span.high > span.low for span in levels.values()) else {}
    table: dict[str, int] = {}
    lines: list[str] = []
    for level in sorted(known.keys() | levels.keys()):
        span = levels.get(level)
        if span is None:
            table[str(level)] = 0
            continue
        next_offset = first.get(level, span.high)
        at = max(next_offset, min(known.get(level, next_offset), span.high), span.low)
        table[str(level)] = at
        waiting = span.high - at
        wait = counted(waiting, "message waits or is", "messages wait or are")
        lines.append(f"level {level}: {at} of {span.high}; {wait} delivered again")
    return table, lines


def _undelivered(disk: Disk, evidence: Evidence, progress: Callable[[int, int], None] | None) -> dict[int, int]:
    """Each level's first message without a copy in its topic; levels without one are left out."""
    waiting: dict[_Identity, deque[tuple[int, int]]] = {}
    files = evidence.files
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, check_crc=False, max_message_size=files.config.max_message_size)
        start, size = files.log[0].offset, files.log[-1].end - files.log[0].offset
        for event in scanner.scan(start, resume=True):
            if not isinstance(event, RecordBatch):
                continue
            for i in range(len(event.rows)):
                topic = event.topic(i)
                record = event.record(i)
                if _REAL not in bytes(record):
                    continue
                try:
                    _look(messages.decode(record), topic == _SCHEDULE, waiting)
                except FormatError:
                    continue
            if progress is not None:
                progress(event.end - start, size)
    first: dict[int, int] = {}
    for places in waiting.values():
        for level, offset in places:
            span = evidence.ranges.get(TopicQueue(names.SCHEDULE_TOPIC, queue_of_level(level)))
            if span is not None and span.low <= offset < span.high:
                first[level] = min(first.get(level, offset), offset)
    return first


def _look(stored: StoredMessage, waits: bool, waiting: dict[_Identity, deque[tuple[int, int]]]) -> None:
    place = real_place(stored)
    if place is None:
        return
    unique = stored.properties.get(properties.UNIQ_KEY, "")
    identity = _Identity(*place, unique, stored.born_timestamp, stored.body_crc, stored.reconsume_times)
    if waits:
        waiting.setdefault(identity, deque()).append((stored.queue_id + 1, stored.queue_offset))
        return
    places = waiting.get(identity)
    if places and (stored.topic, str(stored.queue_id)) == place:
        places.popleft()
        if not places:
            del waiting[identity]
