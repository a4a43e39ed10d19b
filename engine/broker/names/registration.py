"""The body of REGISTER_BROKER, plain and compressed (wire/registration.py), both ways: BROKER.md 1.3.

A body may have as many topics as a frame holds. It is read beside the loop, and topic by topic: a parser that is given
all of it at once would keep the loop from the interpreter until it is done.

Source: RegisterBrokerBody, TopicConfig#encode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from engine.broker.tables.config_file import DataVersion
from engine.broker.tables.topics import TopicConfig
from engine.errors import FormatError
from engine.format import fastjson
from engine.wire import registration
from engine.wire.codes import V3_0_11

REST_MAX = 1 << 20
"""The largest plain body without its topics, bytes."""
_TABLE = re.compile(rb'"topicConfigTable"\s*:\s*\{\s*')
_ENTRY_MAX = 1 << 14
_ENTRY = re.compile(rb'("(?:[^"\\]|\\.)*+")\s*:\s*(\{(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+\})\s*(?:,\s*)?', re.DOTALL)
"""One topic and its comma. A body that lacks a comma is taken for one that has it."""
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


def decode(body: bytes | memoryview, *, compressed: bool, sender_version: int, most: int | None = None) -> Body:
    """Data version, topics, filter servers (None: not stated) of a body. In any thread.

    `sender_version`: ordinal of MQVersion; `most`: topics.

    Raises:
        FormatError: it is malformed, or has more.
    """
    if not len(body):
        return DataVersion(0), {}, None if sender_version < V3_0_11 else ()
    try:
        if compressed and sender_version >= V3_0_11:
            return _compressed(registration.decompress(bytes(body), most))
        rest, topics = _split(bytes(body), most)
        fields = fastjson.loads(rest.decode("utf-8", "replace"))
        filters = None
        if sender_version >= V3_0_11:
            filters = tuple(map(str, fields.get("filterServerList") or ()))
            fields = fields.get("topicConfigSerializeWrapper") or {}
        table = fields.get("topicConfigTable") or {}
        topics.update((name, TopicConfig.of_json(name, one)) for name, one in table.items())
        return _version(fields.get("dataVersion") or {}), topics, filters
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise FormatError(f"malformed broker registration: {error}") from None


def _split(body: bytes, most: int | None) -> tuple[bytes, dict[str, TopicConfig]]:
    """The topics of a plain body, and what is left of it without those: they are flat objects, of which there are many.

    From the first one on that is written otherwise they are left to the parser. Raises FormatError, ValueError.
    """
    table = _TABLE.search(body)
    if table is None:
        return _demand_short(body), {}
    topics: dict[str, TopicConfig] = {}
    at = table.end()
    while entry := _ENTRY.match(body, at, at + _ENTRY_MAX):
        topic = orjson.loads(b"{" + entry[1] + b":" + entry[2] + b"}")
        for name, fields in topic.items():
            topics[name] = TopicConfig.of_json(name, fields)
        at = entry.end()
        if most is not None and len(topics) > most:
            raise FormatError(f"broker registration has too many topics, at most {most} are allowed", offset=at)
    return _demand_short(body[: table.end()] + body[at:]), topics


def _demand_short(rest: bytes) -> bytes:
    """Raises FormatError: too long to be given to the parser at once."""
    if len(rest) > REST_MAX:
        what = f"broker registration has {len(rest)} bytes that are no topics"
        raise FormatError(f"{what}, at most {REST_MAX} are allowed")
    return rest


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
