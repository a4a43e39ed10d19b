"""Whether the last segment of a log is another store's, though its name and its records' places fit.

Segments of stores of one size are numbered alike, so a file of another store that a copy has brought may name just the
place after the log end. It is known from all of this:

- The log ends in the segment before, as a log does: zeros from there to that segment's end, and no blank record, with
  which a broker closes a segment before it begins the next one (CommitLog#asyncPutMessage).
- No queue has a unit of its records: what was dispatched is a message.
- None of its records lies where it says, or most of its queues don't continue: they repeat queue offsets,
  or jump, and what is damaged or zeros in between can't have held what was jumped over. The zeros of the segment before
  don't count where no unit points into them, and it is known that nothing was there: the store was closed and units
  show that segment, so that all of it was dispatched; or the file has another name; or all of its records are older
  than the log's last ones.

Pages that a power cut has lost look like that end, but the queues continue after it. The log before is read as a whole,
where the first two hold: hardly ever.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import StorageError
from engine.format.judge import Reason, Row
from engine.format.message import blank_length
from engine.format.record import BLANK_MAGIC_BYTES, MIN_RECORD_SIZE, POSITION_MAGIC
from engine.log.batch_queues import by_queue
from engine.log.scan import Blank, Damage, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.files.disk import Disk
    from engine.inspect.store.segment_contest import Belonging
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue
    from engine.log.scan import Event
    from engine.log.source import Segment

_QUEUE_OFFSET = Row._fields.index("queue_offset")
_LAST = 3
_LAST_BYTES = 1 << 20


class _Number(NamedTuple):
    """The queue offset of a record, and the physical offset where it lies."""

    number: int
    offset: int


class Signs(NamedTuple):
    """What is known of the last segment beside its records: whether its name is right, and whether the log was closed
    with units of the segment before it.
    """

    named: bool
    dispatched: bool


def is_another_stores(
    disk: Disk, files: StoreFiles, before: Sequence[Segment], last: Segment, signs: Signs, belonging: Belonging
) -> bool:
    """Whether `last` is none of the log that the segments `before` it make up (one at least, none missing at the end).

    That no unit points at its records is for the caller to know. Raises StorageError.
    """
    largest = files.config.max_message_size
    with ClosedLog(disk, [before[-1]]) as log:
        if _is_closed(log, before[-1], largest):
            return False
        end, times = _end(Scanner(log, max_message_size=largest).scan(before[-1].offset, resume=True), before[-1])
    if end is None:
        return False
    first: dict[TopicQueue, _Number] = {}
    lost: list[Damage | Gap] = []
    newest = 0
    with ClosedLog(disk, [last]) as log:
        for event in Scanner(log, max_message_size=largest).scan(last.offset, resume=True):
            newest = max(newest, event.newest_store_timestamp if isinstance(event, RecordBatch) else 0)
            for queue, number in _numbers([event], lost, 0):
                first.setdefault(queue, number)
    is_older = len(times) == _LAST and 0 < newest < min(times)
    with ClosedLog(disk, before) as log:
        known = dict(_numbers(Scanner(log, max_message_size=largest).scan(before[0].offset, resume=True), lost, -1))
    nothing_there = signs.dispatched or is_older or not signs.named
    if nothing_there and not belonging.points_into(end, last.offset):
        lost = [one for one in lost if one.offset != end]
    return not first or _contradicts(first, known, None if before[0].offset else _Number(-1, 0), lost)


def _is_closed(log: ClosedLog, segment: Segment, largest: int) -> bool:
    """Whether a blank closes a segment, told by its last bytes or without reading its bodies: it mostly is so."""
    if _ends_with_blank(log, segment):
        return True
    scanner = Scanner(log, check_crc=False, max_message_size=largest)
    return any(isinstance(event, Blank) for event in scanner.scan(segment.offset, resume=True))


def _ends_with_blank(log: ClosedLog, segment: Segment) -> bool:
    """Whether the last bytes hold the head of a blank that ends with the segment. False: an earlier one may be there.

    A blank is shorter than the record that did not fit, so few are longer than what is read here.
    """
    start = max(segment.offset, segment.end - _LAST_BYTES)
    with contextlib.suppress(StorageError):
        last = bytes(log.read(start, segment.end - start))
        at = last.rfind(BLANK_MAGIC_BYTES)
        while at >= 0:
            head = at - POSITION_MAGIC
            if blank_length(last, head) == segment.end - (start + head):
                return True
            at = last.rfind(BLANK_MAGIC_BYTES, 0, at)
    return False


def _end(events: Iterable[Event], segment: Segment) -> tuple[int | None, list[int]]:
    """Physical offset where the log ends in a segment that nothing closes (None where that is not so), and the store
    times of its last records (ms): one alone may be rotten.
    """
    end: int | None = None
    times: list[int] = []
    for event in events:
        if isinstance(event, Blank):
            return None, times
        if isinstance(event, RecordBatch):
            times = [*times, *event.store_timestamps()[-_LAST:].tolist()][-_LAST:]
        is_end = isinstance(event, Damage) and event.reason is Reason.EMPTY and event.end >= segment.end
        end = event.offset if isinstance(event, Damage) and is_end else None
    return end, times


def _numbers(events: Iterable[Event], lost: list[Damage | Gap], at: int) -> Iterator[tuple[TopicQueue, _Number]]:
    """The first (`at` 0) or last (−1) number of each queue in each batch that lies in its place, in log order.

    What is damaged or missing goes into `lost`.
    """
    import numpy as np

    for event in events:
        if isinstance(event, Damage | Gap):
            lost.append(event)
        elif isinstance(event, RecordBatch) and not event.moved():
            numbers, offsets = event.columns()[_QUEUE_OFFSET], event.offsets()
            for queue, mine in by_queue(event, np.flatnonzero(event.consumable())):
                yield queue, _Number(int(numbers[mine[at]]), int(offsets[mine[at]]))


def _contradicts(
    first: Mapping[TopicQueue, _Number],
    known: Mapping[TopicQueue, _Number],
    unknown: _Number | None,
    lost: Sequence[Damage | Gap],
) -> bool:
    """Whether most queues of records that begin with these numbers don't continue where they were.

    Args:
        first: the first number of each queue.
        known: the last one of each before.
        unknown: the last one of a queue that is not among those; None: nobody knows.
        lost: what may have held messages.
    """
    goes_on = repeats = jumps = needed = 0
    jumped: list[tuple[int, int]] = []
    for queue, (number, offset) in first.items():
        last = known.get(queue, unknown)
        if last is None or (last.number < 0 and number <= 0):
            continue
        goes_on += number == last.number + 1
        repeats += number <= last.number
        if number > last.number + 1:
            jumps += 1
            needed += (number - last.number - 1) * (MIN_RECORD_SIZE + len(queue.topic))
            jumped.append((last.offset, offset))
    start, end = min((one for one, _ in jumped), default=0), max((other for _, other in jumped), default=0)
    if needed > sum(one.length for one in lost if start <= one.offset < end):
        return repeats + jumps > goes_on
    return repeats > goes_on + jumps
