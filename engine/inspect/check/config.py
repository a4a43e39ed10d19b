"""config/ by itself and against the queues: files that a broker can read, offsets that can be, topics that are served.

Source: ConfigManager#load (engine.inspect.store.config_files says what a broker makes of a file and its .bak).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.dataclass import dataclass
from engine.format import names
from engine.format.delay import DelayLevels, queue_of_level
from engine.format.numbers import parse_int
from engine.inspect.store.config_files import BACKUP, ConfigFileState, Fate, directory_of, fate, present_in, read_table
from engine.inspect.store.config_shapes import (
    CONSUMERS,
    DELAYS,
    FILTERS,
    GROUPS,
    LMQ_CONSUMERS,
    LMQ_TABLE,
    TABLES,
    TOPICS,
)
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.finding import Findings
    from engine.inspect.store.newer import Newer

BROKERS_OWN = {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC"}
"""Topics that each broker makes for itself. Source: TopicConfigManager."""
_NAMED = 3

Tables: TypeAlias = dict[str, dict[str, Any]]
"""Tables of one file of config/, by key."""


@dataclass(slots=True)
class ConfigFiles:
    """What config/ holds: by file, the tables that a broker would take. A file that is not there has none.

    `sources`: the file or .bak that the tables are from. `present`: the names in config/; None where there is no such
    directory.
    """

    tables: dict[str, Tables] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    files: int = 0
    present: frozenset[str] | None = None

    def table(self, name: str) -> dict[str, Any]:
        """The first table of a file; empty without one."""
        tables = self.tables.get(name)
        return {} if tables is None else tables[TABLES[name][0]]


def read_config(disk: Disk, config: StoreConfig, root: str, findings: Findings) -> ConfigFiles:
    """Read every file and its .bak, noting what a broker could not read.

    Raises:
        StorageError: the system can't read it.
    """
    directory = directory_of(root)
    there = disk.exists(directory)
    if there and not disk.is_dir(directory):
        findings.add("config-bad", names.CONFIG, names.CONFIG, "not a directory")
    present = present_in(disk, directory)
    read = ConfigFiles(present=frozenset(present) if there else None)
    offsets = offsets_file(config, present)
    for name in (TOPICS, offsets, DELAYS, GROUPS, FILTERS):
        if not present & {name, name + BACKUP}:
            continue
        read.files += 1
        tables, source = read_tables(disk, directory, name, findings)
        if tables is not None and source is not None:
            read.tables[name], read.sources[name] = tables, source
    return read


def offsets_file(config: StoreConfig, present: Collection[str]) -> str:
    """Which file of config/ holds the consumers' offsets; `present`: the names in that directory.

    With light queues a broker keeps all offsets in a file of another name. Source: BrokerController's constructor.
    """
    light = config.enable_lmq or (CONSUMERS not in present and LMQ_CONSUMERS in present)
    return LMQ_CONSUMERS if light else CONSUMERS


_MEANS = {
    Fate.NONE: "a broker starts without it",
    Fate.FAILS: "a broker does not start",
    Fate.BACKUP: "a broker reads its .bak",
}


def read_tables(disk: Disk, directory: str, name: str, findings: Findings) -> tuple[Tables | None, str | None]:
    """The tables (by key) of a file of config/ that a broker takes, its own or its .bak's; and which of the two it was.

    (None, None) when neither can be read; what can't is noted.

    Raises:
        StorageError: the system can't read it.
    """
    place = f"config/{name}"
    file, backup = read_table(disk, directory, name), read_table(disk, directory, name, backup=True)
    does = fate(file, backup)
    if file.text.torn:
        where = f"config/{file.text.database}"
        findings.add("rocksdb-torn", where, where, file.text.torn)
    if file.state is ConfigFileState.SOUND and file.text.odd:
        findings.add("config-not-strict", place, place, ", ".join(file.text.odd))
    if file.state is ConfigFileState.SOUND:
        if not backup.loads and backup.state not in (ConfigFileState.MISSING, ConfigFileState.EMPTY):
            findings.add("config-bak-bad", place + BACKUP, place + BACKUP, str(backup.problem))
        return file.tables, f"{file.text.database}/" if file.text.database else name
    if does is Fate.BACKUP and file.state is not ConfigFileState.WRONG:
        findings.add("config-bak", place, place, str(file.problem))
    elif file.state is ConfigFileState.WRONG:
        findings.add("config-value", place, place, f"{file.problem}; {_MEANS[does]}")
    else:
        also = "a broker starts without it" if does is Fate.FILE else f"the .bak: {backup.problem}; {_MEANS[does]}"
        findings.add("config-bad", place, place, f"{file.problem}; {also}")
    return (backup.tables, name + BACKUP) if does is Fate.BACKUP else (None, None)


def check_consumers(config: ConfigFiles, ends: dict[TopicQueue, int], findings: Findings, newer: Newer) -> None:
    """Each group's offset is at most its queue's maximum. `ends`: queue offset after each queue's last unit.

    Queues of a kind that is not read (`newer`) are passed over.
    """
    name = LMQ_CONSUMERS if LMQ_CONSUMERS in config.tables else CONSUMERS
    tables = dict(config.table(name))
    for key, offset in config.tables.get(name, {}).get(LMQ_TABLE, {}).items():
        tables[key] = {"0": offset}
    for key, queues in tables.items():
        topic, _, group = key.rpartition("@")
        if newer.hides(topic):
            continue
        for queue_id, offset in numbers(f"config/{name}", key, queues, findings):
            queue = TopicQueue(topic, queue_id)
            end = ends.get(queue)
            where = f"config/{name} {key} queue {queue_id}"
            if end is None:
                if offset > 0:
                    findings.add("consumer-queue", key, where, f"{queue} for {group}: {offset}")
            elif offset > end:
                detail = f"{queue} for {group}: {offset}, the maximum is {end}"
                findings.add("consumer-above", key, where, detail)


def check_delays(
    config: ConfigFiles,
    levels: DelayLevels,
    ends: dict[TopicQueue, int],
    starts: dict[TopicQueue, int],
    findings: Findings,
) -> None:
    """Each delay level's offset lies within its queue of SCHEDULE_TOPIC_XXXX. `starts`: each queue's first offset."""
    place = f"config/{DELAYS}"
    for level, offset in numbers(place, "offsetTable", config.table(DELAYS), findings):
        if not 1 <= level <= levels.max_level:
            findings.add("delay-range", place, f"{place} level {level}", f"valid levels are 1 to {levels.max_level}")
            continue
        queue = TopicQueue(names.SCHEDULE_TOPIC, queue_of_level(level))
        low, high = starts.get(queue, 0), ends.get(queue, 0)
        if not low <= offset <= high:
            detail = f"level {level}: {offset}, its queue has offsets {low} to {high}"
            findings.add("delay-range", place, f"{place} level {level}", detail)


def check_topics(config: ConfigFiles, present: set[str], findings: Findings) -> None:
    """Topics of log and queues have a configuration, and the other way round. `present`: topics with queues."""
    if TOPICS not in config.tables:
        return
    table = config.table(TOPICS)
    place = f"config/{TOPICS}"
    for topic, value in table.items():
        named = value.get("topicName") or topic
        if named != topic:
            findings.add("config-value", place, place, f"{topic!r} is not a topic's configuration")
    unknown = sorted(t for t in present - table.keys() if not names.is_system_topic(t))
    unused = sorted(t for t in table.keys() - present - BROKERS_OWN if not names.is_system_topic(t))
    for code, topics in (("topic-unknown", unknown), ("topic-unused", unused)):
        if topics:
            findings.add(code, place, place, ", ".join(topics[:_NAMED]), len(topics))


def numbers(place: str, key: str, table: object, findings: Findings) -> Iterator[tuple[int, int]]:
    """The pairs of a table of integers to offsets (both from 0 on); what is none is noted."""
    if not isinstance(table, dict):
        findings.add("config-value", place, place, f"{key} is not a table")
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
