"""Topics, groups and offsets that RocketMQ 5 keeps in RocksDB, as the JSON of the files that a 4.9 broker has.

Where config/ has such a database, the broker reads it in place of the file: `topics/` for topics.json,
`subscriptionGroups/`, `consumerOffsets/` (v1), or `rdb/` for all three (v2). A file beside a database of v1 is taken
over where the counter of its version is greater. What reads topics.json of a store reads these by that name.

Sources: RocksDBTopicConfigManager#merge, RocksDBSubscriptionGroupManager#merge, RocksDBConsumerOffsetManager#merge,
config.v2.TopicConfigManagerV2 (5.3.3).
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.rocksdb import RocksDatabase, has_rocksdict
from engine.format import fastjson
from engine.format.rocksdb_config import (
    DATABASE_V2,
    DATABASES,
    ENTRIES,
    FORBIDDEN,
    VERSION,
    NamedEntry,
    TableId,
    TableVersion,
    decode_v2,
)
from engine.inspect.store.config_shapes import (
    CONSUMERS,
    GROUP_TABLE,
    GROUPS,
    OFFSET_TABLE,
    TOPIC_TABLE,
    TOPICS,
    as_long,
)
from engine.inspect.store.config_shapes import VERSION as VERSION_FIELD

if TYPE_CHECKING:
    from engine.files.disk import Disk

_TABLES = {TOPICS: TOPIC_TABLE, GROUPS: GROUP_TABLE, CONSUMERS: OFFSET_TABLE}
_OF_V2 = {
    TableId.TOPICS: (TOPICS, TOPIC_TABLE),
    TableId.GROUPS: (GROUPS, GROUP_TABLE),
    TableId.CONSUMER_OFFSETS: (CONSUMERS, OFFSET_TABLE),
    TableId.PULL_OFFSETS: (CONSUMERS, "pullOffsetTable"),
}
_FORBIDDEN_TABLE = "forbiddenTable"


@dataclass(slots=True)
class DatabaseTable:
    """What a database holds of one file: its JSON as far as it could be read, and what could not (one sentence).
    `torn`: why the end of its write-ahead log could not."""

    value: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None
    torn: str = ""

    def counter(self) -> int:
        """Of its version; 0 without one."""
        return counter_of(self.value)


def config_database(disk: Disk, directory: str, name: str) -> str | None:
    """The database that is read in place of the file `name` of a config/; None: there is none, or rocksdict is not
    installed. Raises StorageError."""
    if name not in DATABASES:
        return None
    for one in (DATABASES[name], DATABASE_V2):
        path = os.path.join(directory, one)
        if disk.is_dir(path) and any(_is_sign(entry) for entry in disk.listdir(path)):
            return path if has_rocksdict() else None
    return None


def read_database(disk: Disk, path: str, name: str) -> DatabaseTable:
    """What a database has in place of the file `name`. Raises StorageError."""
    table = DatabaseTable({_TABLES[name]: {}})
    try:
        with RocksDatabase(disk, path) as database:
            if os.path.basename(path) == DATABASE_V2:
                _read_v2(database, name, table)
            else:
                _read_v1(database, name, table)
            table.torn = "" if database.torn is None else str(database.torn)
    except FormatError as error:
        table.problem = str(error)
    return table


def counter_of(value: object) -> int:
    """The counter in a table's version; 0 without one."""
    version = value.get(VERSION_FIELD) if isinstance(value, dict) else None
    counter = as_long(version.get("counter")) if isinstance(version, dict) else None
    return counter or 0


def merged(name: str, ours: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    """What a broker has that takes a newer file over: offsets are the file's, topics and groups of both."""
    key = _TABLES[name]
    if name == CONSUMERS:
        return {**ours, **file}
    return {**ours, **file, key: {**ours.get(key, {}), **(file.get(key) or {})}}


def _is_sign(name: str) -> bool:
    return name == "CURRENT" or name.startswith("MANIFEST-") or name.endswith(".sst")


def _read_v1(database: RocksDatabase, name: str, table: DatabaseTable) -> None:
    into = table.value[_TABLES[name]]
    for item in database.items(ENTRIES):
        key, value = _json(item.key, item.value, table)
        if value is not None:
            into[key] = value.get(OFFSET_TABLE, {}) if name == CONSUMERS else value
    if VERSION in database.families:
        for item in database.items(VERSION):
            _, version = _json(item.key, item.value, table)
            if version is not None:
                table.value[VERSION_FIELD] = version
    if name == GROUPS and FORBIDDEN in database.families:
        forbidden = {}
        for item in database.items(FORBIDDEN):
            group, topics = _json(item.key, item.value, table)
            if topics is not None:
                forbidden[group] = topics
        table.value[_FORBIDDEN_TABLE] = forbidden


def _json(key: memoryview, value: memoryview, table: DatabaseTable) -> tuple[str, dict[str, Any] | None]:
    name = bytes(key).decode("utf-8", "replace")
    try:
        read = fastjson.loads(bytes(value).decode("utf-8", "replace"))
    except FormatError as error:
        table.problem = table.problem or f"the entry {name}: {error.message}"
        return name, None
    if not isinstance(read, dict):
        table.problem = table.problem or f"the entry {name} is no object"
        return name, None
    return name, read


def _read_v2(database: RocksDatabase, name: str, table: DatabaseTable) -> None:
    for item in database.items(ENTRIES):
        try:
            entry = decode_v2(item.key, item.value)
        except FormatError as error:
            table.problem = table.problem or error.message
            continue
        file, key = _OF_V2[entry.table]
        if file != name:
            continue
        if isinstance(entry, TableVersion):
            table.value[VERSION_FIELD] = {
                "stateVersion": entry.state_version,
                "timestamp": entry.timestamp,
                "counter": entry.counter,
            }
        elif isinstance(entry, NamedEntry):
            _, value = _json(memoryview(entry.name.encode()), memoryview(entry.text.encode()), table)
            if value is not None:
                table.value[key][entry.name] = value
        else:
            offsets = table.value.setdefault(key, {}).setdefault(f"{entry.topic}@{entry.group}", {})
            offsets[str(entry.queue_id)] = entry.offset
