"""A plan's changes of the commit log: bridges and copies, records' own places, segments that go, a tail of zeros."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format.record import (
    BLANK_SIZE,
    INT_SIZE,
    LONG_SIZE,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
)
from engine.repair.trees import sync_file, zero_range

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.repair.recover.plan import RecoverPlan


def take_blank_away(disk: Disk, plan: RecoverPlan) -> None:
    """A blank at the log end: puts continue there. Nothing is saved of it, as every blank is the same."""
    if plan.log.blank is None:
        return
    path, at = plan.log.blank
    file = disk.open_raw(path, writable=True)
    try:
        file.write(at, bytes(BLANK_SIZE))
        file.sync(at, at + BLANK_SIZE)
    finally:
        file.close()


class LogApplier:
    """Does what the plan says of the log; killed at any step, planning again finds the rest to do."""

    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._files = plan.files

    def run(self) -> None:
        """Raises DiskFull, StorageError."""
        disk, log = self._disk, self._plan.log
        self._bridge()
        self._mend()
        for path in log.removed:  # the last one first: the rest stays a log at every step
            disk.step("recover.remove-segment")
            disk.unlink(path)
            disk.sync_dir(os.path.dirname(path))
        if log.tail is not None:
            disk.step("recover.zero-tail")
            zero_range(disk, *log.tail)
        self._sync_read_part()

    def _bridge(self) -> None:
        """Write over the damaged ranges: records that a copy holds, inert content."""
        for bridge in (*self._plan.log.taken, *self._plan.log.bridges):
            path, start = bridge.segment.path, bridge.segment.offset
            for patch in bridge.patches:
                low, high = patch.zeros
                if low < high:  # first: once the blank record is there, no recovery looks after it
                    self._disk.step("recover.bridge-zeros")
                    zero_range(self._disk, path, low - start, high - low)
            file = self._disk.open_raw(path, writable=True)
            try:
                for patch in bridge.patches:
                    at, data = patch.offset - start, patch.head()
                    self._disk.step("recover.bridge")
                    file.write(at, data)
                    file.sync(at, at + len(data))
            finally:
                file.close()

    def _mend(self) -> None:
        """Write a record's own place into its physicalOffset (rule 3), and its unit's into queueId and queueOffset."""
        log = self._plan.log
        for offset in log.mends:
            self._write_field(offset, POSITION_PHYSICAL_OFFSET, offset, LONG_SIZE)
        for one in log.requeued:
            self._write_field(one.physical_offset, POSITION_QUEUE_ID, one.queue_id, INT_SIZE)
            self._write_field(one.physical_offset, POSITION_QUEUE_OFFSET, one.queue_offset, LONG_SIZE)

    def _write_field(self, offset: int, position: int, value: int, size: int) -> None:
        """Write `size` bytes of a record's header, durably."""
        segment = next(one for one in self._files.log if one.offset <= offset < one.end)
        at = offset - segment.offset + position
        file = self._disk.open_raw(segment.path, writable=True)
        try:
            self._disk.step("recover.mend")
            file.write(at, value.to_bytes(size, "big"))
            file.sync(at, at + size)
        finally:
            file.close()

    def _sync_read_part(self) -> None:
        """What recovery vouches for must be on disk before the checkpoint says so: it may be in the cache only."""
        gone = set(self._plan.log.removed)
        start = self._plan.log.start_file
        seen = False
        for segment in self._files.log:
            seen = seen or segment.path == start
            if seen and segment.path not in gone:
                sync_file(self._disk, segment.path, segment.size)
