"""Sound records counted, for who only asks whether they are sound: no row of theirs is kept, no memory is taken anew.

Theory: a window of the log is read into memory that is used again and stays in the processor's caches, and one kernel
follows the chain of records through it, bodies and all. Whatever is no plain sound record ends it: the scanner
continues from that very place, until many sound records in a row show that the odd range is over. So there is one
judge, and the events are the scanner's, but that consecutive records come as one `Tally`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format import judge
from engine.format.property_crc import CrcDemand
from engine.format.record import PROPERTIES_LENGTH_SIZE
from engine.log.doubts import Doubt, doubts_of
from engine.log.property_crcs import CrcFault, add_faults, crc_faults_of, faults_in
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    ReadInto = Callable[[int, memoryview], int]

WINDOW = 4 << 20
"""Bytes that are read at once."""
_MOST = 16 << 20
"""Bytes of log after which a tally ends, so that who waits sees that it continues."""


_DOUBTS = 256
"""Records that may be in doubt that there is room for at first."""

Moved: TypeAlias = tuple[int, int, int]
"""A record that names another place: physical offset, what the record says, size (bytes)."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Sound records in a row: physical offsets [start, end), how many, how many of them are messages (they get a queue
    unit: neither prepared nor rolled back), which were moved, which are in doubt; how many have a property CRC, and
    where it is wrong.
    """

    start: int
    end: int
    records: int
    messages: int
    moved: tuple[Moved, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    property_crcs: int = 0
    crc_faults: tuple[CrcFault, ...] = ()


Counted: TypeAlias = Tally | Blank | Gap | Damage


def tallied(events: Iterator[Event], demand: CrcDemand = CrcDemand.NOTHING) -> Iterator[Counted]:
    """The events of a scan, their batches as tallies. `demand`: which property CRCs are judged."""
    return (_tally_of(event, demand) for event in events)


def _tally_of(event: Event, demand: CrcDemand) -> Counted:
    if not isinstance(event, RecordBatch):
        return event
    have, faults = crc_faults_of(event, demand)
    moved, doubts = tuple(event.moved()), doubts_of(event)
    return Tally(event.start, event.end, len(event), event.messages, moved, doubts, have, faults)


@dataclass(slots=True)
class _Room:
    """Memory that windows are read into; for records that were moved, that may be in doubt, whose CRC is wrong."""

    buffer: Bytes
    moved: NDArray[np.int64]
    doubtful: NDArray[np.int64]
    faults: NDArray[np.int64]


@dataclass(slots=True)
class _Sum:
    """What a tally is made of."""

    records: int = 0
    messages: int = 0
    property_crcs: int = 0
    moved: list[Moved] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    faults: list[CrcFault] = field(default_factory=list)

    def tally(self, start: int, end: int) -> Tally | None:
        """All of it; None for no record."""
        if not self.records:
            return None
        return Tally(
            start,
            end,
            self.records,
            self.messages,
            tuple(self.moved),
            tuple(self.doubts),
            self.property_crcs,
            tuple(self.faults),
        )


class RecordCounter:
    """Counts by kernels, in several threads.

    Args:
        scanner: by kernels (`Scanner.by_kernels`), with CRC; judges what is no plain sound record.
        read_into: fills a buffer from a physical offset on, up to its file's end; bytes read. Raises StorageError.
        window: bytes that are read at once.
        demand: which property CRCs are judged.
    """

    def __init__(
        self,
        scanner: Scanner,
        read_into: ReadInto,
        *,
        window: int = WINDOW,
        demand: CrcDemand = CrcDemand.NOTHING,
    ) -> None:
        from engine.log.kernels.tally import tally

        self._tally = tally
        self._scanner = scanner
        self._read_into = read_into
        self._window = window
        self._demand = demand
        self._free: list[_Room] = []

    def count(self, start: int, end: int) -> Iterator[Counted]:
        """As `Scanner.scan` with `resume`, for a range of one file: physical offsets, the first one a record's."""
        segment = next((s for s in self._scanner.segments if s.offset <= start < s.end), None)
        room_ends, head = (end, 0) if segment is None else (segment.end, segment.before_record)
        room = self._room()
        try:
            at = start
            while at < end:
                counted, at, is_odd = self._plain(room, at, min(end, room_ends), room_ends, head)
                if counted is not None:
                    yield counted
                if is_odd:
                    at = yield from self._odd(at, end)
        finally:
            self._free.append(room)

    def _room(self) -> _Room:
        import numpy as np

        from engine.log.kernels.property_crc import FAULT_FIELDS

        try:
            return self._free.pop()
        except IndexError:
            kinds = (
                ((self._window,), np.uint8),
                ((0, 3), np.int64),
                ((_DOUBTS, 5), np.int64),
                ((0, FAULT_FIELDS), np.int64),
            )
            return _Room(*(np.empty(shape, dtype=kind) for shape, kind in kinds))

    def _plain(self, room: _Room, start: int, end: int, room_ends: int, head: int) -> tuple[Tally | None, int, bool]:
        """Plain sound records from `start` on; where they end; whether something else is there. `head`: bytes before
        each of them.
        """
        at, total = start, _Sum()
        is_odd = False
        while not is_odd and at < end and at - start < _MOST:
            try:
                size = self._read_into(at, room.buffer.data[: min(self._window, end - at)])
            except StorageError:  # the scanner finds out which page it is
                is_odd = True
                break
            length, is_odd = self._walk(room, size, at, end, room_ends, head, total)
            at += length
            is_odd = is_odd or length == 0
        return total.tally(start, at), at, is_odd

    def _walk(
        self, room: _Room, size: int, at: int, end: int, room_ends: int, head: int, total: _Sum
    ) -> tuple[int, bool]:
        """Of one window: bytes, whether something else follows; `total` gets what there is."""
        import numpy as np

        data = room.buffer[:size]
        while True:
            records, messages, length, is_odd, others, doubtful, wrong, have = self._tally(
                data, room_ends - at, end - at, at, head, int(self._demand), room.moved, room.doubtful, room.faults
            )
            if others <= len(room.moved) and doubtful <= len(room.doubtful) and wrong <= len(room.faults):
                total.records += records
                total.messages += messages
                total.property_crcs += have
                total.moved += [(place, stored, size) for place, stored, size in room.moved[:others].tolist()]
                if doubtful:
                    total.doubts += _judged(data, at, room.doubtful[:doubtful])
                if wrong:
                    add_faults(total.faults, faults_in(room.faults[:wrong].tolist()))
                return length, is_odd
            # rare: once more, to hear which they are
            room.moved = np.empty((max(others, len(room.moved)), 3), dtype=np.int64)
            room.doubtful = np.empty((max(doubtful, len(room.doubtful)), 5), dtype=np.int64)
            room.faults = np.empty((max(wrong, len(room.faults)), room.faults.shape[1]), dtype=np.int64)

    def _odd(self, start: int, end: int) -> Generator[Counted, None, int]:
        """What the scanner says, up to a long row of sound records; where that ends."""
        for event in self._scanner.scan(start, end, resume=True):
            counted = _tally_of(event, self._demand)
            yield counted
            if isinstance(counted, Tally) and counted.end - counted.start >= self._window // 2:
                return counted.end
        return end


def _judged(data: Bytes, base: int, doubtful: NDArray[np.int64]) -> Iterator[Doubt]:
    """Those of the doubtful records that are suspect or unusual."""
    from engine.log.kernels.doubt import sift  # seldom needed

    for at, _, topic_at, properties_at, end in doubtful[: sift(data, doubtful)].tolist():
        record = data[at:end].tobytes()
        topic, properties = (
            record[topic_at - at : properties_at - PROPERTIES_LENGTH_SIZE - at],
            record[properties_at - at :],
        )
        verdict = judge.of_record(record, topic, properties)
        if verdict is not None:
            yield Doubt(base + at, end - at, *verdict)
