"""What of a file was written: holes are not read, and pieces of zeros are compared at once, not byte by byte.

A broker makes the next segment ahead of time, and index and queue files at their full length: a store is full of
files that are a gigabyte long and hold a few pages. Everything that walks whole files (salvage, copies, digests,
comparisons) comes by here. Where the file system can't tell holes, all is read and compared (some 50 ms a GiB).

A comparison of a memoryview is one of items, forty times as slow as one of bytes: hence the copies of pieces here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.raw_file import Bytes, RawFile

UNIT = 1 << 16
"""Bytes that are zeros or not as a whole, aligned in the file: what is compared, and digests go by."""
BLOCK = 1 << 12
"""Bytes that a file system gives a file at least: a copy leaves a hole for each such block of zeros."""
PIECE = 1 << 20
"""Bytes of one read."""
_ZEROS = bytes(PIECE)


def is_zeros(data: Bytes) -> bool:
    """Whether all bytes are zeros; so they are where there is none."""
    size = len(data)
    if size > PIECE:
        with memoryview(data) as whole:
            return all(is_zeros(whole[at : at + PIECE]) for at in range(0, size, PIECE))
    return not size or (not data[0] and bytes(data) == (_ZEROS if size == PIECE else bytes(size)))


def data_ranges(reader: RawFile, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges [low, high) of [start, end) that are no holes. Raises StorageError."""
    low = reader.next_data(start, end)
    while low is not None:
        high = reader.next_hole(low, end)
        yield low, high
        low = reader.next_data(high, end)


def written(reader: RawFile, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
    """(place, bytes) of each aligned unit of [start, end) that is not all zeros: the same ones with holes and without.

    Ends early where the file does. Raises StorageError.
    """
    done = start
    for data, hole in data_ranges(reader, start, end):
        low = max(done, data - data % UNIT)
        stop = min(end, -(-hole // UNIT) * UNIT)
        for at in range(low - low % UNIT, stop, PIECE):
            place = max(at, low)
            piece = reader.read(place, min(at + PIECE, stop) - place)
            if not is_zeros(piece):
                yield from _units(place, piece)
        done = max(done, stop)


def _units(place: int, piece: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(piece):
        size = UNIT - (place + at) % UNIT
        unit = piece[at : at + size]
        if not is_zeros(unit):
            yield place + at, unit
        at += size


def blocks(reader: RawFile, start: int, end: int, *, shift: int = 0) -> Iterator[tuple[int, memoryview]]:
    """(place, bytes) of blocks in a row, of [start, end), that are no holes and not all zeros; of PIECE bytes at most.

    `shift`: blocks are aligned at place + shift, where a copy has them (not below 0). Written there, they take no more
    blocks than the file has in use where `shift` is a multiple of BLOCK. Ends early where the file does. Raises
    StorageError.
    """
    for low, high in data_ranges(reader, start, end):
        for at in range(low - (low + shift) % PIECE, high, PIECE):
            place = max(at, low)
            piece = reader.read(place, min(at + PIECE, high) - place)
            if not is_zeros(piece):
                for first, stop in _not_zeros(piece, -(place + shift) % BLOCK):
                    yield place + first, piece[first:stop]


def _not_zeros(piece: memoryview, lead: int) -> Iterator[tuple[int, int]]:
    """Ranges of a piece without its blocks of zeros. `lead`: bytes before its first whole block."""
    starts = ([0] if lead else []) + [lead + BLOCK * block for block in _maybe_zeros(piece, lead)]
    done = 0
    for at in starts:
        stop = min(lead if at < lead else at + BLOCK, len(piece))
        if is_zeros(piece[at:stop]):
            if at > done:
                yield done, at
            done = stop
    if len(piece) > done:
        yield done, len(piece)


def _maybe_zeros(piece: memoryview, lead: int) -> Iterator[int]:
    """Numbers of the blocks whose first bytes are zero: in a dense file few are looked at as a whole."""
    heads = bytes(piece[lead::BLOCK])
    block = heads.find(0)
    while block >= 0:
        yield block
        block = heads.find(0, block + 1)


def blocks_taken(ranges: Iterable[tuple[int, int]]) -> int:
    """Bytes of the aligned blocks that ranges [low, high), in ascending order, touch."""
    taken = done = 0
    for low, high in ranges:
        first, stop = max(done, low // BLOCK), -(-high // BLOCK)
        taken += max(0, stop - first)
        done = max(done, stop)
    return taken * BLOCK


def is_written(reader: RawFile, start: int, end: int) -> bool:
    """Whether anything but zeros lies in [start, end). Raises StorageError."""
    return any(True for _ in written(reader, start, end))


def written_end(reader: RawFile, start: int, end: int) -> int:
    """The place after the last byte of [start, end) that is not zero; `start` without one. Raises StorageError."""
    for low, high in reversed(list(data_ranges(reader, start, end))):
        for stop in range(high, low, -PIECE):
            place = max(low, stop - PIECE)
            piece = reader.read(place, stop - place)
            if not is_zeros(piece):
                return place + len(bytes(piece).rstrip(b"\0"))
    return start


def is_zero(disk: Disk, path: str) -> bool:
    """Whether a file holds nothing but zeros; holes are not read. Raises StorageError."""
    reader = disk.open_reader(path)
    try:
        return not is_written(reader, 0, reader.size())
    finally:
        reader.close()
