"""A get without a filter whose records all lie in the bytes of one file: judged together, without a step a unit.

It answers only where every unit that may be given can be given, so that the rules stand in one place,
engine.log.reading: units whose sizes are above 0, all of them in memory or all on disk (`ReadLimits.memory`), within
the limits of bytes. Anything else is left to it, all of it; tests hold the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from engine.format.queue_unit import UNIT, UNIT_SIZE, unpacker
from engine.log.natives import RUN

if TYPE_CHECKING:
    from engine.log.reading import ReadLimits
_MOST = 256
"""Units that are looked at together."""

WholeRun: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int, int, int]"
"""What a get gives: physical offset of each record, bytes of each; two physical offsets between which all of them lie;
physical offset of the last unit looked at: of the one after them, where there is one."""


def whole_run(units: memoryview, log_end: int, max_msgs: int, limits: ReadLimits) -> WholeRun | None:
    """The units that a get gives; None where they have to be looked at one by one.

    Args:
        units: whole units of the queue.
        log_end, max_msgs, limits: as in `engine.log.reading.get_message`.
    """
    native = RUN.after(1)
    if native is None:
        return plain_run(units, log_end, max_msgs, limits)
    answer: WholeRun | None = native(
        units,
        log_end - limits.memory,
        min(max(max_msgs, 1), _MOST),
        limits.count_in_memory,
        limits.bytes_in_memory,
        limits.count_in_disk,
        limits.bytes_in_disk,
        None,
    )
    return answer


def plain_run(units: memoryview, log_end: int, max_msgs: int, limits: ReadLimits) -> WholeRun | None:
    """As `whole_run`, without the native."""
    there = len(units) // UNIT_SIZE
    if not there:
        return None
    many = min(max(max_msgs, 1), limits.count_in_memory, there)
    from_here = log_end - limits.memory
    at_disk = UNIT.unpack_from(units)[0] < from_here
    if at_disk:
        many = min(max(max_msgs, 1), limits.count_in_disk, there)
    if not 1 <= many < _MOST:
        return None
    seen = many + (there > many)
    values = unpacker(seen)(units)
    physical, sizes = values[0::3], values[1::3]
    last = physical[-1]
    if seen > many:
        physical, sizes = physical[:many], sizes[:many]
    first, newest = min(physical), max(physical)
    if (newest >= from_here or last >= from_here) if at_disk else (first < from_here or last < from_here):
        return None
    if min(sizes) <= 0 or sum(sizes) > (limits.bytes_in_disk if at_disk else limits.bytes_in_memory):
        return None
    return physical, sizes, first, newest + max(sizes), last
