"""Where a consume queue finds its positions by searching: the message of a time, and its own end.

Units are in log order, and store times don't decrease in a log (as long as its broker's clock doesn't): both are
found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.format import queue_unit
from engine.format.queue_unit import UNIT_SIZE, QueueUnit

if TYPE_CHECKING:
    from engine.files.queue import MappedFileQueue

StoreTimeOf = Callable[[int, int], int]
"""Store time (ms) of the message at (physical offset, size in bytes), −1 when it is not there (any more).

Source: CommitLog#pickupStoreTimestamp.
"""


def bound(
    get: Callable[[int], QueueUnit | None],
    start: int,
    end: int,
    store_time_of: StoreTimeOf,
    reached: Callable[[int], bool],
) -> int:
    """First queue offset in [start, end) whose message's store time (ms) is `reached`; `end` when there is none.

    Messages that are gone, pre-blank units and units that are gone count as not reached.
    """

    def is_reached(offset: int) -> bool:
        unit = get(offset)
        if unit is None or unit.is_pre_blank:
            return False
        time = store_time_of(unit.physical_offset, unit.size)
        return time >= 0 and reached(time)

    return bisect_left(range(start, end), True, key=is_reached) + start


def offset_by_time(
    files: MappedFileQueue, min_offset: int, timestamp: int, store_time_of: StoreTimeOf, min_physical_offset: int
) -> int:
    """Apache's answer for `timestamp` (ms), to the letter: a message of that very time, else the nearest one.

    Looks only into one file: the first that was modified at that time or later, else the last. 0 when there is
    nothing to search, or a message that should be there is not. Source: ConsumeQueue#getOffsetInQueueByTime.
    """
    file = files.find_by_time(timestamp)
    selected = file.select(0) if file is not None else None
    if selected is None:
        return 0
    with selected:
        base = selected.start_offset
        low = max(0, min_offset * UNIT_SIZE - base)
        high = selected.size - UNIT_SIZE
        position = left = right = -1
        left_time = right_time = -1
        while high >= low:
            middle = (low + high) // (2 * UNIT_SIZE) * UNIT_SIZE
            unit = queue_unit.decode(selected.view, middle)
            if unit.physical_offset < min_physical_offset:
                low, left = middle + UNIT_SIZE, middle
                continue
            time = store_time_of(unit.physical_offset, unit.size)
            if time < 0:
                return 0
            if time == timestamp:
                position = middle
                break
            if time > timestamp:
                high, right, right_time = middle - UNIT_SIZE, middle, time
            else:
                low, left, left_time = middle + UNIT_SIZE, middle, time
    if position < 0:
        if left_time == -1:
            position = right
        elif right_time == -1:
            position = left
        else:
            position = right if abs(timestamp - left_time) > abs(timestamp - right_time) else left
    # Java divides towards zero: −1 / 20 is 0.
    return max(0, base + position) // UNIT_SIZE


def look_for_units(files: MappedFileQueue) -> tuple[int, int, int]:
    """(min offset, end, max physical offset) of the queue in `files`, found from its bytes alone.

    The end is the first unit, from the third last file on, that is not valid (offset ≥ 0 and size > 0); the min
    offset the first unit of the first file that is not pre-blank. Source: ConsumeQueue#recover; RECOVERY.md, rule 17.
    """
    import numpy as np

    end, max_physical = 0, -1
    for file in files.files[-3:]:
        units = queue_unit.decode_many(file.view(0, file.file_size))
        bad = np.flatnonzero((units["physical_offset"] < 0) | (units["size"] <= 0))
        count = int(bad[0]) if len(bad) else len(units)
        end = file.file_from_offset // UNIT_SIZE + count
        if count:
            last = QueueUnit(*units[count - 1].tolist())
            max_physical = -1 if last.is_pre_blank else last.physical_offset + last.size
        if len(bad):
            break
    first = files.first()
    if first is None:
        return 0, 0, -1
    units = queue_unit.decode_many(first.view(0, first.file_size))
    real = np.flatnonzero(
        (units["size"] != queue_unit.PRE_BLANK_SIZE) | (units["physical_offset"] != 0) | (units["tags_code"] != 0)
    )
    start = first.file_from_offset // UNIT_SIZE
    return min(start + (int(real[0]) if len(real) else len(units)), end), end, max_physical
