"""What state a store is in, and why, at a glance: files and their ends, never the whole log.

The log's end is looked for from where the queues end: a clean store's last record is the newest unit's, and only what
lies behind it is read. Space by topic is the sum of the units' sizes, estimated from samples for very long queues.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.config import apache_key
from engine.errors import StorageError
from engine.files.lock import Holder, holder_of
from engine.format import names, sysflag
from engine.format.message import V4_HEAD_SIZE
from engine.format.queue_unit import UNIT_SIZE
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.create import SIZES
from engine.repair.log_end import first_store_timestamp
from engine.repair.queue_rows import QueueRows, is_real
from engine.repair.survey import QueueFiles, StoreFiles, survey
from engine.repair.verify import judge_tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk

EXACT_ROWS = 1 << 20
"""Queues of at most so many rows are summed up exactly."""
_SAMPLES, _SAMPLE_ROWS = 16, 1 << 12


class State(enum.Enum):
    """The state of a store."""

    CLEAN = "clean"
    CRASHED = "crashed"
    RUNNING = "running"
    LOCKED = "locked"
    EMPTY = "empty"
    LOG_GONE = "log-gone"


_WHY = {
    State.CLEAN: "it was closed cleanly: there is no abort file, and nobody holds its lock",
    State.CRASHED: "its abort file is there and nobody holds its lock. Next: rstore recover --dry-run",
    State.RUNNING: "{who} has it open",
    State.LOCKED: "{who} holds its lock, but has no abort file: it is starting, stopping, or repairing it",
    State.EMPTY: "there is no commit log file yet",
    State.LOG_GONE: "there are consume queues, but no commit log. Is its disk mounted?",
}


@dataclass(slots=True)
class TopicSpace:
    """A topic's part of the log, by its queues: messages and their bytes (an estimate for very long queues)."""

    topic: str
    queues: int = 0
    messages: int = 0
    size: int = 0
    estimated: bool = False


@dataclass(slots=True)
class LogState:
    """The log (physical offsets; times in ms, 0 = unknown).

    `behind`, `behind_bytes`: records at its end that are in no queue yet. `damage`: (offset, reason) of a place behind
    the queues' end that is no sound record.
    """

    files: int = 0
    size: int = 0
    min_offset: int = -1
    max_offset: int = 0
    min_timestamp: int = 0
    max_timestamp: int = 0
    behind: int = 0
    behind_bytes: int = 0
    missing: int = 0
    damage: tuple[int, str] | None = None


@dataclass(slots=True)
class StoreStatus:
    """The whole answer. `sizes`: by Apache's key, with whether somebody gave it."""

    files: StoreFiles
    state: State
    why: str
    pid: int | None
    log: LogState
    sizes: dict[str, tuple[int, bool]]
    disk_used: float
    disk_total: int
    disk_usable: int
    topics: list[TopicSpace] = field(default_factory=list)
    index_entries: int = 0
    index_timestamp: int = 0
    repairs: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One document."""
        log, files = self.log, self.files
        return {
            "store": files.root,
            "state": self.state.value,
            "why": self.why,
            "pid": self.pid,
            "abort": files.abort,
            "commitlog": {
                "files": log.files,
                "bytes": log.size,
                "minOffset": log.min_offset,
                "maxOffset": log.max_offset,
                "minStoreTimestamp": log.min_timestamp,
                "maxStoreTimestamp": log.max_timestamp,
                "missingBytes": log.missing,
                "damage": None if log.damage is None else {"physicalOffset": log.damage[0], "reason": log.damage[1]},
            },
            "dispatch": {"records": log.behind, "bytes": log.behind_bytes},
            "consumequeue": {
                "topics": len(self.topics),
                "queues": len(files.queues),
                "files": sum(len(q.files) for q in files.queues),
            },
            "index": {
                "files": len(files.index),
                "entries": self.index_entries,
                "endTimestamp": self.index_timestamp,
            },
            "checkpoint": {
                "whole": files.checkpoint_ok,
                "physicMsgTimestamp": files.checkpoint.physic_msg_timestamp,
                "logicsMsgTimestamp": files.checkpoint.logics_msg_timestamp,
                "indexMsgTimestamp": files.checkpoint.index_msg_timestamp,
            },
            "sizes": {key: size for key, (size, _) in self.sizes.items()},
            "disk": {"usedRatio": self.disk_used, "total": self.disk_total, "usable": self.disk_usable},
            "topics": [
                {
                    "topic": t.topic,
                    "queues": t.queues,
                    "messages": t.messages,
                    "bytes": t.size,
                    "estimated": t.estimated,
                }
                for t in self.topics
            ],
            "odd": [{"path": os.path.relpath(o.path, files.root), "why": o.why} for o in files.odd],
            "repairs": self.repairs,
        }


def status(disk: Disk, config: StoreConfig, *, progress: Callable[[int, int], None] | None = None) -> StoreStatus:
    """Look at the store that `config` names. `progress` is called with queues read so far and in all.

    Raises:
        NotAStore, CannotMend, StorageError.
    """
    files = survey(disk, config)
    holder = holder_of(disk, files.root)
    topics: dict[str, TopicSpace] = {}
    newest = -1
    for number, queue in enumerate(files.queues):
        space = topics.setdefault(queue.queue.topic, TopicSpace(queue.queue.topic))
        newest = max(newest, _add_queue(disk, queue, space))
        if progress is not None:
            progress(number + 1, len(files.queues))
    usage_at = next((os.fspath(p) for p in files.config.commit_log_paths if disk.exists(os.fspath(p))), files.root)
    usage = disk.usage(usage_at)
    state = _state(files, holder)
    who = f"process {holder.pid}" if holder is not None and holder.pid else "another process"
    found = StoreStatus(
        files=files,
        state=state,
        why=_WHY[state].format(who=who),
        pid=None if holder is None else holder.pid,
        log=_log_state(disk, files, newest, live=holder is not None),
        sizes={apache_key(n): (int(getattr(files.config, n)), n in files.config.given) for n in SIZES},
        disk_used=disk.disk_used_ratio(usage_at),
        disk_total=usage.total,
        disk_usable=usage.usable,
        topics=sorted(topics.values(), key=lambda t: (-t.size, t.topic)),
        repairs=_repairs(disk, files),
    )
    for index in files.index:
        if index.whole:
            with ClosedIndexFile(disk, index.path, files.index_layout) as file:
                found.index_entries += file.entry_count
                found.index_timestamp = max(found.index_timestamp, file.header.end_timestamp)
    return found


def _state(files: StoreFiles, holder: Holder | None) -> State:
    if holder is not None:
        return State.RUNNING if files.abort else State.LOCKED
    if not files.log and any(queue.files for queue in files.queues):
        return State.LOG_GONE
    if files.abort:
        return State.CRASHED
    return State.CLEAN if files.log else State.EMPTY


def _repairs(disk: Disk, files: StoreFiles) -> list[str]:
    base = os.path.join(files.root, names.SALVAGE)
    return [e.path for e in disk.scandir(base) if not e.is_file] if disk.exists(base) else []


# --- queues ----------------------------------------------------------------------------------------------------------


def _add_queue(disk: Disk, files: QueueFiles, space: TopicSpace) -> int:
    """Add a queue to its topic's space; physical offset behind its newest message, −1 without one."""
    space.queues += 1
    if not files.files:
        return -1
    rows = QueueRows(disk, files)
    end = _last_row(rows)
    if end == rows.first:
        return -1
    if end - rows.first <= EXACT_ROWS:
        messages, size = _sum(rows, rows.first, end)
    else:
        messages, size = _estimate(rows, end)
        space.estimated = True
    space.messages += messages
    space.size += size
    last = rows.read(end - 1, end)
    return int(last["physical_offset"][0]) + int(last["size"][0]) if is_real(last)[0] else -1


def _last_row(rows: QueueRows) -> int:
    """Queue offset behind the last valid row, found by bisection in the last file that holds any."""
    for file in reversed(rows.files):
        low = start = file.offset // UNIT_SIZE
        high = start + file.size // UNIT_SIZE
        while low < high:
            middle = (low + high) // 2
            if int(rows.read(middle, middle + 1)["size"][0]) > 0:
                low = middle + 1
            else:
                high = middle
        if low > start:
            return low
    return rows.first


def _sum(rows: QueueRows, start: int, end: int) -> tuple[int, int]:
    messages = size = 0
    for _, chunk in rows.chunks(start, end):
        real = is_real(chunk)
        messages += int(real.sum())
        size += int(chunk["size"][real].sum(dtype="i8"))
    return messages, size


def _estimate(rows: QueueRows, end: int) -> tuple[int, int]:
    step = (end - rows.first - _SAMPLE_ROWS) // (_SAMPLES - 1)
    taken = [_sum(rows, at, at + _SAMPLE_ROWS) for at in (rows.first + i * step for i in range(_SAMPLES))]
    share = (end - rows.first) / (_SAMPLES * _SAMPLE_ROWS)
    return round(sum(m for m, _ in taken) * share), round(sum(s for _, s in taken) * share)


# --- log -------------------------------------------------------------------------------------------------------------


def _log_state(disk: Disk, files: StoreFiles, newest: int, *, live: bool) -> LogState:
    found = LogState(files=len(files.log), size=sum(s.size for s in files.log))
    if not files.log:
        return found
    found.min_offset = files.log[0].offset
    found.missing = files.log[-1].end - files.log[0].offset - found.size
    with ClosedLog(disk, files.log) as log:
        found.min_timestamp = first_store_timestamp(log, files.log[0])
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        start = _where_to_look(log, scanner, files, newest)
        found.max_offset = start
        held: list[Damage] = []
        for event in scanner.scan(start, resume=True):
            if isinstance(event, RecordBatch):
                _take(found, event, newest)
            if isinstance(event, RecordBatch | Blank) and held:
                found.damage = found.damage or (held[0].offset, held[0].reason.value)
                held = []
            if isinstance(event, Damage):
                held.append(event)
        for bad in judge_tail(log, held, live):
            found.damage = found.damage or (bad.offset, bad.reason)
        if not found.max_timestamp:
            found.max_timestamp = _newest_timestamp(disk, log, files, newest)
    return found


def _where_to_look(log: ClosedLog, scanner: Scanner, files: StoreFiles, newest: int) -> int:
    """The physical offset from which the log's end is looked for: the queues' end, if a record can begin there."""
    segment = log.segment_at(newest - 1) if newest > 0 else None
    if segment is None:
        return files.log[0].offset
    if newest == segment.end or scanner.sound_size(newest):
        return newest
    head = bytes(log.read(newest, V4_HEAD_SIZE))
    first = next(iter(Scanner(log).scan(newest)), None)
    return newest if not any(head[:8]) or isinstance(first, Blank) else segment.offset


def _take(found: LogState, batch: RecordBatch, newest: int) -> None:
    found.max_offset = batch.end
    found.max_timestamp = batch.rows[-1].store_timestamp
    for row in batch.rows:
        if batch.base + row.position >= newest and sysflag.is_consumable(row.sys_flag):
            found.behind += 1
            found.behind_bytes += row.size


def _newest_timestamp(disk: Disk, log: ClosedLog, files: StoreFiles, newest: int) -> int:
    """Store time of the message that ends at `newest`."""
    from engine.format.message import store_timestamp_position

    for queue in files.queues:
        rows = QueueRows(disk, queue)
        end = _last_row(rows) if queue.files else rows.first
        if end > rows.first:
            last = rows.read(end - 1, end)
            physical, size = int(last["physical_offset"][0]), int(last["size"][0])
            if physical + size == newest:
                try:
                    head = log.read(physical, V4_HEAD_SIZE)
                except StorageError:
                    return 0
                if len(head) == V4_HEAD_SIZE:
                    at = store_timestamp_position(int.from_bytes(head[36:40], "big"))
                    return int.from_bytes(head[at : at + 8], "big", signed=True)
    return 0
