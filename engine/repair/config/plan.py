"""The plan of `rebuild-config`: which files of config/ are made again, from what, and every byte that they get.

Computed without writing. A file that a broker can read, and whose values can be, is left alone unless it is asked for;
one that is missing is made where there is anything to put into it. Files are made in the order in which each helps the
next: topics, offsets, groups, delays.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, InvalidArgument
from engine.format import fastjson, names
from engine.format.quantities import counted
from engine.inspect.check.config import offsets_file
from engine.inspect.store.config_files import ConfigFileState, ConfigTable, directory_of, present_in, read_table
from engine.inspect.store.config_shapes import (
    DELAYS,
    FILTERS,
    GROUP_TABLE,
    GROUPS,
    LMQ_CONSUMERS,
    LMQ_TABLE,
    OFFSET_TABLE,
    TABLES,
    TOPIC_TABLE,
    TOPICS,
    VERSION,
)
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.odd import demand_present
from engine.inspect.store.survey import surveyed
from engine.repair.config.delays import rebuilt_delays
from engine.repair.config.evidence import Evidence, evidence_of
from engine.repair.config.offsets import RebuiltOffsets, rebuilt_offsets
from engine.repair.config.sources import Source, config_directory, sources_of
from engine.repair.config.topics import rebuilt_groups, rebuilt_topics
from engine.repair.salvage.finish import demand_none_of_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


class RebuildPart(enum.Enum):
    """What can be rebuilt; the value is the operator's word for it."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"
    DELAY = "delay"
    FILTERS = "filters"


@dataclass(frozen=True, slots=True)
class RebuildChoices:
    """What the operator chose.

    Attributes:
        only: these parts alone; empty: whatever is missing or broken.
        every: all parts, sound or not.
        floor: where a group begins whose offset nobody knows: "min", "max", or ms.
        directories: further config/ directories or stores to take from.
        topic: one that is to be readable.
        group: one that is to consume.
    """

    only: frozenset[RebuildPart] = frozenset()
    every: bool = False
    floor: str | int = "min"
    directories: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file. `why`: what is wrong with it; `data`: its new bytes; `lines`: what changes, one line each.

    `odd`: what lies at its place is no regular file, and is set aside. `backup`: its .bak becomes what the file held
    ("old"), the new bytes, too, as it can't be read ("new"), or stays (None).
    """

    name: str
    part: RebuildPart
    path: str
    why: str
    sources: tuple[str, ...]
    entries: int
    data: bytes
    value: dict[str, Any]
    lines: tuple[str, ...]
    exists: bool
    odd: bool
    backup: str | None

    def to_json(self) -> dict[str, Any]:
        """One of "files"."""
        return {
            "file": f"{names.CONFIG}/{self.name}",
            "why": self.why,
            "from": list(self.sources),
            "entries": self.entries,
            "bytes": len(self.data),
            "changes": list(self.lines),
        }


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """All of it. `unchanged`: files that stay as they are; `problems`: what the operator should know."""

    files: StoreFiles
    choices: RebuildChoices
    changes: tuple[FilePlan, ...]
    unchanged: tuple[str, ...]
    problems: tuple[str, ...]
    kept: int = 0
    floored: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything is written."""
        return bool(self.changes)

    def to_json(self, salvage: str | None) -> dict[str, Any]:
        """The JSON of `rstore rebuild-config`."""
        return {
            "store": self.files.root,
            "offsets": self.choices.floor,
            "files": [one.to_json() for one in self.changes],
            "unchanged": list(self.unchanged),
            "offsetsKept": self.kept,
            "offsetsUnknown": self.floored,
            "salvage": salvage,
            "changed": self.changed,
            "problems": list(self.problems),
        }


def plan_rebuild(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    choices: RebuildChoices | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> RebuildPlan:
    """Plan it; writes nothing. `store`: its survey, or the settings that name it.

    Raises:
        InvalidArgument: no such topic or group, a topic that no queue holds a message of, a directory without a
        configuration. CannotRepair: config/ is no directory. DataIsAbsent: a link leads to a disk that is not mounted:
        a file would be written over that is only absent, or made from what is there alone.
        Refused: a repair of the store was killed. NotAStore, StorageError.
    """
    files = surveyed(disk, store)
    demand_present(files.odd)
    demand_none_of_store(disk, files.config)
    return _Planner(disk, files, choices or RebuildChoices(), progress).plan()


class _Planner:
    def __init__(
        self, disk: Disk, files: StoreFiles, choices: RebuildChoices, progress: Callable[[int, int], None] | None
    ) -> None:
        self._disk = disk
        self._files = files
        self._choices = choices
        self._progress = progress
        self._directory = directory_of(files.root)
        if disk.exists(self._directory) and not disk.is_dir(self._directory):
            raise CannotRepair(
                "config is not a directory", path=self._directory, hint="move it away, then run this again"
            )
        self._places = [config_directory(disk, place) for place in choices.directories]
        self._evidence: Evidence = evidence_of(disk, files)
        self._offsets_name = offsets_file(files.config, present_in(disk, self._directory))
        self._tables: dict[str, ConfigTable] = {}
        self._offsets = RebuiltOffsets()
        self._changes: list[FilePlan] = []
        self._unchanged: list[str] = []
        self._problems: list[str] = []

    def plan(self) -> RebuildPlan:
        self._check_choices()
        if self._files.abort:
            self._problems.append(
                "the store was not closed cleanly: run rstore recover first, so that the queues contain every message"
            )
        steps = (
            (TOPICS, RebuildPart.TOPICS, self._topics),
            (self._offsets_name, RebuildPart.OFFSETS, self._consumers),
            (GROUPS, RebuildPart.GROUPS, self._groups),
            (DELAYS, RebuildPart.DELAY, self._delays),
            (FILTERS, RebuildPart.FILTERS, self._filters),
        )
        for name, part, make in steps:
            current = self._tables[name] = read_table(self._disk, self._directory, name)
            why = self._why(name, part, current)
            if why is None:
                if current.state is not ConfigFileState.MISSING:
                    self._unchanged.append(f"{names.CONFIG}/{name}")
                continue
            sources = sources_of(self._disk, self._files.root, name, self._places)
            if current.state is ConfigFileState.SOUND and self._invalid(name, current) is None:
                sources = [one for one in sources if one.is_file or not one.own]  # what it no longer names was deleted
            make(name, part, current, why, sources)
        return RebuildPlan(
            self._files,
            self._choices,
            tuple(self._changes),
            tuple(self._unchanged),
            tuple(self._problems),
            self._offsets.kept,
            self._offsets.floor,
        )

    def _check_choices(self) -> None:
        topic = self._choices.topic
        known = KnownNames.of(self._disk, self._files)
        if self._choices.group is not None:
            known.demand_group(self._choices.group)
        if topic is not None and topic not in self._evidence.topics:
            known.demand_topic(topic)
            raise InvalidArgument(f"topic {topic} has no message in any queue", hint="rstore status lists topics")

    def _why(self, name: str, part: RebuildPart, current: ConfigTable) -> str | None:
        """Why a file is to be made again; None: it isn't."""
        choices = self._choices
        named = {RebuildPart.TOPICS: choices.topic, RebuildPart.GROUPS: choices.group}
        if any(named.values()):
            return f"{named[part]} is needed" if named.get(part) else None
        if choices.only and part not in choices.only:
            return None
        if current.state is not ConfigFileState.SOUND:
            return current.problem
        bad = self._invalid(name, current)
        if bad is not None:
            return bad
        return "requested" if choices.every or part in choices.only else None

    def _invalid(self, name: str, current: ConfigTable) -> str | None:
        """A value that Apache reads, and that is invalid."""
        if name == TOPICS:
            for topic, settings in current.tables[TOPIC_TABLE].items():
                if settings.get("topicName", topic) != topic:
                    return f"{topic}: topicName is {settings['topicName']!r}"
        elif name == self._offsets_name:
            for key, queues in current.tables[OFFSET_TABLE].items():
                topic, _, group = key.partition("@")
                if not topic or not group or "@" in group:
                    return f"{key!r} is not topic@group"
                if any(offset < 0 or int(queue) < 0 for queue, offset in queues.items()):
                    return f"{key}: a negative offset"
            light = current.tables.get(LMQ_TABLE, {})
            return next((f"{key}: a negative offset" for key, offset in light.items() if offset < 0), None)
        elif name == DELAYS and any(o < 0 or int(level) < 1 for level, o in current.tables[OFFSET_TABLE].items()):
            return "a negative offset or level"
        return None

    # --- one file each ----------------------------------------------------------------------------------------------

    def _topics(self, name: str, part: RebuildPart, current: ConfigTable, why: str, sources: list[Source]) -> None:
        forced = self._choices.topic
        table, lines = rebuilt_topics(sources, self._evidence, intact=forced is not None, forced=forced)
        self._versioned(name, part, current, why, sources, TOPIC_TABLE, table, lines)

    def _groups(self, name: str, part: RebuildPart, current: ConfigTable, why: str, sources: list[Source]) -> None:
        readers = set(self._offsets.groups)
        if not readers:
            shape = self._tables[self._offsets_name]
            readers = {key.rpartition("@")[2] for key in shape.tables[OFFSET_TABLE]}
        forced = self._choices.group
        table, lines = rebuilt_groups(sources, self._evidence, readers, intact=forced is not None, forced=forced)
        self._versioned(name, part, current, why, sources, GROUP_TABLE, table, lines)

    def _consumers(self, name: str, part: RebuildPart, current: ConfigTable, why: str, sources: list[Source]) -> None:
        made = rebuilt_offsets(sources, self._evidence, self._choices.floor, self._evidence.pairs())
        self._offsets = made
        value = dict(sources[0].value) if sources else {}
        value[OFFSET_TABLE] = made.table
        if name == LMQ_CONSUMERS:
            value[LMQ_TABLE] = made.light
        self._add(name, part, current, why, sources, value, len(made.table) + len(made.light), made.lines)
        lonely = sorted(self._evidence.groups.keys() - made.groups)
        if lonely:
            self._problems.append(
                f"{counted(len(lonely), 'group')} have no known topic and get no offset ({', '.join(lonely[:3])}): "
                "rstore offsets set gives them one"
            )
        if not any(source.own for source in sources) and self._evidence.topics:
            self._problems.append(
                "this store contains no consumer offsets: unknown groups start where their clients choose, by "
                "default at the end of each queue; give the offsets of a slave or backup with --from DIR"
            )

    def _delays(self, name: str, part: RebuildPart, current: ConfigTable, why: str, sources: list[Source]) -> None:
        if not self._files.log and current.state is ConfigFileState.MISSING:
            return
        table, lines = rebuilt_delays(self._disk, sources, self._evidence, self._progress)
        value = dict(sources[0].value) if sources else {}
        value[OFFSET_TABLE] = table
        self._add(name, part, current, why, sources, value, len(table), lines)

    def _filters(self, name: str, part: RebuildPart, current: ConfigTable, why: str, sources: list[Source]) -> None:
        key = TABLES[FILTERS][0]
        table = dict(sources[0].table.tables[key]) if sources else {}
        if current.state is ConfigFileState.SOUND:
            return  # nothing in log or queues tells of filters
        lines = [] if table else ["empty: consumers register their filters again"]
        self._add(name, part, current, why, sources, {key: table}, len(table), lines)

    def _all(self, part: RebuildPart) -> bool:
        """Whether a sound file gets what the queues show, too."""
        return self._choices.every or part in self._choices.only

    def _versioned(
        self,
        name: str,
        part: RebuildPart,
        current: ConfigTable,
        why: str,
        sources: list[Source],
        key: str,
        table: dict[str, dict[str, Any]],
        lines: list[str],
    ) -> None:
        """A table with a version, which name servers and slaves go by: another state gets another one."""
        value = dict(sources[0].value) if sources else {}
        kept_version = value.get(VERSION)
        version: dict[str, Any] = kept_version if isinstance(kept_version, dict) else {}
        value[key] = table
        value.pop(VERSION, None)
        value = {VERSION: version, **value}
        if current.state is ConfigFileState.SOUND and current.text.value == value:
            self._unchanged.append(f"{names.CONFIG}/{name}")
            return
        counter, timestamp = version.get("counter", 0), version.get("timestamp", 0)
        value[VERSION] = {
            **version,
            "counter": (counter if isinstance(counter, int) and counter >= 0 else 0) + 1,
            "timestamp": max(self._disk.now_ms(), timestamp + 1 if isinstance(timestamp, int) else 0),
        }
        self._add(name, part, current, why, sources, value, len(table), lines)

    def _add(
        self,
        name: str,
        part: RebuildPart,
        current: ConfigTable,
        why: str,
        sources: list[Source],
        value: dict[str, Any],
        entries: int,
        lines: list[str],
    ) -> None:
        backup = read_table(self._disk, self._directory, name, backup=True)
        nothing = current.state is ConfigFileState.MISSING and not entries and backup.state is ConfigFileState.MISSING
        if (current.state is ConfigFileState.SOUND and current.text.value == value) or (
            nothing and not self._all(part)
        ):
            if current.state is not ConfigFileState.MISSING:
                self._unchanged.append(f"{names.CONFIG}/{name}")
            return
        path = os.path.join(self._directory, name)
        there = self._disk.exists(path)
        odd = there and not self._disk.stat(path).is_file
        keeps = None
        if current.loads:
            keeps = "old"
        elif not backup.loads and backup.state is not ConfigFileState.MISSING:
            keeps = "new"
        data = fastjson.dumps(value).encode("utf-8", "replace")
        labels = tuple(source.label for source in sources)
        self._changes.append(
            FilePlan(name, part, path, why, labels, entries, data, value, tuple(lines), there, odd, keeps)
        )
