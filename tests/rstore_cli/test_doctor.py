"""`rstore doctor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.rstore_cli.conftest import Cli
from tests.support import stores

Store = Callable[[str], Path]


def test_a_sound_store(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    before = stores.snapshot(store)
    ran = cli("--store", store, "doctor", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    assert ran.json["sizes"]["mappedFileSizeCommitLog"] == 131072
    assert all(f.keys() == {"code", "severity", "where", "message", "hint"} for f in ran.json["findings"])
    text = cli("--store", store, "doctor")
    assert "Nothing here keeps a broker from starting." in text.out
    assert "Code 14 (SERVICE_NOT_AVAILABLE)" in text.out
    assert stores.snapshot(store) == before


def test_what_keeps_a_broker_from_starting_is_1(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / ".DS_Store").touch()
    ran = cli("--store", store, "doctor")
    assert ran.code == 1
    assert "ERROR    commitlog/.DS_Store  [file-stray]" in ran.out


def test_no_store_is_a_finding(tmp_path: Path, cli: Cli) -> None:
    ran = cli("--store", tmp_path / "none", "doctor", "--json")
    assert ran.code == 1
    assert "store-missing" in [f["code"] for f in ran.json["findings"]]
