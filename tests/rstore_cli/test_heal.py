"""`rstore heal`: plan, answers, JSON as HEAL.md has it, exit codes, sources that can't be used."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from random import Random

import pytest

import engine.heal
from tests.docs.markdown import section, tables
from tests.engine.heal.healing import SIZE, damaged, log_of, records_of, recovered, write
from tests.rstore_cli.conftest import Cli
from tests.support import stores

HEAL = Path(engine.heal.__file__).with_name("HEAL.md")


@pytest.fixture
def good(fixture_copy, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSTORE_REPO_KEY", "the key of a test")
    return recovered(fixture_copy("crashed-small"))


def keys(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", text)))


def test_from_a_store_and_a_repository(good: Path, tmp_path: Path, cli: Cli) -> None:
    truth = log_of(good)
    assert cli("backup", "init", "--repo", tmp_path / "repo").code == 0
    assert cli("--store", good, "backup", "create", "--repo", tmp_path / "repo").code == 0
    store = damaged(good, tmp_path / "store", Random(21), ("body", "missing", "zeros"))
    watched = stores.snapshot(store), stores.snapshot(good), stores.snapshot(tmp_path / "repo")
    sources = ("--from", tmp_path / "repo", "--from", f"repo:{tmp_path / 'repo'}", "--from", good)
    shown = cli("--store", store, "heal", *sources, "--dry-run")
    assert shown.code == 1
    assert "header and properties by no CRC" in shown.out
    assert "applies this plan" in shown.out
    dry = cli("--store", store, "heal", *sources, "--dry-run", "--json")
    (row,) = tables(section(HEAL, "JSON"), marks=True)[0]
    assert set(dry.json) == keys(row["keys"]) - {"next"}
    assert set(dry.json["healed"][0]) == {
        *("physicalOffset", "length", "file", "was", "reason", "from", "provedBy", "records", "messages")
    }
    assert (stores.snapshot(store), stores.snapshot(good), stores.snapshot(tmp_path / "repo")) == watched
    done = cli("--store", store, "heal", *sources, "--yes", "--json")
    assert (done.code, done.json["changed"], done.json["left"]) == (0, True, [])
    assert Path(done.json["salvage"]).name.endswith("-heal")
    assert log_of(store) == truth
    again = cli("--store", store, "heal", *sources)
    assert again.code == 0
    assert "Nothing to do: no damage found in the log." in again.out
    assert (stores.snapshot(good), stores.snapshot(tmp_path / "repo")) == watched[1:]
    assert cli("--store", store, "undo", "--yes").code == 0
    assert log_of(store) != truth
    assert cli("--store", store, "heal", *sources, "--yes", "--salvage-dir", tmp_path / "aside").code == 0
    assert log_of(store) == truth


@pytest.mark.parametrize("way", ["fifo", "directory"])
def test_a_stray_in_the_place_of_a_segment_is_set_aside(good: Path, tmp_path: Path, cli: Cli, way: str) -> None:
    store = stores.copy(good, tmp_path / "store")
    path = store / "commitlog" / f"{SIZE:020d}"
    path.unlink()
    os.mkfifo(path) if way == "fifo" else path.mkdir()
    done = cli("--store", store, "heal", "--from", good, "--yes")
    assert done.code == 0, done
    assert log_of(store) == log_of(good)
    assert os.path.lexists(store / "quarantine" / "commitlog" / path.name)


@pytest.mark.leaves
def test_a_log_that_is_gone_is_not_one_without_damage(good: Path, tmp_path: Path, cli: Cli) -> None:
    store = stores.copy(good, tmp_path / "store")
    shutil.rmtree(store / "commitlog")
    refused = cli("--store", store, "heal", "--from", good, "--yes")
    assert refused.code == 4, refused
    assert "but no commit log" in refused.error_line
    assert refused.err.rstrip().endswith(f"rstore --store {store} recover --yes-the-log-is-gone")
    assert cli("--store", store, "heal", "--from", good, "--dry-run").code == 4


@pytest.mark.leaves
def test_what_cannot_be_healed(good: Path, tmp_path: Path, cli: Cli) -> None:
    store = stores.copy(good, tmp_path / "store")
    records = [one for one in records_of(good) if one[2] > 50]
    one, two = (next(r for r in records if r[0] > n * SIZE) for n in (1, 3))
    for record in (one, two):
        write(store, record[0] + 92, b"\xff\x00\xff")
    rotten = stores.copy(good, tmp_path / "rotten")
    write(rotten, one[0] + 92, b"\x00\xff\x00")
    done = cli("--store", store, "heal", "--from", rotten, "--yes")
    assert done.code == 1
    assert "1 damaged range stays in the log: no copy could be proved." in done.out
    assert "is damaged there, too" in done.out
    assert "queues and index: damage stays in the log" in done.out
    refused = cli("--store", store, "heal", "--from", rotten, "--yes")
    assert refused.code == 4
    assert "no copy is taken for 1 damaged range" in refused.error_line
    as_json = cli("--store", store, "heal", "--from", rotten, "--yes", "--json")
    assert (as_json.code, as_json.json["left"][0]["differ"]) == (4, False)
    missing = cli("--store", store, "heal", "--from", tmp_path / "nowhere", "--yes")
    assert (missing.code, "no store, repository or broker" in missing.error_line) == (2, True)
    assert cli("--store", store, "heal", "--yes").code == 2
    assert cli("--store", store, "heal", "--from", store, "--yes").code == 2
    nobody = cli("--store", store, "heal", "--from", "127.0.0.1:1", "--yes")
    assert (nobody.code, "127.0.0.1:1" in nobody.error_line) == (5, True)
    passed = cli("--store", store, "heal", "--from", "127.0.0.1:1", "--from", good, "--yes")
    assert passed.code == 0
    assert "a source is passed over" in passed.err
    assert log_of(store) == log_of(good)
