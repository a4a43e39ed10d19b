"""The bytes of a seal's file.

| at | bytes | what |
|---|---|---|
| 0 | 4 | `RSTS` |
| 4 | 1 | version: 1 |
| 5 | 3 | zeros |
| 8 | 8 | physical offset of the segment |
| 16 | 8 | its size, bytes |
| 24 | 8 | its file's modification time when it was sealed, ns since 1970 (signed) |
| 32 | 8 | when it was sealed, ms since 1970 |
| 40 | 8 | sound records |
| 48 | 4 | length of the notes, bytes |
| 52 | 4 | zeros |
| 56 | 32 | root: the BLAKE3 of the fields at 8 and 16, then of all pieces' hashes |
| 88 | … | the notes: JSON |
| … | 32 each | BLAKE3 of each piece of 4 MiB |
| … | 8 each | XXH64 (seed 0) of each page of 4 KiB; the last one with zeros after the segment's end |
| … | 32 | BLAKE2b-256 of all before |

Numbers are big-endian. All hashes but the last are of the segment; the last tells whether the seal itself is
damaged, and needs no package.
"""

from __future__ import annotations

import struct

from engine.dataclass import dataclass
from engine.errors import FormatError

PAGE_SIZE = 4096
"""Bytes of a segment that one XXH64 covers."""
PIECE_SIZE = 4 << 20
"""Bytes of a segment that one BLAKE3 covers: a backup's pieces are as long."""
HASH_SIZE = 32
PAGE_HASH_SIZE = 8
MAGIC = b"RSTS"
VERSION = 1
LARGEST_NOTES = 4 << 20
LARGEST_SEGMENT = 1 << 40
"""Bytes: what a damaged header claims beyond is not believed."""
_HEAD = struct.Struct(">4sB3xQQqQQI4x32s")
HEAD_SIZE = _HEAD.size
_IDENTITY = struct.Struct(">QQ")


class SealDamaged(FormatError):
    """A seal whose file is damaged or torn, or another one's: it proves nothing."""


@dataclass(frozen=True, slots=True)
class SealHead:
    """A seal's header: see the module."""

    offset: int
    size: int
    mtime_ns: int
    sealed_ms: int
    records: int
    notes_size: int
    root: bytes

    @property
    def pieces(self) -> int:
        """How many pieces the segment has."""
        return -(-self.size // PIECE_SIZE)

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return -(-self.size // PAGE_SIZE)

    @property
    def file_size(self) -> int:
        """Bytes of the seal's file."""
        return HEAD_SIZE + self.notes_size + self.pieces * HASH_SIZE + self.pages * PAGE_HASH_SIZE + HASH_SIZE

    def encode(self) -> bytes:
        """The header's bytes."""
        return _HEAD.pack(
            MAGIC, VERSION, self.offset, self.size, self.mtime_ns, self.sealed_ms, self.records, self.notes_size,
            self.root,
        )  # fmt: skip


def identity(offset: int, size: int) -> bytes:
    """What the root covers beside the pieces: which segment it is of."""
    return _IDENTITY.pack(offset, size)


def decode_head(data: bytes, where: str) -> SealHead:
    """The header of a seal's file.

    Raises:
        SealDamaged: it is none, or none that can be right. FormatError: of a later version.
    """
    if len(data) < HEAD_SIZE:
        raise SealDamaged(f"the seal has {len(data)} bytes, fewer than its header", path=where)
    magic, version, *fields = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise SealDamaged("not a seal", path=where, offset=0)
    if version != VERSION:
        raise FormatError(f"seal version {version}: a newer rstore reads it", path=where, offset=len(MAGIC))
    head = SealHead(*fields)
    if not 0 < head.size <= LARGEST_SEGMENT or head.notes_size > LARGEST_NOTES:
        raise SealDamaged("the seal's header is damaged", path=where)
    return head
