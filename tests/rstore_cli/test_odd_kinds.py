"""A FIFO, socket, device, directory, file or dangling link in place of anything in a store: it is named, nobody waits
for it, and there is a way to a working store, which going by the words leads to. Undo brings back just what was there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.files.disk import Disk
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.engine.files.test_kinds import make_socket
from tests.engine.repair.test_rules import SIZES, messages, put, settings
from tests.rstore_cli.conftest import Cli, Ran
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.in_time import in_time
from tests.support.wide import sample

COUNT = 250
PATIENCE = 60
SEGMENT = SIZES["mapped_file_size_commit_log"]
READING = (("status",), ("check",), ("doctor",), ("plan-start",), ("recover", "--dry-run"))
ALSO = (("get", "T", "0"), ("dump", "commitlog"), ("query", "T", "key7"), ("verify-crc",), ("undo", "--list"))

KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": lambda path: ((path / "below").mkdir(parents=True), (path / "below" / "file").write_text("theirs")),
    "file": lambda path: path.write_text("theirs"),
}

ASIDE = "aside"
"""recover sets it aside and makes again what it can."""
BRIDGE = "bridge"
"""A segment in the middle is missing: recover refuses, --bridge goes on behind it."""
BY_HAND = "by hand"
"""Refused by name; who moves it away, and brings back what was there, can go on."""
PASSED_OVER = "passed over"


class Place(NamedTuple):
    path: str
    way: str
    kinds: tuple[str, ...] = ("fifo", "directory")
    lost: int = 0
    """Messages that nothing but the file held, at most."""


PLACES = {
    "first-segment": Place(f"commitlog/{0:020d}", ASIDE, lost=40),
    "segment": Place(f"commitlog/{2 * SEGMENT:020d}", BRIDGE, ("fifo", "socket", "device", "directory"), lost=40),
    "last-segment": Place("commitlog/*", ASIDE, lost=40),
    "queue-file": Place(f"consumequeue/T/0/{0:020d}", ASIDE, ("fifo", "device", "directory")),
    "last-queue-file": Place("consumequeue/T/0/*", ASIDE, ("fifo", "socket", "directory")),
    "index-file": Place("index/*", ASIDE, ("fifo", "device", "directory")),
    "checkpoint": Place("checkpoint", ASIDE, ("fifo", "socket", "device", "directory")),
    "abort": Place("abort", ASIDE, ("fifo", "socket", "device", "directory")),
    "lock": Place("lock", BY_HAND, ("fifo", "socket", "device", "directory")),
    "settings": Place("rstore.conf", BY_HAND, ("fifo", "device", "directory")),
    "topics": Place("config/topics.json", ASIDE, ("fifo", "socket", "device", "directory")),
    "config": Place("config", ASIDE, ("fifo", "file")),
    "commitlog": Place("commitlog", BY_HAND, ("fifo", "file")),
    "consumequeue": Place("consumequeue", ASIDE, ("fifo", "socket", "file")),
    "topic": Place("consumequeue/T", ASIDE, ("fifo", "device", "file")),
    "queue": Place("consumequeue/T/0", ASIDE, ("fifo", "socket", "file")),
    "index": Place("index", ASIDE, ("fifo", "socket", "device", "file")),
    "salvage": Place("salvage", BY_HAND, ("fifo", "file")),
    "quarantine": Place("quarantine", BY_HAND, ("fifo", "file")),
    "manifest": Place("salvage/*/manifest.json", PASSED_OVER, ("fifo", "directory")),
    "applied": Place("salvage/*/applied.json", PASSED_OVER, ("fifo", "directory")),
}
CASES = [(name, kind) for name, place in PLACES.items() for kind in place.kinds]
LINKS = [name for name in PLACES if name != "abort"]


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    with in_time(PATIENCE):
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of several segments, queue files and index files, with configuration and a repair."""
    root = tmp_path_factory.mktemp("odd") / "store"
    put(root, COUNT)
    (root / "rstore.conf").write_text(
        "mappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=40\nmaxIndexNum=160\n"
    )
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":2,"writeQueueNums":2}}}'
    )
    (root / "index" / "stray").touch()
    apply(Disk(), plan_recover(Disk(), settings(root)))
    return root


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    return stores.copy(base, tmp_path / "store")


def in_place(root: Path, name: str, kind: str, away: Path) -> Path:
    """Put something of that kind into a place; what was there lies at `away`, if anything."""
    path = max(root.glob(PLACES[name].path), default=root / PLACES[name].path)
    if os.path.lexists(path):
        path.rename(away)
    KINDS[kind](path)
    return path


def sound(ran: Ran) -> Ran:
    assert "Traceback" not in ran.out + ran.err
    assert ran.code in range(6), ran
    return ran


def names(root: Path) -> dict[str, str]:
    """What is in a store but for repairs, and marks that every command leaves."""
    return {
        path: seen
        for path, seen in stores.contents(root).items()
        if path not in ("lock", "salvage") and not path.startswith("salvage/")
    }


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.wide
@pytest.mark.parametrize(("name", "kind"), sample(CASES, 3))
def test_it_is_named_and_there_is_a_way(name: str, kind: str, root: Path, tmp_path: Path, cli: Cli) -> None:
    place, away = PLACES[name], tmp_path / "away"
    path = in_place(root, name, kind, away)
    before = stores.snapshot(root)

    for words in READING:
        ran = sound(cli("--store", root, *words))
        assert path.name in ran.out + ran.err, (words, ran)
    for words in ALSO:
        sound(cli("--store", root, *words))
    assert stores.snapshot(root) == before

    there = names(root)
    ran = sound(cli("--store", root, "recover", "--yes"))
    if place.way == BY_HAND:
        assert ran.code == (5 if name == "settings" else 4)
        assert path.name in ran.error_line
        assert ("mount its disk" if name == "commitlog" else "move it out of the store") in ran.error_line
        assert stores.snapshot(root) == before
        remove(path)
        if away.exists():
            away.rename(path)
        assert sound(cli("--store", root, "recover", "--yes")).code == 0
        assert len(messages(root)) == COUNT
        check_clean(root, settings(root))
        return
    if place.way == BRIDGE:
        assert ran.code == 4
        assert "recover --bridge" in ran.error_line
        assert stores.snapshot(root) == before
        ran = sound(cli("--store", root, "recover", "--bridge", "--yes"))
    assert ran.code == 0, ran
    assert cli("--store", root, "recover", "--yes").code == 0
    check_clean(root, settings(root), known={"config-missing", "config-absent"}, why="nothing else holds topics.json")
    if place.way == PASSED_OVER:
        assert names(root) == there
        return
    assert sound(cli("--store", root, "undo", "--yes")).code == 0
    assert names(root) == there
    option = ["--bridge"] if place.way == BRIDGE else []
    assert sound(cli("--store", root, "recover", "--yes", *option)).code == 0
    assert COUNT - place.lost <= len(messages(root)) <= COUNT - bool(place.lost)
    assert sound(cli("--store", root, "put", "T", "--body", "x")).code == 0


@pytest.mark.parametrize("name", LINKS)
def test_absent_data_is_refused_and_there_again_once_it_is_mounted(
    name: str, root: Path, tmp_path: Path, cli: Cli
) -> None:
    path = in_place(root, name, "fifo", tmp_path / "away")
    path.unlink()
    target = tmp_path / "not-mounted" / "it"
    path.symlink_to(target)
    before = stores.snapshot(root)
    for words in READING:
        ran = sound(cli("--store", root, *words))
        assert path.name in ran.out + ran.err, (words, ran)
        assert "not-mounted" in ran.out + ran.err, (words, ran)
    if name != "settings":  # without them nothing is looked at
        assert cli("--store", root, "status", "--json").json["state"] in ("damaged", "log-missing"), "nothing is clean"
    if name == "salvage":
        for words in (("undo", "--list"), ("salvage", "list")):
            ran = sound(cli("--store", root, *words))
            assert ran.code == 4, (words, ran)
            assert path.name in ran.error_line
            assert "mount the disk" in ran.error_line
    for words in ALSO:
        sound(cli("--store", root, *words))
    for words in (
        ("recover", "--yes"),
        ("recover", "--cut", "--yes"),
        ("recover", "--bridge", "--yes"),
        ("undo", "--yes"),
    ):
        ran = sound(cli("--store", root, *words))
        assert ran.code == 4, (words, ran)
        assert path.name in ran.error_line
        assert "mount the disk" in ran.error_line
    assert stores.snapshot(root) == before

    target.parent.mkdir()
    (tmp_path / "away").rename(target)
    assert sound(cli("--store", root, "recover", "--yes", "--follow-links")).code == 0
    assert path.readlink() == target
    assert len(messages(root, follow_links=True)) == COUNT
