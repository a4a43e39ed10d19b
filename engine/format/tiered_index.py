"""An index file among tiered files of RocketMQ 5, as it is uploaded (FORMAT.md "Tiered files").

A header, then a slot for each remainder of a key's hash, then the entries, those of a slot side by side. How many slots
there are is a setting of the broker (tieredStoreIndexFileMaxHashSlotNum); the first slot says where they end, as its
entries, or those of the next one that has some, follow the last slot.

Source: IndexStoreFile#compactToNewFile, #flushNewMetadata, IndexItem (tieredstore, 5.3.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.errors import FormatError

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

INDEX: Final = "INDEX"
"""The directory that holds these files."""
_HEADER: Final = struct.Struct(">Iqqii")
_SLOT: Final = struct.Struct(">ii")
_ITEM: Final = struct.Struct(">iiiqii")
HEADER_SIZE: Final = 28
SLOT_SIZE: Final = 8
ITEM_SIZE: Final = 28
BEGUN: Final = 0xBCC50289
COMPLETE: Final = 0xBCC50285
"""Magic codes: of a file that is still written, and of one that is not."""
assert (_HEADER.size, _SLOT.size, _ITEM.size) == (HEADER_SIZE, SLOT_SIZE, ITEM_SIZE)


class TieredIndexHeader(NamedTuple):
    """Times in ms; `slots`: those that have entries; `entries`: of the file."""

    magic: int
    begin_timestamp: int
    end_timestamp: int
    slots: int
    entries: int


class TieredIndexItem(NamedTuple):
    """One entry. `offset`: in the tiered log of the queue; `size`: bytes of its record; `time_diff`: seconds after the
    file's begin; `topic_id`: the broker's own number of the topic.
    """

    key_hash: int
    topic_id: int
    queue_id: int
    offset: int
    size: int
    time_diff: int


def decode_header(data: Buffer) -> TieredIndexHeader:
    """The header. Raises FormatError: too short, or no index file."""
    if len(data) < HEADER_SIZE + SLOT_SIZE:
        raise FormatError(f"an index file has {HEADER_SIZE + SLOT_SIZE} bytes at least, there are {len(data)}")
    header = TieredIndexHeader(*_HEADER.unpack_from(data))
    if header.magic not in (BEGUN, COMPLETE):
        raise FormatError(f"the magic code {header.magic:#010x} is not that of an index file")
    return header


def slot_count(data: Buffer) -> int:
    """How many slots a file has. Raises FormatError: the first one points to no place after slots."""
    begin, _ = _SLOT.unpack_from(data, HEADER_SIZE)
    count, rest = divmod(begin - HEADER_SIZE, SLOT_SIZE)
    if rest or count < 1 or begin > len(data):
        raise FormatError(f"the first slot points to {begin}, which is not after slots", offset=HEADER_SIZE)
    return int(count)


def decode_slot(data: Buffer, slot: int) -> tuple[int, int]:
    """Where a slot's entries begin in the file, and how many bytes they take."""
    begin, length = _SLOT.unpack_from(data, HEADER_SIZE + slot * SLOT_SIZE)
    return begin, length


def decode_item(data: Buffer, at: int) -> TieredIndexItem:
    """The entry at a position that has room for one."""
    return TieredIndexItem(*_ITEM.unpack_from(data, at))
