"""The entries of an index file as a kernel: the chains of engine.log.index_chain without a sort.

Keys are linked some at a time. Those of one call find each other through a small table beside the file; slots are only
read then, and written by a second call, so that the caller can count the entries in between. Of a file that nobody
reads before it is whole, the slots are in memory meanwhile, and each names its newest key at once.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.format.index_file import (
    ENTRY_SIZE,
    NO_ENTRY,
    POSITION_OFFSET,
    POSITION_PREVIOUS,
    POSITION_TIME_DIFF,
    SLOT_SIZE,
)
from engine.format.numbers import INT_MAX
from engine.log.kernels.intrinsics import big32, put32, put64, soon_written
from engine.log.kernels.jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 1 << 15
_SIZE = ENTRY_SIZE
_SLOT = SLOT_SIZE
_NONE = NO_ENTRY
_TABLE = 1 << 16
_SHIFT = np.uint64(65 - _TABLE.bit_length())
_MIX = np.uint64(0x9E3779B97F4A7C15)
_AHEAD = 24
"""Keys whose slots are on their way from memory while one is linked."""
_MOST_SECONDS = np.int64(INT_MAX)
assert _TABLE >= 2 * _MOST


class Linker:
    """Links keys for one index file; keeps the table from call to call.

    Attributes:
        MOST: keys that are linked at once: their slots stay in the processor's caches until they are written.
    """

    MOST = _MOST
    __slots__ = ("_named", "_places", "_slots", "_used")

    def __init__(self) -> None:
        self._slots = np.full(_TABLE, -1, dtype=np.int32)
        self._named = np.empty(_TABLE, dtype=np.int32)
        self._places = np.empty(_MOST, dtype=np.int32)
        self._used = 0

    def link(
        self,
        memory: memoryview,
        columns: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]],
        first: int,
        begin_timestamp: int,
    ) -> tuple[NDArray[np.uint8], int]:
        """The entries of up to MOST keys.

        Args:
            memory: the file's slots.
            columns: hash (>= 0), physical offset, store time (ms) of the keys.
            first: number of the first entry.
            begin_timestamp: what time differences count from (ms).

        Returns:
            the entries' bytes, and how many slots were empty before.
        """
        key_hash, physical_offset, store_timestamp = (_as_compiled(column) for column in columns)
        out = np.empty(len(key_hash) * _SIZE, dtype=np.uint8)
        slots = np.frombuffer(memory, dtype=np.uint8)
        slots.flags.writeable = False
        self._used, fresh = _link(
            slots, key_hash, physical_offset, store_timestamp, first, begin_timestamp,
            self._slots, self._named, self._places, out,
        )  # fmt: skip
        return out, fresh

    def name(self, memory: memoryview) -> None:
        """Write the slots of the keys that were linked last."""
        _name(np.frombuffer(memory, dtype=np.uint8), self._slots, self._named, self._places, self._used)


class NewSlots:
    """The slots of a file without entries, in memory until all keys are linked.

    Args:
        count: how many slots.

    Raises:
        OSError: there is no memory for them.
    """

    __slots__ = ("_bytes",)

    def __init__(self, count: int) -> None:
        memory = mmap.mmap(-1, count * _SLOT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a system without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._bytes: NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)

    @property
    def memory(self) -> memoryview:
        """Their bytes, as they stand in the file."""
        return memoryview(self._bytes)  # type: ignore[arg-type]

    def link(
        self,
        columns: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]],
        first: int,
        begin_timestamp: int,
    ) -> tuple[NDArray[np.uint8], int]:
        """As `Linker.link`, of any number of keys: each is the newest of its slot then."""
        key_hash, physical_offset, store_timestamp = (_as_compiled(column) for column in columns)
        out = np.empty(len(key_hash) * _SIZE, dtype=np.uint8)
        return out, _link_new(self._bytes, key_hash, physical_offset, store_timestamp, first, begin_timestamp, out)


def _as_compiled(column: NDArray[Any]) -> NDArray[Any]:
    """Contiguous and read-only, whatever it is: of each other kind the code would be compiled again."""
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view


@compiled
def _link(
    slots: Any, key_hash: Any, physical_offset: Any, store_timestamp: Any, first: int, begin: int,
    table: Any, named: Any, places: Any, out: Any,
) -> tuple[int, int]:  # fmt: skip
    mask = len(table) - 1
    many = np.uint32(len(slots) // _SLOT)
    used = fresh = 0
    wanted = np.empty(len(key_hash), dtype=np.int32)
    before = np.empty(len(key_hash), dtype=np.int32)
    for i in range(len(key_hash)):  # alone, as the slots are far apart: the processor asks for many at once
        slot = np.int64(np.uint32(key_hash[i]) % many)
        wanted[i] = slot
        before[i] = big32(slots, slot * _SLOT)
    for i in range(len(key_hash)):
        number = first + i
        slot = wanted[i]
        place = np.int64((np.uint64(slot) * _MIX) >> _SHIFT)
        while table[place] >= 0 and table[place] != slot:
            place = (place + 1) & mask
        if table[place] < 0:
            table[place] = slot
            places[used] = place
            used += 1
            previous = np.int64(before[i])
            if previous <= _NONE or previous > number:
                previous = np.int64(_NONE)
                fresh += 1
        else:
            previous = np.int64(named[place])
        named[place] = number
        _put_entry(out, i * _SIZE, np.int64(key_hash[i]), physical_offset[i], store_timestamp[i], begin, previous)
    return used, fresh


@inlined
def _put_entry(out: Any, at: Any, key_hash: Any, offset: Any, stored: Any, begin: Any, previous: Any) -> None:
    seconds = np.int64(0)
    if begin > 0:
        seconds = min(max((stored - begin) // 1000, np.int64(0)), _MOST_SECONDS)
    put32(out, at, key_hash)
    put64(out, at + POSITION_OFFSET, offset)
    put32(out, at + POSITION_TIME_DIFF, seconds)
    put32(out, at + POSITION_PREVIOUS, previous)


@compiled
def _link_new(
    slots: Any, key_hash: Any, physical_offset: Any, store_timestamp: Any, first: int, begin: int, out: Any
) -> int:
    many = np.uint32(len(slots) // _SLOT)
    fresh = 0
    places = np.empty(len(key_hash) + _AHEAD, dtype=np.int64)
    places[len(key_hash) :] = 0
    for i in range(len(key_hash)):
        places[i] = np.int64(np.uint32(key_hash[i]) % many) * _SLOT
    for i in range(len(key_hash)):
        soon_written(slots, places[i + _AHEAD])  # slots are far apart
        slot = places[i]
        previous = np.int64(big32(slots, slot))
        put32(slots, slot, np.int64(first + i))
        fresh += previous == _NONE
        _put_entry(out, i * _SIZE, np.int64(key_hash[i]), physical_offset[i], store_timestamp[i], begin, previous)
    return fresh


@compiled
def _name(slots: Any, table: Any, named: Any, places: Any, used: int) -> None:
    for i in range(used):
        place = places[i]
        put32(slots, np.int64(table[place]) * _SLOT, np.int64(named[place]))
        table[place] = -1
