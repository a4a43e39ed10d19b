"""The walk of engine.log.kernels.walk without its rows: the same records, only counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format import sysflag
from engine.format.hashing import CRC_MASK
from engine.format.record import POSITION_BODY_CRC, POSITION_PHYSICAL_OFFSET, V4_HEAD_SIZE
from engine.log.kernels.crc import crc32
from engine.log.kernels.entry_walk import entry_is_plain
from engine.log.kernels.intrinsics import LEAST_ALIKE, big32, big64
from engine.log.kernels.jit import compiled
from engine.log.kernels.judge import alike, head_is_plain, texts_are_plain
from engine.log.kernels.property_crc import ROW_FIELDS, judge_crcs
from engine.log.kernels.sound import begins, parts

_PREPARED = sysflag.TRANSACTION_PREPARED
_AT_ONCE = 32
"""Records whose property CRCs are judged at once."""
_KNOWN = 64
"""Texts that others are held against: one for each rest of their length."""


@compiled
def tally(  # noqa: PLR0912, PLR0915 - one loop on purpose
    data: Any, room: int, limit: int, base: int, head: int, demand: int, moved: Any, doubts: Any, faults: Any
) -> tuple[int, int, int, bool, int, int, int, int]:
    """Plain sound records from the start of `data` (uint8[n]) on, that begin before `limit`.

    Args:
        data: bytes of the log.
        room: position (may lie after the data's end) where the file ends.
        limit: position.
        base: physical offset of the data's first byte.
        head: bytes of the DLedger entry's header before each record; 0: there is none.
        demand: which property CRCs are judged (engine.format.property_crc.CrcDemand).
        moved: int64[any, 3], gets (physical offset, stored offset, size) of records that name another place.
        doubts: int64[any, 5], gets positions of records that may be in doubt: of record, body, topic, properties, end
            (engine.log.kernels.doubt.sift says which are).
        faults: int64[any, 4], gets records whose property CRC is wrong (engine.log.kernels.property_crc.judge_crcs).

    Returns:
        How many; how many of them are messages (sysflag.is_consumable); where they end; whether no plain sound record
        is there, though its bytes are; how many were moved, how many are doubtful, and how many ranges have a wrong
        property CRC: more than have room in `moved`, `doubts` and `faults` maybe; how many records have one.
    """
    size = len(data)
    start = 0
    count = 0
    messages = 0
    others = 0
    doubtful = 0
    is_odd = False
    waiting = 0
    have, wrong, run_end = 0, 0, -1
    rows = np.empty((_AT_ONCE, ROW_FIELDS), dtype=np.int64)
    known = np.zeros((_KNOWN, 2), dtype=np.int64)  # where plain texts lie, and their two lengths
    while start + head < limit:
        at = start + head
        if size - at < V4_HEAD_SIZE:
            break
        total = big32(data, at)
        if not begins(data, at, total, room) or (head and not entry_is_plain(data, start, total, base)):
            is_odd = True
            break
        if total > size - at:
            break
        end = at + total
        flags, body_at, body_length, topic_at, topic_length, properties_at, _ = parts(data, at, end)
        if body_at == 0:
            is_odd = True
            break
        body_end = body_at + body_length
        crc = crc32(data, body_at, body_end)
        if body_length and np.int64(crc) & CRC_MASK != big32(data, at + POSITION_BODY_CRC):
            is_odd = True
            break
        stored = big64(data, at + POSITION_PHYSICAL_OFFSET)
        if stored != base + at:
            if others < len(moved):
                for k, value in enumerate((base + at, stored, total)):
                    moved[others, k] = value
            others += 1
        plain = head_is_plain(data, at, flags, body_at, body_length)
        if plain:  # in here, and not in a function that gets `known`: its references would be counted, record by record
            length = end - topic_at
            lengths = length << 8 | topic_length
            one = length & (_KNOWN - 1)
            if known[one, 1] != lengths or not alike(data, known[one, 0], topic_at, length):
                plain = texts_are_plain(data, topic_at, properties_at, end)
                if plain and length >= LEAST_ALIKE:
                    known[one, 0] = topic_at
                    known[one, 1] = lengths
        if not plain:
            if doubtful < len(doubts):
                for k, place in enumerate((at, body_at, topic_at, properties_at, end)):
                    doubts[doubtful, k] = place
            doubtful += 1
        if demand:
            if waiting == _AT_ONCE:
                have, wrong, run_end = judge_crcs(data, rows, waiting, base, demand, faults, have, wrong, run_end)
                waiting = 0
            rows[waiting, 0] = at
            rows[waiting, 1] = end
            rows[waiting, 2] = end - properties_at
            rows[waiting, 3] = body_at
            rows[waiting, 4] = body_end
            rows[waiting, 5] = crc
            waiting += 1
        count += 1
        if not flags & _PREPARED:  # rolled back ones have it, too
            messages += 1
        start = end
    if waiting:
        have, wrong, _ = judge_crcs(data, rows, waiting, base, demand, faults, have, wrong, run_end)
    return count, messages, start, is_odd, others, doubtful, wrong, have
