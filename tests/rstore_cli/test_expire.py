"""`rstore expire`: the plan first, with what is unread; then the files go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_recover import KEYS
from tests.support import fixtures, stores

Store = Callable[[str], Path]
NOW = ("expire", "--force", "--reserved-hours", "0")


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    """A closed store of several files."""
    return fixture_copy("clean-small")


def test_the_dry_run_is_what_is_done(store: Path, cli: Cli) -> None:
    before = stores.snapshot(store)
    dry = cli("--store", store, *NOW, "--dry-run", "--json")
    assert dry.code == 1
    assert dry.json.keys() >= KEYS | {"unread", "openHalfMessages", "keptBecause", "why"}
    assert stores.snapshot(store) == before
    done = cli("--store", store, *NOW, "--yes", "--json")
    assert done.code == 0
    assert {**done.json, "diskUsedRatio": 0} == {**dry.json, "diskUsedRatio": 0}  # other tests fill the disk, too
    assert done.json["salvage"] is None
    assert not any((store / path).exists() for path in done.json["filesRemoved"])
    again = cli("--store", store, *NOW, "--dry-run", "--json")
    assert (again.code, again.json["changed"]) == (0, False)
    assert again.json["minOffset"] == done.json["minOffset"]
    assert cli("--store", store, "recover", "--dry-run").code == 0


@pytest.mark.leaves("config-missing")
def test_in_words(store: Path, cli: Cli) -> None:
    last = max(m["storeTimestamp"] for m in fixtures.dump("clean-small") if m["type"] == "log")
    assert last > 0
    (store / "config").mkdir()
    topic = next(m for m in fixtures.dump("clean-small") if m["type"] == "msg" and m["queueOffset"] == 0)
    table = f'{{"offsetTable":{{"{topic["topic"]}@slow":{{{topic["queueId"]}:0}}}}}}'
    (store / "config" / "consumerOffset.json").write_text(table)
    ran = cli("--store", store, *NOW)
    assert ran.code == 2
    for word in ("NOT READ YET", "slow", "Deleted files are not saved", "last file"):
        assert word in ran.out
    assert "Done." in cli("--store", store, *NOW, "--yes").out
    again = cli("--store", store, *NOW).out
    assert "no files will be deleted" in again
    assert "Nothing to do" in again


def test_nothing_is_old_enough(store: Path, cli: Cli, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"  # however full this machine's disk is
    conf.write_text("cleanFileForciblyEnable=false\n")
    ran = cli("--store", store, "-c", conf, "expire", "--force", "--reserved-hours", "1000000", "--json")
    assert (ran.code, ran.json["changed"]) == (0, False)
    assert "more hours" in ran.json["keptBecause"]


@pytest.mark.leaves("not-closed")
def test_what_is_refused(fixture_copy: Store, store: Path, cli: Cli) -> None:
    crashed = fixture_copy("crashed-small")
    ran = cli("--store", crashed, *NOW, "--yes")
    assert ran.code == 4
    assert f"Next: rstore --store {crashed} recover" in ran.error_line
    assert cli("--store", store, "expire", "--disk-ratio", "101").code == 2
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, *NOW, "--yes").code == 3
