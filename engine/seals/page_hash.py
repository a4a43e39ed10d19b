"""XXH64 (seed 0) of pages: by a kernel where numba is installed and it pays, else by numpy, for all pages at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from engine.seals.layout import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from engine.files.raw_file import Bytes

    Hashes: TypeAlias = "NDArray[np.uint64]"
    PageHasher: TypeAlias = Callable[[Bytes], Hashes]

WORTH_KERNELS = 64 << 20
"""Bytes from which on kernels are worth their loading."""
_P1, _P2, _P3, _P4 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63)
)
_WORD, _LANES = 64, 4


def page_hasher(size: int) -> PageHasher:
    """What hashes pages fastest, where about `size` bytes are to be hashed. Thread-safe."""
    if size < WORTH_KERNELS:
        return hash_pages
    try:
        from engine.log.kernels.page_hash import page_hashes
    except ImportError:
        return hash_pages

    def by_kernel(data: Bytes) -> Hashes:
        pages = _whole(data)
        out = np.empty(len(pages) // PAGE_SIZE, dtype=np.uint64)
        page_hashes(pages, PAGE_SIZE, out)
        return out

    return by_kernel


def hash_pages(data: Bytes) -> Hashes:
    """The hash of each page of `data` (uint64[pages]); a page that ends early is hashed with zeros after its end."""
    pages = _whole(data)
    words = np.ascontiguousarray(pages.view("<u8").reshape(-1, PAGE_SIZE // 8).T)
    with np.errstate(over="ignore"):
        lanes = [np.full(words.shape[1], start, dtype=np.uint64) for start in (_P1 + _P2, _P2, 0, -_P1)]
        for row in range(0, len(words), _LANES):
            lanes = [_round(lane, words[row + number]) for number, lane in enumerate(lanes)]
        total = sum(
            (_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)),
            np.zeros(words.shape[1], dtype=np.uint64),
        )
        for lane in lanes:
            total = (total ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
        total = total + np.uint64(PAGE_SIZE)
        total = (total ^ (total >> np.uint64(33))) * _P2
        total = (total ^ (total >> np.uint64(29))) * _P3
        hashes: Hashes = total ^ (total >> np.uint64(32))
    return hashes


def _whole(data: Bytes) -> NDArray[np.uint8]:
    """The bytes (uint8[n]) up to the end of their last page."""
    rest = -len(data) % PAGE_SIZE
    return np.frombuffer(bytes(data) + bytes(rest) if rest else data, dtype=np.uint8)


def _turned(value: Hashes, by: int) -> Hashes:
    """Rotated to the left."""
    return (value << np.uint64(by)) | (value >> np.uint64(_WORD - by))


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _turned(lane + word * _P2, 31) * _P1
