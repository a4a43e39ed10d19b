"""When a recovery refuses, and what the operator may choose instead: data would be lost that nobody gave up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import CannotMend, DamageInTheMiddle, LogIsGone, RStoreError, WrongFileSize
from engine.repair.log_end import MISSING_SEGMENT, LogEnd, Stretch

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.repair.bridge import Bridge
    from engine.repair.survey import StoreFiles

MOVED_RECORDS = 8
"""So many records of one segment that are off by the same distance are no damage: the file has another's name."""


class Choices(NamedTuple):
    """What the operator chose. `stuck`: the first stretch that can't be bridged; `truncate`: the end is given."""

    cut: bool
    bridge: bool
    log_is_gone: bool
    stuck: Bridge | None = None
    truncate: bool = False


def refusal(
    disk: Disk,
    files: StoreFiles,
    choices: Choices,
    end: LogEnd,
    fresh: Sequence[Stretch],
    shifts: Mapping[tuple[int, int], int],
    units_cut: int,
) -> RStoreError | None:
    """The error that applying the plan raises; None when it may be applied.

    Args:
        disk: how files are reached.
        files: the store.
        choices: what the operator said.
        end: where the log ends, and what stands behind it.
        fresh: lost stretches before the log's end that nobody has accepted yet.
        shifts: records by (segment, how far off their own offset is).
        units_cut: units of messages that the log doesn't have.
    """
    wrong = next(
        (odd for odd in files.odd if not odd.movable and os.path.dirname(odd.path) in files.config.log_directories),
        None,
    )
    if wrong is not None:
        return WrongFileSize(f"{wrong.why} among the commit log's", path=wrong.path, hint="rstore doctor tells more")
    if not files.log:
        return None if choices.log_is_gone else _log_is_gone(files)
    moved = next((key for key, records in shifts.items() if records >= MOVED_RECORDS), None)
    if moved is not None:
        segment = next(s for s in files.log if s.offset <= moved[0] < s.end)
        return CannotMend(
            f"{shifts[moved]} records of this segment say that they lie {moved[1]:+d} bytes from here",
            path=segment.path,
            hint="was the file renamed? give it its own name back",
        )
    if choices.cut:
        return None
    missing = next((path for path in files.config.log_directories if not disk.exists(path)), None)
    if missing is not None and units_cut:
        return LogIsGone(
            f"{units_cut} messages of the consume queues are not in the log, and one of its directories is missing",
            path=missing,
            hint="is its disk mounted? --cut goes on without what was there",
        )
    return _damage(choices, end, fresh)


def _damage(choices: Choices, end: LogEnd, fresh: Sequence[Stretch]) -> RStoreError | None:
    if choices.stuck is not None:
        return DamageInTheMiddle(
            f"{choices.stuck.length} bytes that can't be bridged ({choices.stuck.reason}): too few for a record",
            path=choices.stuck.segment.path,
            offset=choices.stuck.offset,
            hint="--cut ends the log there and saves the rest; nothing was changed",
        )
    if choices.truncate and (end.damage or fresh):
        first = (*end.damage, *fresh)[0]
        return DamageInTheMiddle(
            f"{first.reason}, before the place where the log is to end",
            path=first.path,
            offset=first.offset,
            hint="run rstore recover first, or cut before it; nothing was changed",
        )
    if end.damage:
        first = end.damage[0]
        size = sum(size for _, size in end.behind.values())
        return DamageInTheMiddle(
            f"{first.reason}; {end.records_behind} sound records ({size} bytes) lie behind it",
            path=first.path,
            offset=first.offset,
            hint="--bridge keeps them, --cut ends the log there and saves them (salvage replay); nothing was changed",
        )
    if choices.bridge or not fresh:
        return None
    if fresh[0].reason == MISSING_SEGMENT:
        return DamageInTheMiddle(
            f"{fresh[0].length} bytes of the commit log are missing behind this file",
            path=fresh[0].path,
            offset=fresh[0].offset,
            hint="find the missing segments, or give --bridge to go on behind them; nothing was changed",
        )
    return DamageInTheMiddle(
        f"{fresh[0].reason}, in a part of the log that queues must be rebuilt from",
        path=fresh[0].path,
        offset=fresh[0].offset,
        hint="--bridge writes an inert record over it, --cut goes on around it; nothing was changed",
    )


def _log_is_gone(files: StoreFiles) -> RStoreError | None:
    held = [queue for queue in files.queues if queue.files]
    if not held:
        return None
    return LogIsGone(
        f"{len(held)} consume queues, but no commit log",
        path=os.fspath(files.config.commit_log_paths[0]),
        hint="is its disk mounted? give --yes-the-log-is-gone if it is really gone",
    )
