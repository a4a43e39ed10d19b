"""What is noticed of records while a planning reads the log, beside what they derive to."""

from __future__ import annotations

import bisect
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.checkpoint import SAFETY_MS
from engine.format.numbers import LONG_MAX
from engine.log.scan import RecordBatch

if TYPE_CHECKING:
    from engine.format.checkpoint import Checkpoint
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Scanner
    from engine.repair.recover.memory import Remembered


@dataclass(slots=True)
class Noticed:
    """Of one planning.

    Attributes:
        files: the store.
        plain: scans without kernels, which are for many records.
        mends: physical offsets of records whose own physicalOffset is wrong.
        moved: by segment and how far off their own offset is: how many records, and where the first lies.
        unplaced: units that no queue can take.
        newest: store time (ms) of the newest record.
    """

    files: StoreFiles
    plain: Scanner
    mends: list[int] = field(default_factory=list)
    moved: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    unplaced: int = 0
    newest: int = 0
    _batches: list[tuple[int, int]] = field(default_factory=list)
    """Of each batch its start, and its last record's store time (ms)."""

    def batch(self, batch: RecordBatch, unplaced: int) -> None:
        """Records that were read, and how many of their units no queue can take."""
        self.unplaced += unplaced
        self._batches.append((batch.start, batch.last_store_timestamp))
        self.newest = max(self.newest, batch.newest_store_timestamp)
        size = self.files.config.mapped_file_size_commit_log
        for offset, stored, _ in batch.moved():
            self.mends.append(offset)
            key = (offset - offset % size, stored - offset)
            records, first = self.moved.get(key, (0, offset))
            self.moved[key] = records + 1, first

    def remembered(self, segment: Remembered) -> None:
        """A segment that was read before: store times don't go back in it."""
        self.unplaced += segment.unplaced
        self.newest = max(self.newest, segment.last_store_timestamp)

    def is_in_time(self, offset: int) -> bool:
        """Whether a record was stored when the one before it, which was read, had been: else it may be stale."""
        if offset == self.files.log[0].offset:
            return True
        at = bisect.bisect_right(self._batches, (offset, LONG_MAX)) - 1
        times = [self._batches[at - 1][1]] if at > 0 else []
        for event in self.plain.scan(self._batches[at][0], offset + 1) if at >= 0 else ():
            if isinstance(event, RecordBatch):
                times += event.store_timestamps().tolist()
        return len(times) > 1 and times[-2] <= times[-1]

    def is_after(self, point: Checkpoint) -> bool:
        """Whether a checkpoint is later than all records that were read: it is not one of this log."""
        times = (point.physic_msg_timestamp, point.logics_msg_timestamp, point.index_msg_timestamp)
        return self.newest > 0 and (min(times) < 0 or max(times) > self.newest + SAFETY_MS)
