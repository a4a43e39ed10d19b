"""What RocketMQ 5 keeps of topics, groups and offsets in RocksDB (FORMAT.md "Configuration in RocksDB").

v1: a database a table (`DATABASES`). Keys are names, or `topic@group`; values are JSON as in the files of config/, in
column family `default`; `kvDataVersion` has the version, `forbidden` what groups may not read.

v2: one database, `rdb`. Keys begin with `0x01, table i16, 0x01 or 0x02` (big-endian): 0x01 the table's version under
the key `data_version` (stateVersion i64, timestamp i64, counter i64), 0x02 its entries: of topics and groups
`nameLength i16, name` with the value `0x01, JSON`; of offsets `groupLength i16, group, 0x01, topicLength i16, topic,
0x01, queueId i32` with the value `offset i64`.

Sources: ConfigRocksDBStorage, RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager;
config.v2.ConfigHelper, ConsumerOffsetManagerV2, TableId, RecordPrefix, SerializationType (5.3.3, 5.5.0).
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

DATABASES = {
    "topics.json": "topics",
    "subscriptionGroup.json": "subscriptionGroups",
    "consumerOffset.json": "consumerOffsets",
}
"""v1: the directory of config/ that a broker reads in place of a file."""
DATABASE_V2 = "rdb"
ENTRIES, VERSION, FORBIDDEN = "default", "kvDataVersion", "forbidden"
"""Column families of v1; `default` is that of v2, too."""
VERSION_KEY = b"kvDataVersionKey"
_DATA_VERSION = b"data_version"
_HEAD: Final = struct.Struct(">bhb")
_NAME: Final = struct.Struct(">h")
_QUEUE_ID: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_COUNTERS: Final = struct.Struct(">qqq")
_TABLE, _IS_VERSION, _IS_DATA = 1, 1, 2
_BETWEEN = b"\x01"
_JSON = b"\x01"


class TableId(enum.IntEnum):
    """The tables of v2. Source: TableId."""

    CONSUMER_OFFSETS = 1
    PULL_OFFSETS = 2
    TOPICS = 3
    GROUPS = 4


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of a table in v2. `timestamp`: ms."""

    table: TableId
    state_version: int
    timestamp: int
    counter: int


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """A topic or a group in v2: name and JSON."""

    table: TableId
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """The offset of a group in a queue in v2."""

    table: TableId
    group: str
    topic: str
    queue_id: int
    offset: int


def decode_v2(key: Buffer, value: Buffer) -> TableVersion | NamedEntry | OffsetEntry:
    """An entry of the database `rdb`. Raises FormatError: none that RocketMQ writes."""
    if len(key) < _HEAD.size:
        raise FormatError(f"invalid key of configuration: {bytes(key).hex()}")
    prefix, number, kind = _HEAD.unpack_from(key)
    rest = bytes(key[_HEAD.size :])
    if prefix != _TABLE or number not in set(TableId) or kind not in (_IS_VERSION, _IS_DATA):
        raise FormatError(f"invalid key of configuration: {bytes(key[:64]).hex()}")
    table = TableId(number)
    if kind == _IS_VERSION:
        if rest != _DATA_VERSION or len(value) != _COUNTERS.size:
            raise FormatError(f"invalid version of table {table}: {bytes(value[:64]).hex()}")
        return TableVersion(table, *_COUNTERS.unpack(value))
    name, rest = _named(rest)
    if table in (TableId.TOPICS, TableId.GROUPS):
        if rest or bytes(value[:1]) != _JSON:
            raise FormatError(f"the entry {name} of table {table} is not JSON")
        try:
            return NamedEntry(table, name, bytes(value[1:]).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise FormatError(f"the entry {name} of table {table} is not UTF-8 text") from error
    topic, after = _named(rest[len(_BETWEEN) :])
    if rest[: len(_BETWEEN)] != _BETWEEN or after[: len(_BETWEEN)] != _BETWEEN:
        raise FormatError(f"invalid key of an offset: {bytes(key[:64]).hex()}")
    if len(after) != len(_BETWEEN) + _QUEUE_ID.size or len(value) != _OFFSET.size:
        raise FormatError(f"invalid offset of {topic}@{name}: {bytes(value[:64]).hex()}")
    (queue_id,), (offset,) = _QUEUE_ID.unpack_from(after, len(_BETWEEN)), _OFFSET.unpack(value)
    return OffsetEntry(table, name, topic, queue_id, offset)


def _named(data: bytes) -> tuple[str, bytes]:
    """A name with its length in front, and what follows. Raises FormatError."""
    length = _NAME.unpack_from(data)[0] if len(data) >= _NAME.size else -1
    end = _NAME.size + length
    if length < 0 or end > len(data):
        raise FormatError(f"invalid name in a key of configuration: {data[:64].hex()}")
    try:
        return data[_NAME.size : end].decode("utf-8"), data[end:]
    except UnicodeDecodeError as error:
        raise FormatError(f"invalid name in a key of configuration: {data[:64].hex()}") from error
