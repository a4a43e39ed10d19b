"""The body of REGISTER_BROKER, plain and compressed (wire/registration.py), both ways: BROKER.md 1.3.

Source: RegisterBrokerBody, TopicConfig#encode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import TopicConfig
from engine.errors import FormatError
from engine.format import fastjson
from engine.wire import registration
from engine.wire.codes import V3_0_11

Body = tuple[DataVersion, dict[str, TopicConfig], tuple[str, ...] | None]


def encode(version: DataVersion, topics: Mapping[str, TopicConfig], *, compressed: bool) -> bytes:
    """The body of a broker without filter servers."""
    if compressed:
        lines = (
            f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.perm} {topic.filter_type}"
            for topic in topics.values()
        )
        return registration.compress(orjson.dumps(version.to_json()), lines, b"[]")
    table = {name: topic.to_json() for name, topic in topics.items()}
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {"dataVersion": version.to_json(), "topicConfigTable": table},
    }
    return orjson.dumps(body)


def decode(body: bytes | memoryview, *, compressed: bool, sender_version: int) -> Body:
    """Data version, topics, filter servers (None: not stated) of a body. `sender_version`: ordinal of MQVersion.

    Raises:
        FormatError: it is malformed.
    """
    if not len(body):
        return DataVersion(0), {}, None if sender_version < V3_0_11 else ()
    try:
        if compressed and sender_version >= V3_0_11:
            return _compressed(registration.decompress(bytes(body)))
        fields = fastjson.loads(bytes(body).decode("utf-8", "replace"))
        filters = None
        if sender_version >= V3_0_11:
            filters = tuple(map(str, fields.get("filterServerList") or ()))
            fields = fields.get("topicConfigSerializeWrapper") or {}
        table = fields.get("topicConfigTable") or {}
        topics = {name: TopicConfig.of_json(name, one) for name, one in table.items()}
        return _version(fields.get("dataVersion") or {}), topics, filters
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise FormatError(f"malformed broker registration: {error}") from None


def _compressed(texts: registration.RegistrationTexts) -> Body:
    topics: dict[str, TopicConfig] = {}
    for line in texts.topics:
        words = line.split(" ")
        if len(words) == 5:  # others are passed over, as Apache does
            name, read, write, perm, kind = words
            topics[name] = TopicConfig(name, int(read), int(write), int(perm), kind)
    filters = tuple(map(str, orjson.loads(texts.filter_servers) or ()))
    return _version(orjson.loads(texts.data_version)), topics, filters


def _version(fields: Mapping[str, Any]) -> DataVersion:
    return DataVersion(int(fields.get("timestamp") or 0), int(fields.get("counter") or 0))
