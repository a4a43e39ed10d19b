"""Where a recovery begins to read the log: where Apache would, or before, where that is what a sound outcome takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.check.stale_tail import StaleJudge
from engine.inspect.store.log_clock import store_time_at
from engine.log.scan import RecordBatch
from engine.log.state import NORMAL_FILES
from engine.repair.recover.log_end import Mode, start_segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.inspect.check.queue_compare import QueueComparer
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Scanner
    from engine.log.source import ClosedLog, Segment

_SEGMENTS_BACK = 16
"""Segments before recovery's start whose first records are looked at, in case they are stale."""


@dataclass(frozen=True, slots=True)
class ReadStart:
    """Finds it in a log that has a segment. `plain`: scans without kernels, which are for many records."""

    disk: Disk
    files: StoreFiles
    log: ClosedLog
    scanner: Scanner
    plain: Scanner
    comparer: QueueComparer

    def of(self, mode: Mode, written: Iterable[int]) -> Segment:
        """The segment where reading starts. `written`: physical offsets that this repair or a killed one writes at.

        What is there is read, and so are short files.
        """
        start = start_segment(self.files, self.log, mode)
        short = (segment.offset for segment in self.files.log if segment.short)
        segments = [one for offset in (*written, *short) if (one := self.log.segment_at(offset)) is not None]
        start = min([start, *segments], key=lambda segment: segment.offset)
        return self._before_a_stale_tail(self._with_a_record(start))

    def after(self, ahead: int | None) -> int:
        """Physical offset where a normal start of the recovered store begins. As far as can be known before the log is
        read: files after its end go, so that the third last is another one. `ahead`: where it is known already.
        """
        log = self.files.log
        if ahead is not None:
            return next(segment for segment in log if segment.end > ahead).offset
        return log[max(0, log.index(self._with_a_record(log[-1])) + 1 - NORMAL_FILES)].offset

    def _with_a_record(self, start: Segment) -> Segment:
        """The last segment up to `start` that begins with a sound record: a log that ends where reading starts is one
        whose next start reads the segment before, with whatever damage it has.
        """
        at = self.files.log.index(start)
        while at and not isinstance(next(self.plain.scan(self.files.log[at].offset), None), RecordBatch):
            at -= 1
        return self.files.log[at]

    def _before_a_stale_tail(self, start: Segment) -> Segment:
        """The segment to read from so that a stale tail of whole segments is met where it begins, if that is near.

        Heads alone are read, and more only where store times go back between two of them.
        """
        log, last = self.files.log, self.files.log.index(start)
        firsts = {i: store_time_at(self.log, log[i].offset) for i in range(max(0, last - _SEGMENTS_BACK), last + 1)}
        for i in sorted(firsts)[1:]:
            if 0 < firsts[i] < firsts[i - 1]:
                judge = StaleJudge(self.disk, self.files, self.scanner, log[i - 1].offset, self.comparer.rows)
                if judge.judge(log[i].offset, firsts[i - 1]) is not None:
                    return log[i - 1]
        return start
