"""A page of the log that the disk can't read: a command that meets it says what works next, with file and offset."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files import disk as disk_module
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format.message import Message
from engine.store import MessageStore
from tests.rstore_cli.conftest import Cli

PAGE = 4096


class BadPage:
    """An I/O error where somebody reads the page, until it is written: the drive gives it another sector then."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        self.start = start
        self.is_bad = True

    def __call__(self, doing: Doing) -> bool:
        at = doing.offset or 0
        if doing.path != str(self.path) or at >= self.start + PAGE or at + (doing.length or 1) <= self.start:
            return False
        if doing.operation is Operation.WRITE:
            self.is_bad = False
        return self.is_bad and doing.operation is Operation.READ

    def disk(self, *, mapped: bool = True) -> FaultyDisk:
        """A disk that has it. No maps: a fault in a map is a signal."""
        found = FaultyDisk(None, mapped=False)
        found.fail_when(self, errno.EIO)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "s"
    config = StoreConfig(store_path_root_dir=root).with_changes(mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(config) as writer:
        for i in range(200):
            assert writer.put(Message("T", b"x" * 1000, properties={"KEYS": f"k{i}"})).ok
    return root


@pytest.fixture
def page(store: Path, monkeypatch: pytest.MonkeyPatch) -> BadPage:
    """A bad page in the log's second file."""
    found = BadPage(sorted((store / "commitlog").iterdir())[1], 5 * PAGE)
    monkeypatch.setattr(disk_module, "Disk", found.disk)
    return found


def refused(store: Path, page: BadPage, cli: Cli, *words: str) -> str:
    """The line of a repair that can't save the page; nothing is left of the copy that was begun."""
    (store / "salvage").mkdir(exist_ok=True)
    before = sorted(store.rglob("*"))
    ran = cli("--store", store, *words, "--yes")
    assert ran.code == 5
    assert sorted(store.rglob("*")) == before
    line = next(line for line in ran.err.splitlines() if line.startswith("rstore: "))
    assert f"what the repair changes can't be saved: reading: input/output error: {page.path} at " in line
    assert f"copy {page.path} to another disk first, with a tool such as ddrescue" in line
    return line


def rescue(page: BadPage) -> None:
    """What the advice says: a copy of the file in its place, zeros where the page can't be read."""
    data = page.path.read_bytes()
    page.path.write_bytes(data[: page.start] + bytes(PAGE) + data[page.start + PAGE :])
    page.is_bad = False


def test_a_bridge_over_a_page_that_cannot_be_saved_goes_on_without_salvage(
    store: Path, page: BadPage, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "recover --bridge" in cli("--store", store, "check").out
    line = refused(store, page, cli, "recover", "--bridge")
    asked = cli("--store", store, "recover", "--bridge", "--yes", "--json")
    assert asked.code == 5
    following = asked.lines[-1]["error"]["next"]
    assert following["command"] in line
    assert following["why"] == "saves nothing, and gives up unreadable data"
    program, *words = shlex.split(following["command"])
    assert program == "rstore"
    assert words == ["--store", str(store), "recover", "--bridge", "--no-salvage", "--yes"]
    assert cli(*words).code == 0
    assert cli("--store", store, "check").code == 0
    monkeypatch.undo()
    assert cli("--store", store, "query", "T", "k199").code == 0, "sound messages behind the page stay"


@pytest.mark.parametrize(
    "words", [("recover", "--bridge"), ("recover", "--cut"), ("recover", "--cut", "--whole")], ids=" ".join
)
def test_with_a_rescued_copy_of_the_file_all_that_could_be_read_is_saved(
    words: tuple[str, ...], store: Path, page: BadPage, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(store, page, cli, *words)
    assert f"with the copy in its place, rstore --store {store} {' '.join(words)} saves all" in line
    assert ("--no-salvage" in line) == ("--bridge" in words), "a cut removes sound records"
    rescue(page)
    assert cli("--store", store, *words, "--yes").code == 0
    assert list((store / "salvage").rglob("manifest.json"))
    monkeypatch.undo()


def test_the_salvage_directory_that_was_named_is_named_again(
    store: Path, page: BadPage, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(store, page, cli, "recover", "--cut", "--salvage-dir", str(tmp_path / "other"))
    assert f"recover --cut --salvage-dir {tmp_path / 'other'} saves all that could be read" in line
    rescue(page)
    assert cli("--store", store, "recover", "--cut", "--salvage-dir", tmp_path / "other", "--yes").code == 0
    monkeypatch.undo()


def test_plan_start_names_the_command_that_reads_on(
    store: Path, page: BadPage, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "abort").touch()
    ran = cli("--store", store, "plan-start", "--json")
    assert ran.code == 5
    error = ran.lines[-1]["error"]
    assert error["path"] == str(page.path)
    assert shlex.split(error["next"]["command"]) == ["rstore", "--store", str(store), "check"]
    looked = cli(*shlex.split(error["next"]["command"])[1:])
    assert "recover --bridge" in looked.out
    rescue(page)
    monkeypatch.undo()
    assert cli("--store", store, "recover", "--bridge", "--yes").code == 0
