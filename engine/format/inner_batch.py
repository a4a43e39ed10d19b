"""A record that holds several messages: a batch as RocketMQ 5 stores it in a topic of queue type BatchCQ (FORMAT.md).

Its body is the client's batch; `INNER_NUM` says how many messages that are, `INNER_BASE` the queue offset of the first.
A broker hands out the whole record, and the client splits it: message i has the record's queue offset + i, its own
flag, properties and body, and all else of the record. Sources (5.3.3): SendMessageProcessor#sendBatchMessage,
CommitLog#setBatchSizeIfNeeded, PullAPIWrapper#processPullResult, MessageDecoder#decodeMessage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import batch, compression, sysflag
from engine.format.hashing import body_crc
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.format.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.format.message import StoredMessage

INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
MOST_INNER = 0x7FFF
"""Messages in a record: the field of a unit has 16 bits."""


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Which queue offsets a record's messages have: `base` and as many as `size` says."""

    base: int
    size: int


def is_inner_batch(record: StoredMessage) -> bool:
    """Whether a client splits this record. Source: PullAPIWrapper#processPullResult."""
    return bool(record.sys_flag & sysflag.INNER_BATCH and record.sys_flag & sysflag.NEED_UNWRAP)


def batch_place(record: StoredMessage) -> BatchPlace:
    """What the unit of a record says, by its properties; without them it is one message. Source: DispatchRequest.

    Raises:
        FormatError: `INNER_NUM` or `INNER_BASE` is not a number that a unit can hold.
    """
    try:
        return place_of(record.properties, record.queue_offset)
    except FormatError as error:
        raise FormatError(error.message, offset=record.physical_offset) from None


def place_of(named: Mapping[str, str], queue_offset: int) -> BatchPlace:
    """As `batch_place`, of a record with these properties and this queue offset. Raises FormatError."""
    if INNER_NUM not in named or INNER_BASE not in named:
        return BatchPlace(queue_offset, 1)
    base, size = _number(INNER_BASE, named[INNER_BASE]), _number(INNER_NUM, named[INNER_NUM])
    if not 0 < size <= MOST_INNER or base < 0:
        raise FormatError(f"{INNER_BASE} {base} and {INNER_NUM} {size} of the record are not the place of a batch")
    return BatchPlace(base, size)


def inner_messages(record: StoredMessage) -> list[StoredMessage]:
    """What a client gets of a record: its messages, each with its own queue offset; a plain record is its own.

    Where the record's body CRC does not match, none of theirs does.

    Raises:
        FormatError: the body is not the batch that `INNER_NUM` says, at the record's physical offset.
        NotInstalled: the body is compressed, and its type needs a package.
    """
    if not is_inner_batch(record):
        return [record]
    place = batch_place(record)
    body, sys_flag = record.body, record.sys_flag
    if sys_flag & sysflag.COMPRESSED:
        plain = compression.inflate(body, sys_flag)
        if plain is None:
            raise FormatError("the body of a batch can't be decompressed", offset=record.physical_offset)
        body, sys_flag = plain, sys_flag & ~(sysflag.COMPRESSED | sysflag.COMPRESSION_TYPE_MASK)
    wrong = not record.crc_ok
    messages: list[StoredMessage] = []
    try:
        for flag, body_at, body_length, own_at, own_length in batch.places(body):
            if len(messages) == place.size:
                raise FormatError(f"it holds more than {counted(place.size, 'message')}")
            own = body[body_at : body_at + body_length]
            messages.append(
                record._replace(
                    flag=flag,
                    sys_flag=sys_flag,
                    queue_offset=record.queue_offset + len(messages),
                    body=own,
                    body_crc=body_crc(own) ^ wrong,
                    properties_raw=body[own_at : own_at + own_length],
                )
            )
    except FormatError as error:
        raise FormatError(f"the record is no batch: {error.message}", offset=record.physical_offset) from error
    if len(messages) != place.size:
        raise FormatError(
            f"the record holds {counted(len(messages), 'message')}, {INNER_NUM} is {place.size}",
            offset=record.physical_offset,
        )
    return messages


def _number(name: str, text: str) -> int:
    try:
        return parse_int(text, LONG_MIN, LONG_MAX)
    except ValueError:
        raise FormatError(f"{name} of the record is {text[:20]!r}, no number") from None
