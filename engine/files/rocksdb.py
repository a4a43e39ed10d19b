"""A RocksDB database of a store, read and never written, by the package rocksdict.

Theory. RocksDB writes where it reads: logs of its own, rocksdict its settings. So the directory that it is given is one
in the system's temporary directory: links to the tables (`.sst`), which nothing changes once they are written, and
copies of what is appended to (CURRENT, MANIFEST, the write-ahead logs). Opened so, read-only, what a killed broker has
in a write-ahead log alone is read as the broker will read it, and the user's directory has nothing added and no byte
changed. Of a running broker's database it is the state of that moment.

RocksDB is native code; it runs in a process of its own (rocksdb_child.py), so that a database that brings it down is an
error here. Whatever a key or value holds is its reader's business.

Sources: DB::OpenForReadOnly, VersionSet::Recover, log::Reader (RocksDB 10).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, NotInstalled, StorageError, from_os_error
from engine.files.disk import LARGEST_WHOLE
from engine.format.rocksdb_log import torn_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk

_AT_ONCE = 1 << 16
"""Items of one answer at most."""
_TRIES = 5
"""A running broker may delete a table between the look at the directory and its opening."""
_COPIED = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.log")
_LINKED = re.compile(r"\d+\.(sst|blob)")
_NAMED = re.compile(r"(MANIFEST-\d+|CURRENT|\d+\.(?:sst|blob|log))(?: offset (\d+))?")


@dataclass(frozen=True, slots=True)
class Item:
    """One key of a column family, with its value."""

    key: memoryview
    value: memoryview


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Items in a row: the lengths (bytes) of keys and values, and all keys and all values, one after the other."""

    key_sizes: list[int]
    value_sizes: list[int]
    keys: memoryview
    values: memoryview
    is_last: bool

    def __len__(self) -> int:
        return len(self.key_sizes)

    def items(self) -> Iterator[Item]:
        """One by one."""
        key_at = value_at = 0
        for key_size, value_size in zip(self.key_sizes, self.value_sizes, strict=True):
            yield Item(self.keys[key_at : key_at + key_size], self.values[value_at : value_at + value_size])
            key_at, value_at = key_at + key_size, value_at + value_size


def demand_rocksdict(directory: str) -> None:
    """Raises NotInstalled: what reads RocksDB is not there."""
    if not has_rocksdict():
        raise NotInstalled(
            "RocksDB is read by the package rocksdict, which is not installed",
            path=directory,
            hint="pip install 'rstore[rocksdb]'",
        )


def has_rocksdict() -> bool:
    """Whether the package that reads RocksDB is installed."""
    try:
        return importlib.util.find_spec("rocksdict") is not None
    except ValueError:  # somebody has put None in its place
        return False


class RocksDatabase:
    """An open database; close it. Thread-safe.

    Attributes:
        families: its column families.
        torn: the write-ahead log that ends in the middle of what was written, and why; RocksDB reads what is before.
        unnamed: tables that lie in the directory, and that its manifest does not name.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Open the database in `directory`.

        Raises:
            NotInstalled: rocksdict is not there. FormatError: RocksDB can't read it; the file is named. StorageError.
        """
        demand_rocksdict(directory)
        self.directory = directory
        self.torn: FormatError | None = None
        self._lock = threading.Lock()
        for left in reversed(range(_TRIES)):
            try:
                self._open(disk)
                break
            except FormatError:
                if not left or self._is_as_seen(disk):
                    raise
        self._closing = weakref.finalize(self, _end, self._process, self._copy)

    def page(self, family: str, start: bytes, stop: bytes | None = None, most: int = _AT_ONCE) -> EntryPage:
        """Items from the key `start` on that lie before `stop`, `most` at most. Raises FormatError, StorageError."""
        asked = {"do": "items", "family": family, "start": start.hex(), "most": most}
        answer, data = self._ask({**asked, "stop": None if stop is None else stop.hex()})
        end = sum(answer["keys"])
        is_last = len(answer["keys"]) < most and not answer["full"]
        return EntryPage(answer["keys"], answer["values"], data[:end], data[end:], is_last)

    def pages(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[EntryPage]:
        """All items from `start` on that lie before `stop`. Raises FormatError, StorageError."""
        while True:
            page = self.page(family, start, stop)
            if len(page):
                yield page
                start = bytes(page.keys[len(page.keys) - page.key_sizes[-1] :]) + b"\0"
            if page.is_last:
                return

    def items(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[Item]:
        """The same, one by one."""
        for page in self.pages(family, start, stop):
            yield from page.items()

    def last(self, family: str, key: bytes) -> Item | None:
        """The last item whose key is not after `key`. Raises FormatError, StorageError."""
        answer, data = self._ask({"do": "last", "family": family, "key": key.hex()})
        if not answer["keys"]:
            return None
        return Item(data[: answer["keys"][0]], data[answer["keys"][0] :])

    def close(self) -> None:
        """End it, and remove what was made for it; a second time does nothing."""
        self._closing()

    def __enter__(self) -> RocksDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open(self, disk: Disk) -> None:
        self._seen = frozenset(disk.listdir(self.directory))
        self._copy = tempfile.mkdtemp(prefix="rstore-rocksdb-")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._copied(disk)
            self._process = _started(self._copy)
            try:
                opened, _ = self._ask({"do": "open", "strict": True})
                self.torn = None
            except FormatError as error:
                if error.path is not None and error.path != self.directory and not error.path.endswith(".log"):
                    raise
                opened, _ = self._ask({"do": "open", "strict": False})
                self.torn = FormatError(error.message, path=self._torn_log(disk))
        except BaseException:
            _end(self._process, self._copy)
            raise
        self.families: tuple[str, ...] = tuple(opened["families"])
        tables = set(opened["tables"])
        self.unnamed = tuple(sorted(one for one in self._seen if one.endswith(".sst") and one not in tables))

    def _copied(self, disk: Disk) -> None:
        """Fill the directory that RocksDB gets: the manifest first, so that what it names was there by then."""
        for name in sorted(self._seen, key=lambda one: (one != "CURRENT", not one.startswith("MANIFEST-"), one)):
            source, target = os.path.join(self.directory, name), os.path.join(self._copy, name)
            try:
                if _LINKED.fullmatch(name):
                    os.symlink(os.path.abspath(source), target)
                elif _COPIED.fullmatch(name):
                    _copy(disk, source, target)
            except OSError as error:
                raise from_os_error(error, "writing a temporary file", self._copy) from error
        self._demand_whole_manifest(disk)

    def _demand_whole_manifest(self, disk: Disk) -> None:
        """Of a manifest that was cut RocksDB reads what is left, and knows nothing of later tables.

        Raises FormatError: it is.
        """
        for name in self._seen:
            if name.startswith("MANIFEST-"):
                path = os.path.join(self._copy, name)
                torn = torn_at(disk.read_file(path, LARGEST_WHOLE)) if disk.stat(path).size <= LARGEST_WHOLE else None
                if torn is not None:
                    raise FormatError(
                        "the manifest ends inside a record: RocksDB does not know the tables that came later",
                        path=os.path.join(self.directory, name),
                        offset=torn,
                    )

    def _torn_log(self, disk: Disk) -> str:
        """The write-ahead log that ends inside a record; the newest where none does: RocksDB does not name it."""
        logs = sorted(one for one in self._seen if one.endswith(".log"))
        copies = ((one, os.path.join(self._copy, one)) for one in logs)
        torn = next(
            (one for one, copy in copies if torn_at(disk.read_file(copy)) is not None), logs[-1] if logs else ""
        )
        return os.path.join(self.directory, torn)

    def _is_as_seen(self, disk: Disk) -> bool:
        """Whether the directory has the files that it had when it was opened."""
        return frozenset(disk.listdir(self.directory)) == self._seen

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, asked: dict[str, Any]) -> tuple[dict[str, Any], memoryview]:
        with self._lock:
            process = self._process
            assert process is not None
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
                answer: dict[str, Any] = json.loads(line)
                data = process.stdout.read(answer["bytes"])
                if len(data) < answer["bytes"]:
                    raise EOFError
            except (OSError, ValueError, EOFError) as error:
                raise FormatError(f"RocksDB ended: {_how(process)}", path=self.directory) from error
        if "error" in answer:
            raise self._error(answer["error"])
        return answer, memoryview(data)

    def _error(self, text: str) -> StorageError | FormatError:
        """What RocksDB said, with the file that it names in place of its copy."""
        plain = " ".join(text.replace(self._copy, self.directory).split()).removeprefix("Corruption: ")
        names = _NAMED.search(plain)
        path = self.directory if names is None else os.path.join(self.directory, names[1])
        offset = None if names is None or names[2] is None else int(names[2])
        if plain.startswith("IO error") and "No such file" not in plain:
            return StorageError(f"RocksDB: {plain}", path=path, offset=offset)
        return FormatError(f"RocksDB: {plain}", path=path, offset=offset)


def _started(directory: str) -> subprocess.Popen[bytes]:
    child = os.path.join(os.path.dirname(__file__), "rocksdb_child.py")
    try:
        return subprocess.Popen(
            [sys.executable, "-P", child, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for who asks
        )
    except OSError as error:
        raise from_os_error(error, "starting what reads RocksDB", sys.executable) from error


def _end(process: subprocess.Popen[bytes] | None, directory: str) -> None:
    if process is not None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _how(process: subprocess.Popen[bytes]) -> str:
    """How a process ended that answers no more."""
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


def _copy(disk: Disk, source: str, target: str) -> None:
    """Raises StorageError: it can't be read. OSError: or not written."""
    reader = disk.open_reader(source)
    try:
        with open(target, "xb") as file:
            at = 0
            while piece := reader.read(at, 1 << 20):
                file.write(piece)
                at += len(piece)
    finally:
        reader.close()
