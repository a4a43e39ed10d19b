"""When the disk is full: how fast the log grows, and when its file systems reach the ratios at which a broker acts.

The rate is the log's bytes of a window that ends now where somebody writes, and with the newest message where nobody
does: a store that stands still since a crash is asked how fast it will fill once it runs again. From a window of less
than an hour nothing is forecast: a load test of four seconds is no day's traffic. Consume queues and index grow with
the log, in the proportion that they have to it now. Segments are allocated as they are written by
Apache, whole by rstore: over hours it is the same. With several paths of the log, a broker acts on the least used.

Used ratio = used ÷ (used + usable), rounded up to a whole per cent (UtilAll#getDiskPartitionSpaceUsedPercent); what a
broker does above which: RECOVERY.md, "Expiring" (DefaultMessageStore.CleanCommitLogService#isSpaceToDelete).
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.disk_levels import max_used
from engine.dataclass import dataclass
from engine.inspect.status.space import HOUR_MS, covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.file_system import Usage
    from engine.inspect.store.log_clock import LogClock
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment

_DAY = 24


@dataclass(frozen=True, slots=True)
class GrowthRate:
    """Bytes of the log stored in [start, end] (ms).

    `hours`: how long a window was asked for; the log may be younger. `live`: it ends now, else with the last message.
    """

    hours: int
    start: int
    end: int
    size: int
    live: bool

    @property
    def enough(self) -> bool:
        """Whether it is the rate of an hour or more: of less, nothing is forecast."""
        return self.end - self.start >= HOUR_MS

    @property
    def per_hour(self) -> int:
        """Bytes an hour; 0 where the window has no length."""
        return round(self.size * HOUR_MS / (self.end - self.start)) if self.end > self.start else 0

    def to_json(self) -> dict[str, Any]:
        """One line of "rates"."""
        return {
            "hours": self.hours,
            "start": self.start,
            "end": self.end,
            "bytes": self.size,
            "bytesPerHour": self.per_hour,
            "endsNow": self.live,
        }


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a broker does when the disk is used above `percent`, and when: `hours` from now on at the present rate.

    0 hours: it is already. None: never, nothing comes in; or, not `known`, the log is too young to tell.
    `retention_holds`: at this rate, the age at which segments are deleted keeps the disk below.
    """

    percent: float
    does: str
    hours: float | None
    at: int | None
    retention_holds: bool
    known: bool = True

    @property
    def state(self) -> str:
        """already, never, ahead, or unknown."""
        if self.hours is None:
            return "never" if self.known else "unknown"
        return "ahead" if self.hours > 0 else "already"

    def to_json(self) -> dict[str, Any]:
        """One line of "thresholds"."""
        return {
            "percent": self.percent,
            "action": self.does,
            "state": self.state,
            "hours": self.hours,
            "at": self.at,
            "retentionHolds": self.retention_holds,
        }


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system with part of the store. `paths`: of the log, or the root where queues and index are.

    Sizes in bytes. `used_ratio` as Apache has it; −1.0 for one of no size. `steady_ratio`: what retention by age leads
    to at this rate; above 1.0 the disk holds less than that.
    """

    paths: tuple[str, ...]
    usage: Usage
    used_ratio: float
    log_bytes: int
    per_hour: int
    steady_ratio: float | None
    thresholds: tuple[Threshold, ...]

    def to_json(self) -> dict[str, Any]:
        """One line of "fileSystems"."""
        return {
            "paths": list(self.paths),
            "total": self.usage.total,
            "used": self.usage.used,
            "usable": self.usage.usable,
            "usedRatio": self.used_ratio,
            "commitlogBytes": self.log_bytes,
            "bytesPerHour": self.per_hour,
            "steadyRatio": self.steady_ratio,
            "thresholds": [t.to_json() for t in self.thresholds],
        }


@dataclass(frozen=True, slots=True)
class Retention:
    """Deletion by age: `reserved` and `wait` in hours, `steady` = bytes of log that it leads to at the present rate.

    `wait`: the longest time from one hour of deleteWhen to the next; None when it names none. `given`: whether the
    configuration says fileReservedTime. `problem`: what is wrong with deleteWhen. `stops`: for that, nothing is
    deleted at other hours, however full the disk is.
    """

    reserved: int
    given: bool
    delete_when: str
    wait: int | None
    steady: int | None
    problem: str | None = None
    stops: bool = False

    def to_json(self) -> dict[str, Any]:
        """The "retention" of a status."""
        return {
            "fileReservedTime": self.reserved,
            "configured": self.given,
            "deleteWhen": self.delete_when,
            "longestWaitHours": self.wait,
            "steadyCommitlogBytes": self.steady,
            "problem": self.problem,
            "deletionStops": self.stops,
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """The whole of it. `rates`: over windows of different length; `rate`, the one that counts; None without messages.

    `derived_ratio`: bytes of queues and index for each byte of log.
    """

    rate: GrowthRate | None
    rates: tuple[GrowthRate, ...]
    derived_ratio: float
    retention: Retention
    file_systems: tuple[FileSystem, ...]

    def to_json(self) -> dict[str, Any]:
        """The "forecast" of a status."""
        return {
            "rate": None if self.rate is None else self.rate.to_json(),
            "rates": [r.to_json() for r in self.rates],
            "queuesAndIndexShare": self.derived_ratio,
            "retention": self.retention.to_json(),
            "fileSystems": [f.to_json() for f in self.file_systems],
        }


def rate_of(
    clock: LogClock, segments: Sequence[Segment], oldest: int, newest: int, hours: int, now: int | None
) -> GrowthRate:
    """The rate over the last hours, or as many as the log has.

    Args:
        clock: of the log.
        segments: of the log, by offset.
        oldest, newest: store times (ms) of its first and last message.
        hours: length of the window.
        now: the clock (ms) where somebody may write; None where nobody does.
    """
    end = newest if now is None else max(now, newest)
    start = max(oldest, end - hours * HOUR_MS)
    place = clock.start if start <= oldest else clock.offset_of(start)
    return GrowthRate(hours, start, end, covered(segments, place, clock.end), now is not None)


def forecast(
    disk: Disk,
    files: StoreFiles,
    rates: Sequence[GrowthRate],
    counting: GrowthRate | None,
    derived_ratio: float,
    now: int | None,
) -> Forecast:
    """When the store's file systems fill.

    Args:
        disk: asked for their space.
        files: the store.
        rates: all rates, to be reported.
        counting: the one that counts.
        derived_ratio: bytes of queues and index for each byte of log.
        now: as for `rate_of`; without it a forecast is in hours only.

    Raises:
        StorageError: the system doesn't tell.
    """
    known = counting is None or counting.enough
    per_hour = counting.per_hour if counting is not None and known else 0
    retention = _retention(files.config, per_hour)
    systems = _file_systems(disk, files, retention, per_hour, derived_ratio, now, known=known)
    return Forecast(counting, tuple(rates), derived_ratio, retention, systems)


def _retention(config: StoreConfig, per_hour: int) -> Retention:
    """Source: CleanCommitLogService#deleteExpiredFiles; a file goes as long after its last message, at a fixed hour."""
    text = config.delete_when
    when = read_delete_when(text)
    wait = longest_wait(when.hours)
    steady = None
    if wait is not None and per_hour > 0:
        steady = per_hour * (config.file_reserved_time + wait) + config.mapped_file_size_commit_log
    given = "file_reserved_time" in config.given
    stops = when.stops_at is not None
    return Retention(config.file_reserved_time, given, text, wait, steady, when.problem(text), stops)


def longest_wait(hours: Iterable[int]) -> int | None:
    """Hours from one of deleteWhen's to the next, at most; None without any."""
    named = sorted(set(hours))
    if not named:
        return None
    return max(after - before for before, after in zip(named, [*named[1:], named[0] + _DAY], strict=True))


def _file_systems(
    disk: Disk,
    files: StoreFiles,
    retention: Retention,
    per_hour: int,
    derived_ratio: float,
    now: int | None,
    *,
    known: bool,
) -> tuple[FileSystem, ...]:
    """New segments go to the log's paths in turn, queues and index to the root."""
    writable = [path for path in map(os.fspath, files.config.commit_log_paths) if disk.exists(path)] or [files.root]
    by_device: dict[int, list[str]] = {}
    for path in (*writable, files.root):
        places = by_device.setdefault(disk.device(path), [])
        if path not in places:
            places.append(path)
    segments: dict[int, int] = {}
    devices = {path: disk.device(path) for path in {os.path.dirname(s.path) for s in files.log}}
    for segment in files.log:
        device = devices[os.path.dirname(segment.path)]
        segments[device] = segments.get(device, 0) + segment.size
    file_systems = []
    for device, paths in by_device.items():
        share = sum(path in paths for path in writable) / len(writable)
        if files.root in paths:
            share += derived_ratio
        usage, ratio = disk.usage(paths[0]), disk.disk_used_ratio(paths[0])
        steady = None
        if retention.steady is not None:
            growth = (retention.steady - sum(s.size for s in files.log)) * share
            steady = max(0.0, (usage.used + growth) / max(1, usage.used + usage.usable))
        levels = _levels(files.config)
        file_systems.append(
            FileSystem(
                tuple(paths),
                usage,
                ratio,
                segments.get(device, 0),
                round(per_hour * share),
                None if steady is None else math.ceil(steady * 100) / 100,
                tuple(_threshold(p, does, usage, per_hour * share, steady, now, known=known) for p, does in levels),
            )
        )
    return tuple(file_systems)


def _levels(config: StoreConfig) -> list[tuple[float, str]]:
    """What a broker does above which per cent. A deleteWhen that is no number leaves retention nothing to do."""
    first = max_used(config.disk_max_used_space_ratio)
    forced = _percent(config.disk_space_clean_forcibly_ratio)
    full = (_percent(config.disk_space_warning_level_ratio), "puts are refused")
    when = read_delete_when(config.delete_when)
    if when.stops_at is not None:
        does = f"files are deleted at {when.clock()} o'clock only" if when.hours else "nothing is deleted"
        return sorted([(first, f"{does} (deleteWhen)"), full], key=lambda level: level[0])
    off = "nothing more (cleanFileForciblyEnable is off)"
    hurry = "files are deleted before their retention ends" if config.clean_file_forcibly_enable else off
    old = "files past their retention are deleted at any hour"
    return sorted([(first, old), (forced, hurry), full], key=lambda level: level[0])


def _percent(ratio: float) -> float:
    """A whole number where it is one."""
    percent = round(ratio * 100, 6)
    return int(percent) if percent == int(percent) else percent


def _threshold(
    percent: float, does: str, usage: Usage, per_hour: float, steady: float | None, now: int | None, *, known: bool
) -> Threshold:
    entire = usage.used + usage.usable
    holds = steady is not None and steady * 100 <= percent
    if usage.used * 100 >= percent * entire:
        return Threshold(percent, does, 0.0, now, False)
    if per_hour <= 0:
        return Threshold(percent, does, None, None, holds, known)
    hours = (percent * entire / 100 - usage.used) / per_hour
    return Threshold(percent, does, hours, None if now is None else now + round(hours * HOUR_MS), holds)
