"""A seal: what a segment of the log held when it was complete, as hashes of its pieces and pages, and who says so.

Theory. Nothing is written into a segment that the log has left behind: every change of it is damage, or a repair. The
CRC of a record covers its body alone; the seal covers each byte. Two levels: a piece of 4 MiB by BLAKE3, which is
proof of its content; a page of 4 KiB by XXH64, eight bytes that locate a change, and that find any accidental one
(one in 2^64 escapes), five times as fast. Who restores a page proves it by its piece.

A seal is no proof against who can write into the store: he can write the seal, too.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NotInstalled
from engine.seals.layout import (
    HASH_SIZE,
    HEAD_SIZE,
    PAGE_HASH_SIZE,
    PAGE_SIZE,
    PIECE_SIZE,
    SealDamaged,
    SealHead,
    decode_head,
    identity,
)
from engine.seals.page_hash import hash_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.raw_file import Bytes
    from engine.seals.page_hash import Hashes, PageHasher

_BAD_JSON = (ValueError, TypeError, LookupError, RecursionError)
PageRange = tuple[int, int]
"""A range of a segment: position of its first byte, bytes; whole pages, but for the last one of the segment."""


@dataclass(frozen=True, slots=True)
class SealedDamage:
    """What was not sound when the segment was sealed: physical offset, bytes, why.

    `is_suspect`: it could be read as a record, but its header, topic or properties could not be right.
    """

    offset: int
    length: int
    reason: str
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Seal:
    """See the module.

    Attributes:
        offset: physical offset of the segment.
        size: bytes of it.
        mtime_ns: its file's modification time then: rot changes no time, a program that writes does.
        sealed_ms: when, ms since 1970.
        records: sound records in it.
        by: who sealed it, as user@host.
        damage: what was not sound then.
        root: BLAKE3 over which segment it is and its pieces' hashes: equal where the content is.
        pieces: BLAKE3 of each piece, one after another.
        pages: XXH64 of each page (uint64[pages]).
    """

    offset: int
    size: int
    mtime_ns: int
    sealed_ms: int
    records: int
    by: str
    damage: tuple[SealedDamage, ...]
    root: bytes
    pieces: bytes
    pages: Hashes

    @property
    def end(self) -> int:
        """Physical offset after the segment."""
        return self.offset + self.size

    @property
    def piece_count(self) -> int:
        """How many pieces the segment has."""
        return len(self.pieces) // HASH_SIZE

    def piece_range(self, number: int) -> PageRange:
        """Position of a piece in the segment, and its bytes. Raises InvalidArgument: there is no such piece."""
        if not 0 <= number < self.piece_count:
            raise InvalidArgument(f"the seal has no piece {number}", offset=self.offset)
        start = number * PIECE_SIZE
        return start, min(PIECE_SIZE, self.size - start)

    def proves(self, number: int, data: Bytes) -> bool:
        """Whether `data` is what the piece held when it was sealed. Raises InvalidArgument, NotInstalled."""
        _, length = self.piece_range(number)
        return len(data) == length and hash_of(data) == self.pieces[number * HASH_SIZE : (number + 1) * HASH_SIZE]

    def changed_pages(self, number: int, data: Bytes, hasher: PageHasher = hash_pages) -> tuple[PageRange, ...]:
        """Ranges of a piece (positions in the segment) where `data`, which was read from its start on, differs.

        Where `data` ends early, the rest differs. Pages in a row are one range. Raises InvalidArgument.
        """
        start, length = self.piece_range(number)
        first = start // PAGE_SIZE
        pages = self.pages[first : first - (-length // PAGE_SIZE)]
        differs = np.ones(len(pages), dtype=bool)
        have = hasher(data[:length])
        differs[: len(have)] = have != pages[: len(have)]
        if len(data) < length:
            differs[len(data) // PAGE_SIZE :] = True
        if not differs.any():
            return ()
        edges = np.flatnonzero(np.diff(np.concatenate(([False], differs, [False])))).reshape(-1, 2) * PAGE_SIZE
        return tuple((start + low, min(high, length) - low) for low, high in edges.tolist())

    def proves_pages(self, position: int, data: Bytes) -> bool:
        """Whether pages from a position in the segment on are as they were sealed, by their XXH64.

        `position` is a page's first byte; `data` ends with a page, or with the segment. Raises InvalidArgument.
        """
        end = position + len(data)
        if position % PAGE_SIZE or not 0 <= position < end <= self.size or (end % PAGE_SIZE and end != self.size):
            raise InvalidArgument(f"no whole pages of the segment: {position} to {end}", offset=self.offset)
        first = position // PAGE_SIZE
        have = hash_pages(data)
        return bool(np.array_equal(have, self.pages[first : first + len(have)]))

    def encode(self) -> bytes:
        """The bytes of its file."""
        notes = json.dumps(
            {"by": self.by, "damage": [[one.offset, one.length, one.reason, one.is_suspect] for one in self.damage]}
        ).encode()
        head = SealHead(self.offset, self.size, self.mtime_ns, self.sealed_ms, self.records, len(notes), self.root)
        data = head.encode() + notes + self.pieces + self.pages.astype(">u8").tobytes()
        return data + _checksum(data)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Seal:
        """The seal in a file. Raises SealDamaged; FormatError: of a later version."""
        head = decode_head(data, where)
        if len(data) != head.file_size:
            raise SealDamaged(f"the seal has {len(data)} bytes instead of {head.file_size}", path=where)
        if _checksum(memoryview(data)[:-HASH_SIZE]) != data[-HASH_SIZE:]:
            raise SealDamaged("the seal is damaged: its checksum does not fit", path=where)
        pieces_at = HEAD_SIZE + head.notes_size
        pages_at = pieces_at + head.pieces * HASH_SIZE
        try:
            notes: dict[str, Any] = json.loads(data[HEAD_SIZE:pieces_at])
            damage = tuple(SealedDamage(int(a), int(b), str(c), bool(d)) for a, b, c, d in notes["damage"])
            by = str(notes["by"])
        except _BAD_JSON:
            raise SealDamaged("the seal's notes are damaged", path=where, offset=HEAD_SIZE) from None
        pages = np.frombuffer(data, dtype=">u8", count=head.pages, offset=pages_at).astype(np.uint64)
        return cls(
            head.offset, head.size, head.mtime_ns, head.sealed_ms, head.records, by, damage, head.root,
            data[pieces_at:pages_at], pages,
        )  # fmt: skip


def hash_of(data: Bytes) -> bytes:
    """The BLAKE3 of a piece. Raises NotInstalled."""
    try:
        from blake3 import blake3
    except ImportError:
        raise NotInstalled("seals need the package blake3", hint="pip install 'rstore[backup]'") from None
    return bytes(blake3(data).digest())


def root_of(offset: int, size: int, pieces: Sequence[bytes]) -> bytes:
    """The root over a segment's pieces. Raises NotInstalled."""
    return hash_of(identity(offset, size) + b"".join(pieces))


def _checksum(data: Bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=HASH_SIZE).digest()


def seal_size(size: int) -> int:
    """Bytes of the seal of a segment of `size` bytes, without its notes."""
    return HEAD_SIZE - (-size // PIECE_SIZE) * HASH_SIZE - (-size // PAGE_SIZE) * PAGE_HASH_SIZE + HASH_SIZE
