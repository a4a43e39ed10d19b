"""The states that RUNBOOK.md's incidents begin with, each made of a store that Apache 4.9.8 wrote (fixtures/proof/).

A scene gets `base`, an empty directory that stands for `/`, makes `base/data/rocketmq/store` and what else the incident
tells of, and gives what stands for what in the document: paths, the address of a broker.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rstore_cli.app import main
from tests.compat.fixtures import FIXTURES
from tests.support.archives import extract

SEGMENT = 65536
PAGE = 4096
HOME = Path("data", "rocketmq")
Prepare = Callable[[Path], None]
Scene = Callable[[Path], contextlib.AbstractContextManager[dict[str, str]]]


def unpack(base: Path, name: str) -> Path:
    """The store of a base of the proof, as the broker left it."""
    scratch = base / "unpacked"
    extract(FIXTURES / "proof" / f"{name}.tar.xz", scratch)
    home = base / HOME
    home.mkdir(parents=True, exist_ok=True)
    (scratch / "store").rename(home / "store")
    return home / "store"


def segment(store: Path, number: int) -> Path:
    """A file of its log."""
    return store / "commitlog" / f"{number * SEGMENT:020d}"


def overwrite(path: Path, position: int, data: bytes) -> None:
    """What damage does."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def does_not_start(base: Path) -> None:
    """Killed; a page of the second segment never reached the disk, and the last file was made on a full disk."""
    store = unpack(base, "live")
    overwrite(segment(store, 1), 7 * PAGE, bytes(PAGE))
    os.truncate(segment(store, 4), 3 * PAGE)


def disk_nearly_full(base: Path) -> None:
    """Closed cleanly; groups have read a part."""
    unpack(base, "keys")


def group_misses(base: Path) -> None:
    """An offset above its queue's end."""
    store = unpack(base, "keys")
    path = store / "config" / "consumerOffset.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    table["offsetTable"]["Orders@group-0"]["2"] = 5000
    path.write_text(json.dumps(table), encoding="utf-8")


def page_lost(base: Path) -> None:
    """Closed cleanly, and backed up at night; a page and a segment of the log went since, and an earlier bridge."""
    from engine.backup.create.create import CreateOptions, create
    from engine.backup.objects.place import objects_at
    from engine.backup.repository import create_repository, open_repository
    from engine.config import of_store
    from engine.files.disk import Disk

    store = unpack(base, "keys")
    backup = objects_at(Disk(), str(base / HOME / "backup"))
    create_repository(backup, None, "2026-11-27T02:15:00+00:00", "ops@broker-a")
    create(Disk(), of_store(store), open_repository(backup, lambda: None), CreateOptions("broker-a"))
    overwrite(segment(store, 1), 7 * PAGE, bytes(PAGE))
    segment(store, 2).unlink()


def whole(base: Path) -> None:
    """A store that was closed cleanly."""
    unpack(base, "keys")


def topics_lost(base: Path) -> None:
    """topics.json is empty (the disk was full when it was written), and its copy, too."""
    store = unpack(base, "keys")
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b"")


def torn(base: Path) -> None:
    """Killed in the middle of a write: of the last record only its first half is there."""
    store = unpack(base, "live")
    overwrite(segment(store, 3), 249_575 - 3 * SEGMENT - 120, bytes(120))


def rsync_stopped(base: Path) -> None:
    """A copy of a broker's store; rsync ended in the middle of the third segment."""
    store = unpack(base, "live")
    moved = segment(store, 2)
    partial = moved.with_name(f".{moved.name}.Xk3u9a")
    moved.rename(partial)
    os.truncate(partial, 9 * PAGE)


def not_mounted(base: Path) -> None:
    """Two segments lie on another disk, which is not mounted."""
    store = unpack(base, "keys")
    there = base / "mnt" / "disk2.unmounted" / "commitlog"
    there.mkdir(parents=True)
    (base / "mnt" / "disk2").mkdir()
    for number in (0, 1):
        path = segment(store, number)
        shutil.move(path, there / path.name)
        path.symlink_to(base / "mnt" / "disk2" / "commitlog" / path.name)


def upgraded(base: Path) -> None:
    """A sound store, and a broker.conf that is not of it."""
    unpack(base, "keys")
    (base / HOME / "new.conf").write_text(
        "storePathRootDir = /data/rocketmq/store\n"
        "mappedFileSizeCommitLog = 1073741824\n"
        "mapedFileSizeConsumeQueue = 6000000\n"
    )


def failover(base: Path) -> None:
    """A slave whose master has gone, and its broker.conf."""
    unpack(base, "keys")
    (base / HOME / "broker.conf").write_text(
        "brokerName=broker-a\nbrokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:1\n"
    )


@contextlib.contextmanager
def parted(base: Path) -> Iterator[dict[str, str]]:
    """A slave that was the master for a while: from some place on its log holds other messages than the broker's."""
    home = base / HOME
    master = unpack(base, "keys")
    slave = home / "slave"
    shutil.copytree(master, slave)
    for store, key in ((slave, "order-taken-by-slave"), (master, "order-3001"), (master, "order-3002")):
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["--store", str(store), "put", "Orders", "--queue", "0", "--body", "hi", "--keys", key]) == 0
    master.rename(home / "master")
    slave.rename(home / "store")
    words = ["serve", "--store", str(home / "master"), "--json", "--port", "0", "--no-names"]
    serve = [sys.executable, "-m", "rstore_cli.app", *words]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        assert daemon.stdout is not None
        where = json.loads(daemon.stdout.readline())["broker"]
        try:
            yield {"192.0.2.7:10911": where}
        finally:
            daemon.terminate()


def plain(prepare: Prepare) -> Scene:
    """A scene of files alone."""

    @contextlib.contextmanager
    def scene(base: Path) -> Iterator[dict[str, str]]:
        prepare(base)
        yield {f"/{name}": str(base / name) for name in ("data", "mnt")}

    return scene


SCENES: dict[str, Scene] = {
    "does-not-start": plain(does_not_start),
    "disk-full": plain(disk_nearly_full),
    "group-misses": plain(group_misses),
    "find": plain(whole),
    "topics": plain(topics_lost),
    "power-loss": plain(torn),
    "rsync": plain(rsync_stopped),
    "not-mounted": plain(not_mounted),
    "move": plain(whole),
    "bad-messages": plain(whole),
    "parted": parted,
    "upgrade": plain(upgraded),
    "page-lost": plain(page_lost),
    "failover": plain(failover),
}
