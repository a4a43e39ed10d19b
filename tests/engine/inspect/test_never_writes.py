"""What engine/inspect may do: nothing in it can reach an opener for writing, and nothing that it calls does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.files.raw_file import RawFile
from engine.format import names
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.check.verify import verify
from engine.inspect.dump.dump import dump_checkpoint, dump_config, dump_index, dump_log, dump_queue
from engine.inspect.dump.salvage_list import inventory
from engine.inspect.dump.salvage_scan import scan_store
from engine.inspect.dump.timer_due import dump_due
from engine.inspect.status.status import status
from engine.inspect.store.epochs import dump_epochs
from engine.inspect.store.survey import survey
from engine.inspect.store.timer_log import dump_timer_log, timer_files
from engine.inspect.store.timer_wheel import dump_timer_wheel, read_timer_check
from tests.engine.test_layers import module_name, modules
from tests.support import fixtures

ROOMS = Path(__file__).resolve().parents[3] / "engine" / "inspect"
READS = frozenset(
    {
        *("doing", "step", "now_ms", "sleep_ms"),
        *("open_reader", "read_file", "behind_link", "can_sync_file_system", "link_of", "mode", "exists", "is_dir"),
        *("is_mount_point", "may", "is_read_only", "stat", "look", "scandir", "listdir", "usage", "writable", "device"),
        *("blocks", "disk_used_ratio", "owner", "roots"),
    }
)
"""What a disk can do without a change. All else that it can, also what it learns some day, counts as a change."""
WRITES = frozenset(name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if name[0] != "_") - READS
OF_THE_SYSTEM = frozenset(
    {
        *("open", "remove", "unlink", "rename", "replace", "link", "symlink", "mkdir", "makedirs", "rmdir", "truncate"),
        *("chmod", "chown", "utime", "write", "pwrite", "ftruncate", "posix_fallocate"),
    }
)
SCRATCH = {"spool.py"}
"""Keeps rows in a file of the system's temporary directory that has no name: never in a store."""


BY_OWNER = WRITES & {"replace", "link", "move"}
"""What texts and others have, too: it is a change where the owner is called a disk."""
OF_PATHS = frozenset({"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to"})
MODULES = frozenset({"io", "pathlib", "subprocess", "mmap", "tempfile", "fcntl", "ctypes", "socket"})
"""Of the standard library: who needs none of them opens no file by them. Of shutil only `which` is used."""


def offences(text: str) -> list[int]:
    """Lines that open something for writing, or change a file; an opener that is only named counts, too."""
    return offences_in(ast.parse(text))


def offences_in(tree: ast.AST) -> list[int]:
    """The same of what was parsed."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    plain = {id(node.func) for node in nodes if isinstance(node, ast.Call) and not node.keywords}
    return sorted({node.lineno for node in nodes if _is_one(node, plain)})


def _is_one(node: ast.expr | ast.stmt, plain: set[int]) -> bool:
    """`plain`: what is called without options: `open_raw` reads then."""
    match node:
        case ast.Attribute(attr=name):
            owner = getattr(node.value, "attr", "") or getattr(node.value, "id", "")
            return (
                (name in WRITES - BY_OWNER and not (name == "open_raw" and id(node) in plain))
                or (name in BY_OWNER and owner.endswith("disk"))
                or (owner == "os" and name in OF_THE_SYSTEM)
                or (owner == "shutil" and name != "which")
                or name in OF_PATHS
                or owner == "tempfile"
            )
        case ast.Name(id="open"):
            return True
        case ast.Import(names=names):
            return any(one.name.partition(".")[0] in MODULES for one in names)
        case ast.ImportFrom(module=module, names=names):
            taken = {one.name for one in names}
            return (module or "").partition(".")[0] in MODULES | {"shutil"} or (
                module == "os" and bool(taken & OF_THE_SYSTEM)
            )
    return False


@pytest.mark.parametrize("path", sorted(ROOMS.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOMS)))
def test_nothing_opens_a_file_for_writing(path: Path) -> None:
    if path.name not in SCRATCH:
        assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "self._disk.write_file('x', b'')",
        "disk.open_segment('x', 1)",
        "disk.open_raw('x', writable=True)",
        "os.unlink('x')",
        "open('x', 'w')",
        "tempfile.TemporaryFile()",
        "files.unlink('x')",
        "remove = disk.unlink",
        "start = open",
        "from os import unlink",
        "from pathlib import Path",
        "from shutil import rmtree",
        "import io",
        "place.write_bytes(b'')",
    ],
)
def test_what_opens_one_is_noticed(text: str) -> None:
    assert offences(text) == [1]


def test_what_only_reads_is_not() -> None:
    assert offences("disk.read_file('x'); text.replace('a', 'b'); os.path.join('a'); replace(plan, a=1)") == []
    assert offences("disk.open_raw('x'); import shutil; shutil.which('java')") == []


# --- nothing that it names, nor what that names -----------------------------------------------------------------------

Definition = tuple[str, str]
"""A module, and the name of a function, class or value at its top."""
BY_NAME = {("engine.files.disk", "Disk"), ("engine.files.raw_file", "RawFile")}
"""What a disk is asked for is looked at by name, above; its files are written by who has opened them for that."""
BESIDE = {
    ("engine.log.kernels.compiling", "_Place"): "compiled kernels, in the user's cache directory",
    ("engine.log.kernels.compiling", "_forget_others"): "the same",
    ("engine.log.kernels.kept", "_used"): "the same: its directory's time",
    ("engine.files.machine_code", "read_own"): "the same: a descriptor that is read",
    ("engine.files.machine_code", "_opened"): "the same: its directory's",
    ("engine.inspect.store.spool", "Spool"): "a file of the system's temporary directory that has no name",
    ("engine.inspect.store.spool", "ByteSpool"): "the same",
    ("engine.inspect.store.spool", "_writing"): "the same: its error's place",
    ("engine.files.rocksdb", "RocksDatabase"): "a copy in the system's temporary directory, of which RocksDB reads",
    ("engine.files.rocksdb", "_copy"): "the same",
    ("engine.files.rocksdb", "_end"): "the same: it is removed",
}
"""What writes something that is part of no store."""


def runs(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all in it but what only type checkers read."""
    todo = [node]
    while todo:
        one = todo.pop()
        if not (isinstance(one, ast.If) and getattr(one.test, "id", "") == "TYPE_CHECKING"):
            yield one
            todo.extend(ast.iter_child_nodes(one))


class Definitions:
    """All of the engine's, and which names which."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._nodes: dict[Definition, ast.AST] = {}
        self._imported: dict[str, dict[str, Definition]] = {}
        for module, text in texts.items():
            tree = ast.parse(text)
            for node in tree.body:
                self._nodes.update({(module, name): node for name in _names_of(node)})
            self._imported[module] = imported = {}
            for one in runs(tree):
                if isinstance(one, ast.ImportFrom):
                    for alias in one.names:
                        whole = f"{one.module}.{alias.name}"
                        target = (whole, "") if whole in texts else (str(one.module), alias.name)
                        imported[alias.asname or alias.name] = target

    def of(self, part: str) -> list[Definition]:
        return [one for one in self._nodes if one[0].startswith(part)]

    def named_by(self, one: Definition) -> Iterator[Definition]:
        imported = self._imported[one[0]]
        for node in runs(self._nodes[one]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module, name = imported.get(node.value.id, ("", ""))
                yield (module, node.attr) if not name else (module, name)
            elif isinstance(node, ast.Name):
                yield imported.get(node.id, (one[0], node.id))

    def reached(self, start: list[Definition]) -> dict[Definition, Definition | None]:
        """All that is named, by what is named, and so on; with who named it first."""
        by: dict[Definition, Definition | None] = dict.fromkeys(start)
        todo = list(start)
        while todo:
            one = todo.pop()
            for other in self.named_by(one):
                if other in self._nodes and other not in by and other not in BY_NAME:
                    by[other] = one
                    todo.append(other)
        return by

    def writers(self, part: str) -> dict[Definition, Definition | None]:
        """Those that open something for writing, of all that a part reaches."""
        return {one: by for one, by in self.reached(self.of(part)).items() if offences_in(self._nodes[one])}


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [one.id for one in targets if isinstance(one, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def test_nothing_that_it_reaches_opens_a_file_for_writing() -> None:
    """Function by function: what inspect/ names of lower floors, and what that names."""
    engine = {module_name(path): path.read_text(encoding="utf-8") for path in modules()}
    every = Definitions(engine)
    assert len(every.reached(every.of("engine.inspect"))) > 1000
    assert {one: by for one, by in every.writers("engine.inspect").items() if one not in BESIDE} == {}


def test_an_opener_that_is_reached_by_way_of_others_is_noticed() -> None:
    texts = {
        "engine.inspect.a": "from engine.log import b\ndef look(disk):\n    return b.read(disk)",
        "engine.log.b": "from engine.log.c import Copy\ndef read(disk):\n    return Copy(disk)\n"
        "def other(disk):\n    disk.unlink('x')",
        "engine.log.c": "class Copy:\n    def __init__(self, disk):\n        disk.open_raw('x', writable=True)",
    }
    assert Definitions(texts).writers("engine.inspect") == {("engine.log.c", "Copy"): ("engine.log.b", "read")}


# --- and nothing that runs --------------------------------------------------------------------------------------------


class OnlyReads(Disk):
    """Everything that changes a file is a failure, whoever calls it."""

    def open_raw(self, path: str, *, writable: bool = False, create: bool = False, new: bool = False) -> RawFile:
        assert (writable, create, new) == (False, False, False), f"opens {path} for writing"
        return super().open_raw(path)


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Disk, *arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError(f"{name}{arguments} changes the store")

    return refuse


for _name in WRITES - {"open_raw"}:
    setattr(OnlyReads, _name, _refused(_name))


def exhaust(rows: Iterable[Any]) -> None:
    """All of them are read."""
    assert all(row is not None for row in rows)


def first_queue(config: StoreConfig) -> tuple[str, int]:
    """A topic that has a queue, and the queue's number."""
    topics = Path(config.store_path_root_dir, names.CONSUMEQUEUE)
    topic = min(one for one in topics.iterdir() if one.is_dir())
    return topic.name, int(min(topic.iterdir()).name)


def every_timer(disk: Disk, config: StoreConfig) -> None:
    """Log, wheel, what waits, and epochs."""
    files = survey(disk, config)
    timer = timer_files(disk, files)
    exhaust(dump_timer_log(disk, files, timer))
    exhaust(dump_due(disk, files, timer, read_timer_check(disk, files)))
    exhaust(dump_timer_wheel(disk, files))
    dump_epochs(disk, files)


DOORS: dict[str, Callable[[Disk, StoreConfig], Any]] = {
    "survey": survey,
    "check": check,
    "doctor": doctor,
    "verify": verify,
    "status": status,
    "log": lambda disk, config: exhaust(dump_log(disk, config)),
    "queue": lambda disk, config: exhaust(dump_queue(disk, config, *first_queue(config))),
    "index": lambda disk, config: exhaust(dump_index(disk, config)),
    "checkpoint": dump_checkpoint,
    "config": lambda disk, config: exhaust(dump_config(disk, config)),
    "timer": every_timer,
    "saved": inventory,
    "scan": scan_store,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", fixtures.names())
def test_nothing_behind_a_door_changes_a_file(name: str, door: str, fixture_store: Callable[[str], Path]) -> None:
    """Threads and all: also what the log's readers do on their behalf."""
    DOORS[door](OnlyReads(), StoreConfig(store_path_root_dir=fixture_store(name)))


@pytest.mark.parametrize("call", [lambda disk: disk.unlink("x"), lambda disk: disk.open_raw("x", create=True)])
def test_a_change_is_noticed(call: Callable[[Disk], Any]) -> None:
    with pytest.raises(AssertionError):
        call(OnlyReads())
