"""Where the log can be cut so that its parts, scanned apart, give what one scan of the whole gives.

Theory. A scan of the whole visits places: records, blanks, damage. P are the records that it visits. The parts' union
is the scan when every boundary is in P, or a segment's start or end, and boundaries keep the order of their wishes:
two parts then overlap nowhere, none is read by nobody, and each continues just as the scan does, which has no memory at
a record. S are the sound records that know their own offset, wherever they lie: in bodies, in what a damaged record
claims. S depends on the bytes alone, P on the way there, so the search for S asks no claims (Scanner.find_sound).

The boundary of a wish is the first s of S at or after it, if s *stands alone*; else the first p of P at or after
it. If s stands alone it is in P (below). So all boundaries are in P, and in order: let w < v be wishes, s the first
of S after w. If s stands alone, v's first of S is s, too, or v lies after s. If it does not, w's boundary is the
first of all P after w, and that of v is in P and after w. Where nothing of S follows, the segment's end is the
boundary, of all later wishes, too.

s stands alone when nothing that a scan could take for a record, or for a blank, begins before it and reaches beyond
it: a step over a record can't jump it then, and the search after damage finds it, as it is sound. Such a thing is
looked for in the bytes before it, as far back as the largest record reaches, by its magic and its lengths alone:
whatever it says of its own offset or its CRC. A genuine blank reaches hardly farther: it closes a file because a
record, and BLANK_SIZE bytes, did not fit (CommitLog#doAppend). A damaged head that claims to reach beyond s by any of
its lengths counts, too: a scan may step over what it claims (engine.log.claim), however sound what lies within.

Where there is one (a body that holds a record, a wish that lies in a message made of messages), the bytes before s
can't decide, and the chain is walked from the segment's start, which is a boundary by itself: records never cross
segments. It is walked as the parts will be read: with CRCs or without, as a body with a CRC mismatch is stepped
over, or not.

Among DLedger's entries a record's place in P is that of its entry, HEAD_SIZE before it, or its own when that header is
damaged. The first s at or after a wish and HEAD_SIZE is taken, so that its entry is at or after the wish, too: what is
said above holds for it. An entry steps over s only with a record in it that reaches there.

So two readers of neighbouring parts find the same boundary, each for itself. What reaches farther back than is looked
(a record or a claim larger than maxMessageSize says, a blank that no broker wrote) could hide a record that was made
for its place, and then s is not in P: a part does not end where the next one begins, which its reader must check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format.judge import Row
from engine.format.message import ENCODE_OVERHEAD
from engine.format.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    SIZE_AND_MAGIC,
    TOPIC_LENGTH_SIZE_V2,
    V2_TOPIC_MAX_LENGTH,
    V4_HEAD_SIZE,
    WHOLE_HEAD_SIZE,
    physical_offset_at,
    total_size_at,
)
from engine.log.claim import body_end, ends_of
from engine.log.near_heads import reaching
from engine.log.scan import WINDOW, RecordBatch, Scanner
from engine.log.walk import walk

if TYPE_CHECKING:
    from engine.format.buffers import Buffer
    from engine.log.source import LogSource, Segment

_STEP = 1 << 20
_MOST_AFTER_BODY = TOPIC_LENGTH_SIZE_V2 + V2_TOPIC_MAX_LENGTH + PROPERTIES_LENGTH_SIZE + PROPERTIES_MAX_LENGTH
"""Bytes of the longest topic and properties with their lengths."""


class Boundaries:
    """Finds boundaries in a log that nobody writes to, or in a part of it that is finished.

    Args:
        source: the log.
        max_message_size: setting maxMessageSize, bytes: how large a body can be.
        check_crc: whether the parts are scanned with it.
    """

    def __init__(self, source: LogSource, *, max_message_size: int = 4 << 20, check_crc: bool = True) -> None:
        self._source = source
        self._scanner = Scanner(source, check_crc=check_crc, max_message_size=max_message_size)
        self._reach = max(max_message_size + ENCODE_OVERHEAD, WINDOW) + BLANK_SIZE

    def at(self, segment: Segment, offset: int) -> int:
        """The first boundary of `segment` at or after the physical `offset`; its end when there is none before.

        Raises:
            StorageError: the system can't read what is needed.
        """
        if offset <= segment.offset or offset >= segment.end:
            return max(segment.offset, min(offset, segment.end))
        record = self._scanner.find_sound(offset + segment.before_record, segment.end, claims=False)
        if record is None:
            return segment.end
        if not self._stands_alone(segment, record):
            return self._walked(segment, offset)
        return self._scanner.entry_of(record) if segment.in_entries else record

    def before(self, segment: Segment, offset: int) -> int:
        """A boundary of `segment` at or before the physical `offset` (one of its own), not far from it if possible.

        Raises:
            StorageError: as `at`.
        """
        step = _STEP
        while offset - step > segment.offset:
            boundary = self.at(segment, offset - step)
            if boundary <= offset:
                return boundary
            step *= 4
        return segment.offset

    def _stands_alone(self, segment: Segment, offset: int) -> bool:
        """Whether nothing that looks like a record or a blank begins before `offset` and reaches beyond it."""
        start = max(segment.offset, offset - self._reach)
        try:
            before = bytes(self._source.read(start, offset - start + V4_HEAD_SIZE))
        except StorageError:
            return False  # what can't be read could be one
        if len(before) < offset - start:
            return False
        near = reaching(before, offset - start, start, offset, segment.end, _MOST_AFTER_BODY)
        return not any(self._reaches(segment, start, at, before, offset) for at in near)

    def _reaches(self, segment: Segment, start: int, at: int, before: bytes, offset: int) -> bool:
        total, magic = SIZE_AND_MAGIC.unpack_from(before, at)
        place = start + at
        if self._claims(segment, start, at, before, offset):
            return True
        if place + total <= offset or total > segment.end - place:
            return False
        if magic == BLANK_MAGIC:
            return bool(place + total == segment.end)
        if total > self._reach:  # read whole by no scan that it has not told its own offset
            return physical_offset_at(before, at) == place
        rows: list[Row] = []
        try:
            walk(self._source.read(place, total), 0, segment.end - place, rows, check_crc=False, max_rows=1)
        except StorageError:
            return True
        return bool(rows)

    def _claims(self, segment: Segment, start: int, at: int, before: bytes, offset: int) -> bool:
        """Whether a scan may step over `offset` because of what a damaged head claims (engine.log.claim)."""
        place = start + at
        if physical_offset_at(before, at) != place:
            return False
        head = before[at : at + WHOLE_HEAD_SIZE]
        claimed = place + total_size_at(head)
        if offset < claimed <= segment.end:
            return True
        if place + body_end(head) + _MOST_AFTER_BODY <= offset and len(head) == WHOLE_HEAD_SIZE:
            return False

        def read(wanted: int, size: int) -> Buffer:
            """From what has been read, where it is there."""
            first = wanted - start
            if 0 <= first <= len(before) - size:
                return before[first : first + size]
            return self._source.read(wanted, size)

        try:
            ends = ends_of(read, segment.end, place)
        except StorageError:
            return True
        return ends is not None and ends.by_lengths > offset

    def _walked(self, segment: Segment, offset: int) -> int:
        """By the chain from the segment's start."""
        for event in self._scanner.scan(segment.offset, segment.end, resume=True):
            if isinstance(event, RecordBatch) and event.end > offset:
                places = event.offsets() - segment.before_record
                places[0] = event.start
                after = places[places.searchsorted(offset) :]
                if len(after):
                    return int(after[0])
        return segment.end
