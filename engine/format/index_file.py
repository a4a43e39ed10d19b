"""The index file: header, hash slots, entries (FORMAT.md "Index file"; Apache IndexHeader, IndexFile).

    header  40 bytes
    slots   maxHashSlotNum × i32: number of the newest entry in the slot, 0 = none
    entries maxIndexNum × 20 bytes: keyHash i32, phyOffset i64, timeDiff i32 (s since beginTimestamp), previous i32

Entry 0 is never used: a file holds maxIndexNum − 1 entries, and the header's indexCount starts at 1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import INT_MAX

if TYPE_CHECKING:
    import numpy as np

    from engine.format.buffers import Buffer

_HEADER = struct.Struct(">qqqqii")
HEADER_SIZE = 40
assert _HEADER.size == HEADER_SIZE
POSITION_BEGIN_TIMESTAMP: Final = 0
POSITION_INDEX_COUNT: Final = struct.calcsize(">qqqqi")
SLOT_SIZE = 4
_ENTRY = struct.Struct(">iqii")
ENTRY_SIZE = 20
assert _ENTRY.size == ENTRY_SIZE
unpack_entry: Final = _ENTRY.unpack_from
"""An entry's four fields, as `IndexEntry` has them, without an object; the bytes must be there."""
unpack_slot: Final = struct.Struct(">i").unpack_from
"""The number of the entry that a slot names, as `decode_slot`, alone in a tuple; the bytes must be there."""
ENTRY_FIELDS = [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")]
POSITION_OFFSET: Final = struct.calcsize(">i")
"""Of phyOffset in an entry, as the next two."""
POSITION_TIME_DIFF: Final = struct.calcsize(">iq")
POSITION_PREVIOUS: Final = struct.calcsize(">iqi")
NO_ENTRY = 0


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The 40-byte header: times in ms, offsets physical, counts as Apache's (indexCount starts at 1)."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    def encode(self) -> bytes:
        """The 40 bytes."""
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Whether messages of the time [begin, end] (ms) may be in the file. Source: IndexFile#isTimeMatched."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry: hash of the key string, physical offset, s since beginTimestamp, number of the entry before it."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous: int

    def encode(self) -> bytes:
        """The 20 bytes."""
        return _ENTRY.pack(self.key_hash, self.physical_offset, self.time_diff, self.previous)


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """Where things lie in a file of `slots` hash slots and `entries` entries (entry 0 included)."""

    slots: int
    entries: int

    @property
    def entries_position(self) -> int:
        """Byte position of entry 0."""
        return HEADER_SIZE + self.slots * SLOT_SIZE

    @property
    def file_size(self) -> int:
        """Bytes of the whole file."""
        return self.entries_position + self.entries * ENTRY_SIZE

    def slot_position(self, slot: int) -> int:
        """Byte position of a slot."""
        return HEADER_SIZE + slot * SLOT_SIZE

    def entry_position(self, number: int) -> int:
        """Byte position of an entry."""
        return self.entries_position + number * ENTRY_SIZE


def decode_header(buffer: Buffer) -> IndexHeader:
    """The header in a file's first 40 bytes. An indexCount below 1 reads as 1, as in Apache's IndexHeader#load.

    Raises:
        FormatError: fewer than 40 bytes are there.
    """
    if len(buffer) < HEADER_SIZE:
        raise FormatError(f"an index header needs {HEADER_SIZE} bytes, there are {len(buffer)}")
    begin_ts, end_ts, begin, end, slots, count = _HEADER.unpack_from(buffer, 0)
    return IndexHeader(begin_ts, end_ts, begin, end, slots, max(count, 1))


def decode_slot(raw: Buffer) -> int:
    """The number of the entry that a slot's bytes name, as stored; `NO_ENTRY` for no bytes."""
    return int.from_bytes(raw, "big", signed=True)


def encode_slot(number: int) -> bytes:
    """The bytes of a slot that names an entry."""
    return number.to_bytes(SLOT_SIZE, "big")


def decode_entry(buffer: Buffer, position: int) -> IndexEntry:
    """The entry at a byte position.

    Raises:
        FormatError: fewer than 20 bytes are there.
    """
    if position < 0 or len(buffer) - position < ENTRY_SIZE:
        raise FormatError(f"an index entry needs {ENTRY_SIZE} bytes", offset=position)
    return IndexEntry(*_ENTRY.unpack_from(buffer, position))


def entry_dtype() -> np.dtype[np.void]:
    """numpy dtype of one entry (20 bytes, big-endian, packed)."""
    import numpy as np

    return np.dtype(ENTRY_FIELDS)


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """The timeDiff field (s): 0 while there is no begin, else clamped to 0 … 2³¹ − 1. Source: IndexFile#putKey.

    Java divides towards zero, so a difference of −1 … −999 ms is 0 before the clamp; the clamp makes all negatives 0.
    """
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), INT_MAX)
