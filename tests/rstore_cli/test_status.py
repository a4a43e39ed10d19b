"""`rstore status`: the state of a store, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.support import fixtures

Store = Callable[[str], Path]


@pytest.mark.parametrize(("name", "state"), [("clean-small", "clean"), ("crashed-small", "crashed")])
def test_a_store(name: str, state: str, fixture_store: Store, cli: Cli) -> None:
    store = fixture_store(name)
    found = cli("--store", store, "status", "--json").json
    manifest = fixtures.manifest(name)
    assert found["state"] == state
    assert found["commitlog"]["minOffset"] == manifest["minPhyOffset"]
    assert found["commitlog"]["maxOffset"] == manifest["maxPhyOffset"]
    assert found["sizes"] == {
        key: manifest["settings"][key]
        for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    }
    assert found["dispatch"] == {"records": 0, "bytes": 0}
    text = cli("--store", store, "status")
    assert (text.code, text.err) == (0, "")
    assert f"state       {state.upper()}: " in text.out
    assert ("rstore recover --dry-run" in text.out) == (state == "crashed")


def test_messages_by_topic_are_what_the_queues_hold(fixture_store: Store, cli: Cli) -> None:
    found = cli("--store", fixture_store("clean-small"), "status", "--json").json
    expected: dict[str, int] = {}
    for line in fixtures.dump("clean-small"):
        if line["type"] == "queue" and line["max"]:
            expected[line["topic"]] = expected.get(line["topic"], 0) + line["max"] - line["min"]
    assert {t["topic"]: t["messages"] for t in found["topics"]} == expected


def test_an_empty_store(new_store: Path, cli: Cli) -> None:
    assert cli("--store", new_store, "status", "--json").json["state"] == "empty"
    assert "rstore" not in cli("--store", new_store, "status").err


def test_who_has_it(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, "status", "--json").json["state"] == "running"
        (store / "abort").unlink()
        found = cli("--store", store, "status", "--json").json
        assert found["state"] == "locked"
        assert f"process {found['pid']}" in found["why"]


def test_what_looks_wrong_is_said(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{131072:020d}").unlink()
    (store / "commitlog" / "core").write_text("x")
    (store / "checkpoint").unlink()
    text = cli("--store", store, "status").out
    assert "! segments are missing in the log" in text
    assert "commitlog/core" in text
    assert "missing or short" in text
