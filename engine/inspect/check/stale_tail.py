"""Whole records after the log end that were there before: how they are distinguished from messages.

A cut log keeps its old bytes (Apache moves pointers), a file may be one that was used before, a copy may bring a piece
of another log. Where such records happen to begin at the log end, the chain of records continues into them. A tail is
stale when all of this holds, up to the log's last record:

- Store times: the tail begins at a record that was stored earlier than the one before it (or that names another place),
  and no record of the tail was stored after that one. Times are taken under the append lock, so they only go back when
  the clock did (CommitLog#asyncPutMessage).
- Queue offsets: no queue of the tail continues where it was (a clock that is set back changes none), and one at least
  repeats queue offsets that it has, or jumps farther than lost bytes in between explain.
- Units: no consume queue has a unit that names just the place and size of a record of the tail, whichever record it is:
  a header may be rotten. What was dispatched is a message.
- Proof: a queue that doesn't continue has units. Without any, nobody knows whether its topic was deleted and made
  again: its records are stale only when each record of the tail is there before, byte for byte but for its place and
  store time (of the fewer half some but for a few bytes more, which have rotten since). Else they stay, and the plan
  says that.

Store times say nothing where the clock went back before the tail, where the log before it is lost, or where they
are the same. Such a tail is stale, too, when each of its messages has a unit of its size that names a place before the
tail, where a copy of it is, or nothing sound any more: it was put there.

So a clock that is set back is none, with whatever queues after it; nor is a topic that was deleted and made again: its
queue offsets begin anew, but at later times, or with units of its own. Where queues disagree nothing is cut: the tail
stays, and the plan says that. A stale tail whose queue offsets continue just where the log ends looks like a clock that
was set back: it stays. Records that are displaced by whole segments are none of this: their file has another's name.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.judge import Row
from engine.format.record import LONG_SIZE, MIN_RECORD_SIZE, POSITION_PHYSICAL_OFFSET, store_timestamp_position
from engine.inspect.store.queue_rows import QueueRows
from engine.log.batch_queues import by_queue
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue

_QUEUE_OFFSET, _SIZE, _SYS_FLAG = (Row._fields.index(name) for name in ("queue_offset", "size", "sys_flag"))
NAMED = 20
"""Places where queues disagree that are listed one by one."""
_NEAR = 1024
"""Units between two that are asked for, up to which both are read at once."""
_MOST_REPEATED = 1 << 17
"""Records of a tail that are looked for in the log before it; a longer one stays."""
_MOST_ROTTEN = 64
_ROTTEN_BYTES = 8
"""Records of a tail that may differ from what was put, and in how many bytes."""


@dataclass(frozen=True, slots=True)
class StaleTail:
    """Where it begins (physical), how many whole records it holds, and where the last one ends."""

    offset: int
    records: int
    end: int


class StaleJudge:
    """Judges tails, each when it is come to.

    Args:
        disk: how files are reached.
        files: the store.
        scanner: of its log.
        start: physical offset from which the log is read.
        rows: of the store's queues, where the caller has them: where each of them ends is looked for once.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        scanner: Scanner,
        start: int,
        rows: Mapping[TopicQueue, QueueRows] | None = None,
    ) -> None:
        self._scanner = scanner
        self._segment_size = files.config.mapped_file_size_commit_log
        self._rows = rows or {queue.queue: QueueRows(disk, queue) for queue in files.queues if queue.files}
        self._last: dict[TopicQueue, int] = {}
        self._learned = start
        self.findings: list[str] = []

    def within(self, batch: RecordBatch, stored: int) -> tuple[int, StaleTail] | None:
        """The first place in a batch at which a stale tail begins, and the tail.

        Args:
            batch: the log's next records.
            stored: store time (ms) of the record before them, 0 when there is none.
        """
        import numpy as np

        if ascends_from(batch, stored) and not self._may_be_elsewhere(batch):
            return None
        back, before = goes_back(batch, stored)
        if back.any():  # not where a later one was stored after the one in front
            back &= np.maximum.accumulate(batch.store_timestamps()[::-1])[::-1] <= before
        back |= self._first_elsewhere(batch)
        if not back.any():
            return None
        dispatched = self._dispatched(batch)
        for i in np.flatnonzero(back & ~dispatched).tolist():
            tail = self.judge(batch.offset(i), int(before[i]))
            if tail is not None:
                return i, tail
        return None

    def judge(self, offset: int, stored: int) -> StaleTail | None:
        """The tail that begins at a physical offset, be it a record's or damage's; None when it is not stale.

        Args:
            offset: where.
            stored: store time (ms) of the record before it; 0: there is none.
        """
        import numpy as np

        tail = StaleTail(offset, 0, offset)
        lost, at, newer, elsewhere = 0, offset, False, True
        back = False
        by_units: set[TopicQueue] = set()
        seen: set[TopicQueue] = set()
        repeats = unproven = ""
        for event in self._scanner.scan(offset, resume=True) if stored else ():
            if not isinstance(event, RecordBatch):
                continue
            lost += event.start - at
            back = back if tail.records else int(event.store_timestamps()[0]) < stored
            at = event.end
            newer |= event.newest_store_timestamp > stored
            dispatched, others = self._units_of(event)
            consumable = np.flatnonzero(event.consumable())
            elsewhere &= bool(others[consumable].all())
            if (newer and not elsewhere) or self._is_under_another_name(event):
                return None
            for queue, mine in by_queue(event, consumable):
                goes_on: bool | None = bool(dispatched[mine].any())
                if not goes_on and queue not in seen:
                    by_numbers = self._goes_on(queue, event, mine, offset, lost)
                    put_before = bool(others[mine].all())
                    goes_on = False if put_before else by_numbers
                    sure = by_numbers is False and queue in self._last and (back or not put_before)
                    if goes_on is False and not sure:
                        by_units.add(queue)  # no proof alone: the file may be another queue's
                    if goes_on is False and self._has_units(queue):
                        repeats = repeats or str(queue)
                    elif goes_on is False:
                        unproven = unproven or str(queue)
                seen.add(queue)
                if goes_on and (repeats or unproven) and not newer:
                    self._note(offset, f"{repeats or unproven} repeats queue offsets and {queue} continues")
                if goes_on:
                    return None
            tail = StaleTail(offset, tail.records + len(event), event.end)
        if newer or by_units:
            return tail if repeats and self._was_put_before(tail, None if newer else by_units) else None
        if unproven and not repeats and not self._is_there_before(tail):
            self._note(offset, f"{unproven} does not continue at its last queue offset and has no unit left")
            return None
        return tail if repeats or unproven else None

    def _note(self, offset: int, why: str) -> None:
        if len(self.findings) < NAMED:
            self.findings.append(
                f"store times decrease at {offset}, where {why}: the records after it are kept; if they are stale: "
                f"rstore truncate --to-offset {offset}"
            )

    def _is_under_another_name(self, batch: RecordBatch) -> bool:
        distances = batch.offsets() - batch.stored_offsets()
        return bool(((distances != 0) & (distances % self._segment_size == 0)).any())

    def _goes_on(
        self, queue: TopicQueue, batch: RecordBatch, mine: NDArray[np.intp], offset: int, lost: int
    ) -> bool | None:
        """Whether the tail's first records of a queue, `mine`, continue where that queue was; None: nobody knows.

        The first one's own queue offset may be rotten: then the others tell, each as many places on.
        """
        columns = batch.columns()
        number, place = int(columns[_QUEUE_OFFSET][mine[0]]), batch.offset(int(mine[0]))
        unit = self._unit(queue, number)
        if unit == (place, int(columns[_SIZE][mine[0]])):
            return True
        self._learn(offset)
        last = self._last.get(queue)
        if last is None:
            before = self._unit(queue, number - 1)
            if unit is not None and unit[0] < offset:
                return False
            return True if before is not None and before[0] < offset else None
        most = lost // MIN_RECORD_SIZE
        numbers = columns[_QUEUE_OFFSET][mine].tolist()
        return any(last + i < one <= last + 1 + i + most for i, one in enumerate(numbers))

    def _has_units(self, queue: TopicQueue) -> bool:
        rows = self._rows.get(queue)
        return rows is not None and rows.extent > rows.first

    def _unit(self, queue: TopicQueue, number: int) -> tuple[int, int] | None:
        """Place and size that a queue's unit names; None where no unit is."""
        rows = self._rows.get(queue)
        if rows is None or not rows.first <= number < rows.extent:
            return None
        row = rows.read(number, number + 1)[0]
        return (int(row["physical_offset"]), int(row["size"])) if int(row["size"]) > 0 else None

    def _dispatched(self, batch: RecordBatch) -> NDArray[np.bool_]:
        """Which records of a batch have a unit, where they say, that names just their place and size: bool[n]."""
        return self._units_of(batch)[0]

    def _units_of(
        self, batch: RecordBatch, asked: NDArray[np.intp] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which records have a unit of their size, where they say, that names their place, or one before: bool[n].

        `asked`: indices of consumable records, all that is wanted to know; None: all.
        """
        import numpy as np

        columns, places = batch.columns(), batch.offsets()
        numbers, sizes = columns[_QUEUE_OFFSET], columns[_SIZE]
        here, elsewhere = (np.zeros(len(batch), dtype=np.bool_) for _ in range(2))
        asked = np.flatnonzero(batch.consumable()) if asked is None else asked
        for queue, mine in by_queue(batch, asked) if self._rows else ():
            rows = self._rows.get(queue)
            if rows is None:
                continue
            held = mine[(numbers[mine] >= rows.first) & (numbers[mine] < rows.extent)]
            held = held[np.argsort(numbers[held], kind="stable")]
            for near in np.split(held, np.flatnonzero(np.diff(numbers[held]) > _NEAR) + 1) if len(held) else ():
                low = int(numbers[near[0]])
                units = rows.read(low, int(numbers[near[-1]]) + 1)[numbers[near] - low]
                same = units["size"] == sizes[near]
                here[near] = same & (units["physical_offset"] == places[near])
                elsewhere[near] = same & (units["physical_offset"] < places[near])
        return here, elsewhere

    def _first_elsewhere(self, batch: RecordBatch) -> NDArray[np.bool_]:
        """The first record after what the queues show, if its unit names a place before: bool[n].

        No unit is read for any other.
        """
        import numpy as np

        elsewhere = np.zeros(len(batch), dtype=np.bool_)
        if self._may_be_elsewhere(batch):
            after = batch.consumable() & (batch.offsets() >= self._shown_end)
            if after.any():
                first = np.array([int(after.argmax())])
                elsewhere[first] = self._units_of(batch, first)[1][first]
        return elsewhere

    def _may_be_elsewhere(self, batch: RecordBatch) -> bool:
        """Whether some of a batch lies after what the queues show."""
        return bool(self._rows) and batch.end > self._shown_end

    @cached_property
    def _shown_end(self) -> int:
        """Physical offset after the last record that a queue's last unit shows."""
        ends = [0]
        for rows in self._rows.values():
            if rows.extent > rows.first:
                last = rows.read(rows.extent - 1, rows.extent)[0]
                ends.append(int(last["physical_offset"]) + int(last["size"]))
        return max(ends)

    def _was_put_before(self, tail: StaleTail, queues: set[TopicQueue] | None) -> bool:
        """Whether a copy of each message of a tail, or nothing sound, is where its unit says; else a header is bad.

        `queues`: those that are asked, as far as they have units; None: all, and each message has to have one.
        """
        import numpy as np

        for event in self._scanner.scan(tail.offset, tail.end, resume=True):
            if not isinstance(event, RecordBatch):
                continue
            numbers, sizes = event.columns()[_QUEUE_OFFSET], event.columns()[_SIZE]
            for queue, mine in by_queue(event, np.flatnonzero(event.consumable())):
                for i in mine.tolist() if queues is None or queue in queues else ():
                    unit = self._unit(queue, int(numbers[i]))
                    if unit is None and queues is not None:
                        continue
                    if unit is None:
                        return False
                    there = next(iter(self._scanner.scan(unit[0], unit[0] + 1)), None)
                    if not isinstance(there, RecordBatch):
                        continue
                    copy = there.first(1)
                    if int(sizes[i]) != len(copy.record(0)) or {*_digests(event, [i])} != {*_digests(copy, [0])}:
                        return False
        return True

    def _is_there_before(self, tail: StaleTail) -> bool:
        """Whether each record of a tail lies in the log before it, too, with another place and store time. Of the fewer
        half some may have rotten since: a few bytes differ, under the same queue offset.
        """
        import numpy as np

        if not 0 < tail.records <= _MOST_REPEATED:
            return False
        left: dict[bytes, tuple[int, int]] = {}
        sizes = numbers = np.zeros(0, dtype=np.int64)
        for event in self._scanner.scan(tail.offset, tail.end, resume=True):
            if isinstance(event, RecordBatch):
                columns, every = event.columns(), range(len(event))
                places = zip(columns[_SIZE].tolist(), event.offsets().tolist(), strict=True)
                left.update(zip(_digests(event, every), places, strict=True))
                sizes, numbers = np.union1d(sizes, columns[_SIZE]), np.union1d(numbers, columns[_QUEUE_OFFSET])
        for event, alike in self._alike_before(tail, sizes, numbers):
            for digest in _digests(event, alike):
                left.pop(digest, None)
            if not left:
                return True
        return len(left) <= min(_MOST_ROTTEN, (tail.records - 1) // 2) and self._have_rotten(tail, set(left.values()))

    def _have_rotten(self, tail: StaleTail, records: set[tuple[int, int]]) -> bool:
        """Whether each of these records of a tail (size, physical offset) was put before it, but for a few bytes."""
        import numpy as np

        left: dict[int, tuple[int, bytes]] = {}
        for _, place in records:
            event = next(iter(self._scanner.scan(place, place + 1)), None)
            assert isinstance(event, RecordBatch)
            left[place] = int(event.columns()[_QUEUE_OFFSET][0]), next(_but_for_their_place(event, [0]))
        sizes = np.array([size for size, _ in records], dtype=np.int64)
        numbers = np.array([number for number, _ in left.values()], dtype=np.int64)
        for event, alike in self._alike_before(tail, sizes, numbers):
            their_numbers = event.columns()[_QUEUE_OFFSET][alike].tolist()
            for its_number, its in zip(their_numbers, _but_for_their_place(event, alike), strict=True):
                for place, (number, mine) in list(left.items()):
                    if number == its_number and _differ(mine, its) <= _ROTTEN_BYTES:
                        del left[place]
        return not left

    def _alike_before(
        self, tail: StaleTail, sizes: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> Iterator[tuple[RecordBatch, list[int]]]:
        """Which records before a tail have one of these sizes and one of these queue offsets, batch by batch."""
        import numpy as np

        for event in self._scanner.scan(self._scanner.segments[0].offset, tail.offset, resume=True):
            if isinstance(event, RecordBatch):
                columns = event.columns()
                alike = np.isin(columns[_SIZE], sizes) & np.isin(columns[_QUEUE_OFFSET], numbers)
                if alike.any():
                    yield event, np.flatnonzero(alike).tolist()

    def _learn(self, until: int) -> None:
        """Where each queue was before a physical offset, from the log itself."""
        import numpy as np

        for event in self._scanner.scan(self._learned, until, resume=True) if until > self._learned else ():
            if isinstance(event, RecordBatch):
                numbers = event.columns()[_QUEUE_OFFSET]
                for queue, mine in by_queue(event, np.flatnonzero(event.consumable())):
                    self._last[queue] = int(numbers[mine[-1]])
        self._learned = max(self._learned, until)


def ascends_from(batch: RecordBatch, stored: int) -> bool:
    """Whether `goes_back` says no of each record: of a batch that was looked at, without looking at them again."""
    return batch.ascends and batch.first_store_timestamp >= stored and not batch.moved()


def goes_back(batch: RecordBatch, stored: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which records of a batch a stale tail may begin with, and the store time (ms) before each.

    `stored`: before the first one, 0 when there is none.
    """
    import numpy as np

    times = batch.store_timestamps()
    before = np.empty_like(times)
    before[0], before[1:] = stored, times[:-1]
    back: NDArray[np.bool_] = times < before
    places = [place for place, _, _ in batch.moved()]
    if places:
        moved = np.isin(batch.offsets(), places)
        back[1:] |= moved[1:] & ~moved[:-1]
        back[0] |= moved[0] and stored > 0
    return back, before


def _digests(batch: RecordBatch, records: Iterable[int]) -> Iterator[bytes]:
    """Of each record's bytes without its own place and store time."""
    return (blake2b(one, digest_size=16).digest() for one in _but_for_their_place(batch, records))


def _but_for_their_place(batch: RecordBatch, records: Iterable[int]) -> Iterator[bytes]:
    """Each record without its own place and store time."""
    flags, at = batch.columns()[_SYS_FLAG].tolist(), POSITION_PHYSICAL_OFFSET
    for i in records:
        record, time = batch.record(i), store_timestamp_position(flags[i])
        yield b"".join((record[:at], record[at + LONG_SIZE : time], record[time + LONG_SIZE :]))


def _differ(one: bytes, other: bytes) -> int:
    """Bytes in which two records of one length differ; all of them, for two of other lengths."""
    import numpy as np

    if len(one) != len(other):
        return max(len(one), len(other))
    return int((np.frombuffer(one, dtype=np.uint8) != np.frombuffer(other, dtype=np.uint8)).sum())
