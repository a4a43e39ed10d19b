"""What GET_BROKER_RUNTIME_INFO tells, by Apache's keys and in its forms (BROKER.md 1.5).

Sources: StoreStatsService#getRuntimeInfo, DefaultMessageStore#getRuntimeInfo, AdminBrokerProcessor#prepareRuntimeInfo.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.numbers import INT_MAX
from engine.wire.codes import V4_9_8

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.put.flow import FlowControl
    from engine.broker.put.schedule import ScheduleService
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.watch.stats import Stats
    from engine.store import MessageStore

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_QUEUES = {
    "queryThreadPoolQueueCapacity": 20_000,
    "EndTransactionThreadPoolQueueCapacity": 100_000,
    "EndTransactionQueueSize": 0,
    "pullThreadPoolQueueSize": 0,
    "pullThreadPoolQueueHeadWaitTimeMills": 0,
    "queryThreadPoolQueueSize": 0,
    "queryThreadPoolQueueHeadWaitTimeMills": 0,
}
"""Capacities are Apache's defaults. Such requests are answered as they come: none of these queues ever holds one."""


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """See the module: `all` reads it from these. `started_ms`: when we have started, ms since 1970."""

    store: MessageStore
    stats: Stats
    schedule: ScheduleService
    flow: FlowControl
    settings: CurrentSettings
    started_ms: int
    now_ms: Callable[[], int]

    def all(self) -> dict[str, str]:
        """All of it. Raises StorageError."""
        now_ms = self.now_ms()
        figures: dict[str, object] = {
            "bootTimestamp": self.started_ms,
            "runtime": _duration(now_ms - self.started_ms),
            **_of_stats(self.stats),
            **_of_store(self.store, now_ms),
            **_of_disks(self.store),
            **self.schedule.places(),
            **_QUEUES,
            "brokerVersion": V4_9_8,
            "brokerVersionDesc": "V4_9_8",
            "startAcceptSendRequestTimeStamp": 0,
            "pullThreadPoolQueueCapacity": self.settings.now.held_pulls,
            "sendThreadPoolQueueCapacity": self.settings.now.send_queue,
            "sendThreadPoolQueueSize": self.flow.queued + self.flow.waiting,
            "sendThreadPoolQueueHeadWaitTimeMills": self.flow.oldest_ms,
        }
        return {key: str(value) for key, value in figures.items()}


def _of_stats(stats: Stats) -> dict[str, object]:
    rates, totals = stats.rates(), stats.totals()
    put_times, puts = stats.put_times, max(totals.put, 1)
    return {
        "putMessageEntireTimeMax": put_times.longest,
        "putMessageTimesTotal": puts,
        "putMessageFailedTimes": totals.put_failed,
        "putMessageSizeTotal": totals.put_size,
        "putMessageDistributeTime": put_times.spread(),
        "putMessageAverageSize": totals.put_size / puts,
        "dispatchMaxBuffer": 0,
        "getMessageEntireTimeMax": stats.longest_get_ms,
        "putTps": rates.put,
        "getFoundTps": rates.hits,
        "getMissTps": rates.misses,
        "getTotalTps": rates.got,
        "getTransferedTps": rates.transferred,
        "putLatency99": f"{put_times.quantile(0.99):.2f}",
        "putLatency999": f"{put_times.quantile(0.999):.2f}",
        "msgPutTotalYesterdayMorning": stats.yesterday.put,
        "msgPutTotalTodayMorning": stats.morning.put,
        "msgPutTotalTodayNow": totals.put,
        "msgGetTotalYesterdayMorning": stats.yesterday.transferred,
        "msgGetTotalTodayMorning": stats.morning.transferred,
        "msgGetTotalTodayNow": totals.transferred,
    }


def _of_store(store: MessageStore, now_ms: int) -> dict[str, object]:
    log, began = store.log, store.log.begin_time_in_lock
    figures: dict[str, object] = {
        "commitLogMinOffset": log.min_offset,
        "commitLogMaxOffset": log.max_offset,
        "dispatchBehindBytes": store.dispatch_lag,
        "earliestMessageTimeStamp": store.earliest_message_time(),
        "pageCacheLockTimeMills": max(now_ms - began, 0) if began else 0,
        "remainTransientStoreBufferNumbs": INT_MAX if log.pool is None else log.pool.available,
        "remainHowManyDataToFlush": _size(log.max_offset - log.flushed_where),
    }
    if log.pool is not None:
        figures["remainHowManyDataToCommit"] = _size(log.files.remain_to_commit())
    return figures


def _of_disks(store: MessageStore) -> dict[str, object]:
    config, disk = store.config, store.disk
    logs = {os.fspath(path): disk.disk_used_ratio(os.fspath(path)) for path in config.commit_log_paths}
    room = disk.usage(os.fspath(config.store_path_root_dir))
    return {
        **{f"commitLogDiskRatio_{path}": ratio for path, ratio in logs.items()},
        "commitLogDiskRatio": min(logs.values()),
        "consumeQueueDiskRatio": disk.disk_used_ratio(os.fspath(config.store_path_root_dir)),
        "commitLogDirCapacity": f"Total : {_size(room.total)}, Free : {_size(room.usable)}.",
    }


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    """Source: MixAll#humanReadableByteCount."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count / (1 << 10 * power):.1f} {_UNITS[power]}"
