"""Whole records anywhere in the log, searched by their magic: whatever place they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format.judge import Row
from engine.format.record import MAGIC_SIZE, POSITION_MAGIC
from engine.log.scan import FIRST_WINDOW, RecordBatch, magics
from engine.log.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.log.source import LogSource

_WINDOW = 4 << 20
_PAGE = 4096
_OVERLAP = POSITION_MAGIC + MAGIC_SIZE - 1
"""So much of a magic may lie after a window's end."""


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
        after, need = _search(buffer, end - at, rows, largest)
        if rows:
            yield RecordBatch(at, buffer, rows)
        if len(buffer) < wanted:  # the file has become shorter than it was
            return
        at += after
        wanted = max(need, min(2 * len(buffer), _WINDOW))


def _up_to_bad_page(log: LogSource, start: int, length: int) -> memoryview:
    """What can be read of `length` bytes from `start` on, up to the first page that can't be."""
    readable = memoryview(b"")
    low, high = 0, (start % _PAGE + length - 1) // _PAGE  # pages: that many can be read; that many more can't
    while low < high:
        pages = (low + high + 1) // 2
        try:
            readable = log.read(start, pages * _PAGE - start % _PAGE)
            low = pages
        except StorageError:
            high = pages - 1
    return readable


def _search(buffer: memoryview, room: int, rows: list[Row], largest: int) -> tuple[int, int]:
    """Append the whole records in `buffer`; the position to continue at, and the bytes a record there needs, or 0.

    `room`: bytes from the buffer's start to where no record may reach. The position is 0 only when `need` is more than
    the buffer holds.
    """
    after = 0
    for position in magics(bytes(buffer)):
        if position < after:
            continue
        stop = walk(buffer, position, room, rows)
        if 0 < stop.more <= largest:
            return stop.position, stop.more
        after = max(stop.position, position + 1)
    if len(buffer) >= room:
        return room, 0
    return max(after, len(buffer) - _OVERLAP, 1), 0
