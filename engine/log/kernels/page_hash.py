"""XXH64 (seed 0) of each page of a piece of the log, in one call: what seals locate a changed page by.

Theory: the XXH64 specification, for pages of one length that is a multiple of 32 bytes: four lanes of 8 bytes each, no
rest. Lanes are independent, so the processor multiplies for all four at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.log.kernels.intrinsics import little64
from engine.log.kernels.jit import compiled, inlined

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_WORD = 64


@inlined
def _turned(value: Any, by: Any) -> Any:
    """A uint64 rotated to the left."""
    return (value << np.uint64(by)) | (value >> np.uint64(_WORD - by))


@inlined
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _P2, 31) * _P1


@inlined
def _merged(total: Any, lane: Any) -> Any:
    return (total ^ _round(np.uint64(0), lane)) * _P1 + _P4


@compiled
def page_hashes(data: Any, size: int, out: Any) -> None:
    """XXH64 of each page of `data` (uint8[n]) into `out` (uint64[n // size]).

    `size`: bytes of a page, a multiple of 32; `data` holds whole pages.
    """
    for page in range(len(out)):
        at = page * size
        one, two, three, four = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        end = at + size
        while at < end:
            one = _round(one, little64(data, at))
            two = _round(two, little64(data, at + 8))
            three = _round(three, little64(data, at + 16))
            four = _round(four, little64(data, at + 24))
            at += 32
        total = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
        total = _merged(_merged(_merged(_merged(total, one), two), three), four)
        total += np.uint64(size)
        total = (total ^ (total >> np.uint64(33))) * _P2
        total = (total ^ (total >> np.uint64(29))) * _P3
        out[page] = total ^ (total >> np.uint64(32))
