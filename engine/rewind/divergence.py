"""Where two logs that were one have diverged: the last record that both have, found by reading little of the other.

Theory. Both logs have the same records up to the divergence. So the search goes by probes: the first records of our
segments, back from the end in steps that double, then by halves; then the records of one segment by halves. A probe is
equal where all bytes of a record are, its physical offset, queue offset, store time and host among them. After the
divergence a single record may be equal all the same (the blank one that closes a file has two fields): what a probe
said is proved by comparing all bytes of a window before the cut, and where they differ, the search goes on before that.

Records that differ while one after them is equal are no divergence: one of the copies is damaged, and nothing is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from engine.dataclass import dataclass
from engine.errors import CannotRepair, FormatError, Refused
from engine.format.record import BLANK_SIZE
from engine.log.scan import Blank, RecordBatch, Scanner
from engine.log.source import segments_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.config import StoreConfig
    from engine.log.source import ClosedLog, Segment

WINDOW = 4 << 20
"""Bytes before the cut that are compared, at least; and twice the largest message."""
AHEAD = 1 << 20
"""Bytes after the cut in which no record may be the same."""
_READ = 1 << 20
_PROBED_AT_ONCE = 128 << 10


class OtherLog(Protocol):
    """The other log, by ranges."""

    def read(self, offset: int, length: int) -> bytes:
        """All bytes of a range that it has (physical). Raises StorageError, FormatError."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Records that only our log has, after the divergence.

    `end`: physical offset after the last of them. `first_ms`, `last_ms`: smallest and largest storeTimestamp; 0: none.
    """

    records: int
    messages: int
    end: int
    first_ms: int
    last_ms: int

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "records": self.records,
            "messages": self.messages,
            "end": self.end,
            "firstStoreTimestamp": self.first_ms or None,
            "lastStoreTimestamp": self.last_ms or None,
        }


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where they diverged. Physical offsets, bytes.

    Attributes:
        common: after the last record that both have.
        compared_from: all bytes from there up to `common` were compared.
        fetched: bytes that were read of the other log.
        tail: what only our log has.
    """

    common: int
    compared_from: int
    fetched: int
    tail: Tail


def find_divergence(
    log: ClosedLog,
    config: StoreConfig,
    other: OtherLog,
    extent: tuple[int, int],
    *,
    broker: str,
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Divergence:
    """Find where our closed log and another one diverged.

    Args:
        log: ours.
        config: of its store.
        other: the other.
        extent: where the other begins and ends (physical).
        broker: `host:port` of the other's, for who is told to copy it.
        whole: compare all bytes that both have up to the cut; else a window before it.
        progress: told how many bytes were compared, and of how many.

    Raises:
        Refused: they have nothing in common, or the other one no longer has it. CannotRepair: one of them is damaged.
        StorageError, FormatError: one of them can't be read.
    """
    return _Search(log, config, other, extent, broker, progress).run(whole)


@dataclass(slots=True)
class _Record:
    """A record, or the blank one that closes a file, with all bytes after it. Physical offset and length."""

    offset: int
    length: int
    blank: bool = False

    @property
    def end(self) -> int:
        return self.offset + self.length


class _Search:
    def __init__(
        self,
        log: ClosedLog,
        config: StoreConfig,
        other: OtherLog,
        extent: tuple[int, int],
        broker: str,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._log = log
        self._other = other
        self._low, self._high = extent
        self._broker = broker
        self._progress = progress
        self._window = max(WINDOW, 2 * config.max_message_size)
        self._scanner = Scanner(log, check_crc=config.check_crc_on_recover, max_message_size=config.max_message_size)
        self._for_one = Scanner(log, max_message_size=config.max_message_size, kernels=False)
        self._fetched = 0
        self._records: dict[int, tuple[_Record, ...]] = {}

    def run(self, whole: bool) -> Divergence:
        heads = self._heads()
        high = self._high
        while True:
            common = self._search(heads, high)
            start = heads[0].offset if whole else max(heads[0].offset, common - self._window)
            differing = self._first_differing(start, common)
            if differing is None:
                self._demand_diverged(common)
                return Divergence(common, start, self._fetched, self._tail(common))
            last = self._record_at(common - 1)
            self._demand_diverged(differing.offset, None if last.blank else last)
            high = differing.offset

    def _demand_diverged(self, offset: int, same: _Record | None = None) -> None:
        """What comes after the divergence differs, too, record by record: up to AHEAD bytes are looked at.

        `same`: a record after it that is known to be the same. Raises CannotRepair: there is one.
        """
        rows = self._sound_after(offset, self._high)
        first = next(rows, None)
        if first is None:
            return
        at, theirs = first.end, b""
        for row in rows if same is None else ():
            if row.offset >= offset + AHEAD:
                break
            if row.end > at + len(theirs):
                at = row.offset
                theirs = self._fetch(at, min(max(_PROBED_AT_ONCE, row.length), self._high - at))
            if self._ours(row.offset, row.length) == theirs[row.offset - at : row.end - at]:
                same = row
                break
        if same is not None:
            raise CannotRepair(
                f"the record at offset {first.offset} differs from the master's, and one after it, at {same.offset}, "
                "does not: one of the two logs is damaged",
                offset=first.offset,
                hint="next: rstore verify-crc, here and at the master",
            )

    # --- ours -------------------------------------------------------------------------------------------------------

    def _heads(self) -> list[_Record]:
        """The sound records at the beginnings of our segments that the other log may have, too."""
        heads = []
        for segment in self._log.segments:
            size = self._for_one.sound_size(segment.offset) if segment.offset >= self._low else 0
            if size:
                heads.append(_Record(segment.offset, size))
        return heads

    def _in_segment(self, segment: Segment) -> tuple[_Record, ...]:
        """All records of a segment. Of damage, what is sound after it."""
        if segment.offset not in self._records:
            rows: list[_Record] = []
            for event in self._scanner.scan(segment.offset, segment.end, resume=True):
                if isinstance(event, RecordBatch):
                    offsets, sizes = event.offsets().tolist(), event.sizes().tolist()
                    rows += [_Record(at, size) for at, size in zip(offsets, sizes, strict=True)]
                elif isinstance(event, Blank):
                    rows.append(_Record(event.offset, segment.end - event.offset, blank=True))
            self._records = {segment.offset: tuple(rows)}  # one segment's are enough
        return self._records[segment.offset]

    def _segment_at(self, offset: int) -> Segment:
        segment = self._log.segment_at(offset)
        if segment is None:
            raise CannotRepair("a segment of the log is missing", offset=offset, hint="rstore check")
        return segment

    def _record_at(self, offset: int) -> _Record:
        """The record that a byte is of. Raises CannotRepair: it is of none."""
        rows = self._in_segment(self._segment_at(offset))
        at = bisect_right(rows, offset, key=lambda row: row.offset) - 1
        if at < 0 or offset >= rows[at].end:
            raise CannotRepair(
                "this log is damaged before the divergence",
                offset=offset,
                hint="next: rstore recover, then rewind again",
            )
        return rows[at]

    def _sound_after(self, offset: int, end: int) -> Iterator[_Record]:
        """Our records from an offset up to another, blanks left out."""
        for segment in segments_from(self._log.segments, offset):
            if segment.offset >= end:
                return
            rows = self._in_segment(segment)
            yield from (row for row in rows if row.offset >= offset and row.end <= end and not row.blank)

    def _tail(self, common: int) -> Tail:
        records = messages = first = last = 0
        end = common
        for event in self._scanner.scan(common):  # up to the first damage: a torn tail goes, too
            if isinstance(event, RecordBatch):
                times = event.store_timestamps()
                first = min(first or int(times.min()), int(times.min()))
                last = max(last, int(times.max()))
                records, messages, end = records + len(event), messages + event.messages, event.end
        return Tail(records, messages, end, first, last)

    # --- both -------------------------------------------------------------------------------------------------------

    def _search(self, heads: Sequence[_Record], high: int) -> int:
        """Physical offset after the last record that probes call common and that ends by `high`."""
        at = _last(heads, lambda row: row.end <= high and self._is_same(row))
        if at is None:
            raise self._nothing_common()
        rows = [row for row in self._in_segment(self._segment_at(heads[at].offset)) if row.end <= high]
        last = _last(rows, self._is_same)
        if last is None:
            raise FormatError("the master sent other bytes than before", offset=heads[at].offset)
        return rows[last].end

    def _is_same(self, row: _Record) -> bool:
        if row.end > self._high:
            return False
        return self._difference(row.offset, row.offset + BLANK_SIZE if row.blank else row.end) is None

    def _first_differing(self, start: int, end: int) -> _Record | None:
        """Our first record in a range that both have that is not the master's."""
        at = start
        while (differs := self._difference(at, end, self._progress)) is not None:
            record = self._record_at(differs)
            if not record.blank or differs < record.offset + BLANK_SIZE:
                return record
            at = record.end  # after a blank record's two fields a file has what was there before
        return None

    def _difference(self, start: int, end: int, progress: Callable[[int, int], None] | None = None) -> int | None:
        """Physical offset of the first byte that differs in a range that both have."""
        for at in range(start, end, _READ):
            length = min(_READ, end - at)
            theirs = self._fetch(at, length)
            ours = self._ours(at, length)
            if ours != theirs:
                return at + next(i for i, (one, two) in enumerate(zip(ours, theirs, strict=True)) if one != two)
            if progress is not None:
                progress(at + length - start, end - start)
        return None

    def _fetch(self, offset: int, length: int) -> bytes:
        data = bytes(self._other.read(offset, length))
        self._fetched += len(data)
        if len(data) != length:
            raise FormatError(f"the master sent {len(data)} of {length} bytes", offset=offset)
        return data

    def _ours(self, offset: int, length: int) -> bytes:
        pieces = []
        while length:
            piece = self._log.read(offset, length)
            if not len(piece):
                raise CannotRepair("a segment of the log is missing", offset=offset, hint="rstore check")
            pieces.append(bytes(piece))
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def _nothing_common(self) -> Refused:
        ours = self._log.segments[0].offset
        if self._low > ours:
            return Refused(
                f"the master's log start is {self._low}, and the two logs diverged before it: nothing that is left of "
                "both is the same",
                offset=self._low,
                hint=f"move this store away, and make a new copy: rstore replicate --from {self._broker}",
            )
        return Refused(
            "this log and the master's have no record in common: it is the master of another store",
            offset=ours,
            hint="name the master that took over from this store",
        )


def _last(rows: Sequence[_Record], is_same: Callable[[_Record], bool]) -> int | None:
    """The last of rows that is the same, where all before it are; back from the end, then by halves. None: none is."""
    high, step = len(rows), 1
    low = high - 1
    while low >= 0 and not is_same(rows[low]):
        high, low, step = low, low - step, 2 * step
    if low < 0:
        if high == 0 or not is_same(rows[0]):
            return None
        low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if is_same(rows[middle]):
            low = middle
        else:
            high = middle
    return low
