"""The frame of RocksDB's manifest and write-ahead logs: whether such a file ends where a record ends.

Blocks of 32,768 bytes hold records `crc32c u32, length u16, type u8` (little-endian) and their data; types of records
that a log's number follows have eleven bytes before the data. A record that does not fit into its block goes on in the
next: first, middle, last. Fewer than seven bytes at the end of a block stay zeros. CRCs are for RocksDB to compare.

Source: db/log_format.h, log::Reader::ReadPhysicalRecord.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

BLOCK = 32_768
_HEADER: Final = struct.Struct("<IHB")
_NUMBER: Final = struct.Struct("<I")
_ZERO = 0
_BEGUN = (2, 3, 6, 7)
"""Types of what goes on in a later record: first and middle, without and with a log's number."""
_NUMBERED = (5, 6, 7, 8, 11, 131)


def torn_at(data: Buffer) -> int | None:
    """Where the record begins that is not whole at the end of `data` (bytes); None: it ends with a whole one."""
    at, begun = 0, None
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < _HEADER.size:
            at += left
            continue
        if len(data) - at < _HEADER.size:
            return at if begun is None else begun
        _, length, kind = _HEADER.unpack_from(data, at)
        if kind == _ZERO and not length:  # blocks that were reserved
            return begun
        end = at + _HEADER.size + (_NUMBER.size if kind in _NUMBERED else 0) + length
        if end > len(data):
            return at if begun is None else begun
        begun = (at if begun is None else begun) if kind in _BEGUN else None
        at = end
    return begun
