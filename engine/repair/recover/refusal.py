"""When a recovery refuses (data would be lost that no option accepts), and which command works instead."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import (
    CannotRepair,
    DamageInTheMiddle,
    DataIsAbsent,
    LogMissing,
    NextStep,
    RStoreError,
    StorageError,
    WrongFileSize,
)
from engine.format.quantities import counted
from engine.inspect import next_step
from engine.inspect.finding_codes import CODES, Fix
from engine.inspect.store.layout import OUT_OF_ORDER
from engine.inspect.store.odd import first_error
from engine.inspect.store.path_slips import slip_in_a_path
from engine.inspect.store.unnamed import unnamed_segment
from engine.log.scan import MISSING_SEGMENT
from engine.repair.recover.log_end import DamagedRange, LogEnd
from engine.repair.recover.shifted import FEW, find_shifts

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.layout import Layout
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.repair.recover.bridge import Bridge
    from engine.repair.recover.shifted import Shift


class Choices(NamedTuple):
    """What the operator chose. `stuck`: the first range that can't be bridged; `truncate`: its end is given; `whole`:
    the log is read from its first byte, and every index file as a whole; `ahead`: segments from this physical offset on
    are compared though recovery's start is after them, as the next start reads them.
    """

    cut: bool
    bridge: bool
    log_is_gone: bool
    stuck: Bridge | None = None
    truncate: bool = False
    whole: bool = False
    ahead: int | None = None

    @property
    def cut_option(self) -> str:
        """The options that cut at this damage: without --whole, recovery does not read before its start."""
        return "--cut --whole" if self.whole else "--cut"


def refusal(
    disk: Disk,
    files: StoreFiles,
    layout: Layout,
    choices: Choices,
    end: LogEnd,
    fresh: Sequence[DamagedRange],
    shifts: Mapping[tuple[int, int], tuple[int, int]],
    units_cut: int,
) -> RStoreError | None:
    """The error that applying the plan raises; None when it may be applied.

    Args:
        disk: how files are reached.
        files: the store, its log as it will be.
        layout: the renames and resizes that make it so.
        choices: the operator's options.
        end: the log end, and what follows it.
        fresh: lost ranges before the log end that no earlier repair accepted.
        shifts: (segment, distance from the record's own offset) → records, physical offset of the first.
        units_cut: units that point after the log end.
    """
    stands_in_the_way = slip_in_a_path(disk, files.config) or first_error(files.odd)
    if stands_in_the_way is not None:
        return stands_in_the_way
    error = _layout_refusal(files, layout, choices)
    if error is not None:
        for longer in (s for s in files.log if s.file == error.path and isinstance(error, WrongFileSize)):
            _tell_shifts(disk, files, choices, longer, error)
        return error
    if not files.log:
        return None if choices.log_is_gone else log_is_gone(files)
    error = _moved(disk, files, choices, shifts)
    if error is not None:
        return error
    if choices.cut:
        return None
    error = _lost_directory(disk, files, fresh, units_cut) or _unnamed(disk, files, end, fresh, units_cut)
    if error is not None:
        return error
    refused = _damage(files, choices, end, fresh)
    if refused is None:
        return None
    for where in (s for s in files.log if s.path == refused.path):  # the file as it is now
        refused.path = where.file
        if where.short:
            refused.message = f"the file has {where.held} instead of {where.size} bytes: {refused.message}"
        _tell_shifts(disk, files, choices, where, refused)
    return refused


def _tell_shifts(disk: Disk, files: StoreFiles, choices: Choices, segment: Segment, refused: RStoreError) -> None:
    """Add to a refusal about a segment which of its records are shifted, and how far."""
    words = [] if choices.bridge else [shift.words for shift in _shifts(disk, files, segment)]
    refused.message = "; ".join([refused.message, *words])


def _shifts(disk: Disk, files: StoreFiles, segment: Segment) -> tuple[Shift, ...]:
    try:
        return find_shifts(disk, segment, files.config.max_message_size)
    except StorageError:  # the refusal is about it
        return ()


def _moved(
    disk: Disk, files: StoreFiles, choices: Choices, shifts: Mapping[tuple[int, int], tuple[int, int]]
) -> RStoreError | None:
    """The refusal about shifted records: `--bridge` moves them back, where no other records are."""
    moved = next((key for key, (records, _) in shifts.items() if records >= FEW), None)
    if moved is None:
        return None
    records, first = shifts[moved]
    segment = next(s for s in files.log if s.offset <= moved[0] < s.end)
    there = () if choices.bridge else _shifts(disk, files, segment)
    if there:
        return CannotRepair(
            "; ".join(shift.words for shift in there),
            path=segment.file,
            offset=first,
            hint="nothing was changed",
            next_step=replace(next_step.step(files.config, Fix.BRIDGE), why="puts them back at their places"),
        )
    return CannotRepair(
        f"{counted(records, 'record')} of this segment, from {first} on: physicalOffset off by {moved[1]:+d} bytes, "
        "where others are, or another segment",
        path=segment.file,
        offset=first,
        hint="nothing was changed; if the file has another segment's name, give it its own name back",
        next_step=next_step.cut_before(files.config, first),
    )


def _lost_directory(disk: Disk, files: StoreFiles, fresh: Sequence[DamagedRange], units_cut: int) -> RStoreError | None:
    """The refusal about a missing directory of the log that held a part of it."""
    missing = next((path for path in files.config.log_directories if not disk.is_dir(path)), None)
    gap = sum(lost.length for lost in fresh if lost.reason == MISSING_SEGMENT)
    if missing is None or not (gap or units_cut):
        return None
    what = (
        f"{counted(units_cut, 'message of the consume queues is', 'messages of the consume queues are')} not in the log"
    )
    return LogMissing(
        f"{what if units_cut else f'{gap} bytes of the log are missing'}, and one of its directories is not there",
        path=missing,
        hint="nothing was changed",
        next_step=next_step.bring(
            "mount its disk, then run this again; if all that it held is lost for good, make it (mkdir), or --cut "
            "continues without it"
        ),
    )


def _unnamed(
    disk: Disk, files: StoreFiles, end: LogEnd, fresh: Sequence[DamagedRange], units_cut: int
) -> RStoreError | None:
    """The refusal about missing segments that lie in a directory of the store that no setting names."""
    missing = [(lost.offset, lost.offset + lost.length) for lost in fresh if lost.reason == MISSING_SEGMENT]
    if units_cut and files.log[-1].offset <= end.end:
        missing.append((files.log[-1].end, files.log[-1].end + files.log[-1].size))
    path = unnamed_segment(disk, files, missing)
    if path is None:
        return None
    return DataIsAbsent(
        "a missing segment of the log, in a directory that no setting names",
        path=path,
        hint="nothing was changed; --cut continues without it",
        next_step=next_step.bring(CODES["path-unnamed"].hint),
    )


def _layout_refusal(files: StoreFiles, layout: Layout, choices: Choices) -> RStoreError | None:
    if layout.always is not None:
        return layout.always
    if choices.truncate and (layout.changed or layout.aside):
        first = (*(r.path for r in layout.relocations), *(r.segment.file for r in layout.resizes))
        return CannotRepair(
            OUT_OF_ORDER,
            path=(*first, *(odd.path for odd in layout.aside))[0],
            hint="nothing was changed",
            next_step=next_step.step(files.config, Fix.RECOVER if layout.refusal is None else Fix.BRIDGE),
        )
    # With --yes-the-log-is-gone no segment is left to compare with: such files are moved to quarantine/.
    given_up = choices.log_is_gone and not files.log
    return None if choices.cut or choices.bridge or given_up else layout.refusal


def _bridge(files: StoreFiles, choices: Choices, records: int) -> NextStep | None:
    """`recover --bridge` as next step, unless it is what refuses; `records`: sound ones after the damage."""
    if choices.bridge:
        return None
    step = next_step.step(files.config, Fix.BRIDGE)
    return (
        replace(step, keeps=f"{step.keeps} ({counted(records, 'sound record lies', 'sound records lie')} after it)")
        if records
        else step
    )


def _damage(files: StoreFiles, choices: Choices, end: LogEnd, fresh: Sequence[DamagedRange]) -> RStoreError | None:
    if choices.stuck is not None:
        return DamageInTheMiddle(
            f"{choices.stuck.length} bytes can't be bridged ({choices.stuck.reason}): too few for a record",
            path=choices.stuck.segment.path,
            offset=choices.stuck.offset,
            hint="nothing was changed",
            next_step=next_step.cut(files.config, end.records_after),
        )
    if choices.truncate and (end.damage or fresh):
        first = (*end.damage, *fresh)[0]
        return DamageInTheMiddle(
            f"{first.reason}, before the place where the log is to end",
            path=first.path,
            offset=first.offset,
            hint="nothing was changed; cut before it, or bridge it first",
            next_step=next_step.step(files.config, Fix.BRIDGE),
        )
    if end.damage:
        first = end.damage[0]
        size = sum(size for _, size in end.after.values())
        return DamageInTheMiddle(
            f"{first.reason}; {counted(end.records_after, 'message')} ({size} bytes) after it",
            path=first.path,
            offset=first.offset,
            hint=f"nothing was changed; {choices.cut_option} ends the log there instead and saves what follows it",
            next_step=_bridge(files, choices, end.records_after),
        )
    if choices.bridge or not fresh:
        return None
    if fresh[0].reason == MISSING_SEGMENT:
        return DamageInTheMiddle(
            f"{fresh[0].length} bytes of the commit log are missing after this file",
            path=fresh[0].path,
            offset=fresh[0].offset,
            hint="nothing was changed; if the missing segments can be found, put them back first",
            next_step=next_step.step(files.config, Fix.BRIDGE),
        )
    return DamageInTheMiddle(
        f"{fresh[0].reason}, in a part of the log that queues must be rebuilt from",
        path=fresh[0].path,
        offset=fresh[0].offset,
        hint="nothing was changed; --cut continues after it instead",
        next_step=next_step.step(files.config, Fix.BRIDGE),
    )


def log_is_gone(files: StoreFiles) -> RStoreError | None:
    """The refusal about a store without a file of the log, whose queues show that it had one."""
    held = [queue for queue in files.queues if queue.files]
    if not held:
        return None
    return LogMissing(
        f"{counted(len(held), 'consume queue')}, but no commit log",
        path=os.fspath(files.config.commit_log_paths[0]),
        next_step=next_step.bring(
            "mount its disk; if the log is lost for good, this removes the queues: "
            + next_step.command_line(files.config, "recover", "--yes-the-log-is-gone")
        ),
    )
