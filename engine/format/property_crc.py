"""The property CRC of RocketMQ 5 (enabledAppendPropCRC): a CRC of the whole record, as the last of its properties.

A broker fills in all of the record (queueOffset, physicalOffset and storeTimestamp last), computes CRC-32 of all bytes
but the last `SIZE`, clears the sign bit, and writes the property there: its name, ten decimal digits, the lowest first,
and a separator. Nothing is changed after that, so header, topic and properties are covered, too: every byte but the
property's own, which are compared. A change that alters the CRC's sign bit alone is not noticed: one of 2³² changes.

Apache looks at it with forceVerifyPropCRC=true only, and then at no body CRC: it takes the digits from the last
property of that name and computes over all but the last `SIZE` bytes; a record without the property is damage to it. By
default it verifies the body CRC alone.

Here the property lies where the broker writes it: in the last `SIZE` bytes, within the properties. A record has one if
most of the bytes that are the same in each are there, so that damage of the property itself is noticed, too. What a
client may have written under that name looks the same: who judges must know that the store's broker writes property
CRCs.

Source (5.3.3): CommitLog#CRC32_RESERVED_LEN, DefaultAppendMessageCallback#doAppend, MessageExtEncoder#encode,
MessageDecoder#createCrc32, CommitLog#checkMessageAndReturnSize.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from engine.format.hashing import body_crc
from engine.format.properties import NAME_VALUE, SEPARATOR

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

NAME: Final = "__CRC32#"
"""Source: MessageConst#PROPERTY_CRC32."""
DIGITS: Final = 10
FRONT: Final = (NAME + NAME_VALUE).encode()
"""What it begins with, the digits after it."""
LAST: Final = SEPARATOR.encode()
SIZE: Final = len(FRONT) + DIGITS + len(LAST)
"""Bytes of it, the record's last."""
LEAST_ALIKE: Final = 6
"""Bytes of `FRONT` and `LAST`, ten in all, that are there at least where a damaged one is taken for one."""
ZERO: Final = ord("0")
assert SIZE == 20


class CrcState(enum.IntEnum):
    """Whether a record has a property CRC, and whether it is the record's."""

    NONE = 0
    RIGHT = 1
    MISMATCH = 2


class CrcDemand(enum.IntEnum):
    """Which records of a store are judged: none, those that have one, or all (forceVerifyPropCRC=true)."""

    NOTHING = 0
    WHERE_THERE = 1
    OF_ALL = 2


def compute(record: Buffer) -> int:
    """The CRC of a record that ends with the property, or with `SIZE` bytes for it: without those."""
    return body_crc(memoryview(record)[:-SIZE])


def encode(crc: int) -> bytes:
    """The property with this CRC, 0 ≤ crc < 2³¹."""
    return FRONT + f"{crc:0{DIGITS}}"[::-1].encode() + LAST


def seal(record: bytearray | memoryview) -> None:
    """Write a record's property CRC into its last `SIZE` bytes, which are its properties' last."""
    record[-SIZE:] = encode(compute(record))


def state_of(record: Buffer, properties_length: int) -> CrcState:
    """Whether a record has one, and is as its broker wrote it.

    Args:
        record: all its bytes.
        properties_length: of its properties, whose end is the record's.
    """
    if properties_length < SIZE:
        return CrcState.NONE
    last = bytes(record[-SIZE:])
    if last == encode(compute(record)):
        return CrcState.RIGHT
    digitless = zip(last[: len(FRONT)] + last[-len(LAST) :], FRONT + LAST, strict=True)
    return CrcState.MISMATCH if sum(a == b for a, b in digitless) >= LEAST_ALIKE else CrcState.NONE


def is_sealed(record: Buffer) -> bool:
    """Whether a record ends with a property CRC that is its own."""
    return len(record) > SIZE and bytes(record[-SIZE:]) == encode(compute(record))
