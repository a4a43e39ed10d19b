"""Every command that changes a store, on a store in which one name is what somebody else has put there.

A link out of the store, another name of somebody's file, a FIFO, a device, a directory: the command succeeds or is
refused in words, nobody waits, and what lies outside is the same afterwards. So for the daemon, as a process that is
ended by SIGTERM, and for drills, which copy the store and never change it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from engine.errors import RStoreError
from engine.format.message import Message
from engine.store import MessageStore
from tests.engine.broker.client import Client, send_fields
from tests.engine.repair.test_rules import settings
from tests.rstore_cli.conftest import Cli, Ran, process
from tests.rstore_cli.elsewhere import PLANNED, UNPLANNED, Elsewhere, places
from tests.rstore_cli.test_every_change import CHANGES, cut, sound
from tests.rstore_cli.test_hostile_store import CONF, ended, seen
from tests.support import stores
from tests.support.in_time import in_time
from tests.support.wide import sample

__all__ = ["places"]

PATIENCE = 60
SOMEBODY = 12345
COMMANDS: dict[str, tuple[tuple[str, ...], Callable[[Path, Cli], None] | None]] = {
    **{name: ((*change.words, "--yes"), change.prepare) for name, change in CHANGES.items()},
    "salvage prune --keep 0": (("salvage", "prune", "--keep", "0", "--yes"), cut),
    "recover --no-salvage": (("recover", "--cut", "--no-salvage", "--yes"), CHANGES["recover --cut"].prepare),
    "put": (("put", "T", "--body", "x", "--keys", "k"), sound),
    "flush": (("flush",), sound),
    "init": (("init", "--commitlog-file-size", "8K"), sound),
    "open": ((), sound),
    **{name: ((*words, "--yes"), None) for name, (words, _) in PLANNED.items()},
    "promote --conf": (("promote", "--conf", "{store}/broker.conf", "--yes"), None),
    **{name: (words, None) for name, (words, _) in UNPLANNED.items()},
}
"""Words, and what makes the store; None: `Elsewhere` does."""
NAMES = (
    "lock",
    "abort",
    "checkpoint",
    "checkpoint.tmp",
    "rstore.conf",
    "rstore.conf.tmp",
    "commitlog",
    f"commitlog/{0:020d}",
    "commitlog/*",
    "commitlog/stray",
    "consumequeue",
    "consumequeue/T",
    "consumequeue/T/0",
    f"consumequeue/T/0/{0:020d}",
    "consumequeue/T/0/*",
    "consumequeue/T/1",
    "consumequeue/U",
    "index",
    "index/*",
    "index/stray",
    "config",
    "config/topics.json",
    "config/topics.json.tmp",
    "config/subscriptionGroup.json",
    "config/delayOffset.json",
    "config/consumerFilter.json",
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "config/consumerOffset.json.tmp",
    "config.history",
    "config.history/topics.json",
    "consumequeue_ext",
    "rstore.sock",
    "salvage",
    "salvage/*",
    "salvage/*/manifest.json",
    "salvage/*/applied.json",
    "salvage/*/undoing.json",
    "salvage/*/undone.json",
    "salvage/*/pruned.json",
    "salvage/*/replayed.json",
    "salvage/*/00*",
    "quarantine",
    "quarantine/index",
    "recover.progress",
    "recover.progress/link",
    "reindex.tmp",
    "reindex.tmp/consumequeue",
    "reindex.tmp/swap.json",
    "seals",
    f"seals/{0:020d}.seal",
    f"seals/{8192:020d}.seal.tmp",
    "seals/lock",
    "seals/scrub.json",
    "seals/scrub.json.tmp",
    "restoring.json",
    "restoring.json.tmp",
    "commitlog.restoring",
    "commitlog.restoring/*",
    "config/rstoreArchive.json",
    "config/lmqConsumerOffset.json",
    "broker.conf",
    "broker.conf.before-promote",
    f"commitlog/{8192:020d}",
)


def _link_to_file(path: Path, victim: Path) -> None:
    path.symlink_to(victim / "file")
    os.lchown(path, SOMEBODY, SOMEBODY)


def _link_to_directory(path: Path, victim: Path) -> None:
    path.symlink_to(victim)
    os.lchown(path, SOMEBODY, SOMEBODY)


def _device(path: Path, _: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link to a file": _link_to_file,
    "link to a directory": _link_to_directory,
    "hard link": lambda path, victim: os.link(victim / "file", path),
    "fifo": lambda path, _: os.mkfifo(path),
    "device": _device,
    "directory": lambda path, _: ((path / "below").mkdir(parents=True), (path / "below" / "x").write_text("x")),
}
CASES = list(product(COMMANDS, NAMES, KINDS))
PLACES = list(product(NAMES, KINDS))
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link to somebody else, and makes a device")


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    with in_time(PATIENCE):
        yield


@pytest.fixture(scope="module")
def prepared(places: Elsewhere) -> Iterator[Callable[[str, Cli], Path]]:
    """The store of a command, made once."""
    with tempfile.TemporaryDirectory(prefix="rstore-names-") as place:
        ready: dict[str, Path] = {}

        def of(name: str, cli: Cli) -> Path:
            if name not in ready:
                ready[name] = Path(place) / str(len(ready)) / "store"
                prepare = COMMANDS[name][1]
                if prepare is None:
                    places.make(name.removesuffix(" --conf"), ready[name])
                else:
                    prepare(ready[name], cli)
                (ready[name] / "rstore.conf").write_text(CONF)
                if name == "promote --conf":
                    (ready[name] / "broker.conf").write_text("brokerRole=SLAVE\nbrokerId=1\n")
            return ready[name]

        yield of


@pytest.fixture
def hostile(tmp_path: Path, victim: Path, cli: Cli, prepared: Callable[[str, Cli], Path]) -> Callable[..., Path]:
    """The store of a command in which somebody has put something under a name."""

    def made(command: str, name: str, kind: str) -> Path:
        root = stores.copy(prepared(command, cli), tmp_path / "store")
        path = max(root.glob(name), default=root / name.replace("*", "x"))
        if os.path.lexists(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            KINDS[kind](path, victim)
        except PermissionError:
            pytest.skip("this machine makes no device")
        return root

    return made


def _open(root: Path) -> None:
    """What a daemon does to the store: it is opened, takes a message, and is closed."""
    with suppress(RStoreError), MessageStore.open(settings(root), cleaning=True) as store:
        store.put(Message("T", b"x", properties={"KEYS": "k"}))


@pytest.mark.wide
@pytest.mark.leaves
@NEEDS_ROOT
@pytest.mark.parametrize(("command", "name", "kind"), sample(CASES, 97, 7))
def test_what_lies_outside_stays(
    command: str, name: str, kind: str, victim: Path, cli: Cli, hostile: Callable[..., Path], places: Elsewhere
) -> None:
    root, before = hostile(command, name, kind), seen(victim)
    if command == "open":
        _open(root)
    else:
        words = [word.replace("{store}", str(root)) for word in places.words(COMMANDS[command][0])]
        ran = ended(cli("--store", root, *words))
        assert ran.code == 0 or ran.err.startswith(("rstore: ", "note: ", "warning: ")) or ran.out, ran
    assert seen(victim) == before
    shutil.rmtree(root)  # a FIFO in it is nothing to look through


async def _use(address: str) -> None:
    """What writes most of the daemon's files: messages, a new topic, a group with a filter, an offset."""
    client = await Client.to(address)
    for topic in ("T", "New"):
        await client.ask(310, send_fields(topic, properties="KEYS\x01k\x02"), b"x")
    await client.heartbeat("g", "T")
    offset = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
    await client.ask(15, offset)
    client.writer.close()


@pytest.mark.wide
@pytest.mark.leaves
@NEEDS_ROOT
@pytest.mark.parametrize(("name", "kind"), sample(PLACES, 53, 3))
def test_the_daemon_on_such_a_store(name: str, kind: str, victim: Path, hostile: Callable[..., Path]) -> None:
    root, before = hostile("open", name, kind), seen(victim)
    daemon = process("--store", root, "serve", "--port", "0", "--no-names")
    try:
        assert daemon.stdout is not None
        is_ready = re.match(r"The broker listens on (\S+)\.$", daemon.stdout.readline())
        if is_ready:
            asyncio.run(_use(is_ready[1]))
            daemon.send_signal(signal.SIGTERM)
        ran = Ran(daemon.wait(PATIENCE), *daemon.communicate())
    finally:
        daemon.kill()
    ended(ran)
    assert "failed; continuing" not in ran.err, ran
    if not is_ready:
        assert os.path.basename(name.rstrip("*")) in ran.error_line, ran
    assert seen(victim) == before
    shutil.rmtree(root)


@pytest.mark.wide
@pytest.mark.leaves
@NEEDS_ROOT
@pytest.mark.parametrize(("name", "kind"), sample(PLACES, 53, 17))
def test_a_drill_of_such_a_store(
    name: str, kind: str, tmp_path: Path, victim: Path, cli: Cli, hostile: Callable[..., Path]
) -> None:
    root = hostile("open", name, kind)
    before, store = seen(victim), seen(root)
    ran = ended(cli("--store", root, "drill", "reindex", "--sample", "1", "--scratch", tmp_path / "scratch"))
    assert "Traceback" not in ran.out, ran
    if ran.code not in (0, 1):
        assert os.path.basename(name.rstrip("*")) in ran.out + ran.err, ran
    assert ran.code > 1 or not kind.startswith("link"), ran
    assert (seen(victim), seen(root)) == (before, store)
    assert not list((tmp_path / "scratch").glob("*"))
    shutil.rmtree(root)


@pytest.mark.leaves
def test_two_links_to_where_they_are_are_not_walked_for_ever(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    sound(root, cli)
    for name in "ab":
        (root / "consumequeue" / "T" / name).symlink_to("..")
    (root / "abort").touch()
    ended(cli("--store", root, "recover", "--yes"))


@pytest.mark.leaves
def test_no_drill_copies_what_links_lead_to(tmp_path: Path, victim: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    sound(root, cli)
    for name in "ab":
        (root / "consumequeue" / "T" / name).symlink_to("..")
    words = ("--store", root, "drill", "queue-bit-rot", "--sample", "1", "--scratch", tmp_path / "scratch")
    ran = ended(cli(*words))
    assert ran.code == 4, ran
    assert str(root / "consumequeue" / "T" / "a") in ran.error_line
    assert "--follow-links" in ran.error_line
    assert ended(cli(*words, "--follow-links", "--keep")).code in (0, 1)  # and ends
    assert list((tmp_path / "scratch").rglob("a"))
    assert not list((tmp_path / "scratch").rglob("a/*"))


def test_a_drill_copies_a_folder_that_lies_elsewhere(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    sound(root, cli)
    (root / "consumequeue").rename(tmp_path / "elsewhere")
    (root / "consumequeue").symlink_to(tmp_path / "elsewhere")
    scratch = tmp_path / "scratch"
    ran = cli("--store", root, "drill", "queue-bit-rot", "--sample", "1", "--scratch", scratch)
    assert ran.code == 0, ran
    assert "is unchanged" in ran.out
    assert "1 of 1 drill passed" in ran.out
