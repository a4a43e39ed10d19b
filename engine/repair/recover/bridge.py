"""Bridges over damage in the middle of the log: what stands after it stays, at the offsets that it has.

A range that holds no sound record, with sound records after it, is given content that every reader of the log steps
over, Apache's broker among them. Nothing before or after it moves, and no sound record changes its meaning:

- Bytes up to the end of a file become the file's blank record, with a mark of the bridge and zeros after its 8 bytes:
  index entries of the lost messages lead there, and Apache's broker takes any bytes there for lengths, and allocates
  as much; a key's query dies of that, and the sound messages of the same key are not found (MessageDecoder#decode in
  DefaultMessageStore#queryMessage). Where they can't be read, they stay what they were.
- Other ranges become one inert record (`encode_inert`) of just their length, or several where one would be larger
  than a record may be (maxMessageSize). Their store time is that of the record before: a log's times never go back.
  Where the store's broker writes property CRCs (RocketMQ 5), they have one, if there are 20 bytes more for it.
- A range too short for a record (under 91 bytes: a cut log that was written on leaves such ones before its stale
  tail) is taken in by the record before it, as separators after its properties. Separators with nothing between
  them are no properties, to us and to Apache (MessageDecoder#string2messageProperties): topic, body, keys and tags
  stay, only the record's length differs, and its queue unit is written with it. A property CRC of it is made anew.
- What even that can't take (nothing before it in its file, no room in the properties, under 8 bytes at a file's end)
  is not bridged: the recovery is refused as without `--bridge`.

`find_bridges` reads the whole log, from its first byte: damage that lies before recovery's start is bridged with the
rest, so that no later start meets it. `BridgedLog` shows the log as it will be: recovery plans on that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.written import is_zeros
from engine.format import property_crc
from engine.format.message import encode_inert
from engine.format.properties import SEPARATOR
from engine.format.record import (
    BLANK_SIZE,
    INT,
    LONG,
    MIN_RECORD_SIZE,
    POSITION_PHYSICAL_OFFSET,
    POSITION_TOTAL_SIZE,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    SHORT,
)
from engine.inspect.check.stale_tail import StaleJudge
from engine.log.inert import encode_lost_end
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.repair.recover.memory import Remembered
from engine.repair.recover.shifted import as_it_lies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from engine.files.disk import Disk
    from engine.repair.recover.shifted import Shift

LEAST_LIMIT = 1 << 16
"""An inert record may always take as many bytes, however small maxMessageSize is."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes of the log that a bridge writes: [offset, offset + length), physical.

    `data`: the bytes, zeros after them up to its length; None: an inert record of this length with the given store
    time (ms); `sealed`: with a property CRC.
    """

    offset: int
    length: int
    store_timestamp: int = 0
    data: bytes | None = None
    sealed: bool = False

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.offset + self.length

    @property
    def zeros(self) -> tuple[int, int]:
        """The physical offsets [from, to) of the zeros after `data`."""
        return self.offset + (self.length if self.data is None else len(self.data)), self.end

    def head(self) -> bytes:
        """The bytes before the zeros."""
        if self.data is not None:
            return self.data
        return bytes(encode_inert(self.length, self.offset, self.store_timestamp, sealed=self.sealed))

    def render(self, start: int, end: int) -> bytes:
        """The bytes of [start, end), physical offsets, as far as they are its own."""
        start, end = max(start, self.offset), min(end, self.end)
        written = self.head()[start - self.offset : end - self.offset]
        return written + bytes(end - start - len(written))


@dataclass(frozen=True, slots=True)
class Bridge:
    """A damaged range (physical offset, length, its file, why), and what is written over it (nothing: can't be).

    `unreadable`: parts of it (physical offset, length) that the disk can't read, and that nothing is saved of.
    """

    offset: int
    length: int
    segment: Segment
    reason: str
    patches: tuple[Patch, ...]
    unreadable: tuple[tuple[int, int], ...] = ()

    @property
    def inert(self) -> tuple[int, int] | None:
        """Place and size of its first inert record, None without one (a blank record, or a longer neighbour)."""
        return next(((p.offset, p.length) for p in self.patches if p.data is None), None)


class BridgedLog(ClosedLog):
    """The log as it will be: as on disk, but for the bridges, and for the records that go back to their places."""

    def __init__(
        self, disk: Disk, segments: Sequence[Segment], bridges: Sequence[Bridge], shifts: Sequence[Shift] = ()
    ) -> None:
        super().__init__(disk, segments)
        self._shifts = shifts
        moved = {shift.segment.offset: shift.segment for shift in shifts}.values()
        self._lying = ClosedLog(disk, [as_it_lies(one, disk.stat(one.file).size) for one in moved])
        self._patches = sorted((p for bridge in bridges for p in bridge.patches), key=lambda p: p.offset)
        self._patch_starts = [p.offset for p in self._patches]
        self._patch_ends = [p.end for p in self._patches]

    def read(self, offset: int, length: int) -> memoryview:
        """As `ClosedLog.read`. What is bridged need not be readable."""
        segment = self.segment_at(offset)
        if segment is None:
            return memoryview(b"")
        end = min(offset + length, segment.end)
        patches = self._patches[bisect_right(self._patch_ends, offset) : bisect_left(self._patch_starts, end)]
        if not patches and not self._shifts:
            return super().read(offset, length)
        out = bytearray()
        for patch in patches:
            out += self._raw(offset + len(out), patch.offset)
            out += patch.render(offset + len(out), end)
        out += self._raw(offset + len(out), end)
        return memoryview(out).toreadonly()

    def close(self) -> None:
        """As `ClosedLog.close`."""
        super().close()
        self._lying.close()

    def _raw(self, start: int, end: int) -> bytes:
        """Without the bridges."""
        out = bytearray()
        while (at := start + len(out)) < end:
            shift = next((one for one in self._shifts if one.start <= at < one.end), None)
            until = min([end, *(one.start for one in self._shifts if one.start > at)])
            if shift is not None:
                until = min(end, shift.end)
                data = self._lying.read(at + shift.distance, until - at)
            else:
                data = super().read(at, until - at)
            out += data
            if len(data) < until - at:
                break
        return bytes(out)


def find_bridges(
    log: ClosedLog,
    scanner: Scanner,
    events: Iterable[Event | Remembered],
    stale: StaleJudge,
    *,
    max_message_size: int,
    seals: bool,
    progress: Callable[[int], None],
) -> tuple[Bridge, ...]:
    """A bridge for each damaged range of the log that has a sound record after it, in log order.

    Args:
        log: the log as it is.
        scanner: of that log.
        events: what reading the whole log yields, after damage, too.
        stale: tells where the log ends though whole records follow: they are no messages to be kept.
        max_message_size: setting maxMessageSize (bytes): what an inert record may take.
        seals: the store's broker writes property CRCs.
        progress: called with the bytes read since the last call.
    """
    return tuple(_Finder(log, scanner, stale, max(max_message_size, LEAST_LIMIT), seals).find(events, progress))


class _Finder:
    """One pass over the log. A range waits until a sound record after it proves that it lies in the middle."""

    def __init__(self, log: ClosedLog, scanner: Scanner, stale: StaleJudge, limit: int, seals: bool) -> None:
        self._log = log
        self._seals = seals
        self._scanner = scanner
        self._stale = stale
        self._limit = limit
        self._stored = 0  # store time of the last record, ms
        self._before: tuple[int, int] | None = None  # place and size of the record before, in this file

    def find(self, events: Iterable[Event | Remembered], progress: Callable[[int], None]) -> Iterator[Bridge]:
        """See `find_bridges`."""
        waiting: list[tuple[Damage, int, tuple[int, int] | None]] = []
        for event in events:
            tail = self._stale.within(event, self._stored) if isinstance(event, RecordBatch) else None
            if tail is not None and tail[0] == 0:
                return
            if isinstance(event, RecordBatch | Remembered):
                for damage, stored, before in waiting:
                    yield from self._bridge(damage, stored or event.first_store_timestamp, before)
                waiting = []
                if tail is not None:
                    return
                self._stored = event.last_store_timestamp
                self._before = event.last
                progress(event.end - event.start)
            elif isinstance(event, Damage):
                if self._stale.judge(event.offset, self._stored) is not None:
                    return
                waiting.append((event, self._stored, self._neighbour(event)))
                progress(event.length)
            elif isinstance(event, Blank | Gap):
                self._before = None

    def _neighbour(self, damage: Damage) -> tuple[int, int] | None:
        """The record that ends just where the damage begins, in the same file."""
        before = self._before
        return before if before is not None and sum(before) == damage.offset > damage.segment.offset else None

    def _bridge(self, damage: Damage, stored: int, before: tuple[int, int] | None) -> Iterator[Bridge]:
        if damage.end == damage.segment.end:
            patches = self._blank(damage)
        elif damage.length >= MIN_RECORD_SIZE:
            patches = self._inert(damage, stored)
        else:
            patches = self._taken_in(damage, before)
        yield Bridge(damage.offset, damage.length, damage.segment, damage.reason.value, patches)

    def _blank(self, damage: Damage) -> tuple[Patch, ...]:
        if damage.length < BLANK_SIZE:
            return ()
        head = encode_lost_end(damage.length)
        length = damage.length if self._is_garbage(damage.segment, damage.offset + len(head)) else len(head)
        return (Patch(damage.offset, length, data=head),)

    def _is_garbage(self, segment: Segment, start: int) -> bool:
        """Whether the bytes from `start` to the file's end can be read, and are not zeros."""
        is_written = False
        try:
            for low, high in self._log.data_ranges(segment, start):
                for at in range(low, high, LEAST_LIMIT):
                    data = self._log.read(at, min(LEAST_LIMIT, high - at))
                    is_written = is_written or not is_zeros(data)
        except StorageError:
            return False
        return is_written

    def _inert(self, damage: Damage, stored: int) -> tuple[Patch, ...]:
        patches = []
        at, left = damage.offset, damage.length
        while left:
            take = left if left <= self._limit else min(self._limit, left - MIN_RECORD_SIZE)
            sealed = self._seals and take >= MIN_RECORD_SIZE + property_crc.SIZE
            patches.append(Patch(at, take, stored, sealed=sealed))
            at, left = at + take, left - take
        return tuple(patches)

    def _taken_in(self, damage: Damage, before: tuple[int, int] | None) -> tuple[Patch, ...]:
        """The record before, longer by the range."""
        if before is None:
            return ()
        offset, size = before
        record = bytearray(self._log.read(offset, size))
        row = next((e for e in self._scanner.scan(offset, offset + 1) if isinstance(e, RecordBatch)), None)
        if row is None or row.rows[0].size != size:
            return ()
        length_at = row.rows[0].properties_position - PROPERTIES_LENGTH_SIZE
        grown = row.rows[0].properties_length + damage.length
        if grown > PROPERTIES_MAX_LENGTH:
            return ()
        sealed = self._seals and property_crc.is_sealed(record)
        INT.pack_into(record, POSITION_TOTAL_SIZE, size + damage.length)
        SHORT.pack_into(record, length_at, grown)
        LONG.pack_into(record, POSITION_PHYSICAL_OFFSET, offset)
        if sealed:  # its CRC stays the last of its properties
            del record[-property_crc.SIZE :]
        record += SEPARATOR.encode() * damage.length
        if sealed:
            record += bytes(property_crc.SIZE)
            property_crc.seal(record)
        return (Patch(offset, len(record), data=bytes(record)),)
