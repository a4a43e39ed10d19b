"""Batch consume queues of RocketMQ 5 against the log: each unit with its record, each record with its unit.

Records and units are both in log order, so one pass over the log and one over each queue compare them, whatever number
there is. Of a unit that is out of order the next one is looked at, so that one damaged unit makes no other a wrong one.
"""

from __future__ import annotations

import os
import time
from array import array
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import hashing, names, properties, sysflag
from engine.format.batch_unit import BatchUnit
from engine.format.inner_batch import batch_place
from engine.format.message import decode
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queues
from engine.log.derive import TopicQueue
from engine.log.scan import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.inspect.check.queues import LogView
    from engine.inspect.finding import Findings
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Scanner

_END = 1 << 64
"""Beyond every physical offset."""


class BatchQueueJudge:
    """Judges all batch queues of a store. `topics`: those that are configured, None when nobody knows.

    Attributes:
        in_time: False when the time was up before the end.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        findings: Findings,
        view: LogView,
        topics: Collection[str] | None = None,
    ) -> None:
        """List the queues, and name what their files alone tell. Raises StorageError."""
        self._files = files
        self._findings = findings
        self._view = view
        self._topics = topics
        self._wanted = {topic.encode("utf-8", "surrogateescape"): topic for topic in files.newer.batch_topics}
        self._walks: dict[TopicQueue, _Walk] = {}
        self._scanner: Scanner | None = None
        self.in_time = True
        listed, odd = batch_queues(disk, files)
        for one in odd:
            findings.add(one.code, one.path, one.path, one.description)
        for queue in listed:
            rows = BatchQueueRows(disk, queue, view.log_min)
            for bad in rows.bad():
                findings.add(bad.code, str(queue.queue), _place(queue.queue, bad.path, bad.offset), bad.why)
            self._walks[queue.queue] = _Walk(rows)

    @property
    def queues(self) -> int:
        """How many there are."""
        return len(self._walks)

    @property
    def units(self) -> int:
        """How many were looked at."""
        return sum(walk.passed for walk in self._walks.values())

    def judge(self, scanner: Scanner, stop: int | None) -> None:
        """Read the log up to the physical offset `stop` (None: its end), and what units are left then."""
        view = self._view
        until = _END if view.live_until is None else view.live_until
        end = until if stop is None else min(stop, until)
        self._scanner = scanner
        for event in scanner.scan(view.log_min, None if end == _END else end, resume=True):
            if view.deadline is not None and time.monotonic() > view.deadline:
                self.in_time = False
                return
            if isinstance(event, RecordBatch):
                for i, row in enumerate(event.rows):
                    topic = self._wanted.get(bytes(event.topic(i)))
                    if topic is not None and event.offset(i) < until and sysflag.is_consumable(row.sys_flag):
                        self._record(TopicQueue(topic, row.queue_id), event.offset(i), decode(event.record(i)))
        for queue, walk in self._walks.items():
            self._front(queue, walk)
            while walk.unit is not None:
                if walk.unit.physical_offset < until:
                    self._alone(queue, walk)
                walk.advance()

    def _record(self, queue: TopicQueue, offset: int, record: StoredMessage) -> None:
        walk = self._walks.get(queue)
        while walk is not None and walk.unit is not None:
            if walk.unit.physical_offset > offset and not walk.next_is_at_most(offset):
                break
            if walk.unit.physical_offset == offset:
                self._compare(queue, walk, walk.unit, record)
                walk.advance()
                return
            self._alone(queue, walk)
            walk.advance()
        if walk is not None and walk.begins is None:
            walk.front.extend((record.queue_offset, offset))
            return
        unknown = walk is None and self._topics is not None and queue.topic not in self._topics
        deleted = unknown and not names.is_system_topic(queue.topic)
        self._without(queue, record.queue_offset, offset, deleted=deleted)

    def _front(self, queue: TopicQueue, walk: _Walk) -> None:
        """Records before the first unit that is right: of a life of the queue that is over, or without their unit."""
        for queue_offset, offset in zip(walk.front[::2], walk.front[1::2], strict=True):
            deleted = walk.begins is not None and queue_offset >= walk.begins
            self._without(queue, queue_offset, offset, deleted=deleted)
        del walk.front[:]

    def _without(self, queue: TopicQueue, queue_offset: int, offset: int, *, deleted: bool) -> None:
        where = f"batchconsumequeue/{queue} #{queue_offset}"
        code = "unit-deleted" if deleted else "unit-missing"
        self._findings.add(code, str(queue), where, f"#{queue_offset}: the record at {offset}")

    def _compare(self, queue: TopicQueue, walk: _Walk, unit: BatchUnit, record: StoredMessage) -> None:
        """A unit and the record where it points."""
        tags = record.properties.get(properties.TAGS)
        try:
            own = batch_place(record)
            at = f"{own.size} from #{own.base} on"
            is_there = (own.base, own.size) == (unit.base_offset, unit.batch_size)
        except FormatError as error:
            at, is_there = error.message, False
        if walk.begins is None and is_there and unit.size == record.total_size:
            walk.begins = unit.base_offset
        if unit.size != record.total_size:
            self._note("unit-orphaned", queue, walk, f"size {unit.size}, the record has {record.total_size}")
        if not is_there:
            stated = f"{unit.batch_size} from #{unit.base_offset} on"
            self._note("unit-foreign", queue, walk, f"messages {stated}, of the record: {at}")
        if unit.tags_code != (hashing.tags_code(tags) if tags else 0):
            self._note("unit-tags", queue, walk, f"#{unit.base_offset}")
        if unit.store_timestamp != record.store_timestamp:
            self._note("unit-time", queue, walk, f"{unit.store_timestamp}, of the record: {record.store_timestamp}")

    def _alone(self, queue: TopicQueue, walk: _Walk) -> None:
        """A unit that no record of its queue vouches for."""
        assert walk.unit is not None
        physical = walk.unit.physical_offset
        if physical < self._view.log_min:
            return
        there = 0 if self._scanner is None else self._scanner.sound_size(physical)
        code = "unit-lost" if physical in self._view.lost else "unit-foreign" if there else "unit-orphaned"
        self._note(code, queue, walk, f"#{walk.unit.base_offset}: {physical}")

    def _note(self, code: str, queue: TopicQueue, walk: _Walk, detail: str) -> None:
        self._findings.add(code, str(queue), _place(queue, *walk.place), detail)


class _Walk:
    """The valid units of a queue, one after the other: `unit`, None after the last, lies at `place`.

    `begins`: base offset of the first one that is its record's, None so far; `front`: queue offset and physical offset
    of each record before it that has no unit.
    """

    def __init__(self, rows: BatchQueueRows) -> None:
        self._left = _valid(rows)
        self._next = next(self._left, None)
        self.passed = 0
        self.unit: BatchUnit | None = None
        self.place: tuple[str, int] = ("", 0)
        self.begins: int | None = None
        self.front = array("q")
        self.advance()

    def advance(self) -> None:
        """Go on to the next one."""
        self.passed += self.unit is not None
        following, self._next = self._next, None if self._next is None else next(self._left, None)
        self.unit = None if following is None else following[0]
        self.place = self.place if following is None else following[1]

    def next_is_at_most(self, offset: int) -> bool:
        """Whether the unit after this one lies at a physical offset or before it: then this one is out of order."""
        return self._next is not None and self._next[0].physical_offset <= offset


def _place(queue: TopicQueue, path: str, offset: int) -> str:
    return f"batchconsumequeue/{queue}/{os.path.basename(path)} at {offset}"


def _valid(rows: BatchQueueRows) -> Iterator[tuple[BatchUnit, tuple[str, int]]]:
    for chunk in rows.chunks():
        for index, values in enumerate(chunk.units.tolist()):
            unit = BatchUnit(*values)
            if unit.is_valid:
                yield unit, chunk.place(index)
