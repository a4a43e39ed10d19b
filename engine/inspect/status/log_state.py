"""The commit log's two ends: offsets, first and last message, and what is not dispatched, without reading the middle.

The end is looked for from where the queues end: a clean store's last record is the newest unit's, and only what lies
after it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format.record import BLANK_SIZE, V4_HEAD_SIZE
from engine.inspect.check.verify import judge_tail
from engine.inspect.store.log_clock import store_time_at
from engine.log.scan import Blank, Damage, RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import ClosedLog

_WINDOW = 64 << 10


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """One message of the log: physical offset, file, store time (ms), and the queue that it names."""

    offset: int
    path: str
    timestamp: int
    topic: str
    queue_id: int
    queue_offset: int

    def to_json(self) -> dict[str, Any]:
        """One object, by Apache's names."""
        return {
            "physicalOffset": self.offset,
            "file": self.path,
            "storeTimestamp": self.timestamp,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
        }


@dataclass(slots=True)
class LogState:
    """The log (physical offsets; times in ms, 0 = unknown).

    `not_dispatched`, `not_dispatched_bytes`: records at its end that are in no queue yet. `damage`: (offset, reason) of
    a place after the queues' end that is no sound record; `inside`: sound ones lie after it. `oldest`, `newest`: its
    first and last sound record.
    """

    files: int = 0
    size: int = 0
    min_offset: int = -1
    max_offset: int = 0
    min_timestamp: int = 0
    max_timestamp: int = 0
    not_dispatched: int = 0
    not_dispatched_bytes: int = 0
    missing: int = 0
    damage: tuple[int, str] | None = None
    inside: bool = False
    oldest: MessagePlace | None = None
    newest: MessagePlace | None = None

    def to_json(self) -> dict[str, Any]:
        """The "commitlog" of a status."""
        return {
            "files": self.files,
            "bytes": self.size,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
            "minStoreTimestamp": self.min_timestamp,
            "maxStoreTimestamp": self.max_timestamp,
            "oldest": None if self.oldest is None else self.oldest.to_json(),
            "newest": None if self.newest is None else self.newest.to_json(),
            "missingBytes": self.missing,
            "damage": None if self.damage is None else {"physicalOffset": self.damage[0], "reason": self.damage[1]},
        }


def log_state(log: ClosedLog, files: StoreFiles, last: tuple[int, int], *, live: bool) -> LogState:
    """Look at both ends.

    Args:
        log: the segments of `files`.
        files: the store.
        last: physical offset and size of the newest message that a queue has, (−1, 0) when none has any.
        live: a process has the store: what is no record at its end may be one in a moment.
    """
    state = LogState(files=len(files.log), size=sum(s.size for s in files.log))
    if not files.log:
        return state
    state.min_offset = files.log[0].offset
    state.missing = files.log[-1].end - files.log[0].offset - state.size
    scanner = Scanner(log, max_message_size=files.config.max_message_size)
    newest = last[0] + last[1]
    start = _where_to_look(log, scanner, files, newest)
    state.max_offset = start
    at = last[0]
    held: list[Damage] = []
    for event in scanner.scan(start, resume=True):
        if isinstance(event, RecordBatch):
            _take(state, event, newest)
            at = event.offset(len(event) - 1)
        if isinstance(event, RecordBatch | Blank) and held:
            state.damage = state.damage or (held[0].offset, held[0].reason.value)
            state.inside = True
            held = []
        if isinstance(event, Damage):
            held.append(event)
    for bad in judge_tail(log, held, live):
        state.damage = state.damage or (bad.offset, bad.reason)
    near = Scanner(log, max_message_size=files.config.max_message_size, window=_WINDOW)
    first = near.find_sound(state.min_offset, state.max_offset)
    state.oldest = None if first is None else _place(log, near, first)
    state.newest = _place(log, near, at) if at >= 0 else None
    state.min_timestamp = store_time_at(log, state.min_offset) or (state.oldest.timestamp if state.oldest else 0)
    state.max_timestamp = store_time_at(log, at) if at >= 0 else 0
    return state


def _where_to_look(log: ClosedLog, scanner: Scanner, files: StoreFiles, newest: int) -> int:
    """The physical offset from which the log end is looked for: the queues' end, if a record can begin there."""
    segment = log.segment_at(newest - 1) if newest > 0 else None
    if segment is None:
        return files.log[0].offset
    if newest == segment.end or scanner.sound_size(newest):
        return newest
    head = bytes(log.read(newest, V4_HEAD_SIZE))
    first = next(iter(Scanner(log).scan(newest)), None)
    return newest if not any(head[:BLANK_SIZE]) or isinstance(first, Blank) else segment.offset


def _take(state: LogState, batch: RecordBatch, newest: int) -> None:
    state.max_offset = batch.end
    not_dispatched = (batch.offsets() >= newest) & batch.consumable()
    state.not_dispatched += int(not_dispatched.sum())
    state.not_dispatched_bytes += int(batch.sizes()[not_dispatched].sum())


def _place(log: ClosedLog, scanner: Scanner, offset: int) -> MessagePlace | None:
    """The record that lies there; None where no sound one does."""
    segment = log.segment_at(offset)
    event = next(iter(scanner.scan(offset, offset + 1)), None)
    if segment is None or not isinstance(event, RecordBatch):
        return None
    row = event.rows[0]
    topic = event.topic(0).decode("utf-8", "replace")
    return MessagePlace(offset, segment.path, row.store_timestamp, topic, row.queue_id, row.queue_offset)
