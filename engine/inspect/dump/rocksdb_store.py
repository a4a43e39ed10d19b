"""What lies in `rocksdbstore/`, the database that a broker of RocketMQ 5.4 and later has of its own. Reads alone.

A broker that runs keeps the log of this database in memory: of its latest entries only those are here that it has
written out, which it does at its close.

Source: MessageRocksDBStorage (5.4.0, 5.5.0).
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.rocksdb import RocksDatabase
from engine.format import names
from engine.format.rocksdb_store import (
    PROGRESS,
    FamilyProgress,
    HalfEntry,
    KeyedEntry,
    StoreEntry,
    WaitingEntry,
    decode,
)
from engine.inspect.dump.dump import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

UNKNOWN = "unknown"
_KINDS = {KeyedEntry: "index", WaitingEntry: "timer", HalfEntry: "half", FamilyProgress: "progress"}
_NAMES = {
    "kind": "type",
    "physical_offset": "physicalOffset",
    "store_timestamp": "storeTimestamp",
    "due_time": "dueTime",
    "uniq_key": "uniqKey",
    "check_times": "checkTimes",
}


@dataclass(frozen=True, slots=True)
class DatabaseRow:
    """One key of a column family with its value.

    `kind`: index, timer, half or progress (with `entry`), UNKNOWN (of a family that is not known), or DAMAGE (with
    `reason`: a broker does not read it so).
    """

    kind: str
    family: str
    key: bytes
    value: bytes
    entry: StoreEntry | None = None
    reason: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What the entry says, by name."""
        if self.entry is None:
            return {}
        return {_NAMES.get(name, name): value for name, value in asdict(self.entry).items()}

    def to_json(self) -> dict[str, Any]:
        """One line."""
        named = {} if self.reason is None else {"reason": self.reason}
        head = {"kind": self.kind, "family": self.family}
        return head | self.fields | named | {"rawKey": self.key.hex(), "rawValue": self.value.hex()}


class StoreDatabase:
    """The database, open.

    Attributes:
        families: its column families, those that are known first.
        problems: what keeps parts of it from being read: a log that ends early, tables that its manifest lacks.
    """

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database
        known = [name for name in PROGRESS if name in database.families]
        self.families = (*known, *sorted(set(database.families) - set(known)))
        self.problems: list[FormatError] = [] if database.torn is None else [database.torn]
        self.problems += [
            FormatError("its manifest does not name this table: it is not read", path=f"{database.directory}/{name}")
            for name in database.unnamed
        ]

    def rows(self, families: tuple[str, ...]) -> Iterator[DatabaseRow]:
        """Every key of these families, in RocksDB's order. Raises FormatError, StorageError."""
        for family in families:
            for item in self._database.items(family):
                key, value = bytes(item.key), bytes(item.value)
                try:
                    entry = decode(family, key, value)
                except FormatError as error:
                    yield DatabaseRow(DAMAGE, family, key, value, reason=error.message)
                    continue
                kind = UNKNOWN if entry is None else _KINDS[type(entry)]
                yield DatabaseRow(kind, family, key, value, entry)


@contextmanager
def store_database(disk: Disk, files: StoreFiles) -> Iterator[StoreDatabase | None]:
    """Opens it; None: the store has none.

    Raises:
        NotInstalled: what reads RocksDB is not there. FormatError: RocksDB can't read it. StorageError.
    """
    directory = os.path.join(files.root, names.ROCKSDB_STORE)
    if disk.look(directory) is None or (disk.is_dir(directory) and not disk.scandir(directory)):
        yield None
        return
    with RocksDatabase(disk, directory) as database:
        yield StoreDatabase(database)
