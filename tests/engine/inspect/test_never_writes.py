"""What engine/inspect may do: nothing in it can reach an opener for writing, and nothing that it calls does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
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
from engine.inspect.status.status import status
from engine.inspect.store.survey import survey
from tests.support import fixtures

ROOMS = Path(__file__).resolve().parents[3] / "engine" / "inspect"
READS = frozenset(
    {
        *("doing", "step", "now_ms", "sleep_ms"),
        *("open_reader", "read_file", "behind_link", "can_sync_file_system", "link_of", "mode", "exists", "is_dir"),
        *("is_mount_point", "may", "is_read_only", "stat", "look", "scandir", "listdir", "usage", "writable", "device"),
        *("blocks", "disk_used_ratio"),
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


def offences(text: str) -> list[int]:
    """Lines that open something for writing, or change a file."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        call = node.func
        if isinstance(call, ast.Attribute):
            owner = ast.unparse(call.value)
            if (
                (owner.endswith("disk") and call.attr in WRITES)
                or (owner == "os" and call.attr in OF_THE_SYSTEM)
                or (owner == "shutil" and call.attr != "which")
                or owner == "tempfile"
            ):
                found.append(node.lineno)
        elif isinstance(call, ast.Name) and call.id == "open":
            found.append(node.lineno)
    return found


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
    ],
)
def test_what_opens_one_is_noticed(text: str) -> None:
    assert offences(text) == [1]


def test_what_only_reads_is_not() -> None:
    assert offences("disk.read_file('x'); text.replace('a', 'b'); os.path.join('a'); replace(plan, a=1)") == []


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
