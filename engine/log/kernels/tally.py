"""The walk of engine.log.kernels.walk without its rows: the same records, only counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.format import sysflag
from engine.format.message import MESSAGE_MAGIC, MIN_RECORD_SIZE, V4_HEAD_SIZE
from engine.log.kernels.crc import crc32
from engine.log.kernels.jit import compiled
from engine.log.kernels.judge import alike, head_is_plain, texts_are_plain
from engine.log.kernels.loads import LEAST_ALIKE, big32, big64

_MAGIC = MESSAGE_MAGIC - (1 << 32)
_HEAD = V4_HEAD_SIZE
_LEAST = MIN_RECORD_SIZE
_PREPARED = sysflag.TRANSACTION_PREPARED
_BORN_V6 = sysflag.BORN_HOST_V6
_STORE_V6 = sysflag.STORE_HOST_V6
_KNOWN = 64
"""Texts that others are held against: one for each rest of their length."""


@compiled
def tally(  # noqa: PLR0912, PLR0915 - one loop on purpose
    data: Any, room: int, limit: int, base: int, moved: Any, doubts: Any
) -> tuple[int, int, int, bool, int, int]:
    """Plain sound records from the start of `data` (uint8[n]) on, that begin before `limit`.

    Args:
        data: bytes of the log.
        room: position (may lie behind the data's end) where the file ends.
        limit: position.
        base: physical offset of the data's first byte.
        moved: int64[any, 3], gets (physical offset, stored offset, size) of records that name another place.
        doubts: int64[any, 5], gets positions of records that may be in doubt: of record, body, topic, properties, end
            (engine.log.kernels.doubt.sift says which are).

    Returns:
        How many; how many of them are messages (sysflag.is_consumable); where they end; whether no plain sound record
        is there, though its bytes are; how many were moved, and how many are doubtful: more than have room in `moved`
        and `doubts` maybe.
    """
    size = len(data)
    at = 0
    count = 0
    messages = 0
    others = 0
    doubtful = 0
    known = np.zeros((_KNOWN, 2), dtype=np.int64)  # where plain texts lie, and their two lengths
    while at < limit:
        if size - at < _HEAD:
            return count, messages, at, False, others, doubtful
        total = big32(data, at)
        if big32(data, at + 4) != _MAGIC or total < _LEAST or total > room - at:
            return count, messages, at, True, others, doubtful
        if total > size - at:
            return count, messages, at, False, others, doubtful
        end = at + total
        flags = big32(data, at + 36)
        body_at = at + _HEAD
        if flags & (_BORN_V6 | _STORE_V6):
            if flags & _BORN_V6:
                body_at += 12
            if flags & _STORE_V6:
                body_at += 12
            if total < _LEAST + body_at - at - _HEAD:
                return count, messages, at, True, others, doubtful
        body_length = max(big32(data, body_at - 4), 0)
        topic_at = body_at + body_length + 1
        if topic_at + 2 > end:
            return count, messages, at, True, others, doubtful
        topic_length = np.int64(data[topic_at - 1])
        properties_at = topic_at + topic_length + 2
        if topic_length > 127 or properties_at > end:
            return count, messages, at, True, others, doubtful
        properties_length = np.int64(data[properties_at - 2]) << 8 | np.int64(data[properties_at - 1])
        if properties_length > 0x7FFF:
            properties_length = np.int64(0)
        if properties_at + properties_length != end:
            return count, messages, at, True, others, doubtful
        if body_length:
            found = np.int64(crc32(data, body_at, body_at + body_length)) & 0x7FFFFFFF
            if found != (big32(data, at + 8) & 0xFFFFFFFF):
                return count, messages, at, True, others, doubtful
        stored = big64(data, at + 28)
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
        count += 1
        if not flags & _PREPARED:  # rolled back ones have it, too
            messages += 1
        at = end
    return count, messages, at, False, others, doubtful
