"""When each timer message is due: 16 bytes a message, whatever waits, and no step that takes long.

Theory: what is far away lies in groups of a second each, unordered; a group is opened when its second is near, some
entries at a time, into a heap that is ordered to the millisecond. An entry is its time and its queue offset: the
message is read when it is due. Where the first that waits lies is known from a bit each, in blocks.
"""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING

from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECOND_MS = 1000
AHEAD_MS = 1000
"""How long before its time a second is opened."""
HEAP_MOST = 20_000
"""Entries that are ordered at a time."""
_STEP = 512
_BLOCK = 1024
_OFFSET_BITS = 64


class TimerSchedule:
    """See the module. A second has the times (n × 1000, n × 1000 + 1000], as a slot of RocketMQ 5's wheel."""

    def __init__(self) -> None:
        self._far: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        self._near: list[int] = []
        self._blocks: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self.count = 0

    def add(self, due_ms: int, offset: int) -> None:
        """A message that waits. `offset`: its queue offset."""
        self.add_many(((due_ms, offset),))

    def add_many(self, entries: Sequence[tuple[int, int]]) -> None:
        """As `add` of each (time, queue offset)."""
        far, blocks = self._far, self._blocks
        for due_ms, offset in entries:
            second = (due_ms - 1) // SECOND_MS
            some = far.get(second)
            if some is None:
                some = far[second] = array("q")
                heapq.heappush(self._seconds, second)
            some.append(due_ms)
            some.append(offset)
            block = offset // _BLOCK
            blocks[block] = blocks.get(block, 0) | 1 << offset % _BLOCK
        self.count += len(entries)

    def in_slot(self, out_ms: int) -> int:
        """How many wait for the second after `out_ms`, and aren't near yet."""
        entries = self._far.get(out_ms // SECOND_MS)
        return 0 if entries is None else len(entries) // 2

    def open(self, now_ms: int) -> bool:
        """Order some of what is near; whether there may be more to order."""
        if not self._seconds or len(self._near) >= HEAP_MOST:
            return False
        second = self._seconds[0]
        if second * SECOND_MS > now_ms + AHEAD_MS:
            return False
        entries = self._far[second]
        some = entries[-2 * _STEP :]
        del entries[-2 * _STEP :]
        for due_ms, offset in _pairs(some):
            heapq.heappush(self._near, due_ms << _OFFSET_BITS | offset)
        if not entries:
            del self._far[second]
            heapq.heappop(self._seconds)
        return True

    def take(self, now_ms: int) -> tuple[int, int] | None:
        """The next that is due: time and queue offset; under way until `done` or `again`. None: none is due."""
        if not self._near or self._near[0] >> _OFFSET_BITS > now_ms:
            return None
        entry = heapq.heappop(self._near)
        due_ms, offset = entry >> _OFFSET_BITS, entry & (1 << _OFFSET_BITS) - 1
        self._taken[offset] = due_ms
        return due_ms, offset

    def done(self, offset: int) -> None:
        """A message that was under way is delivered, or needs to be no more."""
        del self._taken[offset]
        block, bit = divmod(offset, _BLOCK)
        left = self._blocks[block] & ~(1 << bit)
        if left:
            self._blocks[block] = left
        else:
            del self._blocks[block]
        self.count -= 1

    def again(self, offset: int) -> None:
        """It could not be delivered: it is due once more."""
        heapq.heappush(self._near, self._taken.pop(offset) << _OFFSET_BITS | offset)

    @property
    def under_way(self) -> int:
        """How many are being delivered."""
        return len(self._taken)

    @property
    def first_due(self) -> int:
        """No message that waits, or is under way, is due before it (ms); LONG_MAX: none waits."""
        first = min(self._taken.values(), default=LONG_MAX)
        if self._near:
            first = min(first, self._near[0] >> _OFFSET_BITS)
        return min(first, self._seconds[0] * SECOND_MS + 1) if self._seconds else first

    def first_offset(self, end: int) -> int:
        """The lowest queue offset of a message that waits; `end` where none does."""
        if not self._blocks:
            return end
        block = min(self._blocks)
        bits = self._blocks[block]
        return block * _BLOCK + (bits & -bits).bit_length() - 1


def _pairs(entries: array[int]) -> Iterator[tuple[int, int]]:
    every = iter(entries)
    return zip(every, every, strict=True)
