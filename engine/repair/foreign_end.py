"""Whether the last segment of a log is another store's, though its name and its records' places fit.

Segments of stores of one size are numbered alike, so a file of another store that a copy has brought may name just the
place behind the log's end. It is told by all of this:

- The log ends in the segment before, as a log does: zeros from there to that segment's end, and no blank record, with
  which a broker closes a segment before it begins the next one (CommitLog#asyncPutMessage).
- No queue has a unit of its records: what was dispatched is a message.
- None of its records lies where it says, or most of its queues don't go on where they were: they repeat queue offsets,
  or jump, and the zeros can't have held what was jumped over: it is too much, or the store was closed and units show
  the segment before, so that all of it was dispatched, or the file has another name.

Pages that a power cut has lost look like that end, but the queues go on behind them. The log before is read as a whole,
where the first two hold: hardly ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.format.message import MIN_RECORD_SIZE
from engine.log.batch_queues import by_queue
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.log.walk import Reason, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.files.disk import Disk
    from engine.log.derive import TopicQueue
    from engine.log.scan import Event
    from engine.log.source import Segment
    from engine.repair.survey import StoreFiles

_QUEUE_OFFSET = Row._fields.index("queue_offset")


class Signs(NamedTuple):
    """What is known of the last segment beside its records: whether its name is right, and whether the log was closed
    with units of the segment before it.
    """

    named: bool
    dispatched: bool


def is_another_stores(disk: Disk, files: StoreFiles, before: Sequence[Segment], last: Segment, signs: Signs) -> bool:
    """Whether `last` is none of the log that the segments `before` it make up (one at least, none missing at the end).

    That no unit points at its records is for the caller to know. Raises StorageError.
    """
    largest = files.config.max_message_size
    with ClosedLog(disk, [before[-1]]) as log:
        end = _end(Scanner(log, max_message_size=largest).scan(before[-1].offset, resume=True), before[-1])
    if end is None:
        return False
    first: dict[TopicQueue, int] = {}
    with ClosedLog(disk, [last]) as log:
        for queue, number in _numbers(Scanner(log, max_message_size=largest).scan(last.offset, resume=True), at=0):
            first.setdefault(queue, number)
    with ClosedLog(disk, before) as log:
        known = dict(_numbers(Scanner(log, max_message_size=largest).scan(before[0].offset, resume=True)))
    unknown = None if before[0].offset else -1
    lost = 0 if signs.dispatched or not signs.named else last.offset - end
    return not first or _contradicts(first, known, unknown, lost)


def _end(events: Iterable[Event], segment: Segment) -> int | None:
    """Physical offset where the log ends in a segment that nothing closes; None where that is not so."""
    end = None
    for event in events:
        if isinstance(event, Blank):
            return None
        is_end = isinstance(event, Damage) and event.reason is Reason.EMPTY and event.end >= segment.end
        end = event.offset if isinstance(event, Damage) and is_end else None
    return end


def _numbers(events: Iterable[Event], at: int = -1) -> Iterator[tuple[TopicQueue, int]]:
    """The first (`at` 0) or last (−1) queue offset of each queue in each batch that lies in its place, in log order."""
    import numpy as np

    for event in events:
        if isinstance(event, RecordBatch) and not event.moved():
            numbers = event.columns()[_QUEUE_OFFSET]
            for queue, mine in by_queue(event, np.flatnonzero(event.consumable())):
                yield queue, int(numbers[mine[at]])


def _contradicts(
    first: Mapping[TopicQueue, int],
    known: Mapping[TopicQueue, int],
    unknown: int | None,
    lost: int,
) -> bool:
    """Whether most queues of records that begin with these queue offsets don't go on where they were.

    Args:
        first: the first queue offset of each queue.
        known: the last one of each before.
        unknown: the last one of a queue that is not among those; None: nobody knows.
        lost: bytes in between that may have held messages.
    """
    goes_on = repeats = jumps = needed = 0
    for queue, number in first.items():
        last = known.get(queue, unknown)
        if last is None or (last < 0 and number <= 0):
            continue
        goes_on += number == last + 1
        repeats += number <= last
        jumps += number > last + 1
        needed += max(0, number - last - 1) * (MIN_RECORD_SIZE + len(queue.topic))
    if needed > lost:
        return repeats + jumps > goes_on
    return repeats > goes_on + jumps
