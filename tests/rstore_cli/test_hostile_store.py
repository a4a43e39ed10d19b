"""Somebody else can write into the store: what rstore changes there, run by root, never reaches what lies outside."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.inspect.store.repairs import listing
from tests.engine.repair.test_rules import SIZES, damage, put, settings
from tests.rstore_cli.conftest import Cli, Ran
from tests.support import stores
from tests.support.config import write_config

CONF = "mappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=40\nmaxIndexNum=160\n"
KEY = b"ssh-ed25519 AAAA of the attacker\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of several segments."""
    store = tmp_path / "store"
    put(store, 200)
    (store / "rstore.conf").write_text(CONF)
    write_config(store)
    return store


def seen(place: Path) -> dict[str, tuple[object, ...]]:
    """Names, kinds, modes, owners and bytes of all that is below a directory."""
    out: dict[str, tuple[object, ...]] = {}
    for path in (place, *sorted(place.rglob("*"))):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        out[str(path)] = (status.st_mode, status.st_uid, status.st_gid, data)
    return out


def ended(ran: Ran) -> Ran:
    """It ended with success or a clear error."""
    assert "Traceback" not in ran.out + ran.err, ran
    assert "a bug in rstore" not in ran.err, ran
    assert ran.code in range(6), ran
    return ran


def manifest_of(
    root: Path, pieces: list[dict[str, object]], name: str = "20240101T000000Z-recover", **more: object
) -> Path:
    """A repair that was killed, as its manifest tells; returns its directory."""
    directory = root / "salvage" / name
    directory.mkdir(parents=True)
    manifest: dict[str, object] = {
        "version": 1,
        "number": 1,
        "command": "recover",
        "time": "2024-01-01T00:00:00Z",
        "pieces": pieces,
        "accepted": [],
        "bridged": [],
        "made": [],
        "files": listing(Disk(), settings(root)),
        **more,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def piece_of(path: str, data: bytes = KEY, action: str = "remove", **more: object) -> dict[str, object]:
    """A piece whose bytes are chosen by who wrote the manifest."""
    return {
        "action": action, "path": path, "offset": 0, "length": len(data), "why": "forged", "file": "0001-piece",
        "sha256": hashlib.sha256(data).hexdigest(), "target": "", "via": "", "source": "", "link": "", "mode": 0o644,
        "becomes": "", **more,
    }  # fmt: skip


def test_removal_of_saved_progress_stays_in_the_store(root: Path, victim: Path, cli: Cli) -> None:
    (root / "recover.progress").mkdir()
    (root / "recover.progress" / "link").symlink_to(victim)
    (root / "abort").touch()
    before = seen(victim)
    assert ended(cli("--store", root, "recover", "--yes")).code == 0
    assert seen(victim) == before
    assert not (root / "recover.progress").exists()


def test_saved_progress_that_is_a_link_is_unlinked(root: Path, victim: Path, cli: Cli) -> None:
    (root / "recover.progress").symlink_to(victim)
    (root / "abort").touch()
    before = seen(victim)
    assert ended(cli("--store", root, "recover", "--yes")).code == 0
    assert seen(victim) == before
    assert not os.path.lexists(root / "recover.progress")


def test_prune_stays_in_the_store(root: Path, victim: Path, cli: Cli) -> None:
    damage(root, 8192 * 2 - 200, b"\xff")
    (root / "abort").touch()
    assert cli("--store", root, "recover", "--cut", "--yes").code == 0
    (saved,) = (root / "salvage").iterdir()
    (saved / "link").symlink_to(victim)
    (root / "salvage" / "20200101T000000Z-recover").mkdir()
    (root / "salvage" / "20200101T000000Z-recover" / "link").symlink_to(victim)
    before = seen(victim)
    assert ended(cli("--store", root, "salvage", "prune", "--keep", "0", "--yes")).code == 0
    assert seen(victim) == before
    assert not os.path.lexists(saved / "link")


@pytest.mark.leaves("repair-unfinished")
def test_a_forged_manifest_writes_nothing_outside(root: Path, victim: Path, cli: Cli) -> None:
    files = {**listing(Disk(), settings(root)), "evil/authorized_keys": [len(KEY), 1]}
    directory = manifest_of(root, [piece_of("evil/authorized_keys")], files=files)
    (directory / "0001-piece").write_bytes(KEY)
    (root / "evil").symlink_to(victim)
    before, store = seen(victim), stores.snapshot(root)
    ran = ended(cli("--store", root, "undo", "--yes"))
    assert ran.code == 4, ran
    assert "manifest.json" in ran.error_line
    assert "evil/authorized_keys" in ran.error_line
    assert seen(victim) == before
    assert {name: one for name, one in stores.snapshot(root).items() if name != "lock"} == {
        name: one for name, one in store.items() if name != "lock"
    }


@pytest.mark.leaves("repair-unfinished")
def test_a_piece_in_the_queues_does_not_go_through_a_link(root: Path, victim: Path, cli: Cli) -> None:
    path = f"consumequeue/evil/0/{0:020d}"
    files = {**listing(Disk(), settings(root)), path: [400, 1]}
    piece = piece_of(path, KEY.ljust(400, b"x"))
    directory = manifest_of(root, [piece], files=files)
    (directory / "0001-piece").write_bytes(KEY.ljust(400, b"x"))
    (root / "consumequeue" / "evil").symlink_to(victim)
    before = seen(victim)
    ran = ended(cli("--store", root, "undo", "--yes"))
    assert ran.code == 4, ran
    assert str(victim) in ran.error_line
    assert seen(victim) == before


@pytest.mark.parametrize("words", [("put", "T", "--body", "x"), ("recover", "--yes"), ("flush",)])
def test_a_lock_that_is_a_link_is_not_written(words: tuple[str, ...], root: Path, victim: Path, cli: Cli) -> None:
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").symlink_to(victim / "file")
    before = seen(victim)
    ran = ended(cli("--store", root, *words))
    assert ran.code == 4, ran
    assert str(root / "lock") in ran.error_line
    assert str(victim / "file") in ran.error_line
    assert "--follow-links" in ran.error_line
    assert seen(victim) == before


def test_a_lock_with_another_name_outside_is_not_written(root: Path, victim: Path, cli: Cli) -> None:
    (root / "lock").unlink(missing_ok=True)
    os.link(victim / "file", root / "lock")
    before = seen(victim)
    ran = ended(cli("--store", root, "put", "T", "--body", "x"))
    assert ran.code == 4, ran
    assert str(root / "lock") in ran.error_line
    assert "hard link" in ran.error_line
    assert seen(victim) == before


def test_the_stores_own_settings_name_no_directory(root: Path, victim: Path, cli: Cli) -> None:
    (root / "rstore.conf").write_text(CONF + f"storePathCommitLog={root / 'commitlog'},{victim}\nfileReservedTime=1\n")
    (root / "abort").touch()
    before = seen(victim)
    ran = ended(cli("--store", root, "recover", "--yes"))
    assert ran.code == 0, ran
    assert "storePathCommitLog" in ran.err
    assert seen(victim) == before
    doctor = ended(cli("--store", root, "doctor"))
    assert "storePathCommitLog" in doctor.out


def test_a_link_that_is_trusted_is_followed(root: Path, tmp_path: Path, cli: Cli) -> None:
    elsewhere = tmp_path / "elsewhere"
    (root / "consumequeue" / "T" / "0").rename(elsewhere)
    (root / "consumequeue" / "T" / "0").symlink_to(elsewhere)
    ran = cli("--store", root, "put", "T", "--queue", "0", "--body", "x")
    assert ran.code == 4, ran
    assert str(elsewhere) in ran.error_line
    assert cli("--store", root, "--follow-links", "put", "T", "--queue", "0", "--body", "x").code == 0


assert SIZES
