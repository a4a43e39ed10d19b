"""Whether bytes of a copy are what a damaged range of this store's log held.

Nobody vouches for a copy: a backup may have been made of the damaged log, another store be another log, a peer lie. So,
of what was fetched (and is written later, as it is):

1. The same log: the nearest sound records before and after the run are the same bytes in the copy. Where the copy
   lacks one of them, the other decides; where it lacks both, nobody knows whose bytes these are. Damage that begins in
   the properties of a record leaves its body sound: where the record just before the range differs after its body
   alone, and the one before that is the same, it is damaged, too, and taken with the range. Of one between two ranges
   this says nothing for the first of them. The physical offset that a record names itself is no difference: a recovery
   mends it.
2. Whole records, one after the other, from the start of the range to its end: each sound (engine.format.judge: magic,
   lengths, the body's CRC), each naming its own physical offset, none of them inert; up to the end of a file its blank.
3. Store times between those of the neighbours, where those ascend.
4. Queue offsets that continue those of the same queue before and after: judged later, over the log as it will be
   (engine.heal.continuity).

No CRC covers header and properties: what is proved by records alone may have them wrong, and the plan says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.format.record import LONG_SIZE, POSITION_PHYSICAL_OFFSET
from engine.heal.fetched import Fetched, FetchedLog, Readable, Store, fetch
from engine.log.inert import inert_in, is_lost_end
from engine.log.scan import Blank, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.heal.damage import LostPart, LostRun, Neighbour
    from engine.heal.sources import HealCopy
    from engine.log.source import ClosedLog


@dataclass(frozen=True, slots=True)
class Proved:
    """A copy's bytes for a range (`part`: with the record before it where that is taken, too), and what they hold."""

    fetched: Readable
    part: LostPart
    records: int
    messages: int

    def is_same(self, other: Proved) -> bool:
        """Whether both have the same bytes for the same range."""
        return (self.part.start, self.digest) == (other.part.start, other.digest)

    @property
    def digest(self) -> bytes:
        """Of the bytes of a copy."""
        return self.fetched.digest if isinstance(self.fetched, Fetched) else b""


@dataclass(frozen=True, slots=True)
class Unproved:
    """Why a copy's bytes are not taken, as the end of a sentence that begins with the copy's name.

    `has_it`: the copy is of this log and has the place, so that this is worth to be known.
    """

    why: str
    has_it: bool = True


@dataclass(frozen=True, slots=True)
class SameLog:
    """A copy is of this log. `grown`: the record before the range is damaged, too."""

    grown: bool = False


class NeighbourJudge:
    """Compares copies with the sound records around runs, each once.

    Args:
        log: of the store that is healed.
        runs: all of its damage.
    """

    def __init__(self, log: ClosedLog, runs: Iterable[LostRun]) -> None:
        self.log = log
        self._begins = {run.parts[0].start for run in runs}
        self._known: dict[tuple[str, int], SameLog | Unproved] = {}

    def judge(self, run: LostRun, copy: HealCopy) -> SameLog | Unproved:
        """Whether a copy is of this log there, or why not. Raises StorageError: of the store itself."""
        key = (copy.name, run.after.offset)
        if key not in self._known:
            self._known[key] = self._judge(run, copy)
        return self._known[key]

    def _judge(self, run: LostRun, copy: HealCopy) -> SameLog | Unproved:
        same, problem, grown = 0, "", False
        for neighbour in (run.before, run.after):
            if neighbour is None:
                continue
            try:
                is_same = self._compare(neighbour, copy)
                if is_same is False and neighbour is run.before and self._is_hurt(run, neighbour, copy):
                    is_same = grown = True
            except _CopyError as error:
                problem = error.why
                continue
            if is_same is False and neighbour is run.after and self._runs_into_damage(neighbour, copy):
                continue
            if is_same is False:
                return Unproved(f"has other bytes at {neighbour.offset}, where the store has a sound record")
            same += is_same is True
        if same:
            return SameLog(grown)
        return Unproved(problem or "has neither of the records around it", has_it=bool(problem))

    def _compare(self, neighbour: Neighbour, copy: HealCopy) -> bool | None:
        """Whether a copy has the same bytes; None: it lacks them."""
        mine, theirs = self._both(neighbour, copy)
        return None if len(mine) != len(theirs) else mine == theirs

    def _is_hurt(self, run: LostRun, before: Neighbour, copy: HealCopy) -> bool:
        """Whether the record just before a run differs after its body alone, and the one before it does not."""
        mine, theirs = self._both(before, copy)
        touches = before.end == run.parts[0].start and run.parts[0].segment.offset <= before.offset
        alike = touches and mine[: before.body_end] == theirs[: before.body_end]
        return alike and run.second is not None and self._compare(run.second, copy) is True

    def _runs_into_damage(self, after: Neighbour, copy: HealCopy) -> bool:
        """Whether the record after a run differs after its body alone, and the next run begins where it ends."""
        mine, theirs = self._both(after, copy)
        return after.end in self._begins and mine[: after.body_end] == theirs[: after.body_end]

    def _both(self, neighbour: Neighbour, copy: HealCopy) -> tuple[bytes, bytes]:
        mine = _in_place(bytes(self.log.read(neighbour.offset, neighbour.size)), neighbour.offset)
        try:
            return mine, copy.read(neighbour.offset, neighbour.size)
        except RStoreError as error:
            raise _CopyError(error.message) from None


def _in_place(record: bytes, offset: int) -> bytes:
    """A record as it is where it names its own physical offset: a recovery mends the one that names another."""
    end = POSITION_PHYSICAL_OFFSET + LONG_SIZE
    return record[:POSITION_PHYSICAL_OFFSET] + offset.to_bytes(LONG_SIZE, "big") + record[end:]


class _CopyError(Exception):
    """A copy can't be read. `why`: what it says."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def prove(
    run: LostRun, part: LostPart, copy: HealCopy, same: SameLog, store: Store, max_message_size: int
) -> Proved | Unproved:
    """Fetch a range of a copy that is of this log, and prove it as far as the range alone can.

    Args:
        run: that the range is a part of.
        part: the range.
        copy: where it is fetched.
        same: that it is of this log.
        store: keeps what is fetched.
        max_message_size: setting maxMessageSize (bytes).
    """
    if same.grown and part == run.parts[0] and run.before is not None:
        part = replace(part, start=run.before.offset)
        run = replace(run, before=run.second)
    try:
        fetched = fetch(copy, part.start, part.end, store)
    except RStoreError as error:
        return Unproved(f"can't be read there: {error.message}")
    if isinstance(fetched, int):
        return Unproved(f"has its bytes only up to {fetched}", has_it=fetched > part.start)
    return judge_records(run, part, fetched, max_message_size)


def judge_records(run: LostRun, part: LostPart, fetched: Readable, max_message_size: int) -> Proved | Unproved:
    """Whether bytes are whole records of this log, from one end of a range to the other."""
    log = FetchedLog(part.segment, fetched, part.start, part.end)
    at, records, messages, closed = part.start, 0, 0, False
    first, last = _bounds(run.before, run.after)
    for event in Scanner(log, max_message_size=max_message_size).scan(part.start, part.end):
        if isinstance(event, Blank):
            if is_lost_end(log, event):
                return Unproved(f"has a bridge there, too, at {event.offset}")
            at, closed = event.end, True
            continue
        if not isinstance(event, RecordBatch):
            why = "segments are missing" if not hasattr(event, "reason") else event.reason.value
            return Unproved(f"is damaged there, too, at {event.offset} ({why})")
        if event.moved():
            return Unproved(f"has a record at {event.moved()[0][0]} that names another physical offset")
        inert = inert_in(event)
        if inert:
            return Unproved(f"has a bridge there, too, at {event.offset(inert[0])}")
        times = event.store_timestamps()
        if first is not None and last is not None and not (first <= times.min() and times.max() <= last):
            return Unproved(f"has records at {event.start} that were stored before or after those around them")
        at, records, messages = event.end, records + len(event), messages + event.messages
    if at != part.end or (closed and part.end != part.segment.end):
        return Unproved(f"has records that end at {at}, and not with the range")
    return Proved(fetched, part, records, messages)


def _bounds(before: Neighbour | None, after: Neighbour) -> tuple[int | None, int | None]:
    """The store times (ms) that records between two have, where a clock did not go back."""
    if before is None or before.stored > after.stored:
        return None, None
    return before.stored, after.stored
