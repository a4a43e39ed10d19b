"""`rstore expire`: one round of Apache's retention on a closed store, with what it costs told before.

The rule (DefaultMessageStore.CleanCommitLogService): there is a reason to delete when it is `deleteWhen` o'clock (local
time), when a disk is used above `diskMaxUsedSpaceRatio`, or when somebody asks for it by hand. A segment goes when its
last modification is `fileReservedTime` hours ago or more; at once when a disk is used above 85 % and
`cleanFileForciblyEnable` holds. Oldest first, never the last, at most ten a round, up to the first that may stay.
Queue files whose last unit points before the log's new first byte follow, and index files that end before it; never
the last of them (CleanConsumeQueueService).

Expiry deletes by design: nothing goes to salvage. So the plan says what goes unread: by consumer groups, delayed
messages, halves of transactions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import CannotMend, RStoreError
from engine.files.queue import DELETE_BATCH_MAX
from engine.log.closed_log import ClosedLogReader
from engine.log.source import ClosedLog
from engine.repair.consumers import Unread, read_consumers
from engine.repair.expire_halves import Half, open_halves
from engine.repair.expire_queues import QueueExpiry, expire_index, expire_queues
from engine.repair.survey import StoreFiles, survey

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.source import Segment

CLEAN_FORCIBLY_RATIO = 0.85
"""Source: DefaultMessageStore.CleanCommitLogService#diskSpaceCleanForciblyRatio."""
RATIO_LIMITS = (10, 95)
"""diskMaxUsedSpaceRatio is taken within these (MessageStoreConfig#getDiskMaxUsedSpaceRatio)."""
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What a round goes by. `forced`: by hand, whatever the hour. The others None: the store's settings.

    `reserved_hours`: fileReservedTime; `disk_ratio`: diskMaxUsedSpaceRatio, per cent.
    """

    forced: bool = False
    reserved_hours: float | None = None
    disk_ratio: int | None = None


@dataclass(frozen=True, slots=True)
class ExpirePlan:
    """One round. `why`: the reason to delete, None when there is none; `pinned`: what keeps the first that stays.

    `segments`: those that go, oldest first. `log_min`: the log's first byte afterwards.
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
    unread: tuple[Unread, ...]
    halves: tuple[Half, ...]
    problems: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether a file goes."""
        return bool(self.segments or self.index_removed or any(queue.removed for queue in self.queues))

    @property
    def refusal(self) -> RStoreError | None:
        """A store that was not closed is recovered first."""
        if not self.files.abort:
            return None
        return CannotMend("the store was not closed", path=self.files.root, hint="run rstore recover first")

    @property
    def removed(self) -> list[str]:
        """The files that go, in the order in which they do."""
        directory = os.path.join(self.files.root, "index")
        return [
            *(segment.path for segment in self.segments),
            *(path for queue in self.queues for path in queue.removed),
            *(os.path.join(directory, name) for name in self.index_removed),
        ]

    def to_json(self) -> dict[str, Any]:
        """The JSON of cli.md, with the preflight."""
        start = self.segments[0].path if self.segments else None
        return {
            "mode": "expire",
            "abort": self.files.abort,
            "why": self.why,
            "pinned": self.pinned,
            "diskUsed": round(self.disk_used, 2),
            "atOnce": self.at_once,
            "startFile": None if start is None else os.path.basename(start),
            "minOffset": self.log_min,
            "maxOffset": self.log_end,
            "truncateTo": None,
            "records": self.records,
            "bytesCut": sum(segment.size for segment in self.segments),
            "damage": [],
            "recordsBehind": 0,
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
            "halves": [half.to_json() for half in self.halves],
            "salvage": None,
            "changed": self.changed,
            "problems": list(self.problems),
        }


def plan_expire(
    disk: Disk, config: StoreConfig, rules: Rules, *, progress: Callable[[int, int], None] | None = None
) -> ExpirePlan:
    """Plan one round; writes nothing.

    Raises:
        CannotMend: no log. NotAStore, StorageError.
    """
    files = survey(disk, config)
    if not files.log:
        raise CannotMend("there is no commit log to expire", path=files.root)
    config = files.config
    problems: list[str] = []
    used, at_once, above = _disks(disk, config, rules)
    why = _why(disk, config, rules, used, above, problems)
    hours = config.file_reserved_time if rules.reserved_hours is None else rules.reserved_hours
    segments, pinned = _expired(disk, files, round(hours * _HOUR_MS), at_once) if why else ((), "no reason to delete")
    left = files.log[len(segments) :]
    queues = expire_queues(disk, files, left[0].offset)
    consumers = read_consumers(disk, files.root, (queue.queue for queue in queues))
    unread = tuple(one for queue in queues for one in consumers.unread(queue.queue, queue.old_min, queue.min_offset))
    with ClosedLog(disk, files.log) as log:
        records, halves = open_halves(log, config, segments, consumers, progress=progress)
    reader = ClosedLogReader(disk, files.log, config)
    try:
        end = reader.max_offset
    finally:
        reader.close()
    return ExpirePlan(
        files=files,
        why=why,
        pinned=pinned,
        disk_used=used,
        at_once=at_once,
        segments=segments,
        log_min=left[0].offset,
        log_end=end,
        records=records,
        queues=queues,
        index_removed=expire_index(disk, files, left[0].offset),
        unread=unread,
        halves=halves,
        problems=(*problems, *consumers.problems),
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


def _disks(disk: Disk, config: StoreConfig, rules: Rules) -> tuple[float, bool, bool]:
    """How full the fuller disk is, whether that lets files go at once, and whether it is a reason to delete.

    Of several log directories the emptiest counts. Source: CleanCommitLogService#isSpaceToDelete.
    """
    low, high = RATIO_LIMITS
    limit = config.disk_max_used_space_ratio if rules.disk_ratio is None else rules.disk_ratio
    ratio = min(max(limit, low), high) / 100
    logs = min(disk.disk_used_ratio(os.fspath(path)) for path in config.commit_log_paths)
    queues = disk.disk_used_ratio(os.path.join(os.fspath(config.store_path_root_dir), "consumequeue"))
    at_once = config.clean_file_forcibly_enable and max(logs, queues) > CLEAN_FORCIBLY_RATIO
    return max(logs, queues), at_once, logs > ratio or queues > ratio


def _why(disk: Disk, config: StoreConfig, rules: Rules, used: float, above: bool, problems: list[str]) -> str | None:
    """The reason to delete, None when there is none."""
    if rules.forced:
        return "asked for by hand (--force)"
    if above:
        return f"the disk is used to {used:.0%}"
    hour = time.localtime(disk.now_ms() / 1000).tm_hour
    for text in config.delete_when.split(";"):
        if not text.strip().isdecimal():
            problems.append(f"deleteWhen = {config.delete_when}: {text!r} is no hour")
        elif int(text) == hour:
            return f"it is {hour} o'clock (deleteWhen)"
    return None


def _expired(disk: Disk, files: StoreFiles, reserved_ms: int, at_once: bool) -> tuple[tuple[Segment, ...], str]:
    """The segments that go, and why the next one stays. Source: MappedFileQueue#deleteExpiredFileByTime."""
    now = disk.now_ms()
    gone = 0
    for segment in files.log[:-1]:
        age = now - disk.stat(segment.path).mtime_ns // 1_000_000
        if age < reserved_ms and not at_once:
            left = (reserved_ms - age) / _HOUR_MS
            return files.log[:gone], f"{os.path.basename(segment.path)} may stay for {left:.1f} more hours"
        if gone == DELETE_BATCH_MAX:
            return files.log[:gone], f"a round deletes at most {DELETE_BATCH_MAX} files: run it again for more"
        gone += 1
    return files.log[:gone], f"{os.path.basename(files.log[-1].path)} is the last file, which never goes"
