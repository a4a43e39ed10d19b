"""What of a store's log is to be healed: ranges without the records that were there.

Damage and missing segments with sound records after them, as the scanner finds them, and what an earlier bridge wrote
(engine.log.inert): its records are sound, and hold no message. What lies after the last record is the log's tail: it is
no damage in the log.

Ranges that touch are one run, with the nearest sound record on either side; each run is cut at the borders of segments,
as a copy may have one and lack the next.
"""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format.names import segment_name
from engine.inspect.check.stale_tail import StaleJudge
from engine.log.ahead import scan_ahead
from engine.log.inert import inert_in, is_lost_end
from engine.log.scan import Blank, Damage, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Event

MOST_MISSING = 4096
"""Missing segments in a row that are looked for in copies: names of files may claim any number of them."""


class LostKind(StrEnum):
    """What became of a range."""

    DAMAGED = "damaged"
    MISSING = "missing"
    BRIDGED = "bridged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sound record near a run: physical offset, bytes, storeTimestamp (ms); `body_end`: where its body ends in it."""

    offset: int
    size: int
    stored: int
    body_end: int

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class LostPart:
    """A range [start, end) (physical) of one segment. `why`: the scanner's reason."""

    segment: Segment
    start: int
    end: int
    lost: LostKind
    why: str

    @property
    def length(self) -> int:
        """In bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class LostRun:
    """Parts that touch, and the sound records before and after them (None: the log begins with the run).

    `second`: the record before `before`.
    """

    parts: tuple[LostPart, ...]
    before: Neighbour | None
    after: Neighbour
    second: Neighbour | None = None


@dataclass(frozen=True, slots=True)
class LogDamage:
    """All of it. `end`: physical offset after the last record; `torn`: bytes after it, up to the last that is not 0."""

    runs: tuple[LostRun, ...]
    end: int
    torn: int

    @property
    def parts(self) -> tuple[LostPart, ...]:
        """Of all runs, in log order."""
        return tuple(part for run in self.runs for part in run.parts)


def find_damage(
    disk: Disk, files: StoreFiles, *, jobs: int | None = None, progress: Callable[[int, int], None] | None = None
) -> LogDamage:
    """Read the whole log of a store. `files`: with the log as it will be; `jobs`: threads (None: one a core).

    Raises:
        StorageError: a directory or a file can't be opened. A page that can't be read is damage.
    """
    if not files.log:
        return LogDamage((), 0, 0)
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        start = log.segments[0].offset
        events = scan_ahead(scanner, start, prepare=lambda _: None, resume=True, threads=jobs)
        finder = _Finder(files, log, StaleJudge(disk, files, scanner, start))
        for event, _ in events:
            if not finder.take(event):
                break
            if progress is not None and isinstance(event, RecordBatch):
                progress(event.end - start, files.log[-1].end - start)
        return finder.result()


class _Finder:
    """One pass over the log: a run is one once a sound record after it shows that it lies in the middle."""

    def __init__(self, files: StoreFiles, log: ClosedLog, stale: StaleJudge) -> None:
        self._size = files.config.mapped_file_size_commit_log
        self._log = log
        self._stale = stale
        self._last: Neighbour | None = None
        self._second: Neighbour | None = None
        self._pending: list[LostPart] = []
        self._runs: list[LostRun] = []

    def take(self, event: Event) -> bool:
        """Whether the log goes on after this event."""
        if isinstance(event, RecordBatch):
            return self._records(event)
        if isinstance(event, Blank):
            self._blank(event)
        elif isinstance(event, Damage):
            self._add(LostPart(event.segment, event.offset, event.end, LostKind.DAMAGED, event.reason.value))
        else:
            for part in self._missing(event):
                self._add(part)
        return True

    def result(self) -> LogDamage:
        end = 0 if self._last is None else self._last.end
        torn = 0
        for part in self._pending:
            torn += 0 if part.lost is LostKind.MISSING else _written(self._log, part)
        return LogDamage(tuple(self._runs), end, torn)

    def _records(self, batch: RecordBatch) -> bool:
        stored = 0 if self._last is None else self._last.stored
        tail = self._stale.within(batch, stored)
        if tail is not None:
            if tail[0] == 0:
                return False
            batch = batch.first(tail[0])
        inert = inert_in(batch)
        if inert:
            self._mixed(batch, set(inert))
        else:
            many = len(batch)
            second = _neighbour(batch, many - 2) if many > 1 else None
            self._sound(_neighbour(batch, 0), second, _neighbour(batch, many - 1))
        return tail is None

    def _mixed(self, batch: RecordBatch, inert: set[int]) -> None:
        for i in range(len(batch)):
            one = _neighbour(batch, i)
            if i not in inert:
                self._sound(one, None, one)
                continue
            segment = self._log.segment_at(one.offset)
            assert segment is not None
            self._add(
                LostPart(segment, one.offset, one.offset + one.size, LostKind.BRIDGED, "bridged by an earlier repair")
            )

    def _sound(self, first: Neighbour, second: Neighbour | None, last: Neighbour) -> None:
        """Sound records in a row: the first one, the last but one (None: the first is the last), the last one."""
        if self._pending:
            self._runs.append(LostRun(tuple(self._pending), self._last, first, self._second))
            self._pending = []
        self._second, self._last = second or self._last, last

    def _blank(self, blank: Blank) -> None:
        segment = self._log.segment_at(blank.offset)
        assert segment is not None
        if is_lost_end(self._log, blank):
            self._add(LostPart(segment, blank.offset, blank.end, LostKind.BRIDGED, "bridged by an earlier repair"))
        elif self._pending and self._pending[-1].end == blank.offset:  # it is proved with what is before it
            self._pending[-1] = replace(self._pending[-1], end=blank.end)

    def _add(self, part: LostPart) -> None:
        last = self._pending[-1] if self._pending else None
        if last is not None and last.segment.offset == part.segment.offset and last.end == part.start:
            self._pending[-1] = replace(last, end=part.end)
        else:
            self._pending.append(part)

    def _missing(self, gap: Gap) -> Iterator[LostPart]:
        """The segments of a gap, to be made beside the one before it."""
        before = max((one for one in self._log.segments if one.end <= gap.offset), key=lambda one: one.end)
        many = gap.length // self._size if gap.length % self._size == 0 else 0
        size = self._size if 0 < many <= MOST_MISSING else gap.length
        for start in range(gap.offset, gap.end, size):
            path = os.path.join(os.path.dirname(before.path), segment_name(start))
            segment = Segment(start, size, path, held=0)
            yield LostPart(segment, start, start + size, LostKind.MISSING, "the segment is missing")


def _neighbour(batch: RecordBatch, i: int) -> Neighbour:
    record, body = batch.record(i), batch.body_end(i)
    return Neighbour(batch.offset(i), len(record), batch.store_timestamp(i), body)


def _written(log: ClosedLog, part: LostPart) -> int:
    """Bytes of a range up to the last one that is not zero; 0 where only zeros can be read."""
    last = part.start
    for low, high in log.data_ranges(part.segment, part.start):
        for at in range(low, min(high, part.end), 1 << 20):
            try:
                data = bytes(log.read(at, min(1 << 20, part.end - at)))
            except StorageError:
                continue
            last = at + len(data.rstrip(b"\0")) if data.strip(b"\0") else last
    return last - part.start
