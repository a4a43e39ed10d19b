"""A record that has come in part: on a slave, whose master sends its log in pieces of any length."""

from __future__ import annotations

import struct

from engine.format.message import BLANK_MAGIC, MAGICS

_HEAD = struct.Struct(">iI")


def begins_a_record(data: memoryview, length: int) -> bool:
    """Whether `length` bytes, of which `data` is what lies in one file, are a record's beginning and nothing else.

    In doubt they are not: a damaged length could have whole records behind it.
    """
    if len(data) < length:
        return False
    if length < _HEAD.size:
        return True
    size, magic = _HEAD.unpack_from(data)
    rest = bytes(data[_HEAD.size :])
    others = any(one.to_bytes(4, "big") in rest for one in MAGICS)
    return magic in (*MAGICS, BLANK_MAGIC) and size > length and not others
