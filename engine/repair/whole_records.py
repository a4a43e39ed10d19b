"""Every whole record of a log, also behind damage and away from its own place; and every byte that is in none.

A record is *sound* when the scanner finds it: in the chain of records from a file's start, or behind damage where its
own physicalOffset is its place. What is left of the damage is searched once more, for records that are whole (magic,
lengths, CRC) but name another place: content that lost bytes have shifted, or that belongs to another file. These are
*displaced*. A copy of a record inside a damaged body looks the same, so nobody should take them for messages unasked.
Whole records there that do name their place are none: they lie within what a damaged record claims (engine.log.claim).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from engine.errors import StorageError
from engine.format.judge import Row
from engine.format.message import ENCODE_OVERHEAD
from engine.format.record import MAGIC_SIZE, POSITION_MAGIC
from engine.log.scan import FIRST_WINDOW, Blank, Damage, Gap, RecordBatch, Scanner, magics
from engine.log.walk import walk
from engine.repair.log_end import MISSING_SEGMENT
from engine.repair.verify import judge_tail, settled_events

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.log.source import LogSource, Segment

_WINDOW = 4 << 20
_PAGE = 4096
_OVERLAP = POSITION_MAGIC + MAGIC_SIZE - 1
"""So much of a magic may lie behind a window's end."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes [offset, offset + length) of the log (physical) that are in no sound record, and why.

    `segment`: the file that they lie in; None when that is missing.
    """

    offset: int
    length: int
    reason: str
    segment: Segment | None

    @property
    def end(self) -> int:
        """Physical offset behind the last of them."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Displaced:
    """Whole records inside a lost stretch, none of which names the place where it lies."""

    batch: RecordBatch


Found: TypeAlias = RecordBatch | Blank | Lost | Displaced


def whole_records(
    disk: Disk,
    log: LogSource,
    start: int,
    end: int | None = None,
    *,
    max_message_size: int,
    live: bool = False,
) -> Iterator[Found]:
    """What lies in the log from the physical offset `start` (a record's) up to `end`, in log order.

    A lost stretch comes before the displaced records in it. Zeros behind the last sound record are not lost, they were
    never written. `live`: another process writes the log; its end is not judged.
    """
    scanner = Scanner(log, max_message_size=max_message_size)
    held: list[Damage | Gap] = []
    for event in settled_events(disk, scanner, start, end, live=live):
        if isinstance(event, Damage | Gap):
            held.append(event)
            continue
        for one in held:
            yield from _lost(log, _as_lost(one), max_message_size)
        held.clear()
        yield event
    for one in held:
        if isinstance(one, Gap):
            yield _as_lost(one)
            continue
        for bad in judge_tail(log, [one], live):
            yield from _lost(log, Lost(bad.offset, bad.length, bad.reason, one.segment), max_message_size)


def _as_lost(event: Damage | Gap) -> Lost:
    if isinstance(event, Gap):
        return Lost(event.offset, event.length, MISSING_SEGMENT, None)
    return Lost(event.offset, event.length, event.reason.value, event.segment)


def _lost(log: LogSource, lost: Lost, max_message_size: int) -> Iterator[Found]:
    yield lost
    if lost.segment is None:
        return
    for low, high in log.data_ranges(lost.segment, lost.offset):
        if low >= lost.end:
            return
        yield from _displaced(log, max(low, lost.offset), min(high, lost.end), max_message_size + ENCODE_OVERHEAD)


def _displaced(log: LogSource, start: int, end: int, largest: int) -> Iterator[Displaced]:
    for batch in whole(log, start, end, largest):
        rows = [row for row in batch.rows if row.stored_offset != batch.base + row.position]
        if rows:
            yield Displaced(RecordBatch(batch.base, batch.buffer, rows))


def whole(log: LogSource, start: int, end: int, largest: int, unread: list[int] | None = None) -> Iterator[RecordBatch]:
    """Whole records in [start, end), whatever place they name; each chain of them searched by the magic of its first.

    Records of more than `largest` bytes are passed over, and pages that can't be read: where these begin (physical)
    goes into `unread`.
    """
    at, wanted = start, FIRST_WINDOW
    rows: list[Row]
    while at < end:
        wanted = min(wanted, end - at)
        try:
            buffer = log.read(at, wanted)
        except StorageError:
            buffer = _up_to_bad_page(log, at, wanted)
            rows = []
            _search(buffer, end - at, rows, 0)  # what reaches into the page can't be read
            if rows:
                yield RecordBatch(at, buffer, rows)
            at += len(buffer)
            if unread is not None:
                unread.append(at)
            at += _PAGE - at % _PAGE
            wanted = FIRST_WINDOW
            continue
        rows = []
        behind, need = _search(buffer, end - at, rows, largest)
        if rows:
            yield RecordBatch(at, buffer, rows)
        if len(buffer) < wanted:  # the file has become shorter than it was
            return
        at += behind
        wanted = max(need, min(2 * len(buffer), _WINDOW))


def _up_to_bad_page(log: LogSource, start: int, length: int) -> memoryview:
    """What can be read of `length` bytes from `start` on, up to the first page that can't be."""
    found = memoryview(b"")
    low, high = 0, (start % _PAGE + length - 1) // _PAGE  # pages: that many can be read; that many more can't
    while low < high:
        pages = (low + high + 1) // 2
        try:
            found = log.read(start, pages * _PAGE - start % _PAGE)
            low = pages
        except StorageError:
            high = pages - 1
    return found


def _search(buffer: memoryview, room: int, rows: list[Row], largest: int) -> tuple[int, int]:
    """Append the whole records in `buffer`; the position to go on from, and the bytes that a record there needs, or 0.

    `room`: bytes from the buffer's start to where no record may reach. The position is 0 only when `need` is more than
    the buffer holds.
    """
    behind = 0
    for position in magics(bytes(buffer)):
        if position < behind:
            continue
        stop = walk(buffer, position, room, rows)
        if 0 < stop.more <= largest:
            return stop.position, stop.more
        behind = max(stop.position, position + 1)
    if len(buffer) >= room:
        return room, 0
    return max(behind, len(buffer) - _OVERLAP, 1), 0
