"""How many messages can have been lost after a place of the log: as plans and manifests say, or the log itself.

A bridge leaves the units of lost messages where they are, and manifests in salvage/ say where that was; salvage/ is
moved away some day. The log shows it, too: inert records, blank records that a bridge marked, ranges without a sound
record (engine.log.inert). Where nothing shows it, nothing was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.store.intervals import Intervals, union
from engine.log.inert import inert_in, is_lost_end
from engine.log.scan import Damage, Gap, RecordBatch, Scanner

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.source import LogSource


class Losses:
    """Ranges of the log without messages that may have held some.

    Args:
        log: as it will be.
        end: physical offset of its end, or after it: what no record follows is not counted.
        known: ranges (physical) that are known to be lost: damage, gaps, and what repairs bridged or accepted.
        max_message_size: setting maxMessageSize (bytes).
    """

    def __init__(self, log: LogSource, end: int, known: Intervals, max_message_size: int) -> None:
        self._log = log
        self._end = end
        self._lost = union(known)
        self._scanner = Scanner(log, check_crc=False, max_message_size=max_message_size)
        self._seen = end  # the log was looked at from here on

    def most(self, after: int, wanted: int) -> int:
        """How many messages can have been lost after the physical offset `after`, where a record is.

        The log is read for it (once) only where what is known does not explain `wanted` of them.
        """
        if self._held(after) < wanted and after < self._seen:
            self._look(after, self._seen)
            self._seen = after
        return self._held(after)

    def between(self, start: int, end: int) -> bool:
        """Whether anything can have been lost between two records, in [start, end) (physical)."""
        if self._lost.overlap(start, end):
            return True
        if start < self._seen:
            self._look(start, min(end, self._seen))
        return bool(self._lost.overlap(start, end))

    def mask(self, physical: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these places lie in a range that is known to be lost."""
        return self._lost.mask(physical)

    def is_inert(self, offset: int) -> bool:
        """Whether the record at a physical offset is an inert one."""
        event = next(iter(self._scanner.scan(offset, offset + 1)), None)
        return isinstance(event, RecordBatch) and inert_in(event.first(1)) == [0]

    def _held(self, after: int) -> int:
        return self._lost.overlap(after, self._end) // MIN_RECORD_SIZE

    def _look(self, start: int, until: int) -> None:
        held: list[Damage] = []
        for event in self._scanner.scan(start, until, resume=True):
            if isinstance(event, Damage):
                held.append(event)
                continue
            if isinstance(event, RecordBatch):
                for i in inert_in(event):
                    self._lost.add(event.offset(i), event.offset(i) + len(event.record(i)))
            elif isinstance(event, Gap) or is_lost_end(self._log, event):
                self._lost.add(event.offset, event.end)
            self._add(held)
            held = []
        if until < self._end:  # else it is the log end
            self._add(held)

    def _add(self, damage: list[Damage]) -> None:
        for one in damage:
            self._lost.add(one.offset, one.end)
