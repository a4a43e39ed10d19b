"""One file of config/ as it lies there, and what a broker that starts now makes of it and of its .bak.

ConfigManager#load: a file that is missing, empty or can't be read gives way to its .bak. Without a .bak a broker starts
with none of it; with one that can't be read either it does not start (BrokerController#initialize, for delayOffset.json
DefaultMessageStore#load). A file of spaces, `null` or `[]` loads nothing, and its .bak is not looked at.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import fastjson, lenient, names
from engine.format.rocksdb_config import DATABASE_V2, DATABASES
from engine.inspect.store.config_shapes import TABLES, Shape, judge
from engine.inspect.store.rocksdb_config import config_database, counter_of, merged, read_database

if TYPE_CHECKING:
    from engine.files.disk import Disk

LARGEST = 64 << 20
"""Bytes of a file that is read. The largest that were seen have a few; a sparse one of a terabyte is no table."""
BACKUP = ".bak"
TEMPORARY = ".tmp"
"""What the name of a file ends in while a broker writes it (MixAll#string2File)."""


class ConfigFileState(enum.Enum):
    """What became of reading a file. EMPTY: no bytes. BLANK: read, and nothing in it."""

    MISSING = "missing"
    EMPTY = "empty"
    BLANK = "blank"
    BROKEN = "broken"
    WRONG = "wrong"
    SOUND = "sound"

    @property
    def is_sound(self) -> bool:
        """Whether a broker reads it, and there is something to read."""
        return self is ConfigFileState.SOUND


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A file's JSON. `value`: as far as it can be read. `problem`: why a broker can't, in one sentence; `odd`: what of
    it only fastjson reads. `database`: name of the RocksDB database that it was read from; empty of a file.
    `torn`: why the end of its write-ahead log is not in it."""

    state: ConfigFileState
    value: Any = None
    problem: str | None = None
    odd: tuple[str, ...] = ()
    database: str = ""
    torn: str = ""


@dataclass(frozen=True, slots=True)
class ConfigTable:
    """One file of config/ with what its tables hold: entries that a broker could read."""

    name: str
    text: ConfigText
    state: ConfigFileState
    tables: dict[str, dict[str, Any]]
    problem: str | None

    @property
    def loads(self) -> bool:
        """Whether a broker takes it."""
        return self.state in (ConfigFileState.SOUND, ConfigFileState.BLANK)


NO_FILE = "the file does not exist"
"""The problem of a missing file."""


class Fate(enum.Enum):
    """What a broker that starts now does with a file and its .bak."""

    FILE = "reads it"
    BACKUP = "reads its .bak"
    NONE = "starts without it"
    FAILS = "does not start"


def present_in(disk: Disk, directory: str) -> set[str]:
    """The names in a directory, of whatever kind; none where there is no directory. A file in whose place a database
    of RocketMQ 5 is read counts as present. Raises StorageError."""
    present = set(disk.listdir(directory)) if disk.is_dir(directory) else set()
    if present & {*DATABASES.values(), DATABASE_V2}:
        present |= {name for name in DATABASES if config_database(disk, directory, name) is not None}
    return present


def read_text(disk: Disk, directory: str, name: str) -> ConfigText:
    """The JSON of a file, or of the database in RocksDB that its broker reads in place of it. Reads `LARGEST` bytes of
    a file at most. Raises StorageError."""
    database = config_database(disk, directory, name)
    if database is None:
        return _read_file(disk, directory, name)
    table = read_database(disk, database, name)
    place = os.path.basename(database)
    if table.problem is not None:
        return ConfigText(ConfigFileState.BROKEN, table.value, table.problem, database=place)
    file = _read_file(disk, directory, name) if place != DATABASE_V2 else ConfigText(ConfigFileState.MISSING)
    if file.state is ConfigFileState.SOUND and counter_of(file.value) > table.counter():
        return ConfigText(
            ConfigFileState.SOUND, merged(name, table.value, file.value), odd=file.odd, database=place, torn=table.torn
        )
    return ConfigText(ConfigFileState.SOUND, table.value, database=place, torn=table.torn)


def _read_file(disk: Disk, directory: str, name: str) -> ConfigText:
    path = os.path.join(directory, name)
    if not disk.exists(path):
        return ConfigText(ConfigFileState.MISSING, problem=NO_FILE)
    entry = disk.stat(path)
    if not entry.is_file:
        return ConfigText(ConfigFileState.BROKEN, problem="not a regular file")
    if entry.size > LARGEST:
        return ConfigText(
            ConfigFileState.BROKEN, problem=f"{entry.size} bytes: a file of more than {LARGEST >> 20} MiB is not read"
        )
    if not entry.size:
        return ConfigText(ConfigFileState.EMPTY, problem="the file is empty")
    return parse(disk.read_file(path, LARGEST))


def parse(data: bytes) -> ConfigText:
    """The JSON in a file's bytes."""
    text = data.decode("utf-8", "replace")
    if not text.strip("\0 \t\r\n"):
        if "\0" in text:
            return ConfigText(ConfigFileState.BROKEN, problem="the file contains only zeros")
        return ConfigText(ConfigFileState.BLANK, problem="the file is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return ConfigText(ConfigFileState.BROKEN, problem="the file is UTF-16 text, not UTF-8")
    twice: list[str] = []
    try:
        value = fastjson.loads(text, twice.append)
        return ConfigText(ConfigFileState.SOUND, value, odd=(lenient.TWICE,) if twice else ())
    except FormatError as error:
        parsed = lenient.read(text)
        if parsed.broken is None:
            return ConfigText(ConfigFileState.SOUND, parsed.value, odd=parsed.odd)
        return ConfigText(ConfigFileState.BROKEN, parsed.value, error.message, parsed.odd)


def read_table(disk: Disk, directory: str, name: str, *, backup: bool = False) -> ConfigTable:
    """A file that a broker knows (`TABLES`), or its .bak. Raises StorageError."""
    return as_table(name, read_text(disk, directory, name + (BACKUP if backup else "")))


def as_table(name: str, text: ConfigText) -> ConfigTable:
    """The tables in a file's JSON."""
    if text.state is ConfigFileState.SOUND or (text.state is ConfigFileState.BROKEN and isinstance(text.value, dict)):
        shape = judge(name, text.value)
        blank = text.value is None or text.value == [] or _is_another(name, text.value)
        state = ConfigFileState.BLANK if blank else ConfigFileState.WRONG if shape.count else ConfigFileState.SOUND
        if not shape.whole:
            state = ConfigFileState.BROKEN
        if text.state is ConfigFileState.BROKEN:
            return ConfigTable(name, text, ConfigFileState.BROKEN, shape.tables, text.problem)
        nothing = "the file is empty" if not text.value else f"it contains no {TABLES[name][0]}"
        problem = nothing if blank else shape.problem
        return ConfigTable(name, text, state, shape.tables, problem)
    return ConfigTable(name, text, text.state, Shape({key: {} for key in TABLES[name]}).tables, text.problem)


def _is_another(name: str, value: Any) -> bool:
    """Whether an object holds none of the file's tables: Apache loads nothing of it."""
    return isinstance(value, dict) and bool(value) and not value.keys() & set(TABLES[name])


def fate(file: ConfigTable, backup: ConfigTable) -> Fate:
    """What a broker does. Source: ConfigManager#load, #loadBak."""
    if file.loads:
        return Fate.FILE
    if file.text.database:  # RocksDBConfigManager: what can't be opened or decoded ends the start
        return Fate.FAILS
    if backup.loads:
        return Fate.BACKUP
    return Fate.NONE if backup.state in (ConfigFileState.MISSING, ConfigFileState.EMPTY) else Fate.FAILS


def directory_of(root: str) -> str:
    """Where the files are."""
    return os.path.join(root, names.CONFIG)


@dataclass(frozen=True, slots=True)
class ConfigDump:
    """One file of config/: what it holds, read from `source`: the file itself, or its .bak when that is broken.

    `problem`: what is wrong with the file itself; `source` None: neither can be read.
    """

    name: str
    source: str | None
    value: Any = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One line of `dump config`."""
        row: dict[str, Any] = {"file": self.name, "source": self.source}
        if self.source is not None:
            row["value"] = self.value
        if self.problem is not None:
            row["problem"] = self.problem
        return row


def read_config(disk: Disk, root: str, name: str) -> ConfigDump:
    """One file of config/, with the .bak where it is broken or missing. Raises StorageError."""
    directory = directory_of(root)
    file = read_text(disk, directory, name)
    if file.state is ConfigFileState.SOUND:
        return ConfigDump(name, f"{file.database}/" if file.database else name, file.value)
    if file.database:
        return ConfigDump(name, None, None, file.problem)
    also = read_text(disk, directory, name + BACKUP)
    if also.state is ConfigFileState.SOUND:
        return ConfigDump(name, name + BACKUP, also.value, file.problem)
    return ConfigDump(name, None, None, f"{file.problem}; {name}{BACKUP}: {also.problem}")
