"""`rstore check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.support import stores

pytestmark = pytest.mark.leaves("log-damage", "not-closed")

Store = Callable[[str], Path]


def test_a_sound_store(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    before = stores.snapshot(store)
    ran = cli("--store", store, "check", "--json")
    assert ran.code == 0
    assert ran.json.keys() == {"ok", "findings", "counts", "next"}
    assert ran.json["next"] is None
    assert (ran.json["ok"], ran.json["findings"], ran.json["counts"]["records"]) == (True, [], 600)
    assert "Nothing is wrong." in cli("--store", store, "check").out
    assert stores.snapshot(store) == before


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_damage_is_1(jobs: str, damaged: Path, cli: Cli) -> None:
    ran = cli("--store", damaged, "check", "--json", "--jobs", jobs)
    assert ran.code == 1
    assert not ran.json["ok"]
    first = ran.json["findings"][0]
    assert first.keys() == {"code", "severity", "where", "message", "hint"}
    assert (first["code"], first["severity"]) == ("log-damage", "error")
    assert first["where"].startswith(f"commitlog/{131072:020d} at ")


def test_people_read_what_and_what_next(damaged: Path, cli: Cli) -> None:
    ran = cli("--store", damaged, "check")
    assert ran.code == 1
    assert "ERROR    commitlog/" in ran.out
    assert "[log-damage]" in ran.out
    assert f"Next: rstore --store {damaged} recover --bridge (" in ran.out
    assert "1 error, no warnings" in ran.out


def test_a_crashed_store_is_told_to_recover_first(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("crashed-small")
    ran = cli("--store", store, "check")
    assert ran.code == 1
    assert f"Next: rstore --store {store} recover (" in ran.out


def test_a_time_box(damaged: Path, cli: Cli) -> None:
    ran = cli("--store", damaged, "check", "--json", "--time-box", "0s")
    assert ran.code == 0
    assert [f["code"] for f in ran.json["findings"]] == ["time-box"]
    assert "Nothing is wrong in the part that was checked." in cli("--store", damaged, "check", "--time-box", "0").out
    assert cli("--store", damaged, "check", "--time-box", "5min").code == 1
    wrong = cli("--store", damaged, "check", "--time-box", "soon")
    assert wrong.code == 2
    assert "not a duration" in wrong.error_line


def test_beside_a_live_process(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    with StoreLock(Disk(), str(store)):
        ran = cli("--store", store, "check", "--json")
    assert ran.code == 0
    assert [f["code"] for f in ran.json["findings"]] == ["ends-not-checked"]


def test_no_store(tmp_path: Path, cli: Cli) -> None:
    ran = cli("--store", tmp_path, "check")
    assert ran.code == 4
    assert "no store here" in ran.error_line
