"""Every record of the log looked at: magic, lengths, its own offset, its CRCs. Reads, and writes nothing.

A sound record whose header, topic or properties can't be right is suspect (engine.format.judge): the body's CRC does
not cover them. Where a broker of RocketMQ 5 writes property CRCs (engine.format.property_crc), those do: a mismatch is
damage. What a client may have sent, and rot may look like, is unusual: noted, and nothing bad.

What is bad: a place in the log without a sound record, unless only zeros follow it up to the log's last byte; a sound
record that names another place; segments that are missing. Beside a live process the log ends where it stops being
sound: what is being written there is torn by nature, and a place that has become sound meanwhile is read again.

Records never cross segments, so segments can be checked apart, in as many processes as there are cores; by kernels, one
segment is read by as many threads (engine.log.ahead).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.files.disk import Disk
from engine.files.lock import holder_of
from engine.files.written import is_zeros
from engine.format.judge import Reason
from engine.format.property_crc import CrcDemand
from engine.inspect.parallel import processes, run_apart
from engine.inspect.store.newer import PROPERTY_CRC, crc_demand
from engine.inspect.store.not_read import not_read
from engine.inspect.store.survey import survey
from engine.log.ahead import count_ahead
from engine.log.property_crcs import CLIENTS, MISMATCH, MISSING, CrcFault, CrcJudge, add_faults
from engine.log.scan import MISSING_SEGMENT, Blank, Damage, Event, Gap, Scanner
from engine.log.source import ClosedLog, Segment, last_begun
from engine.log.tally import RecordCounter, Tally, tallied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.config import StoreConfig
    from engine.inspect.store.odd import OddFile
    from engine.log.source import LogSource, SegmentedLog
    from engine.log.tally import Counted

MOVED = "a displaced record: its physicalOffset is another one"
MOST_SUSPECTS = 10_000
"""Suspect, and unusual, records of a range that are named one by one; of more, only the number is given."""
AFTER_THE_END = "bytes after the log end contain no sound record"
_AGAIN_MS = 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Bad:
    """Something wrong at a physical offset: how many bytes, in which file, what. `stored`: what the record says."""

    offset: int
    length: int
    path: str
    reason: str
    stored: int | None = None


@dataclass(slots=True)
class VerifyResult:
    """Sound records, how many of them are messages, their bytes, and what is bad, by physical offset.

    `suspect`: sound records whose header, topic or properties can't be right (the first ones of `suspects`): readable.
    `unusual`: those that a client may have sent so (the first ones of `unusuals`); nothing tells.
    `not_read`: files beside the log's that hold something. `live`: another process held the store.
    `end`: physical offset after the last sound record (the start for none). `batches`: the store has topics of
    RocketMQ 5 with several messages in a record, which is counted as one. `property_crcs`: sound records that have a
    property CRC, judged in a store whose broker writes it; of `crc_mismatches` it is not their own.
    """

    records: int = 0
    messages: int = 0
    size: int = 0
    bad: list[Bad] = field(default_factory=list)
    suspect: list[Bad] = field(default_factory=list)
    suspects: int = 0
    unusual: list[Bad] = field(default_factory=list)
    unusuals: int = 0
    seconds: float = 0.0
    start: int = 0
    end: int = 0
    live: bool = False
    not_read: tuple[OddFile, ...] = ()
    batches: bool = False
    property_crcs: int = 0
    crc_mismatches: int = 0

    @property
    def clean(self) -> bool:
        """Whether all of it was read, and nothing bad or suspect was found."""
        return not self.bad and not self.suspects and not self.not_read

    def to_json(self) -> dict[str, Any]:
        """The JSON of CLI.md "Judgements"; `notRead` only where there is something."""
        not_read_rows = [{"path": odd.path, "why": odd.why} for odd in self.not_read]
        return {
            "records": self.records,
            "messages": self.messages,
            "bytes": self.size,
            "damage": _places(self.bad),
            "suspectRecords": self.suspects,
            "suspect": _places(self.suspect),
            "unusualRecords": self.unusuals,
            "unusual": _places(self.unusual),
            "propertyCrcRecords": self.property_crcs,
            "propertyCrcMismatches": self.crc_mismatches,
            "seconds": round(self.seconds, 3),
            **({"notRead": not_read_rows} if not_read_rows else {}),
        }


def _places(some: Sequence[Bad]) -> list[dict[str, Any]]:
    return [{"physicalOffset": b.offset, "file": os.path.basename(b.path), "reason": b.reason} for b in some]


@dataclass(slots=True)
class VerifiedPart:
    """What a range of one segment held. Parts of a log are merged in their order.

    `size`: bytes of its sound records. `end`: physical offset after its last sound record or blank, None without one.
    `held`: damage after that, to be judged when what follows is known. `crc_faults`: to be settled (`settle_crcs`).
    """

    records: int = 0
    messages: int = 0
    size: int = 0
    end: int | None = None
    bad: list[Bad] = field(default_factory=list)
    suspect: list[Bad] = field(default_factory=list)
    suspects: int = 0
    unusual: list[Bad] = field(default_factory=list)
    unusuals: int = 0
    held: list[Damage] = field(default_factory=list)
    property_crcs: int = 0
    crc_mismatches: int = 0
    crc_faults: list[CrcFault] = field(default_factory=list)


def verify(
    disk: Disk,
    config: StoreConfig,
    *,
    start: int | None = None,
    end: int | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyResult:
    """Check the log's records from the physical offset `start` up to `end` (default: all).

    Args:
        disk: how files are reached.
        config: the store's settings.
        start: the first record at or after it is the first that is looked at.
        end: records that start there or later are not looked at.
        jobs: threads, or processes where there are no kernels (default: what pays on this machine).
        progress: called with bytes of the log read so far and in all.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    began = time.monotonic()
    files = survey(disk, config)
    live = holder_of(disk, files.root) is not None
    verified = VerifyResult(
        live=live, not_read=() if live else not_read(disk, config), batches=bool(files.newer.batch_topics)
    )
    segments = [s for s in files.log if (start is None or s.end > start) and (end is None or s.offset < end)]
    if segments:
        with ClosedLog(disk, files.log) as log:
            if live:
                end = live_end(log, end)
                segments = [s for s in segments if s.offset < end] or segments[:1]
            scanner = Scanner(log, max_message_size=files.config.max_message_size)
            first = segments[0].offset if start is None else boundary(log, scanner, start)
            tasks = [_Task(s, max(s.offset, first), min(s.end, s.end if end is None else end)) for s in segments]
            demand = crc_demand(files.config, kept=files.newer.has(PROPERTY_CRC))
            parts = _check_all(disk, files.config, log, scanner, tasks, live, jobs, progress, demand)
            for task, part in zip(tasks, parts, strict=True):
                settle_crcs(part, task.segment, CrcJudge(scanner, log, demand, live=live))
            verified.start = first
            merge_parts(verified, [t.segment for t in tasks], parts, lambda i: judge_tail(log, parts[i].held, live))
    verified.seconds = time.monotonic() - began
    return verified


@dataclass(frozen=True, slots=True)
class _Task:
    """One segment's share: physical offsets [start, end)."""

    segment: Segment
    start: int
    end: int


def merge_parts(
    verified: VerifyResult,
    segments: Sequence[Segment],
    parts: Sequence[VerifiedPart],
    judge: Callable[[int], Iterable[Bad]],
) -> None:
    """Add to `verified` what the parts of a log say, however it was cut.

    Args:
        verified: its `start` is where the first part begins.
        segments: whose the parts are, one for each, by offset; those of the same segment follow each other.
        parts: what they held.
        judge: what is bad about the damage that the part of a number holds (`judge_tail`), asked for those after the
            log's last sound record.
    """
    last = max((i for i, part in enumerate(parts) if part.end is not None), default=-1)
    for i, (segment, part) in enumerate(zip(segments, parts, strict=True)):
        verified.records += part.records
        verified.messages += part.messages
        verified.size += part.size
        verified.bad += part.bad
        verified.suspect += part.suspect
        verified.suspects += part.suspects
        verified.unusual += part.unusual
        verified.unusuals += part.unusuals
        verified.property_crcs += part.property_crcs
        verified.crc_mismatches += part.crc_mismatches
        verified.bad += map(_bad, part.held) if i < last else judge(i)
        if i and segments[i - 1].end < segment.offset:
            gap = segments[i - 1]
            verified.bad.append(Bad(gap.end, segment.offset - gap.end, gap.path, MISSING_SEGMENT))
    verified.bad = _joined(sorted(verified.bad, key=lambda bad: bad.offset))
    verified.end = max((part.end for part in parts if part.end is not None), default=verified.start)


def _joined(bad: list[Bad]) -> list[Bad]:
    """Ranges of a file without property CRCs that a cut of the log has parted are one."""
    joined: list[Bad] = []
    for one in bad:
        last = joined[-1] if joined and one.reason == MISSING else None
        if last is not None and (last.reason, last.path, last.offset + last.length) == (MISSING, one.path, one.offset):
            joined[-1] = Bad(last.offset, last.length + one.length, last.path, MISSING)
        else:
            joined.append(one)
    return joined


def _bad(damage: Damage) -> Bad:
    return Bad(damage.offset, damage.length, damage.segment.path, damage.reason.value)


def judge_tail(log: LogSource, held: Sequence[Damage], live: bool) -> Iterator[Bad]:
    """What is bad about the damage after the last sound record: nothing where it is only empty, or being written."""
    for damage in held:
        if live:
            continue
        if damage.reason is not Reason.EMPTY:
            yield _bad(damage)
        elif (at := _first_byte(log, damage)) is not None:
            yield Bad(at, damage.end - at, damage.segment.path, AFTER_THE_END)


def _first_byte(log: LogSource, damage: Damage) -> int | None:
    """Physical offset of the first byte in a damaged range that isn't zero."""
    for low, high in log.data_ranges(damage.segment, damage.offset):
        for at in range(low, min(high, damage.end), _CHUNK):
            data = log.read(at, min(_CHUNK, damage.end - at, high - at))
            if not is_zeros(data):
                return at + len(data) - len(bytes(data).lstrip(b"\0"))
    return None


def boundary(log: SegmentedLog, scanner: Scanner, offset: int, *, back: int | None = None) -> int:
    """The first place at or after `offset` where a record (or what stands in its place) begins.

    `back`: only so many bytes before it are read (default: from the segment's start). What they tell is sure where no
    body holds a record.
    """
    segment = log.segment_at(offset)
    if segment is None or segment.offset == offset or scanner.sound_size(offset):
        return offset
    at = segment.offset
    if back is not None and offset - back > at:
        near = scanner.find_sound(offset - back, offset)
        if near is None:
            return offset
        at = near
    for event in Scanner(log, check_crc=False).scan(at, offset, resume=True):
        if not isinstance(event, Gap):
            at = event.end
    return max(at, offset)


def live_end(log: LogSource, end: int | None = None) -> int:
    """Where the reading of a log that a live process writes ends: physical offset, at most `end`.

    That is the end of the last segment that it has begun by now. What comes into a later one is not of this reading:
    the end of this one, read before it was complete, would look like damage.
    """
    last = last_begun(log) or log.segments[0]
    return last.end if end is None else min(end, last.end)


def settled_events(disk: Disk, scanner: Scanner, start: int, end: int | None, *, live: bool = False) -> Iterator[Event]:
    """Events as `Scanner.scan(resume=True)`; beside a live writer, what has become sound meanwhile is read again."""
    at = start
    tried = -1
    while True:
        for event in scanner.scan(at, end, resume=True):
            if live and isinstance(event, Damage) and event.offset != tried and event.end < event.segment.end:
                disk.sleep_ms(_AGAIN_MS)
                at = tried = event.offset
                break
            yield event
        else:
            return


# --- one segment after another, or many at once ----------------------------------------------------------------------


def _check_all(
    disk: Disk,
    config: StoreConfig,
    log: ClosedLog,
    scanner: Scanner,
    tasks: Sequence[_Task],
    live: bool,
    jobs: int | None,
    progress: Callable[[int, int], None] | None,
    demand: CrcDemand,
) -> list[VerifiedPart]:
    total = sum(max(0, task.end - task.start) for task in tasks)
    read = 0
    parts: list[VerifiedPart] = []

    def advance(size: int) -> None:
        nonlocal read
        read += size
        if progress is not None:
            progress(read, total)

    limit = config.max_message_size
    fast = scanner.by_kernels(tasks[0].start, tasks[-1].end)
    counter = None if fast is None else RecordCounter(fast, log.read_into, demand=demand)
    count = 1 if fast is not None else processes(jobs, len(tasks), total)
    if count == 1:
        for task in tasks:
            before = read
            if live or fast is None or counter is None:
                events = tallied(settled_events(disk, scanner, task.start, task.end, live=live), demand)
            else:
                events = count_ahead(counter, fast, task.start, task.end, threads=jobs)
            parts.append(check_events(task.segment, events, advance))
            advance(max(0, task.end - task.start) - (read - before))
        return parts
    apart = run_apart(_check_apart, [(t, limit, live, demand) for t in tasks], count)
    for task, part in zip(tasks, apart, strict=True):
        parts.append(part)
        advance(max(0, task.end - task.start))
    return parts


def _check_apart(work: tuple[_Task, int, bool, CrcDemand]) -> VerifiedPart:
    task, limit, live, demand = work
    disk = Disk()
    with ClosedLog(disk, [task.segment]) as log:
        scanner = Scanner(log, max_message_size=limit)
        events = settled_events(disk, scanner, task.start, task.end, live=live)
        return check_events(task.segment, tallied(events, demand))


def check_events(
    segment: Segment, events: Iterable[Counted], advance: Callable[[int], None] | None = None
) -> VerifiedPart:
    """What the events of a range of `segment` say; `advance` is called with the bytes of sound records as they come."""
    part = VerifiedPart()
    for event in events:
        if isinstance(event, Damage):
            part.held.append(event)
            continue
        part.bad += map(_bad, part.held)
        part.held.clear()
        if isinstance(event, Tally):
            _count(part, event, segment)
            if advance is not None:
                advance(event.end - event.start)
        elif isinstance(event, Blank):
            part.end = event.end
    return part


def _count(part: VerifiedPart, tally: Tally, segment: Segment) -> None:
    part.records += tally.records
    part.messages += tally.messages
    part.size += tally.end - tally.start
    part.end = tally.end
    for doubt in tally.doubts:
        some = part.unusual if doubt.unusual else part.suspect
        part.unusuals += doubt.unusual
        part.suspects += not doubt.unusual
        if len(some) < MOST_SUSPECTS:
            some.append(Bad(doubt.offset, doubt.size, segment.path, doubt.reason))
    for place, stored, size in tally.moved:
        part.bad.append(Bad(place, size, segment.path, f"{MOVED} ({stored})", stored))
    part.property_crcs += tally.property_crcs
    part.crc_mismatches += sum(not fault.missing for fault in tally.crc_faults)
    if len(part.crc_faults) < MOST_SUSPECTS:
        add_faults(part.crc_faults, tally.crc_faults)


def settle_crcs(part: VerifiedPart, segment: Segment, judge: CrcJudge) -> None:
    """Say of each wrong property CRC of a part whether it is damage, or may be what a client sent: unusual."""
    for fault, verdict in zip(part.crc_faults, judge.verdicts(part.crc_faults), strict=True):
        one = Bad(fault.offset, fault.size, segment.path, verdict)
        part.crc_mismatches -= not fault.missing and verdict != MISMATCH
        if verdict == CLIENTS:
            part.property_crcs -= 1
            part.unusuals += 1
            part.unusual.append(one)
        elif verdict:
            part.bad.append(one)
    part.crc_faults.clear()
    part.unusual.sort(key=lambda one: one.offset)
