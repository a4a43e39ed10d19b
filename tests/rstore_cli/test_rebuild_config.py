"""`rstore rebuild-config`: lost and broken files of config/ are made again, and the commands that send there agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format import fastjson
from engine.repair.config.history import keep
from tests.conftest import Store
from tests.rstore_cli.conftest import Cli
from tests.support.checking import check_clean
from tests.support.config import write_config

pytestmark = pytest.mark.leaves("config-bad", "config-missing")


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    copy = fixture_copy("clean-small")
    write_config(copy)
    (copy / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Hot@slow":{0:7},"T@x":{0:1,1:')
    (copy / "config" / "topics.json").unlink()
    return copy


def test_the_plan_and_what_is_done(store: Path, cli: Cli) -> None:
    for command in ("check", "doctor", "status"):
        said = cli("--store", store, command)
        assert "rebuild-config" in said.out
        assert "config/topics.json" in said.out
    shown = cli("--store", store, "rebuild-config", "--dry-run")
    assert shown.code == 1
    assert "config/topics.json (the file does not exist)" in shown.out
    assert "messages are consumed twice rather than lost" in shown.out
    assert not (store / "config" / "topics.json").exists()
    done = cli("--store", store, "rebuild-config", "--yes")
    assert done.code == 0
    assert f"rstore --store {store} undo" in done.out
    assert fastjson.loads((store / "config" / "consumerOffset.json").read_text())["offsetTable"]["Hot@slow"] == {"0": 7}
    check_clean(store)
    again = cli("--store", store, "rebuild-config", "--dry-run")
    assert again.code == 0
    assert "Nothing to do" in again.out
    assert cli("--store", store, "undo", "--yes").code == 0
    assert not (store / "config" / "topics.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--only", "topic"),
        ("--only", ""),
        ("--all", "--only", "topics"),
        ("--topic", "T", "--all"),
        ("--topic", "Nothing"),
        ("--offsets", "later"),
        ("--from", "/nowhere"),
    ],
)
def test_misuse(words: tuple[str, ...], store: Path, cli: Cli) -> None:
    ran = cli("--store", store, "rebuild-config", "--yes", *words)
    assert ran.code == 2
    assert ran.error_line


def test_a_bare_store_is_told(fixture_store: Store, cli: Cli) -> None:
    said = cli("--store", fixture_store("clean-small"), "check")
    assert said.code == 0
    assert "No configuration (config/)" in said.out
    assert re.search("rstore --store .+ rebuild-config rebuilds it", said.out)


def test_states_are_listed_and_brought_back(store: Path, cli: Cli) -> None:
    assert "The config history is empty" in cli("--store", store, "config", "history").out
    for i in range(2):
        keep(Disk(), str(store), "topics.json", b'{"topicConfigTable":{"T%d":{"perm":6}}}' % i, 1_700_000_000_000 + i)
    found = cli("--store", store, "config", "history", "--json").lines
    assert [line["change"] for line in found] == ["1 topic new (T1); 1 topic gone (T0)", "1 topic new (T0)"]
    text = cli("--store", store, "config", "history", "topics.json")
    assert found[0]["id"] in text.out
    dry = cli("--store", store, "config", "restore", "topics.json", "--at", found[1]["id"], "--dry-run")
    assert dry.code == 1
    assert "1 topic new (T0)" in dry.out
    assert cli("--store", store, "config", "restore", "topics.json", "--at", found[1]["id"], "--yes").code == 0
    assert "T0" in fastjson.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert cli("--store", store, "config", "restore", "topics.json", "--at", found[1]["id"], "--dry-run").code == 0
    assert cli("--store", store, "undo", "--yes").code == 0
    assert not (store / "config" / "topics.json").exists()
    for words in (
        ("topics.json", "--at", "20200101T000000.000Z"),
        ("x", "--at", "1h ago"),
        ("topics.json", "--at", "?"),
    ):
        assert cli("--store", store, "config", "restore", *words, "--yes").code == 2
