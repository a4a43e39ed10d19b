"""What a head that is no sound record claims for itself: what lies within that is no message.

A body may hold whole records that name the very place where they lie (a copied log, or a sender who means harm). While
their outer record is sound nobody looks at them. When it is damaged, a search by magic finds them. So the search asks
each head that it meets what it claims, and what must not happen is the reverse: a damaged length that hides messages.

A head claims something only with a message's magic and its own offset. It has two witnesses of where it ends: one is
totalSize, the other the lengths of body, topic and properties, which lie in three places. Of a head where the chain of
records stopped (the record before ended just there):

- Both witnesses agree: the record ends there. No single damage makes them agree on a wrong place.
- They differ, and something begins where the one or the other ends (a record that knows its own offset, the file's
  blank, the log end): the record ends there, as long as no chain of sound records within reaches that place.
- Else nothing is known, and every record that names its place is taken, as no sound record may be lost.

Where such a record ends the next one is judged alike. A head that a search meets has nothing before it that vouches for
it: both witnesses must agree, and something must begin where it ends, with no chain within that reaches the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format.dledger_entry import HEAD_SIZE, judge_entry
from engine.format.judge import Stop
from engine.format.message import blank_length
from engine.format.record import (
    MAGICS,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    SHORT,
    SIZE_AND_MAGIC,
    V4_HEAD_SIZE,
    WHOLE_HEAD_SIZE,
    body_length_at,
    body_position,
    physical_offset_at,
    sys_flag_at,
    topic_length_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.format.buffers import Buffer
    from engine.log.source import LogSource, Segment


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a record ends (physical), as totalSize says and as its three lengths say; 0 where they are invalid."""

    by_size: int
    by_lengths: int

    @property
    def agree(self) -> bool:
        """Whether both say the same."""
        return self.by_size == self.by_lengths != 0


def ends_of(read: Callable[[int, int], Buffer], segment_end: int, at: int) -> Ends | None:
    """What the head at the physical offset `at` claims; None when none is there that knows its own offset.

    Reads the head, and the lengths after the body, however long that is.

    Args:
        read: up to a number of bytes from a physical offset on; its errors come out.
        segment_end: physical offset where the head's file ends.
        at: where the head is.
    """
    head = bytes(read(at, WHOLE_HEAD_SIZE))
    if len(head) < V4_HEAD_SIZE or physical_offset_at(head) != at:
        return None
    size, magic = SIZE_AND_MAGIC.unpack_from(head)
    if magic not in MAGICS:
        return None
    by_size = at + size
    if not at + MIN_RECORD_SIZE <= by_size <= segment_end:
        by_size = 0
    by_lengths = _end_by_lengths(read, head, at, topic_length_size(magic))
    return Ends(by_size, by_lengths if by_lengths <= segment_end else 0)


def body_end(head: bytes) -> int:
    """Where a record's body ends (position), as its head says; 0 when the head is too short to tell."""
    if len(head) < V4_HEAD_SIZE:
        return 0
    at = body_position(sys_flag_at(head))
    return at + max(0, body_length_at(head, at)) if len(head) >= at else 0


def _end_by_lengths(read: Callable[[int, int], Buffer], head: bytes, at: int, length_size: int) -> int:
    body = body_end(head)
    topic_length = bytes(read(at + body, length_size)) if body else b""
    if len(topic_length) < length_size:
        return 0
    topic = int.from_bytes(topic_length, "big", signed=True)
    own_at = at + body + length_size + topic
    size = PROPERTIES_LENGTH_SIZE
    own_length = bytes(read(own_at, size)) if topic >= 0 else b""
    return own_at + size + max(0, SHORT.unpack(own_length)[0]) if len(own_length) == size else 0


class Claims:
    """Judges heads.

    Args:
        source: the log.
        large: bytes that a record takes at most unless both its witnesses agree.
        sound_size: bytes of the sound record that knows its own offset there, 0 or less for none.
        first_sound: the first such record of a segment in [offset, end), whatever claims it.
    """

    def __init__(
        self,
        source: LogSource,
        large: int,
        sound_size: Callable[[Segment, int], int],
        first_sound: Callable[[Segment, int, int], int | None],
    ) -> None:
        self._source = source
        self._large = large
        self._sound_size = sound_size
        self._first_sound = first_sound

    def ends(self, segment: Segment, at: int) -> Ends | None:
        """As `ends_of`. Raises StorageError."""
        return ends_of(self._source.read, segment.end, at)

    def end_at_chain(self, segment: Segment, at: int) -> int | None:
        """Where the record ends that the chain of records has come to and that is not sound; None: nobody knows."""
        try:
            ends = self.ends(segment, at)
            if ends is None:
                return None
            if ends.agree:
                return ends.by_size
            for end in sorted((ends.by_lengths, ends.by_size)):  # the one that claims less comes first
                if 0 < end <= at + self._large and self._begins(segment, end) and not self._chained(segment, at, end):
                    return end
        except StorageError:
            pass
        return None

    def end_in_search(self, segment: Segment, at: int) -> int | None:
        """Where the record ends that a search has met and that is not sound; None: it proves nothing."""
        try:
            ends = self.ends(segment, at)
            if ends is not None and ends.agree and self._begins(segment, ends.by_size):
                return None if self._chained(segment, at, ends.by_size) else ends.by_size
        except StorageError:
            pass
        return None

    def _begins(self, segment: Segment, at: int) -> bool:
        """Whether a record that knows its own offset, or the file's blank begins there, or the log end.

        The record need not be sound: two neighbours may be damaged. The log ends before zeros, after what is none.
        """
        if at >= segment.end:
            return True
        if segment.in_entries:
            return self._entry_begins(segment, at)
        head = bytes(self._source.read(at - 1, 1 + V4_HEAD_SIZE))
        if blank_length(head, 1) == segment.end - at or (head[0] and not any(head[1:])):
            return True
        return self.ends(segment, at) is not None

    def _entry_begins(self, segment: Segment, at: int) -> bool:
        """The same among DLedger's entries: a sound header, or one whose record knows its own offset."""
        head = self._source.read(at - 1, 1 + HEAD_SIZE)
        judged = judge_entry(head[1:], 0, segment.end - at, at)
        if not isinstance(judged, Stop) or judged.more or judged.blank:
            return True
        if len(head) and head[0] and not any(head[1:]):
            return True
        return self.ends(segment, at + HEAD_SIZE) is not None

    def _chained(self, segment: Segment, at: int, end: int) -> bool:
        """Whether sound records within a claim follow each other up to its end, or over it: they were there first."""
        at += 1
        while (inner := self._first_sound(segment, at, end)) is not None:
            at = inner
            while at < end and (size := self._sound_size(segment, at)) > 0:
                at += size + segment.before_record
            if at - segment.before_record >= end:
                return True
            at += 1
        return False
