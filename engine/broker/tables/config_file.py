"""The broker's tables as files in config/, written and found again as Apache does.

A `KeptTable` changes all the time and is written now and then; a `VersionedTable` is written at each change, with a
version that tells other brokers and name servers that it is another. What clients make by themselves is written beside
the loop, all that came meanwhile at once: a client that makes thousands costs the others nothing.

Sources: ConfigManager, MixAll#string2File, DataVersion.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from engine.broker.requests.answers import Answer
from engine.broker.tables.unwritten import Unwritten
from engine.dataclass import dataclass
from engine.errors import CannotRepair, RStoreError, Shortage
from engine.format import fastjson
from engine.inspect.store.config_files import BACKUP, ConfigFileState, read_text
from engine.inspect.store.config_shapes import TABLES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from engine.broker.tables.config_history import ConfigHistory
    from engine.files.disk import Disk

Entry = TypeVar("Entry")


class ConfigFile:
    """One table's file, and the one before it (`.bak`).

    `history`: where its states are kept, too; `unwritten`: is told where it can't be written for a lack of something.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        name: str,
        history: ConfigHistory | None = None,
        unwritten: Unwritten | None = None,
    ) -> None:
        self._disk = disk
        self._name = name
        self._history = history
        self._unwritten = unwritten or Unwritten(disk)
        self._lock = threading.Lock()
        self._newest = 0
        self._directory = os.path.join(root, "config")
        self.path = os.path.join(self._directory, name)

    def load(self) -> dict[str, Any]:
        """What the file says, or where it is missing or broken, its `.bak`; {} when neither is there.

        Raises:
            CannotRepair: something is there, and can't be read. StorageError.
        """
        wrong: list[str] = []
        for name in (self._name, self._name + BACKUP):
            text = read_text(self._disk, self._directory, name)
            if text.state is ConfigFileState.SOUND and isinstance(text.value, dict):
                return text.value
            if text.state is not ConfigFileState.MISSING:
                wrong.append(f"{name}: {text.problem or 'not a JSON object'}")
        if wrong:
            hint = "rstore rebuild-config rebuilds it" if self._name in TABLES else "repair it, or move it away"
            raise CannotRepair("; ".join(wrong), path=self.path, hint=hint)
        return {}

    def save(self, value: dict[str, Any], number: int | None = None) -> None:
        """Replace the file, durably; what it held is in `.bak` then. In any thread. Raises DiskFull, StorageError.

        `number`: of the state. One that is older than what is written already isn't written: the newer has all of it.
        """
        text = fastjson.dumps(value).encode()
        with self._lock:
            if number is not None and number < self._newest:
                return
            try:
                self._disk.mkdirs(self._directory)
                if self._disk.exists(self.path):
                    self._disk.write_file_atomically(self.path + ".bak", self._disk.read_file(self.path))
                self._disk.write_file_atomically(self.path, text)
            except Shortage as error:
                self._unwritten.failed(self.path, error, len(text))
                raise
            self._unwritten.written(self.path)
            self._newest = self._newest if number is None else number
        if self._history is not None:
            self._history.note(self._name, text)


class Changes(NamedTuple):
    """A state of a kept table that is to be written. `number`: which, from 1 on; `table`: gives it, in any thread."""

    number: int
    table: Callable[[], dict[str, Any]]


class KeptTable(ABC):
    """For the loop's thread alone, but `write`. Who changes it sets `_changed`.

    What was given out is unwritten until `write` is over: who has asked for it may be cancelled, or fail before.
    """

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._changed = False
        self._given = 0
        self._written = 0

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What the file says."""

    def _state(self) -> Callable[[], dict[str, Any]]:
        """What gives the file's content as it is now, in any thread: a large table makes its text beside the loop."""
        table = self.to_json()
        return lambda: table

    def changes(self) -> Changes | None:
        """What is to be written, None when the file has all of it."""
        if not self._changed and self._written == self._given:
            return None
        self._changed = False
        self._given += 1
        return Changes(self._given, self._state())

    def write(self, changes: Changes) -> None:
        """Write what `changes` gave, durably, unless a newer state is written; in any thread.

        Raises DiskFull, StorageError: it is still to be written.
        """
        self._file.save(changes.table(), changes.number)
        self._written = max(self._written, changes.number)

    def finish(self) -> None:
        """Write what isn't yet, before the end. Raises DiskFull, StorageError."""
        changes = self.changes()
        if changes is not None:
            self.write(changes)


@dataclass(slots=True)
class DataVersion:
    """Which state of a table: `timestamp` in ms, `counter`."""

    timestamp: int
    counter: int = 0

    def next(self, now_ms: int) -> None:
        """Another state."""
        self.timestamp, self.counter = now_ms, self.counter + 1

    def to_json(self) -> dict[str, int]:
        """As everywhere."""
        return {"counter": self.counter, "timestamp": self.timestamp}


class NotYet(Exception):
    """What a request needs is being written: it is to be handled again when `table` says so (`when_kept`)."""

    def __init__(self, table: VersionedTable[Any]) -> None:
        super().__init__()
        self.table = table


class VersionedTable(ABC, Generic[Entry]):
    """Entries by name. For the loop's thread alone.

    An entry comes in three ways: `_put` (changed or gone when that is durable, which somebody is told), `_put_soon`
    (there at once, and written soon) and `_demand` (there when it is durable; until then requests that need it wait).
    What comes while the file is written is in its next state, all of it at once. `changed` is called when entries have
    come, changed or gone.
    """

    def __init__(self, file: ConfigFile, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._loop = loop
        self._now_ms = now_ms
        self._table: dict[str, Entry] = {}
        self._demanded: dict[str, Entry] = {}
        self._changes: dict[str, Entry | None] = {}
        self._waiting: list[Callable[[RStoreError | None], None]] = []
        self._instead: tuple[DataVersion, dict[str, Entry]] | None = None
        self._unwritten = False
        self._writing = False
        self._number = 0
        self.version = DataVersion(now_ms())
        self.changed: Callable[[], None] = lambda: None

    @abstractmethod
    def _as_json(self, table: Mapping[str, Entry]) -> dict[str, Any]:
        """What the file says of these entries, without the version. In any thread."""

    def _beside(self, table: Mapping[str, Entry]) -> dict[str, Any]:
        """What the file says beside them, which nobody else is told. In any thread."""
        del table
        return {}

    def _not_kept(self, names: Iterable[str]) -> None:
        """Entries that were demanded could not be written, and are not there."""

    def _content(self, version: dict[str, int], table: Mapping[str, Entry]) -> dict[str, Any]:
        return {"dataVersion": version, **self._as_json(table), **self._beside(table)}

    def to_json(self) -> dict[str, Any]:
        """What the file says, and other brokers are told."""
        return {"dataVersion": self.version.to_json(), **self._as_json(self._table)}

    def _read(self, name: str, of_json: Callable[[str, Any], Entry]) -> dict[str, Entry]:
        """The table of that name in the file, whose version is ours then. Raises CannotRepair, StorageError."""
        version, table = self._parsed(self._file.load(), name, of_json)
        self.version = version or self.version
        return table

    def _parsed(
        self, content: dict[str, Any], name: str, of_json: Callable[[str, Any], Entry]
    ) -> tuple[DataVersion | None, dict[str, Entry]]:
        """Raises CannotRepair."""
        at, version = "dataVersion", None
        try:
            entry = content.get(at)
            if isinstance(entry, dict):
                version = DataVersion(int(entry.get("timestamp", 0)), int(entry.get("counter", 0)))
            table: dict[str, Entry] = {}
            for at, entry in content.get(name, {}).items():
                table[at] = of_json(at, entry)
        except (TypeError, ValueError, ArithmeticError, AttributeError, Answer) as error:
            raise CannotRepair(f"{at}: {error}", path=self._file.path) from None
        return version, table

    async def _take(self, content: dict[str, Any], name: str, of_json: Callable[[str, Any], Entry]) -> None:
        """A master's table instead of ours, with its version; nothing when that is ours. Durable when this returns.

        Raises:
            CannotRepair: it is none. DiskFull, StorageError.
        """
        version, table = await self._loop.run_in_executor(None, self._parsed, content, name, of_json)
        if version is None or version == self.version:
            return
        taken: asyncio.Future[RStoreError | None] = self._loop.create_future()
        self._instead = (version, table)
        self.when_kept(lambda failure: None if taken.done() else taken.set_result(failure))
        failure = await taken
        if failure is not None:
            raise failure

    # --- changes ----------------------------------------------------------------------------------------------------

    def _put(self, name: str, entry: Entry | None, done: Callable[[RStoreError | None], None]) -> None:
        """Make or change an entry, or (None) forget it, as soon as that is durable; `done` as of `when_kept`."""
        self._changes[name] = entry
        self.when_kept(done)

    def _put_soon(self, name: str, entry: Entry) -> None:
        """Make an entry; it is in the file soon: what can be made again need not be waited for."""
        self._table[name] = entry
        self._unwritten = True
        self._write()

    def _demand(self, name: str, entry: Entry) -> NoReturn:
        """Make an entry that is there as soon as it is durable. Raises NotYet."""
        self._demanded.setdefault(name, entry)
        raise NotYet(self)

    def when_kept(self, done: Callable[[RStoreError | None], None]) -> None:
        """Call `done` when what was demanded so far is durable, or with why it isn't, and then is not there."""
        self._waiting.append(done)
        self._write()

    def retry(self) -> None:
        """Write what could not be written; nothing when there is nothing."""
        if self._unwritten:
            self._write()

    def finish(self) -> None:
        """Write what isn't yet, before the end. Raises DiskFull, StorageError."""
        if self._unwritten or self._writing:
            self.version.next(self._now_ms())
            self._file.save(self._content(self.version.to_json(), self._table), self._number + 1)
            self._unwritten = False

    # --- writing beside the loop ------------------------------------------------------------------------------------

    def _write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.call_soon(self._begin)  # all that comes with the same bytes of a client is one write

    def _begin(self) -> None:
        coming, self._demanded = self._demanded, {}
        changes, self._changes = self._changes, {}
        waiting, self._waiting = self._waiting, []
        unwritten, self._unwritten = self._unwritten, False
        instead, self._instead = self._instead, None
        if instead is None:
            self.version.next(self._now_ms())
            if unwritten:
                self.changed()
        self._number += 1
        number = self._number
        version = (self.version if instead is None else instead[0]).to_json()
        before = self._table if instead is None else dict(self._table)
        table = _changed({**(self._table if instead is None else instead[1]), **coming}, changes)

        def write() -> RStoreError | None:
            try:
                self._file.save(self._content(version, table), number)
            except RStoreError as error:
                return error
            return None

        def written(future: asyncio.Future[RStoreError | None]) -> None:
            self._writing = False
            error = future.result()
            if error is None:
                if instead is not None:
                    self._replace(before, instead)
                for name, entry in coming.items():
                    self._table.setdefault(name, entry)
                _changed(self._table, changes)
                if coming or changes:  # who has looked meanwhile has seen that version without them
                    self.version.next(self._now_ms())
                    self.changed()
            else:
                self._unwritten |= unwritten
                self._not_kept(coming)
            for done in waiting:
                done(error)
            if self._waiting or (self._unwritten and error is None):
                self._write()

        self._loop.run_in_executor(None, write).add_done_callback(written)

    def _replace(self, before: Mapping[str, Entry], instead: tuple[DataVersion, dict[str, Entry]]) -> None:
        """A master's table is ours now, with what was made while it was written."""
        made = {name: entry for name, entry in self._table.items() if before.get(name) is not entry}
        self.version, table = instead
        self._table.clear()
        self._table.update(table | made)
        self.changed()


def _changed(table: dict[str, Entry], changes: Mapping[str, Entry | None]) -> dict[str, Entry]:
    """The same table, changed."""
    for name, entry in changes.items():
        if entry is None:
            table.pop(name, None)
        else:
            table[name] = entry
    return table
