"""An entry of DLedger's log, and the unit of its index (FORMAT.md "DLedger entry").

A DLedger store has no plain commit log: each record is the body of an entry, after a header of 48 bytes. Offsets are
those of the entries' files, so a record's physicalOffset is that of its entry and the header's length (the append hook
of DLedgerCommitLog writes it), and a queue's unit leads to the record itself, past the header.

Both CRCs are 0 in all that DLedger writes: nobody computes them. What tells of a header is its magic, that it names its
own offset, and that its lengths agree; of its neighbours, the index (one more each) and the term (never less).

Source: io.openmessaging.storage:dledger 0.3.1.2 (RocketMQ 4.9.8, 5.1 to 5.3) and 0.3.2 (5.4 and 5.5): DLedgerEntry,
DLedgerEntryCoder, DLedgerEntryType, MmapFileList, DLedgerMmapFileStore#recover.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.judge import Reason, Stop

if TYPE_CHECKING:
    import numpy as np

    from engine.format.buffers import Buffer

_HEAD_FIELDS: Final = ("magic", "size", "index", "term", "pos", "channel", "chain_crc", "body_crc", "body_length")
_HEAD: Final = struct.Struct(">iiqqqiiii")
HEAD_SIZE: Final = 48
"""Bytes of the header, which the record follows."""
assert _HEAD.size == HEAD_SIZE
_BLANK: Final = struct.Struct(">ii")
BLANK_SIZE: Final = 8
"""Bytes of a blank's head, and the least that stays free at a file's end. Source: MmapFileList.MIN_BLANK_LEN."""
assert _BLANK.size == BLANK_SIZE
_INDEX_UNIT: Final = struct.Struct(">iqiqq")
INDEX_UNIT_SIZE: Final = 32
assert _INDEX_UNIT.size == INDEX_UNIT_SIZE

NORMAL: Final = 1
"""Magic of an entry that holds a record."""
NO_OPERATION: Final = 2
"""Magic of an entry without a body, which dledger 0.4 writes at the beginning of a term. No broker up to 5.5 does."""
BLANK_MAGIC: Final = -1
"""Of the blank that closes a file."""

POSITION_SIZE: Final = 4
POSITION_POS: Final = 24
POSITION_BODY_LENGTH: Final = 44
assert POSITION_BODY_LENGTH + 4 == HEAD_SIZE


@dataclass(frozen=True, slots=True)
class DLedgerEntry:
    """The header of an entry. `size`: bytes with the header; `pos`: its own offset; `body_length`: of the record."""

    magic: int
    size: int
    index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_length: int

    def encode(self) -> bytes:
        """The 48 bytes."""
        return _HEAD.pack(
            self.magic, self.size, self.index, self.term, self.pos,
            self.channel, self.chain_crc, self.body_crc, self.body_length,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DLedgerIndexUnit:
    """Where the entry of an index lies; the unit's own place is index × 32."""

    magic: int
    pos: int
    size: int
    index: int
    term: int

    def encode(self) -> bytes:
        """The 32 bytes."""
        return _INDEX_UNIT.pack(self.magic, self.pos, self.size, self.index, self.term)


def decode(data: Buffer, at: int = 0) -> DLedgerEntry:
    """The header at a position. Raises FormatError: fewer than 48 bytes are there."""
    if len(data) - at < HEAD_SIZE:
        raise FormatError(f"the header of a DLedger entry has {HEAD_SIZE} bytes, and {len(data) - at} are there")
    return DLedgerEntry(*_HEAD.unpack_from(data, at))


def decode_index(data: Buffer, at: int = 0) -> DLedgerIndexUnit:
    """The unit of the index at a position. Raises FormatError: fewer than 32 bytes are there."""
    if len(data) - at < INDEX_UNIT_SIZE:
        raise FormatError(f"a unit of DLedger's index has {INDEX_UNIT_SIZE} bytes, and {len(data) - at} are there")
    return DLedgerIndexUnit(*_INDEX_UNIT.unpack_from(data, at))


def encode_blank(length: int) -> bytes:
    """The blank that closes a file, `length` bytes: at least 8."""
    return _BLANK.pack(BLANK_MAGIC, length) + bytes(length - BLANK_SIZE)


def judge_entry(view: memoryview, at: int, room: int, offset: int) -> int | Stop:
    """The size of the entry at position `at`, all of whose bytes are there; or what is there else.

    Args:
        view: bytes of the log (uint8).
        at: position of an entry in it, 0 at least.
        room: position (may lie after the buffer's end) where the file ends.
        offset: of the entry, which its `pos` is to name.
    """
    left = len(view) - at
    if left < BLANK_SIZE:
        return Stop(at, more=BLANK_SIZE) if room - at >= BLANK_SIZE else Stop(at, reason=Reason.CUT)
    magic, size = _BLANK.unpack_from(view, at)
    if magic == BLANK_MAGIC:
        ends = size == room - at
        return Stop(at, blank=size) if ends else Stop(at, reason=Reason.BLANK_LENGTH)
    if magic == size == 0:
        return Stop(at, reason=Reason.EMPTY)
    if magic not in (NORMAL, NO_OPERATION):
        return Stop(at, reason=Reason.ENTRY, detail=f"the magic of a DLedger entry is {NORMAL}, not {magic}")
    if not HEAD_SIZE <= size <= room - at:
        detail = f"invalid size {size} of a DLedger entry: {room - at} bytes are left"
        return Stop(at, reason=Reason.ENTRY, detail=detail)
    if left < HEAD_SIZE:
        return Stop(at, more=size)
    head = decode(view, at)
    if head.pos != offset:
        return Stop(at, reason=Reason.ENTRY, detail=f"the DLedger entry names another place: {head.pos}")
    if head.body_length + HEAD_SIZE != size:
        detail = f"a DLedger entry of {size} bytes has a body of {head.body_length}"
        return Stop(at, reason=Reason.ENTRY, detail=detail)
    return size if left >= size else Stop(at, more=size)


def head_dtype() -> np.dtype[np.void]:
    """A header as an array has it."""
    import numpy as np

    return np.dtype(list(zip(_HEAD_FIELDS, (">i4", ">i4", ">i8", ">i8", ">i8", *(">i4",) * 4), strict=True)))


def index_dtype() -> np.dtype[np.void]:
    """A unit of the index as an array has it."""
    import numpy as np

    return np.dtype([("magic", ">i4"), ("pos", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")])
