"""The consume queue extension unit (consumequeue_ext): `size i16, tagsCode i64, msgStoreTime i64, bitMapSize i16,
bitMap`.

`size` counts the whole unit. A unit that doesn't fit leaves i16 −1 as end marker (4 bytes are kept free for it) and
starts the next file. Source: ConsumeQueueExt.CqExtUnit.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import LONG_MIN
from engine.format.queue_unit import EXT_ADDRESS_MAX, is_ext_address

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_HEAD = struct.Struct(">hqqh")
HEAD_SIZE = 20
assert _HEAD.size == HEAD_SIZE
_SIZE = struct.Struct(">h")
MAX_UNIT_SIZE = (1 << 15) - 1
END_MARK = _SIZE.pack(-1)
END_BLANK_LENGTH = 4
"""Bytes kept free after the last unit of a file for the end marker."""

MAX_REAL_OFFSET = EXT_ADDRESS_MAX - LONG_MIN


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """One extension unit: the tags' hash, the store time (ms) and the filter bit map of a message."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes = b""

    @property
    def size(self) -> int:
        """Bytes that the unit takes."""
        return HEAD_SIZE + len(self.bit_map)

    def encode(self) -> bytes:
        """The bytes of the unit.

        Raises:
            FormatError: the bit map makes it larger than 32767 bytes.
        """
        if self.size > MAX_UNIT_SIZE:
            raise FormatError(f"an extension unit has at most {MAX_UNIT_SIZE} bytes, this one has {self.size}")
        return _HEAD.pack(self.size, self.tags_code, self.store_timestamp, len(self.bit_map)) + self.bit_map


def unit_size(buffer: Buffer, position: int) -> int:
    """The size field at `position`: > 0 a unit, 0 nothing written yet, −1 the end marker.

    Raises:
        FormatError: fewer than 2 bytes are there.
    """
    if position < 0 or len(buffer) - position < _SIZE.size:
        raise FormatError("too few bytes for an extension unit", offset=position)
    size: int = _SIZE.unpack_from(buffer, position)[0]
    return size


def decode(buffer: Buffer, position: int = 0) -> ExtUnit:
    """The unit at `position`.

    Raises:
        FormatError: no unit is there, or its sizes don't agree.
    """
    size = unit_size(buffer, position)
    if size < HEAD_SIZE or position + size > len(buffer):
        raise FormatError(f"invalid extension unit size {size}", offset=position)
    _, tags, store_timestamp, bits = _HEAD.unpack_from(buffer, position)
    bits = max(bits, 0)
    if HEAD_SIZE + bits > size:
        raise FormatError(f"invalid bit map length {bits} in an extension unit of {size} bytes", offset=position)
    start = position + HEAD_SIZE
    return ExtUnit(tags, store_timestamp, bytes(buffer[start : start + bits]))


def to_address(offset: int) -> int:
    """The address that stands in a queue unit's tagsCode for the unit at `offset` (bytes). Source: #decorate."""
    return offset + LONG_MIN


def to_offset(address: int) -> int:
    """The offset (bytes) in the extension files that `address` stands for. Source: #unDecorate.

    Raises:
        FormatError: it is no address.
    """
    if not is_ext_address(address):
        raise FormatError(f"{address} is not the address of an extension unit")
    return address - LONG_MIN
