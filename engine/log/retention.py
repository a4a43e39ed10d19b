"""When old files go, and which: Apache's rule as numbers in, numbers out. No clock, no disk, no file is touched here.

A round deletes for one of three reasons: somebody asked for it by hand, a disk is used above diskMaxUsedSpaceRatio, or
it is one of the hours of deleteWhen. Then log files go, oldest first, up to the first that may stay: one whose last
modification is less than fileReservedTime ago, unless a disk is used above 85 % and cleanFileForciblyEnable holds. At
most ten a round, and never the last file. Above 90 % the store takes no puts. (85 and 90 can be set:
diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, which have no limits in 4.9.8.)

A deleteWhen with a part that is no number ends each round in Apache before the disks are looked at, but for the hours
that stand before it (engine.broker_conf.delete_when): nothing goes then for want of space either. The same here, so
that no message goes that a broker would have kept; only by hand, where Apache's round ends, too, files do go.

Disk usage is a part of 1 in whole per cents, −1 when it can't be determined (Disk.disk_used_ratio). Of several
log directories the emptiest counts; the queues' disk is asked only when that one gives no reason to delete.

Two differences: a directory that is missing is no reason to delete, and the store is full when either disk is (Apache
deletes there, and forgets about the one disk when it looks at the other).

Sources (4.9.8): DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, #isTimeToDelete, #isSpaceToDelete;
UtilAll#isItTimeToDo; MessageStoreConfig#getDiskMaxUsedSpaceRatio; MappedFileQueue#deleteExpiredFileByTime.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.disk_levels import max_used as limited
from engine.dataclass import dataclass
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig

BATCH_MAX = 10
"""Files that a round deletes at most. Source: MappedFileQueue#DELETE_FILES_BATCH_MAX."""

MANUAL_ROUNDS = 20
"""Rounds that asking by hand is good for. Source: CleanCommitLogService#MAX_MANUAL_DELETE_FILE_TIMES."""

_HOUR_MS = 3_600_000


class Why(enum.Enum):
    """The reason of a round."""

    BY_HAND = "by hand"
    SPACE = "diskMaxUsedSpaceRatio"
    TIME = "deleteWhen"


class Stay(enum.Enum):
    """Why the first file that stays does."""

    YOUNG = "fileReservedTime"
    BATCH = "batch"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class DiskUse:
    """How full the disks are (parts of 1): of each log directory (path, part), and of the consume queues."""

    logs: tuple[tuple[str, float], ...]
    queues: float

    @classmethod
    def of(cls, config: StoreConfig, used_ratio: Callable[[str], float]) -> DiskUse:
        """Asks `used_ratio` (Disk.disk_used_ratio) about every path of a store that takes new files."""
        logs = [str(path) for path in config.commit_log_paths]
        queues = str(config.store_path_root_dir / names.CONSUMEQUEUE)
        return cls(tuple((path, used_ratio(path)) for path in logs), used_ratio(queues))

    @property
    def log(self) -> float:
        """That of the emptiest log directory."""
        return min(ratio for _, ratio in self.logs)


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """What follows from how full the disks are.

    Attributes:
        above: it is a reason to delete.
        hurry: files of any age are deleted.
        full: the store takes no puts.
        full_paths: log directories that get no new file as long as there is another.
    """

    above: bool
    hurry: bool
    full: bool
    full_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletionRound:
    """A round: how many files go, from the oldest on, and why the next one stays."""

    count: int
    stay: Stay


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """What rounds go by.

    Attributes:
        hours: of deleteWhen, local time.
        stops: a part of deleteWhen that is no number ends each round at other hours.
        problems: what is wrong with deleteWhen, one sentence each.
        max_used: diskMaxUsedSpaceRatio within its limits, as a part of 1.
        reserved_ms: fileReservedTime.
        forcibly: cleanFileForciblyEnable.
        forcibly_ratio, warning_ratio: diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, parts of 1.
    """

    hours: frozenset[int]
    stops: bool
    problems: tuple[str, ...]
    max_used: float
    reserved_ms: int
    forcibly: bool
    forcibly_ratio: float
    warning_ratio: float

    @classmethod
    def of(
        cls, config: StoreConfig, *, max_used: int | None = None, reserved_hours: float | None = None
    ) -> RetentionRules:
        """The settings of a store; what is given (per cent, hours) overrules them."""
        limit = config.disk_max_used_space_ratio if max_used is None else max_used
        reserved = config.file_reserved_time if reserved_hours is None else reserved_hours
        when = read_delete_when(config.delete_when)
        problem = when.problem(config.delete_when)
        return cls(
            when.hours,
            when.stops_at is not None,
            () if problem is None else (problem,),
            limited(limit) / 100,
            round(reserved * _HOUR_MS),
            config.clean_file_forcibly_enable,
            config.disk_space_clean_forcibly_ratio,
            config.disk_space_warning_level_ratio,
        )

    def space(self, use: DiskUse) -> DiskSpace:
        """What follows from how full the disks are."""
        log, queues = use.log, use.queues
        log_above = log > self.max_used
        return DiskSpace(
            above=log_above or queues > self.max_used,
            hurry=self.forcibly and (log > self.forcibly_ratio or (not log_above and queues > self.forcibly_ratio)),
            full=log > self.warning_ratio or queues > self.warning_ratio,
            full_paths=tuple(path for path, ratio in use.logs if ratio > self.forcibly_ratio),
        )

    def why(self, space: DiskSpace, hour: int, *, by_hand: bool) -> Why | None:
        """The reason to delete at this local hour, None when there is none."""
        if by_hand:
            return Why.BY_HAND
        if self.stops and hour not in self.hours:
            return None
        if space.above:
            return Why.SPACE
        return Why.TIME if hour in self.hours else None

    @property
    def no_reason(self) -> str:
        """Why no round deletes now, where `why` finds no reason; of a deleteWhen that is wrong, as doctor says it."""
        return self.problems[0] if self.problems else "not an hour of deleteWhen, and the disk has space"

    def batch(self, modified_ms: Iterable[int], now_ms: int, *, hurry: bool) -> DeletionRound:
        """The files to delete: `modified_ms` are the last modifications of all but the last file, oldest file first.

        No more of them are looked at than needed.
        """
        count = 0
        for modified in modified_ms:
            if count == BATCH_MAX:
                return DeletionRound(count, Stay.BATCH)
            if not hurry and now_ms < modified + self.reserved_ms:
                return DeletionRound(count, Stay.YOUNG)
            count += 1
        return DeletionRound(count, Stay.LAST)
