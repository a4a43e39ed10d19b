"""What becomes of one queue; and of the units whose messages lay in a range of the log that is bridged.

The unit of a lost message repeats the unit before it, so no later queue offset moves and a consumer at worst sees a
message twice. At a queue's front it repeats the unit after it. Not a pre-blank unit: Apache's getMessage takes that
for a message, and skips all of the queue's in the same log file after it. Where a queue lost every message there is
no unit to repeat: its units then point at an inert record, so that the next message gets the queue offset that it would
have got, and consumers don't stand above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.inspect.store.intervals import Intervals

if TYPE_CHECKING:
    from engine.files.listing import SegmentFile
    from engine.log.derive import TopicQueue
    from engine.repair.recover.bridge import Bridge


class Renumbered(NamedTuple):
    """A record (physical offset) whose own queue offset can't be right, and the one that it gets."""

    physical_offset: int
    named: int
    queue_offset: int


class Requeued(NamedTuple):
    """A record (physical offset) whose queueId or queueOffset is damaged, and what both are."""

    physical_offset: int
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What one queue becomes. Offsets are queue offsets; `max_physical_offset` is −1 for an empty queue.

    `written`: queue offsets that get the unit of their record.

    `old_extent`: after the last unit on disk that isn't zeros. `fills`: queue offsets without a message, which get the
    unit before them; those of `from_after` the unit after, where the one before shows a message that is missing, too.
    `front`: queue offsets at the front whose messages are lost, filled with the unit after them; for a queue that lost
    all of them, with a unit for the inert record (`inert`: place and size). `pre_blanks`: units at the front of the
    first file that get the pre-blank unit. `renumbered`: records that get another queue offset than they say.
    `units_cut`: units removed at the end that point after the log's, the last one before `cut_end`.
    `ahead`: files before the one in which the queue begins, with no unit of it: set aside.
    """

    queue: TopicQueue
    number: int
    min_offset: int
    max_offset: int
    max_physical_offset: int
    old_extent: int
    units_cut: int
    units_rebuilt: int
    fills: tuple[tuple[int, int], ...]
    pre_blanks: tuple[int, int]
    written: tuple[tuple[int, int], ...]
    front: tuple[int, int] = (0, 0)
    inert: tuple[int, int] | None = None
    renumbered: tuple[Renumbered, ...] = ()
    from_after: tuple[tuple[int, int], ...] = ()
    ahead: tuple[SegmentFile, ...] = ()
    cut_end: int = 0

    @property
    def units_filled(self) -> int:
        """Queue offsets that get another one's unit."""
        return sum(end - start for start, end in (*self.fills, self.front))

    @property
    def changed(self) -> bool:
        """Whether a byte of its files changes."""
        start, end = self.pre_blanks
        return bool(self.units_rebuilt or self.units_filled or start < end or self.old_extent > self.max_offset)


class LostRows:
    """The bridged ranges, as the queues see them; false where there are none.

    Args:
        bridges: of this repair.
        begun: of one that was killed: start, end (physical), bytes of the sound record at the start (0: none).
    """

    def __init__(self, bridges: Sequence[Bridge], begun: Sequence[tuple[int, int, int]] = ()) -> None:
        self.places = Intervals()
        inert = [bridge.inert for bridge in bridges]
        for bridge in bridges:
            self.places.add(bridge.offset, bridge.offset + bridge.length)
        for start, end, size in begun:
            self.places.add(start, end)
            inert.append((start, size) if size else None)
        # the first in the log, so that a repair that ends a killed one's work chooses as that did
        self._inert = min((one for one in inert if one is not None), default=None)

    def __bool__(self) -> bool:
        return bool(self.places)

    def front(
        self, lost: Intervals, whole: Intervals, first_place: int | None, least: int
    ) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """Queue offsets before the first unit that stays whose messages are lost; what they show when no unit stays.

        Args:
            lost: units on disk that point into a bridged range.
            whole: queue offsets that have their unit, or get it.
            first_place: of a queue without units on disk, in a log that begins with the first message ever put: where
                the record of its first unit lies. The units before it are lost when the bridges before it had room.
            least: bytes that a record of the queue takes at least.

        Returns:
            the units [start, end), and place and size of the inert record; None when the unit after is repeated.
        """
        if not whole:
            if not lost or self._inert is None:
                return (0, 0), None
            return (lost.start, lost.end), self._inert
        first = whole.start
        if lost and lost.start < first:
            return (lost.start, first), None
        if first_place is not None and first <= self.places.overlap(0, first_place) // least:
            return (0, first), None
        return (0, 0), None
