"""`rstore recover`: the plan first, then the change; what is refused; what is saved."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.files.lock import StoreLock
from rstore_cli.refusal_text import LINES
from tests.rstore_cli.conftest import Cli, process
from tests.support import stores

Store = Callable[[str], Path]

KEYS = {
    "mode",
    "abort",
    "startFile",
    "minOffset",
    "maxOffset",
    "truncateTo",
    "records",
    "bytesCut",
    "damage",
    "recordsAfter",
    "filesRemoved",
    "queues",
    "index",
    "salvage",
    "changed",
    "problems",
}


def test_the_plan_has_the_contract_s_keys(fixture_store: Store, cli: Cli) -> None:
    plan = cli("--store", fixture_store("crashed-small"), "recover", "--dry-run", "--json").json
    assert plan.keys() >= KEYS
    assert plan["queues"][0].keys() >= {"topic", "queueId", "minOffset", "maxOffset", "unitsCut", "unitsRebuilt"}
    assert (plan["mode"], plan["abort"], plan["changed"], plan["salvage"]) == ("abnormal", True, True, None)


@pytest.mark.parametrize(
    "words",
    [
        ("recover", "--bridge"),
        ("recover", "--cut"),
        ("recover", "--bridge", "--whole"),
        ("truncate", "--to-offset", "0"),
    ],
)
def test_without_room_the_same_command_is_named_with_another_disk(
    words: tuple[str, ...], damaged: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain `recover` would be refused again, and does not do what truncate was to do."""
    room = Disk.usage

    def full(self: Disk, path: str) -> Usage:
        return Usage(1 << 30, 1 << 30, 0) if path.startswith(str(damaged)) else room(self, path)

    monkeypatch.setattr(Disk, "usage", full)
    ran = cli("--store", damaged, *words, "--yes", "--json")
    assert ran.code == 4
    named = shlex.split(ran.json["error"]["hint"].rpartition("another disk: ")[2])
    assert named == ["rstore", "--store", str(damaged), *words, "--salvage-dir", "DIR"]
    other = tmp_path / "other"
    assert cli(*named[1:-1], other, "--yes").code == 0
    assert len(list(other.rglob("manifest.json"))) == 1
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_messages_and_records_are_those_that_verify_crc_counts(name: str, fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy(name)
    assert cli("--store", store, "recover", "--whole", "--yes").code == 0
    found = cli("--store", store, "verify-crc", "--json").json
    told = {one: found[one] for one in ("records", "messages")}
    assert 0 < told["messages"] <= told["records"]
    for words in (("recover", "--whole", "--dry-run"), ("reindex", "--dry-run"), ("salvage", "scan")):
        counted = cli("--store", store, *words, "--json").json
        assert {one: counted[one] for one in told} == told, words
        line = f"{told['messages']:,} messages in {told['records']:,} "
        assert line in cli("--store", store, *words).out, words


@pytest.mark.parametrize("queue", ["%LMQ%blue", "Side"])
@pytest.mark.parametrize("words", [("recover",), ("recover", "--whole"), ("reindex",)], ids=" ".join)
def test_a_lost_queue_of_multi_dispatch_is_rebuilt_without_the_brokers_conf(
    queue: str, words: tuple[str, ...], fixture_copy: Store, cli: Cli
) -> None:
    """As the other light queues tell that the broker dispatched to them: `check` names what is missing by them, too."""
    store = fixture_copy("lmq")
    before = stores.contents(store / "consumequeue")
    shutil.rmtree(store / "consumequeue" / queue)
    assert cli("--store", store, "check").code == 1
    assert cli("--store", store, *words, "--yes").code == 0
    assert stores.contents(store / "consumequeue") == before


def test_the_dry_run_is_what_is_done(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    dry = cli("--store", store, "recover", "--dry-run", "--json")
    assert dry.code == 1
    done = cli("--store", store, "recover", "--yes", "--json")
    assert done.code == 0
    assert Path(done.json["salvage"]).is_dir()
    told = done.json
    assert told.pop("next")["command"] == f"rstore --store {store} check"
    assert {**told, "salvage": None} == dry.json
    after = cli("--store", store, "recover", "--dry-run", "--json")
    assert (after.code, after.json["changed"]) == (0, False)
    assert after.json["maxOffset"] == dry.json["maxOffset"]


def test_a_second_run_changes_no_byte(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    assert cli("--store", store, "recover", "--yes").code == 0
    before = stores.snapshot(store)
    again = cli("--store", store, "recover")
    assert again.code == 0
    assert "Nothing to do" in again.out
    assert stores.snapshot(store) == before


def test_words_for_an_operator(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    out = cli("--store", store, "recover", "--yes").out
    for word in ("abort file", "abnormal", "recovery start: segment", "removed", "salvage", "Done.", "Next: "):
        assert word in out


def test_only_the_abort_file_is_a_change_too(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "abort").touch()
    dry = cli("--store", store, "recover", "--dry-run", "--json")
    assert dry.code == 1
    assert dry.json["changed"] is True
    assert cli("--store", store, "recover", "--yes").code == 0
    assert not (store / "abort").exists()
    assert cli("--store", store, "recover", "--dry-run").code == 0


def test_the_mode_can_be_chosen(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("crashed-small")
    assert cli("--store", store, "recover", "--dry-run", "--normal", "--json").json["mode"] == "normal"
    clean = fixture_store("clean-small")
    assert cli("--store", clean, "recover", "--dry-run", "--abnormal", "--json").json["mode"] == "abnormal"


# --- the question ----------------------------------------------------------------------------------------------------


def answered(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(text))


@pytest.mark.leaves("not-closed")
def test_without_anybody_to_ask(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    before = stores.contents(store)
    ran = cli("--store", store, "recover")
    assert ran.code == 2
    assert "--yes" in ran.error_line
    assert "commit log" in ran.out
    assert stores.contents(store).keys() - before.keys() <= {"lock"}


@pytest.mark.leaves("not-closed")
def test_json_never_asks(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, "y\n")
    ran = cli("--store", fixture_copy("crashed-small"), "recover", "--json")
    assert ran.code == 2
    assert ran.json["error"]["code"] == "usage"


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yes please\n"])
def test_no_means_no(answer: str, fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("crashed-small")
    before = stores.contents(store)
    answered(monkeypatch, answer)
    ran = cli("--store", store, "recover")
    assert ran.code == 1
    assert ran.err == "Apply this plan? [y/N] Nothing was changed.\n"
    assert stores.contents(store).keys() - before.keys() <= {"lock"}


def test_yes_means_yes(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("crashed-small")
    answered(monkeypatch, "y\n")
    assert cli("--store", store, "recover").code == 0
    assert cli("--store", store, "status", "--json").json["state"] == "clean"


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.leaves("log-damage")
@pytest.mark.parametrize("args", [("--dry-run",), ("--yes",), ()])
def test_damage_in_the_middle_is_refused_after_the_plan(args: tuple[str, ...], damaged: Path, cli: Cli) -> None:
    before = stores.contents(damaged)
    ran = cli("--store", damaged, "recover", *args)
    assert ran.code == 4
    assert "--cut" in ran.error_line
    lines = ran.out.splitlines()
    assert lines[0] == "REFUSED, nothing was changed. What --bridge would do:"
    labels = ["store", "findings", "changes", "keeps", "lost", "queues", "saves"]
    assert [line.split()[0] for line in lines[1:-1]] == labels
    assert re.fullmatch(r"--cut would remove \d+ sound messages instead\. --verbose shows both plans\.", lines[-1])
    assert len(lines) <= LINES
    whole = cli("--store", damaged, "recover", *args, "--verbose").out
    assert whole.index("1 damaged range") < whole.index("Sound messages after the damage")
    assert whole.endswith("REFUSED, nothing was changed. The plan above is what --cut would do.\n")
    with_json = cli("--store", damaged, "recover", *args, "--json")
    assert with_json.code == 4
    assert with_json.json["error"]["code"] == "damage"
    assert with_json.json["recordsAfter"] > 0
    after = stores.contents(damaged)
    assert {k: v for k, v in after.items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}


def test_a_refusal_for_missing_segments_shows_first_what_bridging_keeps(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{131072:020d}").unlink()
    ran = cli("--store", store, "recover")
    assert ran.code == 4
    assert "lost      the messages of 128.0 KiB of missing segments\n" in ran.out
    assert re.search("^changes +1 gap accepted$", ran.out, re.MULTILINE)
    told = re.search(r"keeps +(\d+) messages", ran.out)
    assert told is not None
    assert cli("--store", store, "recover", "--bridge", "--yes").code == 0
    assert cli("--store", store, "verify-crc", "--json").json["messages"] == int(told[1])


def test_cut_saves_what_it_cuts(damaged: Path, cli: Cli) -> None:
    behind = cli("--store", damaged, "recover", "--dry-run", "--json").json["recordsAfter"]
    total = cli("--store", damaged, "verify-crc", "--json").json["records"]
    done = cli("--store", damaged, "recover", "--cut", "--yes", "--json")
    assert done.code == 0
    assert done.json["truncateTo"] == done.json["damage"][0]["physicalOffset"]
    manifest = json.loads((Path(done.json["salvage"]) / "manifest.json").read_text())
    assert {piece["action"] for piece in manifest["pieces"]} >= {"remove", "overwrite"}
    ran = cli("--store", damaged, "verify-crc", "--json")
    assert ran.code == 0
    assert ran.json["records"] <= total - behind
    assert cli("--store", damaged, "recover", "--dry-run").code == 0


def test_bridge_loses_nothing_that_is_sound(damaged: Path, cli: Cli) -> None:
    total = cli("--store", damaged, "dump", "commitlog", "--json").lines
    dry = cli("--store", damaged, "recover", "--bridge", "--dry-run", "--json")
    assert (dry.code, dry.json["recordsAfter"], len(dry.json["bridged"])) == (1, 0, 1)
    done = cli("--store", damaged, "recover", "--bridge", "--yes")
    assert done.code == 0
    assert "1 damaged range" in done.out
    ran = cli("--store", damaged, "verify-crc", "--json")
    assert (ran.code, ran.json["records"]) == (0, sum(line["kind"] != "blank" for line in total))
    assert cli("--store", damaged, "recover", "--dry-run").code == 0
    assert cli("--store", damaged, "recover", "--bridge", "--cut", "--dry-run").code == 2


def test_no_salvage(damaged: Path, cli: Cli) -> None:
    dry = cli("--store", damaged, "recover", "--cut", "--no-salvage", "--dry-run")
    assert dry.code == 1
    assert "lost for good" in dry.out
    assert cli("--store", damaged, "recover", "--cut", "--no-salvage").code == 2
    done = cli("--store", damaged, "recover", "--cut", "--no-salvage", "--yes", "--json")
    assert (done.code, done.json["salvage"]) == (0, None)
    assert not (damaged / "salvage").exists()


def test_a_log_that_is_gone(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    shutil.rmtree(store / "commitlog")
    ran = cli("--store", store, "recover", "--yes")
    assert ran.code == 4
    assert "mount its disk" in ran.error_line
    assert cli("--store", store, "recover", "--dry-run", "--json").json["error"]["code"] == "log-missing"
    assert cli("--store", store, "status", "--json").json["state"] == "log-missing"
    assert cli("--store", store, "recover", "--yes-the-log-is-gone").code == 2
    assert cli("--store", store, "recover", "--yes-the-log-is-gone", "--yes").code == 0


@pytest.mark.leaves
def test_a_missing_segment_and_one_of_another_size(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{131072:020d}").unlink()
    assert cli("--store", store, "recover", "--yes").code == 4
    other = fixture_copy("clean-small")
    with (other / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.truncate(1000)
    ran = cli("--store", other, "recover", "--yes")
    assert ran.code == 4
    assert "the file has 1000 instead of 131072 bytes" in ran.error_line


@pytest.mark.leaves("not-closed")
def test_a_locked_store(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    with StoreLock(Disk(), str(store)):
        before = stores.snapshot(store)
        ran = cli("--store", store, "recover", "--yes")
        assert ran.code == 3
        assert "the store is locked by" in ran.error_line
        assert cli("--store", store, "recover", "--yes", "--json").json["error"]["code"] == "locked"
        dry = cli("--store", store, "recover", "--dry-run")
        assert dry.code == 1
        assert dry.err.startswith("note: process ")
        assert stores.snapshot(store) == before


@pytest.mark.leaves("log-damage")
def test_no_room_to_save(damaged: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.files.file_system import Usage

    monkeypatch.setattr(Disk, "usage", lambda *_: Usage(1, 1, 0))
    before = stores.contents(damaged)
    ran = cli("--store", damaged, "recover", "--cut", "--yes")
    assert ran.code == 4
    assert "free space" in ran.error_line
    assert {k: v for k, v in stores.contents(damaged).items() if k in before and k != "lock"} == {
        k: v for k, v in before.items() if k != "lock"
    }


def test_as_a_process_of_its_own(fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    ran = process("recover", "--store", store, "--json", "--yes")
    out, err = ran.communicate(timeout=60)
    assert (ran.returncode, err) == (0, "")
    assert json.loads(out)["changed"] is True
