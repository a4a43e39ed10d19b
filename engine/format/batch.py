"""The client's batch encoding: what the body of a batch send holds (FORMAT.md "Batch"; MessageDecoder#encodeMessage).

Per message: `totalSize i32, magic i32, bodyCRC i32, flag i32, bodyLength i32, body, propertiesLength i16, properties`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.format import properties
from engine.format.record import PROPERTIES_MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.format.buffers import Buffer

_made = tuple.__new__
"""Makes a NamedTuple of all its fields in half the time of its constructor."""
_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
HEAD_SIZE = _HEAD.size
"""Bytes of an item before its body."""
POSITION_FLAG: Final = struct.calcsize(">iii")
POSITION_BODY_LENGTH: Final = struct.calcsize(">iiii")
ITEM_SIZE = HEAD_SIZE + _SHORT.size
"""Bytes that an item takes beside body and properties."""


class BatchItem(NamedTuple):
    """One message of a batch: everything else is the batch's own. A tuple: there are a thousand in a batch."""

    body: bytes
    flag: int = 0
    properties_raw: bytes = b""

    @classmethod
    def of(cls, body: bytes, names: Mapping[str, str], flag: int = 0) -> BatchItem:
        """An item with the given properties, in their order."""
        return cls(body, flag, properties.join(names).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that go to one queue in one append, in one file or none."""

    items: tuple[BatchItem, ...] = field(default=())

    def encode(self) -> bytes:
        """The bytes that a client sends as body."""
        return encode(self.items)


def encode(items: Iterable[BatchItem]) -> bytes:
    """The bytes of a batch.

    Raises:
        InvalidArgument: properties over 32767 bytes.
    """
    parts: list[bytes] = []
    for item in items:
        if len(item.properties_raw) > PROPERTIES_MAX_LENGTH:
            raise InvalidArgument(f"properties are longer than {PROPERTIES_MAX_LENGTH} bytes")
        size = _HEAD.size + len(item.body) + _SHORT.size + len(item.properties_raw)
        parts += [
            _HEAD.pack(size, 0, 0, item.flag, len(item.body)),
            item.body,
            _SHORT.pack(len(item.properties_raw)),
            item.properties_raw,
        ]
    return b"".join(parts)


def decode(buffer: Buffer) -> tuple[BatchItem, ...]:
    """The items of a batch. totalSize is not used to find the next one, as Apache doesn't either.

    Raises:
        FormatError: a length doesn't fit; `offset` is the item's position in the batch.
    """
    data = bytes(buffer)
    return tuple(
        [
            _made(BatchItem, (data[at : at + length], flag, data[own : own + size]))
            for flag, at, length, own, size in places(data)
        ]
    )


def places(buffer: Buffer) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each item of a batch: flag, position and length of its body, position and length of its properties.

    Raises:
        FormatError: as `decode`.
    """
    at, end = 0, len(buffer)
    head, short, head_size, short_size = _HEAD.unpack_from, _SHORT.unpack_from, _HEAD.size, _SHORT.size
    while at < end:
        start = at
        if end - at < head_size:
            raise FormatError("the batch ends inside a message header", offset=start)
        _, _, _, flag, body_length = head(buffer, at)
        body_at = at + head_size
        at = body_at + body_length
        if body_length < 0 or at + short_size > end:
            raise FormatError(f"body length {body_length} exceeds the batch", offset=start)
        (properties_length,) = short(buffer, at)
        at += short_size
        if properties_length < 0 or at + properties_length > end:
            raise FormatError(f"properties length {properties_length} exceeds the batch", offset=start)
        yield flag, body_at, body_length, at, properties_length
        at += properties_length
