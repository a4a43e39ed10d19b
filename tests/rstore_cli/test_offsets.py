"""`rstore offsets`: list, and set with a plan before it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.engine.repair.test_rules import damage, put
from tests.rstore_cli.conftest import Cli
from tests.support import stores


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
    assert [line["problem"] for line in listed.lines] == ["above the end", None]
    program, *words = shlex.split(above["command"])
    assert program == "rstore"
    before = stores.snapshot(store)
    plan = cli("--store", store, *words, "--dry-run", "--json")
    assert plan.code == 1
    assert stores.snapshot(store) == before
    ran = cli("--store", store, *words, "--yes", "--json")
    assert ran.code == 0
    assert ran.json == plan.json
    assert (ran.json["from"], ran.json["to"]) == (20, 15)
    assert cli("--store", store, *words, "--yes").code == 0
    assert cli("--store", store, "offsets", "list").code == 0
    assert cli("--store", store, *words, "--dry-run").code == 0


def test_misuse(store: Path, cli: Cli) -> None:
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "far", "--yes").code == 2
    assert cli("--store", store, "offsets", "set", "g", "T", "7", "max", "--yes").code == 2
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "99", "--yes").code == 4
    assert cli("--store", store, "offsets", "set", "g", "T", "0", "1").code == 2  # nobody to ask
    (store / "config" / "consumerOffset.json").write_text("{")
    ran = cli("--store", store, "offsets", "set", "g", "T", "0", "1", "--yes", "--json")
    assert ran.code == 4
    assert json.loads(ran.out)["error"]["path"].endswith("consumerOffset.json")
