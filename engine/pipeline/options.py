"""The options of the data source `rocketmq-store`, with their defaults; names in any case, as Spark gives them.

| option | says |
|---|---|
| `path` | stores and repositories: directories, globs or s3://…, commas between them, each also as `NAME=PATH` |
| `columns` | names with commas between them, in that order (default: all; see engine.pipeline.schema) |
| `includeBody` | `false`: all columns but `body` (default: true) |
| `topic` | records of one topic, or of several with commas between them; one that no store knows is an error |
| `consumable` | `true`: neither prepared nor rolled back messages; a narrow `topic` is then read through its queues |
| `startOffset`, `endOffset` | physical offsets: records from the first on, and before the second |
| `startTime`, `endTime` | store time: from the first on, and before the second; ISO 8601, epoch ms, `2 hours ago` |
| `splitBytes` | about how many bytes of log a task reads (default: 128M) |
| `onDamage` | `fail` (default), `mark` (a row whose `damage` says what), `skip` (counted: `damage()` in source.py) |
| `decompress` | `true`: bodies that a producer compressed (zlib, lz4, zstd) as it had them (default: false) |
| `config` | a broker's properties file, which holds for all stores |
| `clockSlack` | how far the clock of a broker may have been set back, for `startTime` and `endTime` (default: 1h) |
| `pushFilters` | `true`: Spark's filters are looked at before rows are made; one query a `load()` (see source.py) |
| `startingOffsets`, `endingOffsets` | `earliest`, `latest`, or JSON by store, `{"NAME": 1234}`: physical offsets |
| `maxBytesPerTrigger`, `maxRecordsPerTrigger` | streaming: how much a micro-batch takes of all stores, about |
| `failOnDataLoss` | streaming: `false` continues where the log begins when what comes next is gone (default: true) |
| `snapshot` | of repositories: the beginning of an ID (default: the latest of each store); a path may end with `@ID` |
| `storeName` | of repositories: only stores of this name; several with commas between them |
| `archived` | of repositories: `true` reads the segments of each store's archive before its snapshot (default: false) |
| `keyFile`, `keyCommand` | file with a repository's key, or program that prints it, on driver and executors alike |
"""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.backup.secret import KeySource
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.quantities import parse_duration, parse_size, parse_time
from engine.pipeline.filters import Range, Wanted
from engine.pipeline.repositories import RepositoryChoice
from engine.pipeline.schema import COLUMNS
from engine.pipeline.splits import SPLIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FAIL, MARK, SKIP = "fail", "mark", "skip"
EARLIEST, LATEST = "earliest", "latest"
NAMES = (
    "path", "columns", "includeBody", "topic", "consumable", "startOffset", "endOffset", "startTime", "endTime",
    "splitBytes", "onDamage", "decompress", "config", "clockSlack", "pushFilters", "startingOffsets",
    "endingOffsets", "maxBytesPerTrigger", "maxRecordsPerTrigger", "failOnDataLoss", "snapshot", "storeName",
    "keyFile", "keyCommand", "archived",
)  # fmt: skip
_SPARKS_OWN = frozenset({"paths"})
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options, read. Sizes in bytes, times in ms since 1970, offsets physical.

    Attributes:
        starting_offsets: EARLIEST, LATEST (streams only), or an offset by store; a store that isn't named begins with
            its log.
        ending_offsets: LATEST, or an offset by store, which is not read any more; for batches. A store that isn't named
            is read to its end.
        max_bytes, max_records: of a micro-batch, None for all that there is.
        repositories: which snapshots of repositories are read, and what opens them.
    """

    places: tuple[str, ...] = ()
    columns: tuple[str, ...] = tuple(COLUMNS)
    wanted: Wanted = field(default_factory=Wanted)
    split_bytes: int = SPLIT_BYTES
    on_damage: str = FAIL
    decompress: bool = False
    config: Path | None = None
    clock_slack: int = HOUR_MS
    push_filters: bool = False
    starting_offsets: str | Mapping[str, int] = EARLIEST
    ending_offsets: str | Mapping[str, int] = LATEST
    max_bytes: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    repositories: RepositoryChoice = field(default_factory=RepositoryChoice)

    def of_store(self, wanted: Wanted, name: str) -> Wanted:
        """What is wanted of a store, in a batch: between its `startingOffsets` and `endingOffsets`."""
        starting, ending = self.starting_offsets, self.ending_offsets
        low = None if isinstance(starting, str) else starting.get(name)
        high = None if isinstance(ending, str) else ending.get(name)
        return wanted.narrowed(physical_offset=_range(low, high))


def parse(options: Mapping[str, str]) -> SourceOptions:
    """The options of one `load()`.

    Raises:
        InvalidArgument: one that doesn't exist, or a value that makes no sense; it says what there is.
    """
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name not in known and name not in _SPARKS_OWN:
            raise InvalidArgument(f"unknown option: {name}", hint="there are " + ", ".join(NAMES))

    def text(name: str) -> str | None:
        value = given.get(name.lower(), "").strip()
        return value or None

    def size(name: str, least: int = 0) -> int | None:
        value = text(name)
        parsed = None if value is None else parse_size(value, name)
        if parsed is not None and parsed < least:
            raise InvalidArgument(f"{name} = {value}: must be ≥ {least}")
        return parsed

    def flag(name: str, default: bool) -> bool:
        value = (text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidArgument(f"{name} = {value}: must be true or false")
        return value == "true"

    def time(name: str) -> int | None:
        value = text(name)
        return None if value is None else parse_time(value, name)

    topics = _words(text("topic"))
    wanted = Wanted(
        topics=frozenset(topics) if topics else None,
        consumable=flag("consumable", False),
        physical_offset=_range(size("startOffset"), size("endOffset")),
        store_timestamp=_range(time("startTime"), time("endTime")),
    )
    config = text("config")
    slack = text("clockSlack")
    return SourceOptions(
        places=_places(given),
        columns=_columns(_words(text("columns")), flag("includeBody", True)),
        wanted=wanted,
        split_bytes=size("splitBytes", 1) or SPLIT_BYTES,
        on_damage=_one_of("onDamage", text("onDamage") or FAIL, (FAIL, MARK, SKIP)),
        decompress=flag("decompress", False),
        config=None if config is None else Path(config),
        clock_slack=HOUR_MS if slack is None else parse_duration(slack, "clockSlack"),
        push_filters=flag("pushFilters", False),
        starting_offsets=_offsets("startingOffsets", text("startingOffsets") or EARLIEST, (EARLIEST, LATEST)),
        ending_offsets=_offsets("endingOffsets", text("endingOffsets") or LATEST, (LATEST,)),
        max_bytes=size("maxBytesPerTrigger", 1),
        max_records=size("maxRecordsPerTrigger", 1),
        fail_on_data_loss=flag("failOnDataLoss", True),
        repositories=RepositoryChoice(
            text("snapshot"),
            tuple(_words(text("storeName"))),
            KeySource(text("keyFile"), text("keyCommand")),
            flag("archived", False),
        ),
    )


def _places(given: Mapping[str, str]) -> tuple[str, ...]:
    """What `load()` was told: one path, or several (Spark's own option `paths`: JSON)."""
    places = _words(given.get("path"))
    if "paths" in given:
        try:
            several = json.loads(given["paths"])
        except ValueError:
            several = [given["paths"]]
        places += [place for one in several for place in _words(str(one))]
    return tuple(places)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _columns(names: Iterable[str], include_body: bool) -> tuple[str, ...]:
    wanted = list(names) or list(COLUMNS)
    for i, name in enumerate(wanted):
        if name not in COLUMNS:
            raise InvalidArgument(f"no such column: {name}", hint="there are " + ", ".join(COLUMNS))
        if name in wanted[:i]:
            raise InvalidArgument(f"columns: {name} is given twice")
    chosen = tuple(name for name in wanted if include_body or name != "body")
    if not chosen:
        raise InvalidArgument("no column is left without the body", hint="give other columns, or includeBody = true")
    return chosen


def _range(start: int | None, end: int | None) -> Range:
    limits = Range()
    if start is not None:
        limits = limits.both(Range(low=start))
    if end is not None:
        limits = limits.both(Range(high=end - 1))
    return limits


def demand_stores(name: str, offsets: str | Mapping[str, int], stores: Iterable[str]) -> None:
    """Raises InvalidArgument: the option `name` has an offset of a store that isn't there."""
    there = list(stores)
    for store in () if isinstance(offsets, str) else offsets:
        if store not in there:
            raise InvalidArgument(f"{name}: no such store: {store}", hint="there are " + ", ".join(there))


def _one_of(name: str, value: str, values: tuple[str, ...]) -> str:
    if value.lower() not in values:
        raise InvalidArgument(f"{name} = {value}: there are " + ", ".join(values))
    return value.lower()


def _offsets(name: str, text: str, words: tuple[str, ...]) -> str | Mapping[str, int]:
    if text.lower() in words:
        return text.lower()
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not all(type(v) is int and v >= 0 for v in offsets.values()):
        raise InvalidArgument(
            f"{name} = {text}: must be {', '.join(words)}, or a physical offset per store",
            hint='for example {"broker-a": 1073741824}',
        )
    return offsets
