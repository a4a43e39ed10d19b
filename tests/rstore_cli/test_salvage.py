"""`rstore salvage`: scan, list, show, export, replay, prune; plans, refusals, exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.support import stores


@pytest.fixture
def repaired(damaged: Path, cli: Cli) -> tuple[Path, str]:
    """A store that was cut at damage in its middle, and the repair's name."""
    assert cli("--store", damaged, "recover", "--cut", "--yes").code == 0
    (one,) = cli("--store", damaged, "salvage", "list", "--json").json["repairs"]
    return damaged, one["id"]


@pytest.mark.leaves("log-damage")
def test_scan(damaged: Path, cli: Cli, fixture_store, unchanged) -> None:
    unchanged(damaged)
    ran = cli("--store", damaged, "salvage", "scan", "--json")
    assert ran.code == 1
    (lost,) = ran.json["lost"]
    assert (ran.json["lostBytes"], ran.json["missing"], ran.json["records"]) == (lost["length"], [], 599)
    assert lost["physicalOffset"] == int(lost["file"]) + lost["position"]
    assert lost["after"]["records"] == sum(queue["records"] for queue in lost["after"]["queues"])
    text = cli("--store", damaged, "salvage", "scan")
    assert text.code == 1
    assert str(lost["physicalOffset"]) in text.out
    sound = cli("--store", fixture_store("clean-small"), "salvage", "scan", "--json")
    assert (sound.code, sound.json["lost"], sound.json["records"]) == (0, [], 600)
    before = cli("--store", damaged, "salvage", "scan", "--to", str(lost["physicalOffset"]), "--json")
    assert (before.code, before.json["lost"]) == (0, [])


def test_scan_of_a_file(repaired: tuple[Path, str], cli: Cli, tmp_path: Path) -> None:
    store, name = repaired
    pieces = cli("--store", store, "salvage", "show", name, "--json").json["changes"]
    piece = next(p for p in pieces if p.get("records") and p["action"] == "overwrite")
    path = store / "salvage" / name / piece["file"]
    ran = cli("salvage", "scan", "--file", path, "--json")
    assert (ran.code, ran.json["records"]) == (1, piece["records"])
    copy = tmp_path / "somewhere"
    copy.write_bytes(path.read_bytes())
    assert cli("salvage", "scan", "--file", copy).code == 2
    ran = cli("salvage", "scan", "--file", copy, "--base-offset", str(piece["physicalOffset"]), "--json")
    assert ran.json["records"] == piece["records"]
    assert cli("salvage", "scan", "--base-offset", "5").code == 2
    assert cli("salvage", "scan", "--file", copy, "--from", "5").code == 2
    assert cli("salvage", "scan", "--file", tmp_path / "nothing", "--base-offset", "5").code == 5


def test_list_and_show(repaired: tuple[Path, str], cli: Cli, unchanged) -> None:
    store, name = repaired
    (store / "quarantine").mkdir()
    (store / "quarantine" / "odd").write_text("x")
    unchanged(store)
    ran = cli("--store", store, "salvage", "list", "--json")
    (one,) = ran.json["repairs"]
    assert (ran.code, one["state"], one["records"], one["command"]) == (0, "done", 424, "recover")
    assert ran.json["quarantine"] == [{"path": "odd", "bytes": 1, "repair": None, "why": None}]
    text = cli("--store", store, "salvage", "list")
    assert name in text.out
    assert "424" in text.out
    shown = cli("--store", store, "salvage", "show", name, "--json").json
    assert sum(piece.get("records", 0) for piece in shown["changes"]) == 424
    assert "after the log end" in cli("--store", store, "salvage", "show", name).out
    assert cli("--store", store, "salvage", "show", "nothing").code == 2
    assert cli("--store", store, "salvage").code == 2


def test_no_repairs(fixture_copy, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    assert cli("--store", store, "salvage", "list").out == "No repairs.\n"
    assert cli("--store", store, "salvage", "list", "--json").json == {
        "repairs": [], "diskBytes": 0, "leftovers": [], "quarantine": []
    }  # fmt: skip
    ran = cli("--store", store, "salvage", "replay", "--yes", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (4, "cannot-repair")
    assert cli("--store", store, "salvage", "prune", "--keep", "0", "--yes").code == 0
    assert not (store / "salvage").exists()


def test_export_and_put_again(repaired: tuple[Path, str], cli: Cli, new_store: Path, tmp_path: Path) -> None:
    store, name = repaired
    target = tmp_path / "messages.jsonl"
    ran = cli("--store", store, "salvage", "export", name, "--output", target, "--topic", "Orders")
    assert (ran.code, "no sound record" in ran.err) == (1, True)
    lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert {line["topic"] for line in lines} == {"Orders"}
    piped = cli("--store", store, "salvage", "export", name, "-o", "-", "--topic", "Orders", "--json")
    assert piped.lines == lines
    assert cli("--store", store, "salvage", "export", name, "--output", target).code == 4
    assert cli("--store", new_store, "put", "--jsonl", target).code == 0
    got = cli("--store", new_store, "get", "Orders", "0", "--count", "100", "--json").lines
    wanted = [line for line in lines if line["queueId"] == 0 and line["sysFlag"] & 0xC in (0, 8)]
    assert [m["properties"] for m in got] == [m["properties"] for m in wanted]
    assert [m.get("body") for m in got] == [m.get("body") for m in wanted]
    for wrong in ([], ["-o", "-", "--raw", tmp_path / "x"], ["--raw", tmp_path / "x", "--topic", "T"]):
        assert cli("--store", store, "salvage", "export", name, *wrong).code == 2


@pytest.mark.leaves("checkpoint-missing", "index-missing", "log-damage", "unit-missing")
def test_export_of_the_bytes(repaired: tuple[Path, str], cli: Cli, tmp_path: Path) -> None:
    store, name = repaired
    ran = cli("--store", store, "salvage", "export", name, "--raw", tmp_path / "raw", "--json")
    assert ran.code == 0
    assert len(ran.json["files"]) == 3
    rows = cli("--store", tmp_path / "raw", "dump", "commitlog", "--redact", "--json").lines
    assert sum(row["kind"] == "message" for row in rows) == 424
    assert cli("--store", store, "salvage", "export", name, "--raw", tmp_path / "raw").code == 4
    ran = cli("--store", store, "salvage", "export", name, "--raw", tmp_path / "the raw")
    next_words = shlex.split(ran.out.splitlines()[-1].removeprefix("Next: rstore "))
    assert cli(*next_words, "--redact", "--json").lines == rows


def test_replay(repaired: tuple[Path, str], cli: Cli) -> None:
    store, name = repaired
    before = stores.snapshot(store)
    dry = cli("--store", store, "salvage", "replay", "--dry-run", "--json")
    assert stores.snapshot(store) == before
    assert (dry.code, dry.json["repair"], dry.json["messages"]) == (1, name, 400)
    assert cli("--store", store, "salvage", "replay").code == 2
    done = cli("--store", store, "salvage", "replay", name, "--yes", "--json")
    assert done.code == 0
    assert done.json == {**dry.json, "done": True}
    assert cli("--store", store, "check").code == 0
    for queue in done.json["queues"]:
        where = (queue["topic"], str(queue["queueId"]), str(queue["fromOffset"]))
        got = cli("--store", store, "get", *where, "--count", "1000", "--json").lines
        assert [m["queueOffset"] for m in got] == list(range(queue["fromOffset"], queue["toOffset"]))
        assert all(m["properties"]["RSTORE_REPLAYED"].startswith(name) for m in got)
    again = cli("--store", store, "salvage", "replay", "--yes", "--json")
    assert (again.code, again.json["error"]["code"], again.json["messages"]) == (4, "refused", 0)
    undone = cli("--store", store, "undo", "--yes", "--json")
    assert (undone.code, undone.json["error"]["code"]) == (4, "changed")
    assert "Done: 400 messages" in cli("--store", store, "salvage", "replay", "--again", "--yes").out


def test_replay_into_another_store(repaired: tuple[Path, str], cli: Cli, new_store: Path, tmp_path: Path) -> None:
    store, _ = repaired
    made = tmp_path / "made"
    dry = cli("--store", store, "salvage", "replay", "--into", made, "--topic", "Orders", "--dry-run", "--json")
    assert (dry.code, dry.json["created"], made.exists()) == (1, True, False)
    done = cli("--store", store, "salvage", "replay", "--into", made, "--topic", "Orders", "--yes", "--json")
    assert (done.code, done.json) == (0, {**dry.json, "done": True})
    assert cli("--store", made, "check").code == 0
    with StoreLock(Disk(), str(new_store)):
        assert cli("--store", store, "salvage", "replay", "--into", new_store, "--yes").code == 3
    assert cli("--store", store, "salvage", "replay", "--into", new_store, "--yes").code == 0
    assert cli("--store", new_store, "check").code == 0
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "file").write_text("x")
    before = stores.snapshot(tmp_path / "strange")
    assert cli("--store", store, "salvage", "replay", "--into", tmp_path / "strange", "--yes").code == 4
    assert stores.snapshot(tmp_path / "strange") == before


def test_a_locked_store(repaired: tuple[Path, str], cli: Cli, tmp_path: Path) -> None:
    store, name = repaired
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, "salvage", "replay", "--yes").code == 3
        assert cli("--store", store, "salvage", "replay", "--into", tmp_path / "new", "--yes").code == 3
        assert cli("--store", store, "salvage", "prune", name, "--yes").code == 3
        assert cli("--store", store, "salvage", "replay", "--dry-run").code == 1
        assert cli("--store", store, "salvage", "scan").code in (0, 1)
        assert cli("--store", store, "salvage", "list").code == 0
        assert cli("--store", store, "salvage", "export", name, "-o", "-").code == 1


def test_prune(repaired: tuple[Path, str], cli: Cli) -> None:
    store, name = repaired
    for wrong in ([], ["--keep", "1", "--older-than", "3d"], [name, "--keep", "1"], ["--older-than", "soon"]):
        assert cli("--store", store, "salvage", "prune", *wrong, "--yes").code == 2
    before = stores.snapshot(store)
    dry = cli("--store", store, "salvage", "prune", "--keep", "0", "--dry-run", "--json")
    assert stores.snapshot(store) == before
    assert (dry.code, dry.json["pruned"][0]["id"], dry.json["pruned"][0]["recordsLost"]) == (1, name, 424)
    young = cli("--store", store, "salvage", "prune", "--older-than", "1d", "--yes", "--json")
    assert (young.code, young.json["changed"], young.json["kept"][0]["id"]) == (0, False, name)
    done = cli("--store", store, "salvage", "prune", name, "--yes", "--json")
    assert (done.code, done.json) == (0, {**dry.json, "done": True})
    assert cli("--store", store, "check").code == 0
    undone = cli("--store", store, "undo", "--yes")
    assert (undone.code, "prune" in undone.error_line) == (4, True)
    assert cli("--store", store, "salvage", "list", "--json").json["repairs"][0]["state"] == "pruned"
    assert "went for good" not in cli("--store", store, "salvage", "prune", "--keep", "0", "--yes").out


@pytest.mark.leaves("repair-unfinished")
def test_a_repair_that_is_not_finished(repaired: tuple[Path, str], cli: Cli) -> None:
    store, name = repaired
    (store / "salvage" / name / "applied.json").unlink()
    assert cli("--store", store, "salvage", "prune", name, "--yes").code == 4
    assert cli("--store", store, "salvage", "replay", name, "--yes").code == 4
    kept = cli("--store", store, "salvage", "prune", "--keep", "0", "--yes", "--json")
    assert (kept.code, kept.json["pruned"]) == (0, [])
    assert not (store / "salvage" / name / "applied.json").exists()
