"""The body of REGISTER_BROKER, plain and compressed, both ways.

    compressed: a zlib stream of
        length i4, data version as JSON
        number of topics i4, then for each: length i4, `name readQueues writeQueues perm filterType`
        length i4, filter servers as a JSON array

Source: RegisterBrokerBody, TopicConfig#encode; BROKER.md 1.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import TopicConfig
from engine.errors import FormatError
from engine.format import fastjson
from engine.wire.codes import V3_0_11

LARGEST = 64 << 20
"""What a compressed body may become, bytes."""
_INT = struct.Struct(">i")
Body = tuple[DataVersion, dict[str, TopicConfig], tuple[str, ...] | None]


def encode(version: DataVersion, topics: Mapping[str, TopicConfig], *, compressed: bool) -> bytes:
    """The body of a broker without filter servers."""
    if not compressed:
        table = {name: topic.to_json() for name, topic in topics.items()}
        said = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {"dataVersion": version.to_json(), "topicConfigTable": table},
        }
        return orjson.dumps(said)
    pieces = [_sized(orjson.dumps(version.to_json())), _INT.pack(len(topics))]
    for topic in topics.values():
        words = (topic.name, topic.read_queues, topic.write_queues, topic.perm, topic.filter_type)
        pieces.append(_sized(" ".join(map(str, words)).encode()))
    pieces.append(_sized(b"[]"))
    return zlib.compress(b"".join(pieces), 9)


def decode(body: bytes | memoryview, *, compressed: bool, sender_version: int) -> Body:
    """Data version, topics, filter servers (None: not said) of a body. `sender_version`: ordinal of MQVersion.

    Raises:
        FormatError: it is none.
    """
    if not len(body):
        return DataVersion(0), {}, None if sender_version < V3_0_11 else ()
    try:
        if compressed and sender_version >= V3_0_11:
            return _decompressed(bytes(body))
        said = fastjson.loads(bytes(body).decode("utf-8", "replace"))
        filters = None
        if sender_version >= V3_0_11:
            filters = tuple(map(str, said.get("filterServerList") or ()))
            said = said.get("topicConfigSerializeWrapper") or {}
        table = said.get("topicConfigTable") or {}
        topics = {name: TopicConfig.of_json(name, one) for name, one in table.items()}
        return _version(said.get("dataVersion") or {}), topics, filters
    except (AttributeError, TypeError, ValueError, IndexError, struct.error, zlib.error) as error:
        raise FormatError(f"no registration of a broker: {error}") from None


def _decompressed(body: bytes) -> Body:
    stream = zlib.decompressobj()
    data = stream.decompress(body, LARGEST)
    if stream.unconsumed_tail:
        raise FormatError(f"a registration of more than {LARGEST} bytes")
    if not stream.eof:
        raise FormatError("a registration that is cut", offset=len(body))
    at = 0

    def number() -> int:
        nonlocal at
        (found,) = _INT.unpack_from(data, at)
        at += _INT.size
        if not 0 <= found <= len(data):
            raise FormatError(f"a registration with a length of {found}", offset=at)
        return int(found)

    def piece() -> bytes:
        nonlocal at
        size = number()
        if at + size > len(data):
            raise FormatError("a registration that is cut", offset=at)
        at += size
        return data[at - size : at]

    version = _version(orjson.loads(piece()))
    topics: dict[str, TopicConfig] = {}
    for _ in range(number()):
        words = piece().decode("utf-8", "replace").split(" ")
        if len(words) == 5:  # others are passed over, as Apache does
            name, read, write, perm, kind = words
            topics[name] = TopicConfig(name, int(read), int(write), int(perm), kind)
    return version, topics, tuple(map(str, orjson.loads(piece()) or ()))


def _version(said: Mapping[str, Any]) -> DataVersion:
    return DataVersion(int(said.get("timestamp") or 0), int(said.get("counter") or 0))


def _sized(piece: bytes) -> bytes:
    return _INT.pack(len(piece)) + piece
