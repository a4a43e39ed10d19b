"""engine.format.property_crc as a kernel: which records have a property CRC, and of which it is not the record's."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format.hashing import CRC_MASK
from engine.format.judge import Row
from engine.format.property_crc import DIGITS, FRONT, LAST, LEAST_ALIKE, SIZE, ZERO, CrcDemand, CrcState
from engine.log.kernels.crc import crc32, crc_inlined, moving, times_both
from engine.log.kernels.intrinsics import big64
from engine.log.kernels.jit import compiled, inlined

NONE, RIGHT, MISMATCH = (int(state) for state in CrcState)
OF_ALL = int(CrcDemand.OF_ALL)
ROW_FIELDS = 6
"""Columns of rows that `judge_crcs` takes."""
FAULT_FIELDS = 4
"""Columns of a table of faults: as engine.log.property_crcs.CrcFault."""
_AT, _SIZE, _BODY_AT, _BODY, _PROPERTIES = map(
    Row._fields.index, ("position", "size", "body_position", "body_length", "properties_length")
)
_FRONT = np.frombuffer(FRONT, dtype=np.uint8)
_FRONT_SIZE = len(FRONT)
_NAME_WORD = np.int64(int.from_bytes(FRONT[:-1], "big"))
_NAME_VALUE = np.uint8(FRONT[-1])
_LAST = np.uint8(LAST[0])
_ZERO = np.int64(ZERO)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_LOW = np.uint64(0x0F0F0F0F0F0F0F0F)
_SIX = np.uint64(0x0606060606060606)
_NIBBLE = np.uint64(4)
_DIGITS_HIGH = np.uint64(0x3333333333333333)
_LONG = 512
"""Bytes of a body from which on it is not read again: its CRC is known."""
assert (len(FRONT) - 1, DIGITS, len(LAST)) == (8, 10, 1)


@compiled
def _alike(data: Any, last_at: int) -> bool:
    """Whether what lies at `last_at` may be a damaged property CRC."""
    count = np.int64(data[last_at + SIZE - 1] == _LAST)
    for k in range(_FRONT_SIZE):
        count += data[last_at + k] == _FRONT[k]
    return bool(count >= LEAST_ALIKE)


@inlined
def _number(data: Any, at: int) -> Any:
    """int64: ten decimal digits, the lowest first; −1 where a byte is none. Eight are taken at once, two by two."""
    eight = np.uint64(big64(data, at))
    ninth, tenth = np.int64(data[at + 8]) - _ZERO, np.int64(data[at + 9]) - _ZERO
    nibbles = eight & _HIGH | (eight + _SIX & _HIGH) >> _NIBBLE
    if nibbles != _DIGITS_HIGH or ninth < 0 or ninth > 9 or tenth < 0 or tenth > 9:
        return np.int64(-1)
    pairs = ((eight & _LOW) * np.uint64(10 << 8 | 1) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100 << 16 | 1) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    low = np.int64(fours * np.uint64(10000 << 32 | 1) >> np.uint64(32))
    return low + ninth * 10**8 + tenth * 10**9


@compiled
def judge_crcs(  # noqa: PLR0912 - one loop on purpose
    data: Any, rows: Any, number: int, base: int, demand: int, faults: Any, have: int, count: int, run_end: int
) -> tuple[int, int, int]:
    """`engine.format.property_crc.state_of` of some records, all at once: a call for each costs as much as it does.

    Args:
        data: uint8[n].
        rows: int64[any, 6], of each record: its position, that after it, bytes of its properties, the body's position,
            that after it, its CRC-32.
        number: rows that count.
        base: physical offset of the data's first byte.
        demand: CrcDemand.
        faults: int64[any, 4], gets the faults; may be too small. Records without a property CRC that lie side by side
            are one range.
        have: records that have a property CRC, up to here.
        count: faults up to here.
        run_end: physical offset where the last range of records without a property CRC ends.

    Returns:
        The last three, after these records.
    """
    known = np.full((2, 2), -1, dtype=np.int64)  # bytes, and their factor
    for i in range(number):
        at, end, body_at, body_end = rows[i, 0], rows[i, 1], rows[i, 3], rows[i, 4]
        last_at = end - SIZE
        state = NONE
        if rows[i, 2] >= SIZE:
            if (
                big64(data, last_at) == _NAME_WORD
                and data[last_at + _FRONT_SIZE - 1] == _NAME_VALUE
                and data[end - 1] == _LAST
            ):
                if body_end - body_at >= _LONG:
                    lengths = last_at - body_end, last_at - body_at
                    for k in range(2):
                        if known[k, 0] != lengths[k]:
                            known[k, 0], known[k, 1] = lengths[k], moving(lengths[k])
                    body, head = np.uint32(rows[i, 5]), crc_inlined(data, at, body_at)
                    before = times_both(body, np.uint32(known[0, 1]), head, np.uint32(known[1, 1]))
                    whole = before ^ crc_inlined(data, body_end, last_at)
                else:
                    whole = crc32(data, at, last_at)
                state = RIGHT if _number(data, last_at + _FRONT_SIZE) == np.int64(whole) & CRC_MASK else MISMATCH
            elif _alike(data, last_at):
                state = MISMATCH
        have += state != NONE
        if state == RIGHT or (state == NONE and demand != OF_ALL):
            continue
        offset, missing = base + at, state == NONE
        if missing and run_end == offset:
            if count <= len(faults):
                faults[count - 1, 1] += end - at
                faults[count - 1, 2] += 1
        else:
            if count < len(faults):
                faults[count, 0] = offset
                faults[count, 1] = end - at
                faults[count, 2] = 1
                faults[count, 3] = missing
            count += 1
        run_end = base + end if missing else -1
    return have, count, run_end


@compiled
def seal_each(data: Any, starts: Any) -> None:
    """`engine.format.property_crc.seal` of records that follow one another: int64[n + 1], the last after all."""
    for i in range(len(starts) - 1):
        at = starts[i + 1] - SIZE
        crc = np.int64(crc32(data, starts[i], at)) & CRC_MASK
        data[at : at + _FRONT_SIZE] = _FRONT
        for k in range(DIGITS):
            data[at + _FRONT_SIZE + k] = np.uint8(_ZERO + crc % 10)
            crc //= 10
        data[starts[i + 1] - 1] = _LAST


@compiled
def crc_faults(data: Any, table: Any, base: int, demand: int, faults: Any) -> tuple[int, int]:
    """How many records of `table` (int64[n, 13], as engine.log.walk.Row) have one; how many faults there are."""
    rows = np.empty((len(table), ROW_FIELDS), dtype=np.int64)
    for i in range(len(table)):
        at, body_at = table[i, _AT], table[i, _BODY_AT]
        body_end = body_at + table[i, _BODY]
        rows[i, 0] = at
        rows[i, 1] = at + table[i, _SIZE]
        rows[i, 2] = table[i, _PROPERTIES]
        rows[i, 3] = body_at
        rows[i, 4] = body_end
        rows[i, 5] = np.int64(crc32(data, body_at, body_end)) if body_end - body_at >= _LONG else 0
    have, count, _ = judge_crcs(data, rows, len(rows), base, demand, faults, 0, 0, -1)
    return have, count
