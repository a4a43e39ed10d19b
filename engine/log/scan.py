"""The one scanner of the commit log. Recover, verify, dump, dispatch and rebuilding all read through it.

It yields events in log order and decides nothing: a `RecordBatch` (columns, not objects), a `Blank` (end of a file), a
`Gap` (segments that are missing; the scan continues after it), a `Damage` (no sound record here), and ends at `end`.
After a `Damage` the scan is over, unless the consumer asked for `resume`: then the next sound record is searched by its
magic, and the scan continues there. A record counts as found again only with the message magic **and** its own offset
**and** lengths that add up **and** the body's CRC, and only outside of what a damaged record claims (engine.log.claim).
Such a range may end after `end`, as a record may that begins before it.

Segments of DLedger have each record in an entry (engine.log.entry_walk): there the chain goes from entry to entry, what
is damaged begins at an entry, and a batch begins with a record, past its header. Where the header alone is damaged the
scan continues at the record. A scan may start at a record or at an entry.

Reads are positional and bounded: a window of `window` bytes, or one record. A record larger than maxMessageSize +
overhead is only read whole after its own offset and its lengths have proved it (RECOVERY.md, rule 15).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeAlias

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.libc import Libc
from engine.format.dledger_entry import HEAD_SIZE, judge_entry
from engine.format.judge import Reason, Row, Stop
from engine.format.message import ENCODE_OVERHEAD
from engine.format.record import (
    BLANK_SIZE,
    MAGIC_BYTES,
    MAGIC_SIZE,
    MIN_RECORD_SIZE,
    POSITION_MAGIC,
    V4_HEAD_SIZE,
    physical_offset_at,
    total_size_at,
)
from engine.log.batch import RecordBatch
from engine.log.claim import Claims
from engine.log.entry_walk import is_bare, walk_entries
from engine.log.source import segments_from
from engine.log.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.source import LogSource, Segment

    FastWalk = Callable[..., tuple[NDArray[np.int64], Stop]]

WINDOW = 2 << 20
"""Bytes that are read at once: few enough to stay in the processor's caches while they are looked at."""
WIDE_WINDOW = 6 << 20
"""The same where several threads read by kernels: what is done once for each window holds Python's lock."""
_LITTLE = 8
"""What is left of a range beyond a window is read with it where that is at most an eighth of the window."""
FIRST_WINDOW = 64 << 10
"""Bytes that are read at first after damage: a log with many damaged places is not read 2 MiB for each."""
LONG = 16 << 20
"""Bytes of log from which on kernels are worth their loading, which takes as long as reading so much without them."""
_KERNEL, _PUTS = "engine.log.kernels.walk", "engine.log.kernels.encode_run"
_PAGE = 4096
_NEAR = 8 << 10
_KEPT = 24 << 20

__all__ = ["Blank", "Damage", "Event", "Gap", "RecordBatch", "Scanner"]

_COMMON = MAGIC_BYTES[0][:-1]
assert all(magic.startswith(_COMMON) for magic in MAGIC_BYTES)


@dataclass(frozen=True, slots=True)
class Blank:
    """The blank record that closes a file: its physical offset and length in bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Physical offset after it: of the file's end."""
        return self.offset + self.length


MISSING_SEGMENT = "segments are missing"
"""Why nothing can be read in a `Gap`."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Segments that are missing in the middle: first missing physical offset and bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Physical offset of the first segment after them."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Damage:
    """No sound record here. `length`: bytes to the next sound record or file end, 0 when nobody looked."""

    offset: int
    reason: Reason
    segment: Segment
    length: int = 0

    @property
    def end(self) -> int:
        """Physical offset after the damaged range, as far as known."""
        return self.offset + self.length


Event: TypeAlias = RecordBatch | Blank | Gap | Damage


class Scanner:
    """Scans a `LogSource`.

    Args:
        source: the log.
        check_crc: whether bodies are checked.
        max_message_size: setting maxMessageSize (bytes); larger records must prove themselves before they are read.
        window: bytes read at once.
        kernels: whether to read by kernels, where numba is installed (default: after the beginning of a long log).
            The events are the same.
        few: bytes, read at once, for which kernels don't pay.
    """

    def __init__(
        self,
        source: LogSource,
        *,
        check_crc: bool = True,
        max_message_size: int = 4 << 20,
        window: int = WINDOW,
        kernels: bool | None = None,
        few: int = 0,
    ) -> None:
        self._source = source
        self._check_crc = check_crc
        self._large = max_message_size + ENCODE_OVERHEAD
        self._window = max(window, V4_HEAD_SIZE)
        self._fast = load_fast_walk() if kernels else None
        self._may_be_long = kernels is None
        self._few = few
        self._walked = 0  # bytes, without kernels
        self._claims = Claims(source, self._large, self._sound_size, self._first_sound)

    @property
    def segments(self) -> Sequence[Segment]:
        """The log's files, by offset."""
        return self._source.segments

    def by_kernels(self, start: int, end: int | None = None) -> Scanner | None:
        """This scanner with kernels, which is to be used from several threads.

        None where they don't pay (a short log from the physical offset `start` to `end`), or there are none.
        """
        if self._may_be_long and not self._is_written(start + LONG, end):
            return None
        fast = self._fast or (load_fast_walk() if self._may_be_long else None)
        if fast is None:
            return None
        scanner = copy.copy(self)
        scanner._fast, scanner._may_be_long = fast, False
        if self._window == WINDOW:
            scanner._window = WIDE_WINDOW
        return scanner

    def scan(self, start: int, end: int | None = None, *, resume: bool = False) -> Iterator[Event]:
        """Events from the physical offset `start` (a record's) up to `end` (default: the last segment's end).

        With `resume` the scan continues after damage, with the range's `length` filled in.
        """
        expected: int | None = None
        long = self._may_be_long and self._is_written(start + LONG, end)
        for segment in segments_from(self._source.segments, start):
            if end is not None and segment.offset >= end:
                return
            if expected is not None and segment.offset > expected:
                yield Gap(expected, segment.offset - expected)
            expected = segment.end
            at = max(start, segment.offset)
            until = segment.end if end is None else min(end, segment.end)
            if (yield from self._scan_segment(segment, at, until, resume, long)):
                return

    def sound_size(self, offset: int) -> int:
        """Bytes of the sound record that lies there and knows its own offset; 0 when there is none."""
        segment = self._segment_at(offset)
        return 0 if segment is None else max(0, self._sound_size(segment, offset))

    def entry_of(self, offset: int) -> int:
        """Where the sound record that lies there, among DLedger's entries, begins with its header; where it lies
        itself when that header is damaged.
        """
        segment, entry_at = self._segment_at(offset), offset - HEAD_SIZE
        whole = segment is not None and entry_at >= segment.offset and self._is_entry(segment, entry_at)
        return entry_at if whole else offset

    def find_sound(self, offset: int, end: int | None = None, *, claims: bool = True) -> int | None:
        """Physical offset of the first sound record at or after `offset`, None when there is none before `end`.

        With `claims` what a damaged record claims that begins at or after `offset` is stepped over, so that the
        answer depends on where the search begins.
        """
        for segment in segments_from(self._source.segments, offset):
            if end is not None and segment.offset >= end:
                break
            until = segment.end if end is None else min(end, segment.end)
            sound_offset = self._find_in_segment(segment, max(offset, segment.offset), until, claims=claims)
            if sound_offset is not None:
                return sound_offset
        return None

    def find_sound_after(self, damage: Damage) -> int | None:
        """As `find_sound`, after damage that the chain of records has met."""
        end = damage.segment.end
        sound_offset = self._end_of_damage(damage.segment, damage.offset, end, damage.reason)
        return sound_offset if sound_offset < end else self.find_sound(end)

    def _segment_at(self, offset: int) -> Segment | None:
        segment = next(segments_from(self._source.segments, offset), None)
        return segment if segment is not None and segment.offset <= offset else None

    def _is_written(self, offset: int, end: int | None) -> bool:
        """Whether the log seems to continue at a physical offset before `end`: no zeros there."""
        try:
            return (end is None or offset < end) and bool(bytes(self._source.read(offset, _PAGE)).strip(b"\0"))
        except StorageError:
            return False

    def find_sound_within(self, segment: Segment, offset: int, end: int) -> int | None:
        """As `find_sound`, in one segment, holes and all: for a short range, where asking for holes takes longer."""
        return self._find_in_range(segment, offset, end, _NEAR)[0]

    def _scan_segment(
        self, segment: Segment, at: int, until: int, resume: bool, long: bool
    ) -> Generator[Event, None, bool]:
        """Events of one segment; the generator's value tells whether the scan is over.

        Of a `long` log the first records come without the kernels: whoever asks for them alone shall not wait.
        """
        need = 0  # bytes that the record at `at` is known to take
        bare = segment.in_entries  # whether a record may stand at `at` without its header
        first = long and self._may_be_long
        window = min(FIRST_WINDOW, self._window) if first else self._window
        while at < until:
            reason: Reason | None = None
            try:
                # What is left is read at once where it is little more: a batch of its last record costs as much.
                wanted = until - at if until - at <= window + window // _LITTLE else window
                buffer = self._read(at, max(wanted, need, V4_HEAD_SIZE), need)
            except StorageError:
                reason = Reason.UNREADABLE
            else:
                if len(buffer) < max(need, 1):
                    reason = Reason.CUT
            window = min(2 * window, self._window)
            if reason is None:
                batch, stop = self._walk_in(segment, at, buffer, until - at, bare)
                if batch is not None:
                    bare = False
                    yield batch
                    if first:
                        first, self._may_be_long, self._fast = False, False, load_fast_walk()
                at += stop.position
                if at >= until:
                    break
                if stop.blank:
                    yield Blank(at, stop.blank)
                    return False
                need, reason = stop.more, stop.reason
                if need > self._large + segment.before_record:
                    reason = self._why_not_read(segment, at, bare)
            if reason is None:
                continue
            if not resume:
                yield Damage(at, reason, segment)
                return True
            end = self._end_of_damage(segment, at, until, reason)
            yield Damage(at, reason, segment, end - at)
            at, need, bare = end, 0, segment.in_entries
            window = min(FIRST_WINDOW, self._window)
        return False

    def _end_of_damage(self, segment: Segment, at: int, until: int, reason: Reason) -> int:
        """Where the damage ends that the chain of records has come to: at a sound record, or at `until`."""
        if segment.in_entries:
            return self._end_of_damaged_entry(segment, at, until, reason)
        after = at
        while reason is not Reason.UNREADABLE and (claimed := self._claims.end_at_chain(segment, after)) is not None:
            if claimed >= until or self._sound_size(segment, claimed) > 0:
                return claimed
            after = claimed
        sound_offset = self._find_in_segment(segment, after + (after == at), until)
        return until if sound_offset is None else sound_offset

    def _end_of_damaged_entry(self, segment: Segment, at: int, until: int, reason: Reason) -> int:
        """The same among entries: at a sound entry, or at a sound record whose header is damaged."""
        after = at
        while reason is not Reason.UNREADABLE and after < until:
            record_at = after + HEAD_SIZE
            if self._sound_size(segment, record_at) > 0:  # the header alone is damaged
                return min(record_at, until)
            claimed = self._claims.end_at_chain(segment, record_at)
            if claimed is None:
                break
            if claimed >= until or self._is_entry(segment, claimed):
                return claimed
            after = claimed
        record_offset = self._find_in_segment(segment, after + (after == at), until)
        if record_offset is None:
            return until
        entry_at = record_offset - HEAD_SIZE
        return entry_at if entry_at > at and self._is_entry(segment, entry_at) else record_offset

    def _is_entry(self, segment: Segment, at: int) -> bool:
        """Whether a sound entry with a sound record lies there."""
        try:
            head = self._source.read(at, HEAD_SIZE)
            size = judge_entry(head, 0, segment.end - at, at)
        except StorageError:
            return False
        whole = size.more if isinstance(size, Stop) else size
        return whole > HEAD_SIZE and self._sound_size(segment, at + HEAD_SIZE) == whole - HEAD_SIZE

    def _walk_in(
        self, segment: Segment, at: int, buffer: memoryview, limit: int, bare: bool
    ) -> tuple[RecordBatch | None, Stop]:
        """As `_walk`. `bare`: in a segment of entries, a record without its header may stand at `at`."""
        room = segment.end - at
        return (
            self._walk_entries(at, buffer, room, limit, bare)
            if segment.in_entries
            else self._walk(at, buffer, room, limit)
        )

    def _walk_entries(
        self, at: int, buffer: memoryview, room: int, limit: int, bare: bool
    ) -> tuple[RecordBatch | None, Stop]:
        """As `_walk`, in a segment of entries."""
        if self._fast is not None:
            from engine.log.kernels.entry_walk import fast_walk_entries

            table, stop = fast_walk_entries(buffer, 0, room, at, check_crc=self._check_crc, bare=bare)
            table = table[: table[:, 0].searchsorted(limit)]
            return self._in_entries(at, buffer, table), stop
        rows: list[Row] = []
        stop = walk_entries(buffer, 0, room, at, rows, check_crc=self._check_crc, bare=bare)
        self._count_plain(stop.position)
        return self._in_entries(at, buffer, _before(rows, limit)), stop

    def _in_entries(self, base: int, buffer: memoryview, rows: list[Row] | NDArray[np.int64]) -> RecordBatch | None:
        """A batch of records in entries; the first may have no header."""
        if not len(rows):
            return None
        lead = HEAD_SIZE if rows[0][0] >= HEAD_SIZE else 0
        return RecordBatch(base, buffer, rows, lead=lead, read=self._source.read)

    def loads_within(self, size: int) -> bool:
        """Whether so many bytes more may have it load the kernels, which takes some ms."""
        return self._may_be_long and (self._walked + size >= LONG or _PUTS in sys.modules)

    def _count_plain(self, size: int) -> None:
        """So many bytes were read without kernels: of a long log the rest is read by them."""
        self._walked += size
        # small segments, one by one; a process that puts by kernels has paid for most of what loading takes
        if self.loads_within(0):
            self._may_be_long, self._fast = False, load_fast_walk()

    def _walk(self, at: int, buffer: memoryview, room: int, limit: int) -> tuple[RecordBatch | None, Stop]:
        """The records at the physical offset `at` that start before the position `limit`, and where the walk ended."""
        if self._fast is not None and len(buffer) > self._few:
            table, stop = self._fast(buffer, 0, room, check_crc=self._check_crc)
            table = table[: table[:, 0].searchsorted(limit)]
            return RecordBatch(at, buffer, table, read=self._source.read) if len(table) else None, stop
        rows: list[Row] = []
        stop = walk(buffer, 0, room, rows, check_crc=self._check_crc)
        self._count_plain(stop.position)
        rows = _before(rows, limit)
        return RecordBatch(at, buffer, rows, read=self._source.read) if rows else None, stop

    def _read(self, at: int, length: int, need: int = 0) -> memoryview:
        """Up to `length` bytes from `at` on; near a page that can't be read, what lies before it (`need` at least)."""
        least = max(need, _PAGE - at % _PAGE)
        while True:
            try:
                return self._source.read(at, length)
            except StorageError:
                if length <= least:
                    raise
                length = max(length >> 2, least)

    def _why_not_read(self, segment: Segment, at: int, bare: bool) -> Reason | None:
        """Why a record that claims to be very large isn't read; None when it proves itself. `bare`: as `_walk_in`."""
        try:
            if not (bare and is_bare(self._source.read(at, BLANK_SIZE), 0)):
                at += segment.before_record
            return None if self._proves_itself(at) else Reason.SIZE
        except StorageError:
            return Reason.UNREADABLE

    def _proves_itself(self, at: int) -> bool:
        """Whether the head of a very large record says so itself: its own offset and lengths that add up."""
        segment = self._segment_at(at)
        ends = None if segment is None else self._claims.ends(segment, at)
        return ends is not None and ends.agree

    def _find_in_segment(self, segment: Segment, offset: int, until: int, *, claims: bool = True) -> int | None:
        """Search by magic, skipping the holes of the file."""
        for data_start, data_end in self._source.data_ranges(segment, offset):
            start, end = max(offset, data_start), min(until, data_end)
            sound_offset, offset = self._find_in_range(segment, start, end, claims=claims)
            if sound_offset is not None:
                return sound_offset
        return None

    def _find_in_range(
        self, segment: Segment, at: int, until: int, window: int = FIRST_WINDOW, *, claims: bool = True
    ) -> tuple[int | None, int]:
        """By magic; and where the search is to continue. With `claims` what a damaged record claims is stepped over."""
        window = min(window, self._window)
        after = at
        while at < until:
            try:
                buffer = self._read(at, window)
            except StorageError:
                at += _PAGE - at % _PAGE  # step over the page that can't be read
                continue
            if not buffer:
                break
            for position in magics(bytes(buffer)):
                candidate = at + position
                if not after <= candidate < until:
                    continue
                size = self._sound_size(segment, candidate, buffer[position:])
                if size > 0:
                    return candidate, candidate
                if size < 0 and claims:
                    after = self._claims.end_in_search(segment, candidate) or after
            window = min(2 * window, self._window)
            overlap = POSITION_MAGIC + MAGIC_SIZE - 1  # a magic may lie across the border
            at = max(at + len(buffer) - overlap if len(buffer) > overlap else at + len(buffer), after)
        return None, after

    def _first_sound(self, segment: Segment, offset: int, end: int) -> int | None:
        return self._find_in_range(segment, offset, end, _NEAR, claims=False)[0]

    def _sound_size(self, segment: Segment, offset: int, here: memoryview | None = None) -> int:
        """Bytes of the sound record that knows its own offset; −1 when something else does, 0 for nothing.

        `here`: what was read from there on already, if anything was.
        """

        def read(length: int) -> memoryview:
            return self._source.read(offset, length) if here is None or len(here) < length else here[:length]

        try:
            head = read(V4_HEAD_SIZE)
            if len(head) < V4_HEAD_SIZE or physical_offset_at(head) != offset:
                return 0
            total = total_size_at(head)
            if not 0 < total <= segment.end - offset or (total > self._large and not self._proves_itself(offset)):
                return -1
            rows: list[Row] = []
            walk(read(total), 0, segment.end - offset, rows, max_rows=1)
        except StorageError:
            return 0
        return rows[0].size if rows else -1


def kernels_if_loaded() -> bool | None:
    """`kernels=` value for long-lived processes: kernels from the first byte on, where numba is installed."""
    return True if _KERNEL in sys.modules else None


def load_fast_walk() -> FastWalk | None:
    """The walk by kernels; None without numba."""
    try:
        from engine.log.kernels.walk import fast_walk
    except ImportError:
        return None
    Libc().keep_freed(_KEPT)
    return fast_walk


def ready_kernels() -> None:
    """Load what a scan of a long log loads, in the thread that calls: for who has something else to do before it."""
    fast_walk = load_fast_walk()
    if fast_walk is not None:
        fast_walk(bytes(MIN_RECORD_SIZE), 0, MIN_RECORD_SIZE)


def _before(rows: list[Row], limit: int) -> list[Row]:
    """The rows that start before `limit`."""
    if rows and rows[-1].position >= limit:
        return [row for row in rows if row.position < limit]
    return rows


def magics(buffer: bytes) -> Iterator[int]:
    """Positions in `buffer` of records whose magic is a message's, ascending."""
    if buffer.find(_COMMON[:1], POSITION_MAGIC) < 0:  # one byte is looked for ten times as fast; tails are zeros
        return
    at = buffer.find(_COMMON, POSITION_MAGIC)
    while at >= 0:
        if buffer[at : at + MAGIC_SIZE] in MAGIC_BYTES:
            yield at - POSITION_MAGIC
        at = buffer.find(_COMMON, at + 1)
