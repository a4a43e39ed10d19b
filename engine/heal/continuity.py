"""Whether queue offsets of fetched records continue those of their queues, over the log as it will be.

The messages of a queue have the queue offsets 0, 1, 2 …, in log order. So between the nearest messages of the same
queue before and after a range, the range must have just the numbers that miss. Where something is lost between two of
them for good (another range that no copy proves), the later one must be the larger. A topic that was deleted and
created again begins at 0.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.store.intervals import Intervals
from engine.log.ahead import scan_ahead
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Blank, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.log.derive import TopicQueue, Units
    from engine.repair.recover.bridge import BridgedLog


@dataclass(slots=True)
class Continuity:
    """What reading the healed log gave.

    `breaks`: places (physical) of records next to which a queue's offsets don't continue, each with what is wrong.
    `came_back`: queue offsets of the messages in healed ranges, by queue.
    """

    breaks: list[tuple[int, str]] = field(default_factory=list)
    came_back: dict[TopicQueue, Intervals] = field(default_factory=dict)


def judge_continuity(
    config: StoreConfig, log: BridgedLog, healed: Iterable[tuple[int, int]], *, jobs: int | None = None
) -> Continuity:
    """Read the log as it will be. `healed`: ranges (physical) that were fetched. Raises StorageError."""
    ranges = Intervals()
    for low, high in healed:
        ranges.add(low, high)
    numbers = QueueNumbers()
    deriver = Deriver(DeriveRules.of(config), numbers)
    judge = _Judge(numbers, ranges)
    scanner = Scanner(log, max_message_size=config.max_message_size)
    prepare = deriver.prepare_and_let_go
    events = scan_ahead(scanner, log.segments[0].offset, prepare=prepare, resume=True, threads=jobs)
    for event, prepared in events:
        if isinstance(event, RecordBatch):
            units, _ = deriver.finish(event, prepared or [])
            judge.feed(units)
        elif not isinstance(event, Blank):
            judge.lost.add(event.offset, event.offset + max(event.length, 1))
    return judge.result


class _Judge:
    def __init__(self, numbers: QueueNumbers, healed: Intervals) -> None:
        import numpy as np

        self.result = Continuity()
        self.lost = Intervals()
        self._numbers = numbers
        self._healed = healed
        self._last: NDArray[np.int64] = np.full((2, 64), -1, dtype=np.int64)  # queue offset and place of the last unit

    def feed(self, units: Units) -> None:
        """Compare a batch's units with those before them."""
        import numpy as np

        if not len(units):
            return
        order = np.argsort(units.queue, kind="stable")
        queue = units.queue[order].astype(np.int64)
        offset, place = units.queue_offset[order], units.physical_offset[order]
        while self._last.shape[1] <= int(queue[-1]):
            self._last = np.concatenate([self._last, np.full_like(self._last, -1)], axis=1)
        first = np.concatenate([[True], queue[1:] != queue[:-1]])
        before, before_at = np.roll(offset, 1), np.roll(place, 1)
        before[first], before_at[first] = self._last[0, queue[first]], self._last[1, queue[first]]
        last = np.concatenate([first[1:], [True]])
        self._last[0, queue[last]], self._last[1, queue[last]] = offset[last], place[last]
        mine = self._healed.mask(place)
        for number in np.unique(queue[mine]).tolist():
            self.result.came_back.setdefault(self._numbers[number], Intervals()).add_many(
                offset[mine & (queue == number)]
            )
        odd = (before_at >= 0) & (offset != before + 1) & (mine | self._healed.mask(before_at))
        for i in np.flatnonzero(odd).tolist():
            self._judge(int(queue[i]), int(before[i]), int(before_at[i]), int(offset[i]), int(place[i]))

    def _judge(self, queue: int, before: int, before_at: int, offset: int, place: int) -> None:
        if offset == 0 or (offset > before and self.lost.overlap(before_at, place)):
            return  # a topic that was deleted and created again begins at 0
        what = f"{self._numbers[queue]} has offset {offset} after {before}"
        self.result.breaks += [(at, what) for at in (before_at, place) if at in self._healed]
