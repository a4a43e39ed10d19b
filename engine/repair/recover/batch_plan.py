"""What becomes of one batch queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.inspect.store.spool import Spool
    from engine.log.derive import TopicQueue
    from engine.repair.recover.batch_disk import HeldFile, HeldQueue
    from engine.repair.recover.queue_plan import Renumbered


@dataclass(frozen=True, slots=True)
class BatchQueuePlan:
    """What one batch queue becomes. Offsets are queue offsets, as in `QueuePlan`; *numbers* are those of units.

    `spans`: numbers [start, end) of units that are written, `units` (batch_unit_dtype()) one after the other.
    `cleared`: numbers of units that become zeros. `resized`: files that get the length of a file; `removed`: those that
    hold no unit of the queue. `old_extent`: after the last message that a unit on disk shows. `written`: queue offsets
    that get their unit; `units_cut`: units that point after the log's end, the last one before `cut_end`.
    """

    queue: TopicQueue
    held: HeldQueue
    min_offset: int
    max_offset: int
    old_extent: int
    units_cut: int = 0
    cut_end: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    units: Spool | None = None
    written: tuple[tuple[int, int], ...] = ()
    cleared: tuple[int, int] = (0, 0)
    resized: tuple[HeldFile, ...] = ()
    removed: tuple[HeldFile, ...] = ()

    @property
    def units_rebuilt(self) -> int:
        """How many units are written."""
        return sum(end - start for start, end in self.spans)

    @property
    def units_filled(self) -> int:
        """None: a unit lies where the one before it ends, whatever messages are lost."""
        return 0

    @property
    def fills(self) -> tuple[tuple[int, int], ...]:
        """See `units_filled`."""
        return ()

    @property
    def front(self) -> tuple[int, int]:
        """See `units_filled`."""
        return 0, 0

    @property
    def renumbered(self) -> tuple[Renumbered, ...]:
        """None: what a record's properties say is its place."""
        return ()

    @property
    def changed(self) -> bool:
        """Whether a byte of its files changes."""
        return bool(self.spans or self.resized or self.removed or self.cleared[0] < self.cleared[1])
