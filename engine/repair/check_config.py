"""config/ by itself and against the queues: JSON that can be read, offsets that can be.

Source: ConfigManager#load: a file that can't be read is replaced by its .bak; without one a broker starts with nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.format import names
from engine.format.delay import DelayLevels, queue_of_level
from engine.format.numbers import parse_int
from engine.log.derive import TopicQueue
from engine.repair.dump import read_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.finding import Findings

TOPICS, CONSUMERS, DELAYS = "topics.json", "consumerOffset.json", "delayOffset.json"
LMQ_CONSUMERS = "lmqConsumerOffset.json"
TABLES = {
    TOPICS: "topicConfigTable",
    CONSUMERS: "offsetTable",
    DELAYS: "offsetTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerFilter.json": "filterDataByTopic",
}
"""The files of config/ and the table that each holds."""

BACKUP = ".bak"
_BROKERS_OWN = {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC"}
"""Topics that each broker makes for itself. Source: TopicConfigManager."""
_NAMED = 3

Tables: TypeAlias = dict[str, dict[str, Any]]
"""Tables of one file of config/, by key."""


@dataclass(slots=True)
class ConfigFiles:
    """What config/ holds: by file, the table that a broker would take. A file that is not there has none."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: int = 0


def read_config(disk: Disk, root: str, findings: Findings) -> ConfigFiles:
    """Read every file and its .bak, noting what a broker could not read.

    Raises:
        StorageError: the system can't read it.
    """
    directory = os.path.join(root, names.CONFIG)
    present = {e.name for e in disk.scandir(directory) if e.is_file} if disk.exists(directory) else set()
    found = ConfigFiles()
    for name, key in TABLES.items():
        if not present & {name, name + BACKUP}:
            continue
        found.files += 1
        tables, _ = read_tables(disk, directory, name, (key,), present, findings)
        if tables is not None:
            found.tables[name] = tables[key]
    return found


def offsets_file(config: StoreConfig, present: Collection[str]) -> str:
    """Which file of config/ holds the consumers' offsets; `present`: the names in that directory.

    With light queues a broker keeps all offsets in a file of another name. Source: BrokerController's constructor.
    """
    light = config.enable_lmq or (CONSUMERS not in present and LMQ_CONSUMERS in present)
    return LMQ_CONSUMERS if light else CONSUMERS


def read_tables(
    disk: Disk, directory: str, name: str, keys: Sequence[str], present: set[str], findings: Findings
) -> tuple[Tables | None, str | None]:
    """The tables (by key) of a file of config/, or its .bak's where the file is broken; and which of the two it was.

    `present`: the names in `directory`. (None, None) when neither can be read; what can't is noted.

    Raises:
        StorageError: the system can't read it.
    """
    place = f"config/{name}"
    tables, problem = _tables(disk, directory, name, keys, present)
    backup, also = _tables(disk, directory, name + BACKUP, keys, present)
    if problem is None:
        if name + BACKUP in present and also is not None:
            findings.add("config-bak-bad", place + BACKUP, place + BACKUP, also)
        return tables, name
    if also is None:
        findings.add("config-bak", place, place, problem)
        return backup, name + BACKUP
    findings.add("config-bad", place, place, f"{problem}; the .bak: {also}")
    return None, None


def _tables(
    disk: Disk, directory: str, name: str, keys: Sequence[str], present: set[str]
) -> tuple[Tables | None, str | None]:
    """The tables of a file, or what is wrong."""
    value, problem = read_json(disk, directory, name, present)
    if problem is not None:
        return None, problem
    if not isinstance(value, dict):
        return None, "it is no JSON object"
    tables = {key: value.get(key, {}) for key in keys}
    if not all(isinstance(table, dict) for table in tables.values()):
        return None, "its table is no JSON object"
    return tables, None


def check_consumers(found: ConfigFiles, ends: dict[TopicQueue, int], findings: Findings) -> None:
    """Each group's offset is at most its queue's maximum. `ends`: queue offset behind each queue's last unit."""
    for key, queues in found.tables.get(CONSUMERS, {}).items():
        topic, _, group = key.rpartition("@")
        for queue_id, offset in numbers(f"config/{CONSUMERS}", key, queues, findings):
            queue = TopicQueue(topic, queue_id)
            end = ends.get(queue)
            where = f"config/{CONSUMERS} {key} queue {queue_id}"
            if end is None:
                if offset > 0:
                    findings.add("consumer-queue", key, where, f"{queue} for {group}: {offset}")
            elif offset > end:
                detail = f"{queue} for {group}: {offset}, the maximum is {end}"
                findings.add("consumer-ahead", key, where, detail)


def check_delays(
    found: ConfigFiles,
    levels: DelayLevels,
    ends: dict[TopicQueue, int],
    starts: dict[TopicQueue, int],
    findings: Findings,
) -> None:
    """Each delay level's offset lies within its queue of SCHEDULE_TOPIC_XXXX. `starts`: each queue's first offset."""
    place = f"config/{DELAYS}"
    for level, offset in numbers(place, "offsetTable", found.tables.get(DELAYS, {}), findings):
        if not 1 <= level <= levels.max_level:
            findings.add("delay-range", place, f"{place} level {level}", f"there are levels 1 to {levels.max_level}")
            continue
        queue = TopicQueue(names.SCHEDULE_TOPIC, queue_of_level(level))
        low, high = starts.get(queue, 0), ends.get(queue, 0)
        if not low <= offset <= high:
            detail = f"level {level}: {offset}, its queue has {low} to {high}"
            findings.add("delay-range", place, f"{place} level {level}", detail)


def check_topics(found: ConfigFiles, present: set[str], findings: Findings) -> None:
    """Topics of log and queues have a configuration, and the other way round. `present`: topics with queues."""
    table = found.tables.get(TOPICS)
    if table is None:
        return
    place = f"config/{TOPICS}"
    for topic, value in table.items():
        named = value.get("topicName", topic) if isinstance(value, dict) else None
        if named != topic:
            findings.add("config-value", place, place, f"{topic!r} is no topic's configuration")
    unknown = sorted(t for t in present - table.keys() if not names.is_system_topic(t))
    unused = sorted(t for t in table.keys() - present - _BROKERS_OWN if not names.is_system_topic(t))
    for code, topics in (("topic-unknown", unknown), ("topic-unused", unused)):
        if topics:
            findings.add(code, place, place, ", ".join(topics[:_NAMED]), len(topics))


def numbers(place: str, key: str, table: object, findings: Findings) -> Iterator[tuple[int, int]]:
    """The pairs of a table of integers to offsets (both from 0 on); what is none is noted."""
    if not isinstance(table, dict):
        findings.add("config-value", place, place, f"{key}: no table")
        return
    for name, value in table.items():
        try:
            number = parse_int(str(name), 0, (1 << 31) - 1)
        except ValueError:
            number = -1
        if number < 0 or not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            findings.add("config-value", place, f"{place} {key}", f"{key}: {name}: {value!r}")
        else:
            yield number, value
