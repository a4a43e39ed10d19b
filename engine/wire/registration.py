"""The compressed body of REGISTER_BROKER: lengths and texts, in a zlib stream (REMOTING.md 4).

What the texts mean is the business of the broker and of the name server.

Source: RegisterBrokerBody, TopicConfig#encode.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.quantities import counted

LARGEST = 32 << 20
"""What a compressed body may become, bytes: 200,000 topics of the longest names."""
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RegistrationTexts:
    """The texts of a registration.

    Attributes:
        data_version: JSON.
        topics: `name readQueues writeQueues perm filterType` of each topic.
        filter_servers: a JSON array.
    """

    data_version: bytes
    topics: tuple[str, ...]
    filter_servers: bytes


def compress(data_version: bytes, topics: Iterable[str], filter_servers: bytes) -> bytes:
    """The body; for the texts see RegistrationTexts."""
    lines = [_sized(topic.encode()) for topic in topics]
    return zlib.compress(b"".join((_sized(data_version), _INT.pack(len(lines)), *lines, _sized(filter_servers))), 9)


def decompress(body: bytes, most: int | None = None) -> RegistrationTexts:
    """The texts of a body. `most`: topics.

    Raises:
        FormatError: no zlib stream, an incomplete one, one of more than LARGEST bytes or `most` topics, an invalid
            length.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, LARGEST)
    except zlib.error as error:
        raise FormatError(f"malformed broker registration: {error}") from None
    if stream.unconsumed_tail:
        raise FormatError(f"broker registration has more than {LARGEST} bytes")
    if not stream.eof:
        raise FormatError("broker registration is incomplete", offset=len(body))
    at = 0

    def number() -> int:
        nonlocal at
        if at + _INT.size > len(data):
            raise FormatError("broker registration is incomplete", offset=at)
        (length,) = _INT.unpack_from(data, at)
        if not 0 <= length <= len(data):
            raise FormatError(f"invalid length {length} in a broker registration", offset=at)
        at += _INT.size
        return int(length)

    def text() -> bytes:
        nonlocal at
        size = number()
        if at + size > len(data):
            raise FormatError("broker registration is incomplete", offset=at)
        at += size
        return data[at - size : at]

    version = text()
    count = number()
    if most is not None and count > most:
        raise FormatError(f"broker registration has {counted(count, 'topic')}, at most {most} are allowed", offset=at)
    topics = tuple(text().decode("utf-8", "replace") for _ in range(count))
    return RegistrationTexts(version, topics, text())


def _sized(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text
