"""The units of queues that have none on disk as a kernel: grouped by queue, in their final bytes.

It takes a queue's units as long as their queue offsets follow one another; what `Settler` would find out about those by
asking is known then. A queue whose offsets don't is left to `Settler`, from its first unit on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.queue_unit import POSITION_SIZE, POSITION_TAGS_CODE, UNIT_SIZE
from engine.format.record import MIN_RECORD_SIZE
from engine.log.kernels.intrinsics import put32, put64
from engine.log.kernels.jit import compiled

NEW, FOLLOWING, LEFT, BROKEN = 0, 1, 2, 3
"""States of a queue: no unit yet; all of its units follow one another; left to `Settler`; to be left to it now."""
_LEAST = MIN_RECORD_SIZE
_UNIT = UNIT_SIZE


@compiled
def group_units(  # noqa: PLR0912, PLR0915 - one pass after the other on purpose
    queue: Any, queue_offset: Any, physical_offset: Any, size: Any, tags_code: Any,
    state: Any, following: Any, first_place: Any, end_place: Any,
    out: Any, left: Any, groups: Any,
) -> tuple[int, int]:  # fmt: skip
    """Put the units of queues in the states NEW and FOLLOWING into `out`, those of a queue together.

    Args:
        queue: int32[n]; queue_offset, physical_offset, tags_code int64[n], size int32[n]: units in log order.
        state: uint8[q], by queue; `following` int64[q], the queue offset that comes next; `first_place`, `end_place`
            int64[q], where (physical) the first unit's record begins and the last one's ends.
        out: uint8[20 n], consume queue units.
        left: bool[n], set for units that are not in `out`.
        groups: int64[n, 3]: queue, first queue offset, units; in the order of `out`.

    Returns:
        units in `out`, groups.
    """
    counts = np.zeros(len(state), dtype=np.int64)
    many = 0
    broken = False
    for i in range(len(queue)):
        q = queue[i]
        if state[q] == NEW:
            at = queue_offset[i]
            if at < 0 or at > physical_offset[i] // _LEAST:
                state[q] = LEFT
            else:
                state[q] = FOLLOWING
                following[q] = at
                first_place[q] = physical_offset[i]
        if state[q] != FOLLOWING:
            left[i] = True
            continue
        if queue_offset[i] != following[q]:
            state[q] = BROKEN
            broken = True
            left[i] = True
            continue
        if counts[q] == 0:
            groups[many, 0] = q
            groups[many, 1] = following[q]
            many += 1
        following[q] += 1
        counts[q] += 1
        end_place[q] = physical_offset[i] + size[i]
    if broken:
        kept = 0
        for group in range(many):
            q = groups[group, 0]
            if state[q] == BROKEN:
                counts[q] = 0
            else:
                groups[kept, 0] = q
                groups[kept, 1] = groups[group, 1]
                kept += 1
        many = kept
    at = 0
    places = np.zeros(len(state), dtype=np.int64)
    for group in range(many):
        q = groups[group, 0]
        groups[group, 2] = counts[q]
        places[q] = at
        at += counts[q]
    for i in range(len(queue)):
        q = queue[i]
        if left[i]:
            continue
        if broken and state[q] == BROKEN:
            left[i] = True
            continue
        place = places[q] * _UNIT
        put64(out, place, physical_offset[i])
        put32(out, place + POSITION_SIZE, size[i])
        put64(out, place + POSITION_TAGS_CODE, tags_code[i])
        places[q] += 1
    return at, many
