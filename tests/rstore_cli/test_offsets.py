"""`rstore offsets`: list, and set with a plan before it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.engine.repair.test_rules import damage, put
from tests.rstore_cli.conftest import Cli
from tests.support import stores

pytestmark = pytest.mark.leaves("config-bad", "config-missing", "log-damage")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    places = put(root, 40)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@my group":{0:20,1:3}}}')
    damage(root, places[30] + 95, b"\xff")
    return root


def test_the_command_that_a_repair_names_sets_it_right(store: Path, cli: Cli) -> None:
    dry = cli("--store", store, "recover", "--cut", "--dry-run", "--json")
    done = cli("--store", store, "recover", "--cut", "--yes")
    assert done.code == 0
    (above,) = dry.json["consumers"]
    assert above["command"] in done.out
    listed = cli("--store", store, "offsets", "list", "--json")
    assert listed.code == 1
    assert [line["problem"] for line in listed.lines] == ["above the maximum", None]
    program, *words = shlex.split(above["command"])
    assert program == "rstore"
    before = stores.snapshot(store)
    plan = cli("--store", store, *words, "--dry-run", "--json")
    assert plan.code == 1
    assert stores.snapshot(store) == before
    ran = cli("--store", store, *words, "--yes", "--json")
    assert ran.code == 0
    assert {**ran.json, "salvage": None} == plan.json
    assert Path(ran.json["salvage"]).is_dir()
    assert (ran.json["from"], ran.json["to"]) == (20, 15)
    assert cli("--store", store, *words, "--yes").code == 0
    assert cli("--store", store, "offsets", "list").code == 0
    assert cli("--store", store, *words, "--dry-run").code == 0


def test_a_group_that_nobody_knows_is_said_to_be_unknown_and_undo_takes_it_back(store: Path, cli: Cli) -> None:
    assert cli("--store", store, "recover", "--cut", "--yes").code == 0
    cli("--store", store, "offsets", "set", "my group", "T", "0", "15", "--yes")
    before = stores.contents(store / "config")
    for words in (("--dry-run",), ("--yes",)):
        ran = cli("--store", store, "offsets", "set", "mygroup", "T", "0", "4", *words)
        assert "group   mygroup (UNKNOWN)" in ran.out
        assert "Note: unknown group mygroup: did you mean my group?" in ran.out
    assert ran.code == 0
    assert f"rstore --store {store} undo restores it" in ran.out
    assert cli("--store", store, "offsets", "list", "--group", "mygroup", "--json").lines[0]["offset"] == 4
    assert cli("--store", store, "undo", "--yes").code == 0
    assert stores.contents(store / "config") == before
    known = cli("--store", store, "offsets", "set", "my group", "T", "0", "3", "--dry-run", "--json")
    assert known.json["problems"] == []


def test_misuse(store: Path, cli: Cli) -> None:
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "far", "--yes").code == 2
    assert cli("--store", store, "offsets", "set", "g", "T", "7", "max", "--yes").code == 2
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "99", "--yes").code == 4
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "1").code == 2  # nobody to ask
    (store / "config" / "consumerOffset.json").write_text("{")
    ran = cli("--store", store, "offsets", "set", "g", "T", "0", "1", "--yes", "--json")
    assert ran.code == 4
    assert json.loads(ran.out)["error"]["path"].endswith("consumerOffset.json")
