"""What lies after the log end: segments that go, bytes that become zero, the blank record that may stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StorageError
from engine.format.record import BLANK_SIZE

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import ClosedLog, Segment
    from engine.repair.recover.log_end import LogEnd

_PIECE = 1 << 20


class LogTail(NamedTuple):
    """What goes after the end. `removed`, `zeroed`, `blank` and `bytes_cut` are LogPlan's."""

    removed: tuple[str, ...]
    zeroed: tuple[str, int, int] | None
    blank: tuple[str, int] | None
    bytes_cut: int


def tail_of(files: StoreFiles, log: ClosedLog, end: LogEnd) -> LogTail:
    """The tail of a log that has to end there.

    A segment that starts just at the end stays: the log continues there (MappedFileQueue#truncateDirtyFiles).
    """
    log_min = files.log[0].offset if files.log else 0
    removed = [one for one in files.log if one.offset > end.end and one.offset != log_min]
    zeroed: tuple[str, int, int] | None = None
    blank: tuple[str, int] | None = None
    cut = 0
    for segment in files.log:
        written = _last_written(log, segment, max(end.end, segment.offset))
        if written is None:
            continue
        if end.closed and segment not in removed and written <= end.end + BLANK_SIZE:
            blank = (segment.path, end.end - segment.offset)
            continue
        cut += written - max(end.end, segment.offset)
        if segment not in removed:
            position = end.end - segment.offset
            zeroed = (segment.path, position, segment.size - position)
    return LogTail(tuple(one.path for one in reversed(removed)), zeroed, blank, cut)


def _last_written(log: ClosedLog, segment: Segment, start: int) -> int | None:
    """Physical offset after the last byte that isn't zero in [start, segment end); None when all are."""
    last: int | None = None
    zeros = bytes(_PIECE)
    for data_start, data_end in log.data_ranges(segment, start) if start < segment.end else ():
        for at in range(data_start, data_end, _PIECE):
            try:
                data = bytes(log.read(at, min(_PIECE, data_end - at)))
            except StorageError:  # nobody knows what is there: something
                last = min(at + _PIECE, data_end)
                continue
            if data != zeros[: len(data)]:
                last = at + len(data.rstrip(b"\0"))
    return last
