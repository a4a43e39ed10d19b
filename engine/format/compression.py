"""Bodies that a producer has compressed: sysFlag tells that they are, and since 4.9.3 by what (MessageSysFlag)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from engine.format import sysflag

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

INFLATED_MAX = 64 << 20
"""Bytes of a body that are made at most: a few bytes can claim to be many."""
_ZLIB = (0, sysflag.COMPRESSION_ZLIB)


def inflate(body: Buffer, sys_flag: int) -> bytes | None:
    """The body as the producer gave it.

    None when it isn't compressed with zlib (4.9.8 knows no other), is no zlib stream, or is larger than INFLATED_MAX.
    """
    if not sys_flag & sysflag.COMPRESSED or sys_flag & sysflag.COMPRESSION_TYPE_MASK not in _ZLIB:
        return None
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body, INFLATED_MAX)
    except zlib.error:
        return None
    return plain if unpacker.eof else None
