"""What natives have in common: whether a record at an address is plain, bytes that are alike, objects that are whole.

A plain record has IPv4 hosts and a topic of one byte's length, and its lengths take all of its bytes; the rule is that
of `engine.format.message` (`_plain_end`). Nothing here checks that the bytes are there; the natives do.
"""

from __future__ import annotations

from typing import Any

from engine.format import sysflag
from engine.format.names import TOPIC_MAX_LENGTH
from engine.format.record import (
    LENGTHS_SIZE,
    MESSAGE_MAGIC,
    MIN_RECORD_SIZE,
    POSITION_BODY_LENGTH,
    POSITION_MAGIC,
    POSITION_SYS_FLAG,
    POSITION_TOTAL_SIZE,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_MAX_LENGTH,
    V4_HEAD_SIZE,
)
from engine.log.kernels.jit import inlined
from engine.log.kernels.python_api import byte_at, decrease, increase, int_at, short_at, tuple_item, unsigned_at

_V6_HOSTS = sysflag.HOSTS_V6_MASK


@inlined
def parts(record: Any, size: Any) -> Any:
    """Of the plain record that takes `size` bytes: where its properties begin in it, bytes of its body and its topic.

    −1 for the first: it is no plain one. Each length is read once: another process may write there.
    """
    if (
        size < MIN_RECORD_SIZE
        or int_at(record + POSITION_TOTAL_SIZE) != size
        or unsigned_at(record + POSITION_MAGIC) != MESSAGE_MAGIC
        or int_at(record + POSITION_SYS_FLAG) & _V6_HOSTS
    ):
        return -1, 0, 0
    body_length = int_at(record + POSITION_BODY_LENGTH)
    if body_length < 0 or body_length > size - MIN_RECORD_SIZE:
        return -1, 0, 0
    topic_length = byte_at(record + V4_HEAD_SIZE + body_length)
    begin = V4_HEAD_SIZE + body_length + LENGTHS_SIZE + topic_length
    if begin > size or topic_length > TOPIC_MAX_LENGTH:
        return -1, 0, 0
    length = short_at(record + begin - PROPERTIES_LENGTH_SIZE)
    sound = length == size - begin and length <= PROPERTIES_MAX_LENGTH
    return begin if sound else -1, body_length, topic_length


@inlined
def same(one: Any, one_size: Any, other: Any, other_size: Any) -> Any:
    """Whether the bytes from two addresses on are equal, as many as there are."""
    alike = one_size == other_size
    at = 0
    while alike and at < one_size:
        alike = byte_at(one + at) == byte_at(other + at)
        at += 1
    return alike


@inlined
def given(thing: Any) -> Any:
    """An object that the native was lent, to be given as its answer."""
    increase(thing)
    return thing


@inlined
def whole(made: Any, fields: Any) -> Any:
    """A tuple that was made, if there was memory for each of its fields; else 0, and it is given up."""
    there = True
    for field in range(fields):
        there = there and tuple_item(made, field) != 0
    if there:
        return made
    decrease(made)
    return 0
