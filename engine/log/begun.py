"""A record that has come in part: on a slave, whose master sends its log in pieces of any length."""

from __future__ import annotations

from engine.format.record import BLANK_MAGIC, BLANK_SIZE, MAGIC_BYTES, MAGICS, SIZE_AND_MAGIC


def begins_a_record(data: memoryview, length: int) -> bool:
    """Whether `length` bytes, of which `data` is what lies in one file, are a record's beginning and nothing else.

    In doubt they are not: a damaged length could have whole records after it.
    """
    if len(data) < length:
        return False
    if length < BLANK_SIZE:
        return True
    size, magic = SIZE_AND_MAGIC.unpack_from(data)
    rest = bytes(data[BLANK_SIZE:])
    others = any(one in rest for one in MAGIC_BYTES)
    return magic in (*MAGICS, BLANK_MAGIC) and size > length and not others
