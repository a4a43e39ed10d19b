"""Messages of one queue of a store that is read, page by page: past bytes that are no message, up to unreadable ones.

What is worth saying beside the messages stands in sentences: `before` the first one, `after` the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, NextStep, NotInstalled, StorageError
from engine.files.disk import Disk
from engine.format import names, properties
from engine.format.batch_unit import BATCH_UNIT_SIZE, BatchUnit, valid_units
from engine.format.inner_batch import batch_place, inner_messages
from engine.format.message import StoredMessage, decode
from engine.format.quantities import counted, moment
from engine.format.queue_unit import decode_many
from engine.inspect.next_step import arguments, command_line, read
from engine.inspect.store.batch_queue import BadUnits, bad_runs
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.newer import TIMER
from engine.log.derive import TopicQueue
from engine.log.filters import TagFilter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.results import GetResult
    from engine.read_store import ReadStore

_AT_ONCE = 32
_UNITS = 1 << 14
MOST_TOLD = 8
"""Errors of a batch queue's units that are told one by one."""


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """Which messages of a queue.

    Attributes:
        topic, queue_id: of the queue.
        count: maximum messages.
        start: queue offset of the first; None: the queue's first.
        tags: only with these, as a consumer writes them.
        time: those stored then (ms) or later; it comes before `start`.
        options: of the command that asks, as they were typed: the command that continues has them, too.
    """

    topic: str
    queue_id: int
    count: int
    start: int | None = None
    tags: str | None = None
    time: int | None = None
    options: tuple[str, ...] = ()

    def words(self, offset: int) -> tuple[str, ...]:
        """The command that continues at a queue offset."""
        return ("get", *self.options, *arguments(self.topic, str(self.queue_id), str(offset)))


class QueueReading:
    """One reading of a queue: iterate over it once.

    Attributes:
        before: sentences, known before the first message.
        after: sentences, known after the last one.
        gone: queue offsets that point at something that is not a message.
    """

    def __init__(self, store: ReadStore, request: QueueRequest) -> None:
        """Look the queue up.

        Raises:
            InvalidArgument: there is no such queue. NewerStore: it is kept in a way that is not read. StorageError.
        """
        self._store = store
        self._request = request
        self.before: list[str] = []
        self.after: list[str] = []
        self.gone = 0
        start = request.start
        if request.time is not None:
            start = store.lower_bound(request.topic, request.queue_id, request.time)
        queue = store.find_queue(request.topic, request.queue_id)
        self._low, self._high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        self._start = self._low if start is None else start
        self._has_files = queue is not None
        if queue is None:
            self._demand_known()
        elif self._start < self._low:
            step = store.archive_step(*request.words(self._start))
            self.before.append(f"note: the queue starts at {self._low}" + ("" if step is None else f". Next: {step}"))

    @property
    def queue(self) -> str:
        """TOPIC/QUEUE."""
        return f"{self._request.topic}/{self._request.queue_id}"

    @property
    def expected(self) -> int:
        """How many messages it has, if each unit points at one and all tags are asked for."""
        first = max(self._start, self._low)
        return max(0, min(self._request.count, self._high - first)) if self._has_files else 0

    def units(self) -> Iterator[NDArray[np.void]]:
        """The units of so many messages, in their order, unit_dtype() each: fewer where the queue has a gap.

        Raises:
            StorageError.
        """
        queue = self._store.find_queue(self._request.topic, self._request.queue_id)
        at = max(self._start, self._low)
        end = at + self.expected
        while queue is not None and at < end:
            selected = queue.select(at, min(end - at, _UNITS))
            if selected is None:
                return
            with selected:
                units = decode_many(selected.view)[: end - at].copy()
            if not len(units):
                return
            yield units
            at += len(units)

    def end_after(self, passed: int) -> None:
        """So many messages were read by their units, all that are expected: what `__iter__` says at its end."""
        self._tell_end(max(self._start, self._low) + passed, passed)

    def __iter__(self) -> Iterator[StoredMessage | FormatError]:
        """Its messages; an error for each that its queue names and that is none.

        Raises:
            StorageError: the next message can't be read; what follows it is in the error.
        """
        if not self._has_files:
            self._tell_no_files()
            return
        count, high = self._request.count, self._high
        at = max(self._start, self._low)
        passed = 0
        most = _AT_ONCE
        while passed < count and at < high:
            page = self._page(at, min(most, count - passed))
            if page is None:
                most = 1  # what lies before the part that can't be read is shown
                continue
            for record in page.messages:
                yield _decoded(record)
            passed += page.message_count
            if page.next_begin_offset <= at:
                break
            if self._request.tags is None:
                self.gone += page.next_begin_offset - at - page.message_count
            at = page.next_begin_offset
        self._tell_end(at, passed)

    def _page(self, at: int, most: int) -> GetResult | None:
        """The next messages, `most` at most; None: one of them can't be read, and fewer may do.

        Raises StorageError: the only one that is asked for can't be read.
        """
        request = self._request
        tags = None if request.tags is None else TagFilter.parse(request.tags)
        try:
            return self._store.get(request.topic, request.queue_id, at, most, tags)
        except StorageError as error:
            if most == 1:
                raise self._unreadable(at, error) from error
            return None

    def _unreadable(self, at: int, error: StorageError) -> StorageError:
        """The error of a message that can't be read, with the command that shows what follows it.

        `at`: queue offset of the message, or before it where tags are asked for. `error`: what the system said.
        """
        config = self._store.files.config
        bad = at
        while self._request.tags is not None and bad < self._high and self._is_readable(bad):
            bad += 1
        step = read(config)
        if bad + 1 < self._high:
            following = command_line(config, *self._request.words(bad + 1))
            step = NextStep(following, f"shows the messages after the one at {bad}, which can't be read")
        return StorageError(error.message, path=error.path, offset=error.offset, next_step=step)

    def _is_readable(self, offset: int) -> bool:
        try:
            self._store.get(self._request.topic, self._request.queue_id, offset, 1)
        except StorageError:
            return False
        return True

    # --- what is said -----------------------------------------------------------------------------------------------

    def _tell_end(self, at: int, passed: int) -> None:
        """Why nothing was shown, or where it continues."""
        request, config, low, high = self._request, self._store.files.config, self._low, self._high
        topic, queue_id = request.topic, request.queue_id
        if not passed and request.time is not None and self._start >= high > low:
            newest = moment(self._store.message_store_timestamp(topic, queue_id, high - 1))
            last = command_line(config, *replace(request, options=()).words(high - 1))
            self.after.append(
                f"no message of {self.queue} was stored at {moment(request.time)} or later: its newest was at "
                f"{newest}. Next: {last} (shows that one)"
            )
        elif not passed:
            self.after.append(f"no such messages: {topic}/{queue_id} holds offsets {low} to {high}")
        elif at < high and passed == request.count:
            self.after.append(f"more: {command_line(config, *request.words(at))}")

    def _demand_known(self) -> None:
        KnownNames.of(Disk(), self._store.files).demand_queue(self._request.topic, self._request.queue_id)

    def _tell_no_files(self) -> None:
        """Why a queue that nothing is in has no files."""
        files = self._store.files
        step = self._store.archive_step(*self._request.words(self._start))
        self.after.append(
            f"no such messages: {self.queue} has no files: no message was put, or all were deleted"
            + ("" if step is None else f". Next: {step}")
        )
        if files.newer.has(TIMER) and TopicQueue(names.TIMER_TOPIC, 0) in self._store.queues():
            waiting = command_line(files.config, "dump", "timerlog", "--due")
            self.after.append(f"note: messages for a later time wait in {names.TIMER_TOPIC}. Next: {waiting}")


class BatchQueueReading:
    """One reading of a batch queue of RocketMQ 5: the messages in each record, by their own queue offsets.

    A queue offset in the middle of a record is its message from there on. A unit counts when the record at its physical
    offset is that of the topic and queue, has its size, and says the same queue offsets (`INNER_BASE`, `INNER_NUM`);
    what does not is an error at its place, and so are bytes that are no unit and queue offsets that no unit has. Tags
    are those of each message, as the client compares them: a record's own hash is that of no tag.

    Attributes: those of `QueueReading`; `gone` counts the units after the first errors (MOST_TOLD).
    """

    def __init__(self, store: ReadStore, request: QueueRequest) -> None:
        """Look the queue up. Raises InvalidArgument: there is no such queue. StorageError."""
        self._store = store
        self._request = request
        self._tags = TagFilter.parse(request.tags or "*")
        self.before: list[str] = []
        self.after: list[str] = []
        self.gone = 0
        self._errors = 0
        self._rows = rows = store.batch_rows(request.topic, request.queue_id)
        self._start = request.start or 0
        if rows is None:
            KnownNames.of(Disk(), store.files).demand_queue(request.topic, request.queue_id)
            return
        self._low, self._high = rows.min_offset, rows.max_offset
        if request.time is not None:
            self._start = rows.at_time(request.time)
        elif request.start is None:
            self._start = self._low
        elif self._start < self._low:
            self.before.append(f"note: the queue starts at {self._low}")

    @property
    def queue(self) -> str:
        """TOPIC/QUEUE."""
        return f"{self._request.topic}/{self._request.queue_id}"

    def __iter__(self) -> Iterator[StoredMessage | FormatError]:
        """Its messages; an error for each place that has none. Raises StorageError: one can't be read."""
        if self._rows is None:
            self.after.append(f"no such messages: {self.queue} has no files: no message was put, or all were deleted")
            return
        at = max(self._start, self._low)
        passed = 0
        if at < self._high:
            for one in self._from(at):
                if passed == self._request.count:
                    break
                if isinstance(one, FormatError):
                    yield one
                elif one.queue_offset >= at and self._tags.takes(one.properties.get(properties.TAGS)):
                    passed += 1
                    yield one
                if isinstance(one, StoredMessage):
                    at = max(at, one.queue_offset + 1)
        self._tell_end(at, passed)

    def _from(self, start: int) -> Iterator[StoredMessage | FormatError]:
        """What the units hold that end after a queue offset, in their order; and what is between them."""
        rows = self._rows
        assert rows is not None
        expected: int | None = start
        began = False
        held: list[BadUnits] = []
        for chunk in rows.chunks(rows.at_offset(start)):
            bad = {one.offset: one for one in bad_runs(chunk)}
            for index, is_valid in enumerate(valid_units(chunk.units).tolist()):
                path, offset = chunk.place(index)
                if not is_valid:
                    held += [bad[offset]] if offset in bad else []
                    continue
                unit = BatchUnit(*chunk.units[index].tolist())
                if not began and unit.end_offset <= start:
                    held.clear()
                    continue
                missing = expected is not None and unit.base_offset > expected
                if held and (began or missing):
                    for one in held:
                        yield from self._told(str(one), one.path, one.offset, one.length // BATCH_UNIT_SIZE)
                elif missing:
                    which = f"the queue offsets {expected} to {unit.base_offset - 1}"
                    yield from self._told(f"no unit before {path} at {offset} has {which}", path, offset)
                held.clear()
                began = True
                try:
                    yield from self._messages(unit)
                    expected = unit.end_offset
                except FormatError as error:
                    yield from self._told(f"the unit at {offset} of {path}: {error.message}", path, offset)
                    expected = None
                except NotInstalled:
                    raise
                except StorageError as error:
                    raise self._unreadable(unit, error) from error

    def _told(self, why: str, path: str, offset: int, units: int = 1) -> Iterator[FormatError]:
        """An error of the first few; of the others only how many they are."""
        self._errors += 1
        if self._errors <= MOST_TOLD:
            yield FormatError(why, path=path, offset=offset)
        else:
            self.gone += units

    def _messages(self, unit: BatchUnit) -> list[StoredMessage]:
        """The messages of a unit's record. Raises FormatError: it is not what the unit says. StorageError."""
        raw = self._store.record_at(unit.physical_offset)
        if raw is None:
            raise FormatError(f"its physical offset {unit.physical_offset} is outside of the log")
        record = decode(raw)
        place = batch_place(record)
        there = (record.topic, record.queue_id, record.queue_offset, place.base, place.size, record.total_size)
        base = unit.base_offset
        if there != (self._request.topic, self._request.queue_id, base, base, unit.batch_size, unit.size):
            raise FormatError(
                f"it names {counted(unit.size, 'byte')} at {unit.physical_offset} with "
                f"{counted(unit.batch_size, 'message')} from {base} on; the record there has "
                f"{counted(record.total_size, 'byte')}, and {counted(place.size, 'message')} of "
                f"{record.topic}/{record.queue_id} from {place.base} on"
            )
        return inner_messages(record)

    def _unreadable(self, unit: BatchUnit, error: StorageError) -> StorageError:
        config = self._store.files.config
        step = read(config)
        if unit.end_offset < self._high:
            following = command_line(config, *self._request.words(unit.end_offset))
            step = NextStep(following, f"shows the messages after those from {unit.base_offset} on")
        return StorageError(error.message, path=error.path, offset=error.offset, next_step=step)

    def _tell_end(self, at: int, passed: int) -> None:
        """Why nothing was shown, or where it continues."""
        request, config, rows = self._request, self._store.files.config, self._rows
        assert rows is not None
        if not passed and request.time is not None and self._start >= self._high > self._low:
            last = command_line(config, *replace(request, options=()).words(self._high - 1))
            self.after.append(
                f"no message of {self.queue} was stored at {moment(request.time)} or later: its newest was at "
                f"{moment(rows.max_timestamp)}. Next: {last} (shows that one)"
            )
        elif not passed:
            topic, queue_id = request.topic, request.queue_id
            self.after.append(f"no such messages: {topic}/{queue_id} holds offsets {self._low} to {self._high}")
        elif at < self._high and passed == request.count:
            self.after.append(f"more: {command_line(config, *request.words(at))}")


def open_reading(store: ReadStore, request: QueueRequest) -> QueueReading | BatchQueueReading:
    """The messages of a queue, of whichever kind it is. Raises as `QueueReading`."""
    if store.files.newer.is_batch(request.topic):
        return BatchQueueReading(store, request)
    return QueueReading(store, request)


def _decoded(record: memoryview) -> StoredMessage | FormatError:
    try:
        return decode(record)
    except FormatError as error:
        return error
