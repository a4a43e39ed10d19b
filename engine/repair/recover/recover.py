"""Recovery of a closed store: `plan_recover` looks, `engine.repair.recover.apply` changes. A daemon's start runs the
same two. `plan_truncate` is a recovery whose log end is given.

What it does, and where it differs from Apache's (RECOVERY.md has the rules): the log is read from where Apache would
read it; the queues are compared with the whole log, the part before by their units alone; the index is continued from
its last trustworthy entry. Nothing is cut that has sound records after it unless `cut` says so; with `bridge` the
same planning goes over the log as it will be (engine.repair.recover.bridge).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import CannotRepair, InvalidArgument
from engine.inspect.check.stale_tail import StaleJudge
from engine.inspect.store.layout import arranged, layout_of
from engine.inspect.store.newer import PROPERTY_CRC
from engine.inspect.store.survey import StoreFiles, surveyed
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.recover.bridge import Bridge, BridgedLog, find_bridges
from engine.repair.recover.donors import taken_from_copies
from engine.repair.recover.log_end import Mode
from engine.repair.recover.memory import ScanCheckpoint
from engine.repair.recover.newer_parts import with_newer_parts
from engine.repair.recover.plan import FromCopies, RecoverPlan
from engine.repair.recover.planner import Planner
from engine.repair.recover.progress import Progress
from engine.repair.recover.refusal import Choices
from engine.repair.recover.rocksdb_aside import files_to_plan
from engine.repair.recover.shifted import find_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.scan import Event
    from engine.repair.recover.memory import Remembered
    from engine.repair.recover.rocksdb_aside import files_to_plan
from engine.repair.recover.shifted import Shift


def plan_recover(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    mode: Mode | None = None,
    cut: bool = False,
    bridge: bool = False,
    whole: bool = False,
    log_is_gone: bool = False,
    locked: bool = False,
    time_box_ms: int | None = None,
    jobs: int | None = None,
    copies: FromCopies | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RecoverPlan:
    """The plan for a store, computed without changing a byte of it.

    Args:
        disk: how files are reached.
        store: its survey, or the settings that name it; sizes that nobody gave are inferred.
        mode: normal or abnormal; None: what the abort file says.
        cut: end the log at the first damage even when sound records lie after it, and continue after missing segments.
        bridge: read the whole log, write inert records over damage in its middle, and continue after missing segments.
        whole: read the log from its first byte, and every index file; else damage before recovery's start stays unseen.
        log_is_gone: a store without a commit log loses its queues, too.
        locked: the caller holds the store's lock: what was read of a long log is remembered below its directory.
        time_box_ms: stop after the segment in which so much time is over (ms); the next planning continues there.
        jobs: threads that read the log (None: one a core).
        copies: what is written over damage out of copies of the log.
        progress: called with bytes of the log read so far and in all.

    Raises:
        NotAStore, CannotRepair: there is no store to plan for. StorageError: it can't be read.
        InvalidArgument: both `cut` and `bridge`. TimeLimitReached.
    """
    if cut and bridge:
        raise InvalidArgument("bridge and cut exclude each other")
    files = surveyed(disk, store)
    layout = layout_of(disk, files)
    files = files_to_plan(arranged(files, layout))
    copies = copies or FromCopies()
    files = replace(files, log=tuple(sorted((*files.log, *copies.added), key=lambda one: one.offset)))
    read = Progress(progress)
    memory = ScanCheckpoint(disk, files, writing=locked, time_box_ms=time_box_ms, jobs=jobs)
    taken = (*(taken_from_copies(disk, files, layout) if bridge else ()), *copies.taken)
    memory.leave_out(one.segment.offset for one in taken)
    possible, shifts = _bridges(disk, files, memory, read, taken) if bridge and files.log else ((), ())
    bridges = tuple(one for one in possible if one.patches)
    memory.leave_out([*(one.segment.offset for one in bridges), *(one.segment.offset for one in shifts)])
    stuck = next((one for one in possible if not one.patches), None)
    mode = mode or (Mode.ABNORMAL if files.abort else Mode.NORMAL)
    choices = Choices(cut, bridge, log_is_gone, stuck, whole=whole or bridge)
    with BridgedLog(disk, files.log, (*taken, *bridges), shifts) as log:
        plan = Planner(disk, files, layout, log, memory, bridges, taken, shifts, choices, read).plan(mode)
        plan = replace(plan, log=replace(plan.log, added=copies.added))
        if cut and plan.refusal is None and plan.next_start < plan.compared_from:
            # Where the log ends is known now. The next start would mend what it reads: it is done at once.
            choices = choices._replace(ahead=plan.next_start)
            plan = Planner(disk, files, layout, log, memory, bridges, taken, shifts, choices, read).plan(mode)
        return with_newer_parts(disk, plan, log)


def plan_truncate(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    to_offset: int | None = None,
    to_time: int | None = None,
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RecoverPlan:
    """The plan that ends the log at a place that is given: a recovery of the log up to there, the extension cut, too.

    Args:
        disk: how files are reached.
        store: its survey, or the settings that name it; sizes that nobody gave are inferred.
        to_offset: the log's new end (physical), a record's boundary. Or
        to_time: ms; every record stored later goes, and what lies after the first of them.
        whole: read the log from its first byte up to there, so that damage before the end is refused wherever it is.
        progress: called with bytes of the log read so far and in all.

    Raises:
        InvalidArgument: the log doesn't reach there, or begins after it. Refused: the middle of a record.
        NotAStore, CannotRepair, StorageError.
    """
    files = surveyed(disk, store)
    layout = layout_of(disk, files)
    files = files_to_plan(arranged(files, layout))
    memory = ScanCheckpoint(disk, files)
    mode = Mode.ABNORMAL if files.abort else Mode.NORMAL
    choices = Choices(False, False, False, truncate=True, whole=whole)
    with ClosedLog(disk, files.log) as log:
        planner = Planner(disk, files, layout, log, memory, (), (), (), choices, Progress(progress))
        if not files.log:
            raise CannotRepair("there is no commit log to cut", path=files.root)
        if to_offset is None:
            assert to_time is not None
            to_offset = planner.after_time(to_time)
            if to_offset is None:
                return with_newer_parts(disk, planner.plan(mode), log)
        if to_offset < files.log[0].offset:
            raise InvalidArgument(f"offset {to_offset} is before the log start, {files.log[0].offset}")
        return with_newer_parts(disk, planner.plan(mode, to_offset), log)


def _bridges(
    disk: Disk, files: StoreFiles, memory: ScanCheckpoint, read: Progress, taken: tuple[Bridge, ...]
) -> tuple[tuple[Bridge, ...], tuple[Shift, ...]]:
    """Bridges over the log as it will be once the records that go back are at their places, and those.

    `taken`: what is written over damage out of copies.
    """
    suspects: set[int] = set()
    bridges = _read_for_bridges(disk, files, memory, read, taken, (), suspects)
    largest = files.config.max_message_size
    shifts = tuple(
        shift for segment in files.log if segment.offset in suspects for shift in find_shifts(disk, segment, largest)
    )
    if shifts:
        memory.leave_out(shift.segment.offset for shift in shifts)
        bridges = _read_for_bridges(disk, files, memory, read, taken, shifts, set())
    return bridges, shifts


def _read_for_bridges(
    disk: Disk,
    files: StoreFiles,
    memory: ScanCheckpoint,
    read: Progress,
    taken: tuple[Bridge, ...],
    shifts: tuple[Shift, ...],
    suspects: set[int],
) -> tuple[Bridge, ...]:
    """`suspects` gets the segments (physical offsets) with damage, or with records that are off their place."""
    config = files.config
    # Once to find damage, and once from the damage on to plan: the second time is an estimate.
    read.expect(sum(segment.size for segment in files.log))
    with BridgedLog(disk, files.log, taken, shifts) as log:
        scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        deriver = Deriver(DeriveRules.of(config, files.newer.batch_topics), QueueNumbers())
        events = memory.scan(scanner, deriver, log.segments[0].offset, resume=True, derive=False)
        stale = StaleJudge(disk, files, scanner, log.segments[0].offset)
        seen = _noting((event for event, _ in events), config.mapped_file_size_commit_log, suspects)
        seals = files.newer.has(PROPERTY_CRC)
        return find_bridges(
            log, scanner, seen, stale, max_message_size=config.max_message_size, seals=seals, progress=read
        )


def _noting(events: Iterator[Event | Remembered], size: int, suspects: set[int]) -> Iterator[Event | Remembered]:
    for event in events:
        if isinstance(event, Damage):
            suspects.add(event.segment.offset)
        elif isinstance(event, RecordBatch) and event.moved():
            suspects.add(event.start - event.start % size)
        yield event
