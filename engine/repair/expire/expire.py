"""`rstore expire`: one round of Apache's retention on a closed store, with what it costs shown before.

When there is a reason to delete, and which log files go then: engine.log.retention, which an open store goes by, too.
Queue files whose last unit points before the log's new first byte follow, and index files that end before it; never
the last of them (CleanConsumeQueueService).

Expiry deletes by design: nothing goes to salvage. So the plan says what goes unread: by consumer groups, delayed
messages, half messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, RStoreError
from engine.inspect import next_step
from engine.inspect.store.consumers import LostUnread, read_consumers
from engine.inspect.store.layout import demand_in_order
from engine.inspect.store.odd import demand_movable
from engine.inspect.store.survey import StoreFiles, surveyed
from engine.log import retention
from engine.log.closed_log import ClosedLogReader
from engine.log.retention import BATCH_MAX, DiskSpace, DiskUse, Stay, Why
from engine.log.source import ClosedLog
from engine.repair.expire.half_messages import HalfMessage, open_half_messages
from engine.repair.expire.queues import QueueExpiry, expire_batch_queues, expire_index, expire_queues

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.source import Segment
    from engine.repair.expire.archive import HeldSegment, SegmentArchive

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ExpireRules:
    """What a round goes by. `forced`: by hand, whatever the hour. The others None: the store's settings.

    `reserved_hours`: fileReservedTime; `disk_ratio`: diskMaxUsedSpaceRatio, per cent.
    """

    forced: bool = False
    reserved_hours: float | None = None
    disk_ratio: int | None = None


@dataclass(frozen=True, slots=True)
class ExpirePlan:
    """One round. `why`: the reason to delete, None when there is none; `pinned`: what keeps the first that stays.

    `segments`: those that go, oldest first. `log_min`: the log's first byte afterwards. `is_open`: of an open store.
    `no_reason`: why there is none, "" when there is one. `held`: the same segments as an archive holds them; None: none
    was asked.
    """

    files: StoreFiles
    why: str | None
    pinned: str
    disk_used: float
    at_once: bool
    segments: tuple[Segment, ...]
    log_min: int
    log_end: int
    records: int
    queues: tuple[QueueExpiry, ...]
    index_removed: tuple[str, ...]
    unread: tuple[LostUnread, ...]
    half_messages: tuple[HalfMessage, ...]
    problems: tuple[str, ...]
    is_open: bool = False
    no_reason: str = ""
    held: tuple[HeldSegment, ...] | None = None

    @property
    def changed(self) -> bool:
        """Whether a file goes."""
        return bool(self.segments or self.index_removed or any(queue.removed for queue in self.queues))

    @property
    def refusal(self) -> RStoreError | None:
        """A store that was not closed is recovered first."""
        if self.is_open or not self.files.abort:
            return None
        return next_step.not_closed(self.files.config)

    @property
    def removed(self) -> list[str]:
        """The files that are deleted, in that order."""
        directory = os.path.join(self.files.root, "index")
        return [
            *(segment.path for segment in self.segments),
            *(path for queue in self.queues for path in queue.removed),
            *(os.path.join(directory, name) for name in self.index_removed),
        ]

    def to_json(self) -> dict[str, Any]:
        """The JSON of CLI.md "Plans", with the preflight."""
        start = self.segments[0].path if self.segments else None
        return {
            "mode": "expire",
            "abort": self.files.abort,
            "why": self.why,
            "keptBecause": self.pinned,
            "diskUsedRatio": round(self.disk_used, 2),
            "cleanImmediately": self.at_once,
            "startFile": None if start is None else os.path.basename(start),
            "minOffset": self.log_min,
            "maxOffset": self.log_end,
            "truncateTo": None,
            "records": self.records,
            "bytesCut": sum(segment.size for segment in self.segments),
            "damage": [],
            "recordsAfter": 0,
            "filesRemoved": [os.path.relpath(path, self.files.root) for path in self.removed],
            "queues": [
                {
                    "topic": queue.queue.topic,
                    "queueId": queue.queue.queue_id,
                    "minOffset": queue.min_offset,
                    "maxOffset": queue.max_offset,
                    "unitsCut": queue.min_offset - queue.old_min,
                    "unitsRebuilt": 0,
                }
                for queue in self.queues
            ],
            "index": {"filesRemoved": list(self.index_removed)},
            "unread": [one.to_json() for one in self.unread],
            "openHalfMessages": [one.to_json() for one in self.half_messages],
            "salvage": None,
            "archived": None if self.held is None else len(self.held),
            "changed": self.changed,
            "problems": list(self.problems),
        }


def plan_expire(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    rules: ExpireRules,
    *,
    progress: Callable[[int, int], None] | None = None,
    in_use: int | None = None,
    archive: SegmentArchive | None = None,
) -> ExpirePlan:
    """Plan one round; writes nothing.

    `store`: its survey, or the settings that name it. `in_use`: the physical offset from which on an open store needs
    its log (CleanService.in_use); None: it is closed. `archive`: segments that it does not hold stay.

    Raises:
        CannotRepair: no log. DataIsAbsent, NotAStore, StorageError.
    """
    files = surveyed(disk, store)
    demand_movable(files.odd)
    if in_use is None:
        demand_in_order(disk, files)
    if not files.log:
        raise CannotRepair("there is no commit log", path=files.root)
    config = files.config
    rule = retention.RetentionRules.of(config, max_used=rules.disk_ratio, reserved_hours=rules.reserved_hours)
    use = DiskUse.of(config, disk.disk_used_ratio)
    space = rule.space(use)
    hour = time.localtime(disk.now_ms() / 1000).tm_hour
    why = rule.why(space, hour, by_hand=rules.forced)
    segments, pinned = ((), "no deletion is due") if why is None else _expired(disk, files, rule, space, in_use)
    held = None
    if archive is not None:
        held, why_not = archive.held(disk, files, segments, progress)
        segments, pinned = segments[: len(held)], why_not or pinned
    left = files.log[len(segments) :]
    queues = (*expire_queues(disk, files, left[0].offset), *expire_batch_queues(disk, files, left[0].offset))
    queues = tuple(sorted(queues, key=lambda one: one.queue))
    consumers = read_consumers(disk, files.root, (queue.queue for queue in queues))
    unread = tuple(one for queue in queues for one in consumers.unread(queue.queue, queue.old_min, queue.min_offset))
    with ClosedLog(disk, files.log) as log:
        records, half_messages = open_half_messages(log, config, segments, consumers, progress=progress)
    reader = ClosedLogReader(disk, files.log, config)
    try:
        end = reader.max_offset
    finally:
        reader.close()
    return ExpirePlan(
        files=files,
        why=None if why is None else _why_text(why, hour, use),
        pinned=pinned,
        disk_used=max(use.log, use.queues),
        at_once=space.hurry,
        segments=segments,
        log_min=left[0].offset,
        log_end=end,
        records=records,
        queues=queues,
        index_removed=expire_index(disk, files, left[0].offset),
        unread=unread,
        half_messages=half_messages,
        problems=(*rule.problems, *consumers.problems),
        is_open=in_use is not None,
        no_reason="" if why is not None else rule.no_reason,
        held=held,
    )


def apply_expire(disk: Disk, plan: ExpirePlan) -> None:
    """Delete what the plan names: log, then queues, then index. The caller holds the store's lock.

    Killed in between, another round finds the rest to do.

    Raises:
        the plan's refusal; StorageError.
    """
    if plan.refusal is not None:
        raise plan.refusal
    for path in plan.removed:
        disk.step("expire.remove")
        disk.unlink(path, missing_ok=True)
        disk.sync_dir(os.path.dirname(path))
    disk.step("expire.done")


def _why_text(why: Why, hour: int, use: DiskUse) -> str:
    match why:
        case Why.BY_HAND:
            return "requested (--force)"
        case Why.SPACE:
            return f"disk usage is {max(use.log, use.queues) * 100:.0f} %"
        case Why.TIME:
            return f"it is {hour} o'clock (deleteWhen)"


def _expired(
    disk: Disk, files: StoreFiles, rule: retention.RetentionRules, space: DiskSpace, in_use: int | None
) -> tuple[tuple[Segment, ...], str]:
    """The segments that go, and why the next one stays."""
    now = disk.now_ms()
    may_go = [one for one in files.log[:-1] if in_use is None or one.offset + one.size <= in_use]
    modified = (disk.stat(segment.path).mtime_ns // 1_000_000 for segment in may_go)
    batch = rule.batch(modified, now, hurry=space.hurry)
    gone, next_one = files.log[: batch.count], files.log[batch.count].path
    match batch.stay:
        case Stay.BATCH:
            pinned = f"one run deletes at most {BATCH_MAX} files: run it again to continue"
        case Stay.LAST if batch.count < len(files.log) - 1:
            pinned = f"{os.path.basename(next_one)} is still being written or dispatched"
        case Stay.LAST:
            pinned = f"{os.path.basename(next_one)} is the last file, which is never deleted"
        case Stay.YOUNG:
            left = disk.stat(next_one).mtime_ns // 1_000_000 + rule.reserved_ms - now
            more = f"{os.path.basename(next_one)} is kept for {left / _HOUR_MS:.1f} more hours"
            pinned = f"nothing more to delete: retention not reached; {more}"
    return gone, pinned
