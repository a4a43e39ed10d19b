"""What an exported table says of itself: `_rstore/` in its directory, which readers of Parquet pass over.

`export.json` has, for each store, the ranges of its log that the table has rows of, and with which choice; and what
tells the store again. That is how a row is never exported twice. It changes together with the files: they are written
to `staging` first; `pending.json` then names where each belongs, and what `export.json` will be; then they are moved.
Whoever finds a `pending.json` moves what is left to be moved: killed anywhere, the table has a whole run or none of it,
once the next run has begun. `lock` keeps two runs apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument, Refused, StorageError, from_os_error
from engine.files.lock import StoreLock
from engine.log.source import ClosedLog
from engine.pipeline.places import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.pipeline.stores import StoreRef

HIDDEN = "_rstore"
_MANIFEST, _PENDING, _STAGING = "export.json", "pending.json", "staging"
_VERSION = 1
_BY_HOUR_VERSION = 2
"""What a table by hour says: who knows only days would put them beside its hours."""
_WITNESS = 4096
"""Bytes of a log before a range's end, by which its store is recognised again."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records of a log were exported: of some topics (none named: all), stored in [start, end) (ms).

    A time of None: open on that side.
    """

    topics: tuple[str, ...] = ()
    start_time: int | None = None
    end_time: int | None = None

    def covers(self, other: Choice) -> bool:
        """Whether it has every record that `other` has."""
        return (
            (not self.topics or (bool(other.topics) and set(self.topics) >= set(other.topics)))
            and (self.start_time is None or (other.start_time is not None and self.start_time <= other.start_time))
            and (self.end_time is None or (other.end_time is not None and other.end_time <= self.end_time))
        )


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Physical offsets [start, end) of a log, and the choice with which they were exported."""

    start: int
    end: int
    choice: Choice


@dataclass(slots=True)
class ExportedStore:
    """What the table has of one store. `witness`: place, length and CRC of bytes of its log, [] for none.

    `settings`: those of its StoreConfig that a store made of the table gets. `snapshots`: what came from backups: a
    snapshot's ID, and the physical offsets [start, end) that were exported of it.
    """

    log_ranges: list[ExportedRange] = field(default_factory=list)
    witness: list[int] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    snapshots: list[tuple[str, int, int]] = field(default_factory=list)

    def next_of(self, choice: Choice) -> int | None:
        """Physical offset up to which everything of a choice is in the table; None: nothing is."""
        ends = [known_range.end for known_range in self.log_ranges if known_range.choice.covers(choice)]
        return max(ends, default=None)

    def overlaps(self, start: int, choice: Choice) -> bool:
        """Whether some rows of the log from `start` on may be in the table, by another choice."""
        return any(one.end > start for one in self.log_ranges if not one.choice.covers(choice))


@dataclass(slots=True)
class Manifest:
    """The whole file. `columns`: names of the table's columns; `decompressed`: whether bodies are; `by`: `day` or
    `hour`, how finely it is partitioned by time.
    """

    columns: tuple[str, ...] = ()
    decompressed: bool = False
    stores: dict[str, ExportedStore] = field(default_factory=dict)
    by: str = "day"

    def to_json(self) -> dict[str, Any]:
        """What is written."""
        return {
            "version": _VERSION if self.by == "day" else _BY_HOUR_VERSION,
            "by": self.by,
            "columns": list(self.columns),
            "decompressed": self.decompressed,
            "stores": {
                name: {
                    "stretches": [
                        [s.start, s.end, _topics_as_stored(s.choice), s.choice.start_time, s.choice.end_time]
                        for s in known.log_ranges
                    ],
                    "witness": known.witness,
                    "settings": known.settings,
                    "snapshots": [list(one) for one in known.snapshots],
                }
                for name, known in self.stores.items()
            },
        }

    @classmethod
    def of_json(cls, value: Any, path: str) -> Manifest:
        """Raises FormatError: it is none."""
        try:
            if value["version"] not in (_VERSION, _BY_HOUR_VERSION):
                raise FormatError(
                    f"the table was written by another version of rstore (format {value['version']})", path=path
                )
            stores = {
                name: ExportedStore(
                    [
                        ExportedRange(start, end, Choice(_stored_topics(topics), *times))
                        for start, end, topics, *times in known["stretches"]
                    ],
                    list(known["witness"]),
                    dict(known["settings"]),
                    [(str(name), int(start), int(end)) for name, start, end in known.get("snapshots", ())],
                )
                for name, known in value["stores"].items()
            }
            return cls(tuple(value["columns"]), bool(value["decompressed"]), stores, str(value.get("by", "day")))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FormatError("invalid export.json", path=path) from None


def _topics_as_stored(choice: Choice) -> str | list[str] | None:
    """None for all, a name for one (as tables had it before there could be several), else names."""
    return (list(choice.topics) if len(choice.topics) > 1 else choice.topics[0]) if choice.topics else None


def _stored_topics(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))


class ExportedTable:
    """The directory of a table, held by one process. A context manager.

    Args:
        disk: how its files are reached.
        directory: made when absent; anything else in it that is no table is refused.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = os.path.abspath(directory)
        self._hidden = os.path.join(self.directory, HIDDEN)
        self._stagings = os.path.join(self._hidden, _STAGING)
        self._run = secrets.token_hex(8)  # tasks of a killed run may write on for a while
        self.staging = os.path.join(self._stagings, self._run)
        self._lock = StoreLock(disk, self._hidden)
        self.manifest = Manifest()

    def __enter__(self) -> ExportedTable:
        if not self._disk.is_dir(self._hidden):
            if self._disk.exists(self.directory) and self._disk.listdir(self.directory):
                raise Refused(
                    "the directory is not empty, and rstore did not export into it",
                    path=self.directory,
                    hint="give the table of an earlier export or a new directory",
                )
            self._disk.mkdirs(self._hidden)
        self._lock.acquire()
        try:
            self._settle()
            self.manifest = read_manifest(self._disk, self.directory) or Manifest()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and issubclass(kind, Exception | KeyboardInterrupt) and not self._is_pending:
                with contextlib.suppress(StorageError):  # the next run clears it, too
                    self._clear()
        finally:
            self._lock.release()

    def commit(self, moves: Iterable[tuple[str, str]], manifest: Manifest) -> None:
        """Put files of `staging` in their places: (path below staging, path below the table). All of it or nothing."""
        moves = list(moves)
        for source, _ in moves:
            self._make_durable(os.path.join(self.staging, source))
        plan = {
            "moves": [[os.path.join(self._run, source), target] for source, target in moves],
            "manifest": manifest.to_json(),
        }
        self._write(_PENDING, plan)
        self._disk.step("export.pending")
        self._settle()
        self.manifest = manifest

    def files(self) -> list[tuple[str, int]]:
        """Parquet files below `staging`: path from there, bytes."""
        files = []
        for directory, _, names in os.walk(self.staging):
            for name in sorted(names):
                if name.endswith(".parquet"):
                    path = os.path.join(directory, name)
                    files.append((os.path.relpath(path, self.staging), os.path.getsize(path)))
        return sorted(files)

    def is_empty(self) -> bool:
        """Whether the table has no Parquet file yet: what was exported so far held no message."""
        places = (names for place, _, names in os.walk(self.directory) if not place.startswith(self.staging))
        return not any(name.endswith(".parquet") for names in places for name in names)

    def _settle(self) -> None:
        """Finish what was pending, and clear the staging place."""
        pending = os.path.join(self._hidden, _PENDING)
        if self._disk.exists(pending):
            plan = _load(self._disk, pending)
            for source, target in plan["moves"]:
                self._move(os.path.join(self._stagings, source), os.path.join(self.directory, target))
            self._write(_MANIFEST, plan["manifest"])
            self._disk.step("export.committed")
            self._disk.unlink(pending)
            self._disk.sync_dir(self._hidden)
        self._clear()

    @property
    def _is_pending(self) -> bool:
        return self._disk.exists(os.path.join(self._hidden, _PENDING))

    def _make_durable(self, path: str) -> None:
        """Spark doesn't sync what it writes; once it counts as exported, nobody writes it again."""
        file = self._disk.open_raw(path, writable=True)
        try:
            file.sync(0, file.size())
        finally:
            file.close()

    def _clear(self) -> None:
        if self._disk.exists(self._stagings):
            try:
                shutil.rmtree(self._stagings)
            except OSError as error:
                raise from_os_error(error, "clearing", self._stagings) from None

    def _move(self, source: str, target: str) -> None:
        if not self._disk.exists(source):
            if not self._disk.exists(target):
                raise StorageError("a file of an interrupted export is missing", path=source)
            return
        directory = os.path.dirname(target)
        self._disk.mkdirs(directory)
        self._disk.replace(source, target)
        self._disk.sync_dir(directory)
        self._disk.step("export.moved")

    def _write(self, name: str, value: Any) -> None:
        self._disk.write_file_atomically(os.path.join(self._hidden, name), json.dumps(value, indent=1).encode())


def read_manifest(disk: Disk, directory: str) -> Manifest | None:
    """What a table says of itself; None where it says nothing. Raises FormatError, StorageError."""
    path = os.path.join(directory, HIDDEN, _MANIFEST)
    return Manifest.of_json(_load(disk, path), path) if disk.exists(path) else None


def is_pending(disk: Disk, directory: str) -> bool:
    """Whether an export into the table was interrupted while it moved files. Raises StorageError."""
    return disk.exists(os.path.join(directory, HIDDEN, _PENDING))


def witness_of(disk: Disk, store: StoreRef, end: int) -> list[int]:
    """Place, length and CRC of the last bytes of a log before the physical offset `end`. Raises StorageError."""
    for segment in store.segments:
        if segment.offset < end <= segment.end:
            start = max(segment.offset, end - _WITNESS)
            with ClosedLog(disk, [segment]) as log:
                return [start, end - start, zlib.crc32(log.read(start, end - start))]
    return []


def demand_same(disk: Disk, store: StoreRef, known: ExportedStore) -> None:
    """Raises Refused: the log of that name has other bytes than the one that was exported. StorageError."""
    if not known.witness:
        return
    start, length, _ = known.witness
    if store.segments and start < store.segments[0].offset:
        return  # gone with its file since
    if witness_of(disk, store, start + length) != known.witness:
        raise Refused(
            f"the table has rows of another store named {store.name}, or of messages that were cut from this one",
            path=store.root,
            offset=start,
            hint=f"give it another name (NAME={store.root}), or export into another directory",
        )


def local_directory(place: str) -> str:
    """The absolute path. Raises InvalidArgument: no directory that this machine can rename files in."""
    if not place:
        raise InvalidArgument("the directory of the table is required", hint="--output DIR")
    return os.path.abspath(local_path(place))


def _load(disk: Disk, path: str) -> Any:
    try:
        return json.loads(disk.read_file(path))
    except ValueError as error:
        raise FormatError(f"not JSON: {error}", path=path) from None
