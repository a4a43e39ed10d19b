"""`rstore reindex`: what differs is shown first, then swapped in; elsewhere with --output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.lock import StoreLock
from engine.inspect.store.repairs import repairs, unfinished
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.engine.repair.test_rules import damage, settings
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_after_a_kill import killed_reindex
from tests.rstore_cli.test_recover import KEYS
from tests.support import stores

Store = Callable[[str], Path]


@pytest.fixture
def without_a_queue(fixture_copy: Store) -> Path:
    """A store that lost a queue."""
    store = fixture_copy("clean-small")
    shutil.rmtree(min((store / "consumequeue").glob("*/*")))
    return store


def test_a_sound_store_stays_as_it_is(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    before = stores.snapshot(store)
    dry = cli("--store", store, "reindex", "--dry-run", "--json")
    assert (dry.code, dry.json["changed"]) == (0, False)
    assert dry.json.keys() >= KEYS
    assert stores.snapshot(store) == before
    ran = cli("--store", store, "reindex")
    assert ran.code == 0
    assert "Nothing to do" in ran.out
    now = stores.contents(store)
    assert {path for path, seen in before.items() if now.get(path) != seen.digest} <= {"lock"}
    assert not (store / "salvage").exists()


def test_the_dry_run_is_what_is_done(without_a_queue: Path, cli: Cli) -> None:
    before = stores.snapshot(without_a_queue)
    dry = cli("--store", without_a_queue, "reindex", "--dry-run", "--json")
    assert dry.code == 1
    assert stores.snapshot(without_a_queue) == before
    assert cli("--store", without_a_queue, "reindex").code == 2
    done = cli("--store", without_a_queue, "reindex", "--yes", "--json")
    assert done.code == 0
    assert Path(done.json["salvage"]).name.endswith("-reindex")
    told = done.json
    assert told.pop("next")["command"].endswith(" check")
    assert {**told, "salvage": None} == dry.json
    assert [q["changed"] for q in done.json["queues"]].count(True) == 1
    assert cli("--store", without_a_queue, "reindex", "--dry-run").code == 0
    assert cli("--store", without_a_queue, "recover", "--dry-run").code == 0


def test_in_words(without_a_queue: Path, cli: Cli) -> None:
    out = cli("--store", without_a_queue, "reindex", "--yes").out
    for word in ("1 differ", "Done.", "salvage", "unchanged"):
        assert word in out


@pytest.mark.leaves("checkpoint-missing", "index-orphaned", "log-missing", "unit-missing")
def test_elsewhere(without_a_queue: Path, cli: Cli, tmp_path: Path) -> None:
    before = stores.snapshot(without_a_queue)
    ran = cli("--store", without_a_queue, "reindex", "--output", tmp_path / "out", "--json")
    assert (ran.code, ran.json["output"]) == (0, str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"consumequeue", "index"}
    assert stores.snapshot(without_a_queue) == before
    assert cli("--store", without_a_queue, "reindex", "--output", tmp_path / "out").code == 2


@pytest.mark.leaves("log-damage", "not-closed")
def test_what_is_refused(fixture_copy: Store, damaged: Path, cli: Cli) -> None:
    crashed = fixture_copy("crashed-small")
    ran = cli("--store", crashed, "reindex", "--yes")
    assert ran.code == 4
    assert "Next: rstore --store " in ran.error_line
    assert not (crashed / "reindex.tmp").exists()
    assert cli("--store", crashed, "reindex", "--topic", "T", "--index").code == 2
    ran = cli("--store", damaged, "reindex", "--yes")
    assert ran.code == 4
    assert not (damaged / "reindex.tmp").exists()
    with StoreLock(Disk(), str(crashed)):
        assert cli("--store", crashed, "reindex", "--yes").code == 3


def not_closed(root: Path) -> None:
    (root / "abort").touch()


def killed_recovery(root: Path) -> None:
    disk = FaultyDisk(None)
    disk.kill_at("recover.log-done")
    (root / "abort").touch()
    with pytest.raises(Killed):
        apply(disk, plan_recover(disk, settings(root)))
    assert "recover" in {one.manifest["command"] for one in unfinished(repairs(Disk(), str(root)))}
    (root / "abort").unlink(missing_ok=True)


def no_log(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.rename(root.parent / path.name)


def other_name(root: Path) -> None:
    last = max((root / "commitlog").iterdir())
    last.rename(last.with_name(f"{int(last.name) + 1:020d}"))


def damage_behind_recovery_s_start(root: Path) -> None:
    """Nothing but reading the whole log tells it."""
    damage(root, 95, b"\xff")


REFUSED = (not_closed, killed_recovery, no_log, other_name, damage_behind_recovery_s_start)


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_a_reindex_that_is_refused_builds_and_swaps_nothing(
    make: Callable[[Path], None], tmp_path: Path, cli: Cli
) -> None:
    """What a killed one left is the proof: it stays half-way swapped, and what it built stands there."""
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nmappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=400\n")
    killed_reindex(root, lambda disk: disk.kill_at("reindex.swap-in"))
    make(root)
    before = stores.contents(root)
    ran = cli("-c", conf, "reindex", "--yes")
    assert ran.code == 4
    now = stores.contents(root)
    assert {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)} <= {"lock"}
    if make is no_log:
        for path in tmp_path.glob("0*"):
            path.rename(root / "commitlog" / path.name)
    else:
        assert cli(*ran.next_command, "--yes").code == 0
    assert cli("-c", conf, "reindex", "--yes").code == 0


def test_a_dry_run_shows_what_differs_before_it_is_refused(without_a_queue: Path, cli: Cli) -> None:
    (without_a_queue / "abort").touch()
    before = stores.snapshot(without_a_queue)
    ran = cli("--store", without_a_queue, "reindex", "--dry-run")
    assert ran.code == 4
    assert "1 differ" in ran.out
    assert ran.next_command[2:] == ["recover"]
    assert stores.snapshot(without_a_queue) == before
    assert cli(*ran.next_command, "--yes").code == 0
    assert cli("--store", without_a_queue, "reindex", "--dry-run").code == 0
