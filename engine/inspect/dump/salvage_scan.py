"""What is lost and what is whole: of a store's log, of any file that may be a part of one, of what a repair saved.

Reads only. Every byte of the log is in one of: sound records, blanks (a file's end), lost ranges, missing segments,
and the empty rest after the last record. Displaced records (engine.inspect.dump.whole_records) lie in lost ranges,
or in the chain of a file under another's name; bridged ranges hold an inert record, and their bytes are in salvage/.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.files.lock import holder_of
from engine.format import names
from engine.format.dledger_entry import HEAD_SIZE, judge_entry
from engine.format.judge import Stop
from engine.format.message import INERT_TOPIC
from engine.inspect.check.verify import boundary
from engine.inspect.dump.saved_log import SavedLog, Span, log_offset, log_spans, missing_copies, saved_repairs
from engine.inspect.dump.whole_records import Displaced, Lost, whole_records
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.known import known_places
from engine.inspect.store.survey import survey
from engine.log.batch_queues import by_queue
from engine.log.derive import TopicQueue
from engine.log.inert import inert_in
from engine.log.scan import Blank, RecordBatch, Scanner
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.dump.saved_log import SavedRepair
    from engine.log.source import LogSource, SegmentedLog

DISTANCES = 20
"""Distances of displaced records that are listed one by one, most frequent first."""


@dataclass(slots=True)
class ScanTotals:
    """Records, messages among them, bytes, first and last store time (ms; 0 for none), by queue records and bytes."""

    records: int = 0
    messages: int = 0
    size: int = 0
    first: int = 0
    last: int = 0
    queues: dict[TopicQueue, tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: RecordBatch, records: NDArray[np.intp]) -> None:
        """Count some records of a batch (places in it)."""
        if not len(records):
            return
        sizes = batch.sizes()
        self.records += len(records)
        self.messages += int(batch.consumable()[records].sum())
        self.size += int(sizes[records].sum())
        times = batch.store_timestamps()[records]
        self.first = min(self.first or int(times[0]), int(times.min()))
        self.last = max(self.last, int(times.max()))
        for queue, mine in by_queue(batch, records):
            count, total = self.queues.get(queue, (0, 0))
            self.queues[queue] = count + len(mine), total + int(sizes[mine].sum())

    def to_json(self) -> dict[str, Any]:
        """As it stands in reports."""
        return {
            "records": self.records,
            "messages": self.messages,
            "bytes": self.size,
            "firstStoreTimestamp": self.first or None,
            "lastStoreTimestamp": self.last or None,
            "queues": [
                {"topic": queue.topic, "queueId": queue.queue_id, "records": records, "bytes": size}
                for queue, (records, size) in sorted(self.queues.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class LostRange:
    """A lost range: where (`file`: the store's own name of it, None when missing; `position` in it), why, and the
    sound records from there to the next one. `accepted`: a repair was allowed to continue after it.
    """

    offset: int
    length: int
    file: str | None
    position: int
    reason: str
    accepted: bool
    after: ScanTotals

    def to_json(self) -> dict[str, Any]:
        """One line of `lost` or `missing`."""
        place: dict[str, Any] = {"physicalOffset": self.offset, "length": self.length}
        if self.file is not None:
            place |= {"file": self.file, "position": self.position, "reason": self.reason}
        return {**place, "accepted": self.accepted, "after": self.after.to_json()}


@dataclass(slots=True)
class ScanReport:
    """What a scan found. Sizes in bytes. `distances`: how far displaced records lie from where they say (place − own).

    `odd`: what lies among the log's files and is none, so that it was not read (path, why).
    """

    sound: ScanTotals = field(default_factory=ScanTotals)
    lost: list[LostRange] = field(default_factory=list)
    blanks: int = 0
    blank_bytes: int = 0
    displaced: ScanTotals = field(default_factory=ScanTotals)
    distances: Counter[int] = field(default_factory=Counter)
    bridged: int = 0
    bridged_bytes: int = 0
    live: bool = False
    odd: list[tuple[str, str]] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """Bytes in lost ranges of files that are there."""
        return sum(lost_range.length for lost_range in self.lost if lost_range.file is not None)

    @property
    def missing_bytes(self) -> int:
        """Bytes of missing segments."""
        return sum(lost_range.length for lost_range in self.lost if lost_range.file is None)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `salvage scan`."""
        return {
            **self.sound.to_json(),
            "lost": [lost_range.to_json() for lost_range in self.lost if lost_range.file is not None],
            "lostBytes": self.lost_bytes,
            "missing": [lost_range.to_json() for lost_range in self.lost if lost_range.file is None],
            "missingBytes": self.missing_bytes,
            "blanks": {"count": self.blanks, "bytes": self.blank_bytes},
            "displaced": {
                **self.displaced.to_json(),
                "distances": [
                    {"distance": distance, "records": records}
                    for distance, records in self.distances.most_common(DISTANCES)
                ],
            },
            "bridged": {"records": self.bridged, "bytes": self.bridged_bytes},
            "notRead": [{"path": path, "why": why} for path, why in self.odd],
            "running": self.live,
        }


class Counting:
    """Makes a report of what `whole_records` yields. `known`: bridged and accepted ranges of the log."""

    def __init__(self, bridged: Intervals | None = None, accepted: Intervals | None = None) -> None:
        self.report = ScanReport()
        self._after = ScanTotals()
        self._bridged = bridged or Intervals()
        self._accepted = accepted or Intervals()

    def feed(self, event: RecordBatch | Blank | Lost | Displaced) -> None:
        """Count one of them."""
        import numpy as np

        report = self.report
        if isinstance(event, RecordBatch):
            self._records(event)
        elif isinstance(event, Displaced):
            self._displaced(event.batch, np.arange(len(event.batch)))
        elif isinstance(event, Blank):
            report.blanks += 1
            report.blank_bytes += event.length
        else:
            self._after = ScanTotals()
            report.lost.append(self._lost_range(event))

    def _records(self, batch: RecordBatch) -> None:
        import numpy as np

        offsets, sizes = batch.offsets(), batch.sizes()
        bridged = self._bridged.mask(offsets)
        for i in np.flatnonzero(bridged).tolist():
            bridged[i] = INERT_TOPIC.encode().startswith(batch.topic(i))
        bridged[inert_in(batch)] = True
        self.report.bridged += int(bridged.sum())
        self.report.bridged_bytes += int(sizes[bridged].sum())
        moved = ~bridged & (offsets != batch.stored_offsets())
        self._displaced(batch, np.flatnonzero(moved))
        sound = np.flatnonzero(~bridged & ~moved)
        for tally in (self.report.sound, self._after):
            tally.add(batch, sound)

    def _displaced(self, batch: RecordBatch, records: NDArray[np.intp]) -> None:
        self.report.displaced.add(batch, records)
        self.report.distances.update((batch.offsets() - batch.stored_offsets())[records].tolist())

    def _lost_range(self, lost: Lost) -> LostRange:
        segment = lost.segment
        name, start = (None, 0) if segment is None else (os.path.basename(segment.path), segment.offset)
        if isinstance(segment, Span):
            name, start = os.path.basename(segment.origin), segment.origin_offset
        accepted = self._accepted.overlap(lost.offset, lost.end) == lost.length
        return LostRange(lost.offset, lost.length, name, lost.offset - start, lost.reason, accepted, self._after)


def scan_store(
    disk: Disk,
    config: StoreConfig,
    *,
    start: int | None = None,
    end: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    through: SegmentedLog | None = None,
) -> ScanReport:
    """The log of a store from the physical offset `start` up to `end` (default: all). Runs beside a live process.

    `progress` is called with bytes of the log read so far and in all. `through`: the store's log with what an archive
    has of it; None: the store's files alone.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    files = survey(disk, config)
    known = known_places(disk, files.root)
    counting = Counting(known.bridged, known.accepted)
    report = counting.report
    directories = files.log_directories
    report.odd = [(odd.path, odd.why) for odd in files.odd if os.path.dirname(odd.path) in directories]
    if not files.log:
        return report
    report.live = holder_of(disk, files.root) is not None
    size = files.config.max_message_size
    with ClosedLog(disk, files.log) as own:
        log = through or own
        oldest = log.segments[0].offset
        first = oldest if start is None else boundary(log, Scanner(log, max_message_size=size), start)
        last = files.log[-1].end if end is None else end
        for event in whole_records(disk, log, first, end, max_message_size=size, live=report.live):
            counting.feed(event)
            if progress is not None and isinstance(event, RecordBatch):
                progress(event.end - first, max(last - first, 1))
    return report


def scan_file(
    disk: Disk,
    config: StoreConfig,
    path: str,
    *,
    base: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScanReport:
    """A file that may be a piece of a log: a copy of a segment, or what a repair saved.

    `base`: physical offset of its first byte; None: what its name says, or the manifest beside it. `progress` as above.

    Raises:
        InvalidArgument: nothing tells the offset. StorageError.
    """
    size = disk.stat(path).size
    span = _span(disk, path, size, base)
    counting = Counting()
    with SavedLog(disk, [span]) as log:
        in_entries = _holds_entries(log, span, config.max_message_size)
    with SavedLog(disk, [replace(span, in_entries=in_entries)]) as log:
        _count(disk, log, config.max_message_size, counting, progress)
    return counting.report


def _holds_entries(log: LogSource, span: Span, max_message_size: int) -> bool:
    """Whether a file is one of DLedger's entries: its first sound record has an entry's header before it."""
    record_at = Scanner(log, max_message_size=max_message_size).find_sound(span.offset)
    if record_at is None or record_at - HEAD_SIZE < span.offset:
        return False
    at = record_at - HEAD_SIZE
    judged = judge_entry(log.read(at, HEAD_SIZE), 0, span.end - at, at)
    return isinstance(judged, Stop) and judged.more > 0


def scan_span(disk: Disk, span: Span, max_message_size: int) -> ScanReport:
    """One saved range of the log."""
    counting = Counting()
    with SavedLog(disk, [span]) as log:
        _count(disk, log, max_message_size, counting, None)
    return counting.report


def scan_saved(
    disk: Disk, saved: SavedRepair, max_message_size: int, progress: Callable[[int, int], None] | None = None
) -> ScanReport:
    """The log that a repair saved: what is whole in it. What lies between its pieces is not lost, but elsewhere.

    Copies that are gone are passed over.
    """
    counting = Counting()
    with SavedLog(disk, log_spans(saved, missing_copies(disk, saved))) as log:
        _count(disk, log, max_message_size, counting, progress)
    report = counting.report
    report.lost = [lost_range for lost_range in report.lost if lost_range.file is not None]
    return report


def _count(
    disk: Disk,
    log: LogSource,
    max_message_size: int,
    counting: Counting,
    progress: Callable[[int, int], None] | None,
) -> None:
    if not log.segments:
        return
    first, last = log.segments[0].offset, log.segments[-1].end
    for event in whole_records(disk, log, first, max_message_size=max_message_size):
        counting.feed(event)
        if progress is not None and isinstance(event, RecordBatch):
            progress(event.end - first, last - first)


def _span(disk: Disk, path: str, size: int, base: int | None) -> Span:
    """A file as a part of the log."""
    name = os.path.basename(path)
    own = names.segment_offset(name) if base is None else base
    if own is not None:
        return Span(own, size, path, 0, path, own)
    directory = os.path.dirname(os.path.abspath(path))
    root = os.path.dirname(os.path.dirname(directory))
    for saved in saved_repairs(disk, root):
        for repair in saved.repairs:
            for piece in repair.pieces:
                origin = log_offset(piece)
                if origin is not None and piece["file"] == name and os.path.basename(directory) == repair.name:
                    offset = origin + int(piece["offset"])
                    return Span(offset, min(size, int(piece["length"])), path, 0, str(piece["path"]), origin)
    raise InvalidArgument("the physical offset of the file is unknown", path=path, hint="give it with --base-offset N")
