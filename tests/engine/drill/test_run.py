"""A drill fails when it should: every expectation, when it is false; and nothing but its scratch stores is written."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.drill import apart, crash, files
from engine.drill.apart import RunOptions, run_drills
from engine.drill.crash import choose
from engine.drill.library import shipped
from engine.drill.read_script import parse_script
from engine.drill.result import DrillResult
from engine.drill.run import run_drill
from engine.drill.script import Drill
from engine.drill.steps import How
from engine.errors import DiskFull, InvalidArgument, NotAStore, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format.message import Message
from engine.store import MessageStore
from tests.support import stores

HEAD = 'name = "mine"\npurpose = "whatever"\n'
PUT = '[[step]]\ndo = "put"\ncount = 12\nremember = "sound"\n'
ROT = '[[step]]\ndo = "damage"\nkind = "bit-rot"\n'
TORN = '[[step]]\ndo = "damage"\nkind = "torn-write"\n'
LOOK = '[[step]]\ndo = "look"\n'


def command(name: str, options: str = "") -> str:
    return f'[[step]]\ndo = "command"\nname = "{name}"\noptions = {{ {options} }}\n'


def drill(text: str) -> Drill:
    return parse_script((HEAD + text).encode(), "mine.toml")


def run(text: str, tmp_path: Path, **how: object) -> DrillResult:
    return run_drill(drill(text), str(tmp_path / "scratch"), how=How(**how))  # type: ignore[arg-type]


FALSE = {
    "exit": PUT + command("recover") + "expect = { exit = 4 }",
    "error": PUT + ROT + command("recover") + 'expect = { exit = 4, error = "locked" }',
    "changed": PUT + command("recover") + "expect = { changed = true }",
    "findings": PUT + command("check") + 'expect = { findings = "log-tail" }',
    "refused": PUT + "expect = { refused = true }",
    "check": PUT + 'expect = { check = "problems" }',
    "acknowledged": PUT + TORN + command("recover") + 'expect = { acknowledged = "all" }',
    "nothing_new": PUT + TORN + LOOK + 'expect = { nothing_new = true }\n',
    "store": PUT + ROT + LOOK + 'expect = { store = "sound" }',
    "bytes": PUT + command("truncate", "to_record = 9") + 'expect = { bytes = "sound" }',
    "settled": PUT + TORN + LOOK + "expect = { settled = true }",
    "carried out": PUT + command("truncate", "to_record = 9") + "[[step]]\n"
    'do = "damage"\nkind = "remove"\npath = "no/such/*"',
}  # fmt: skip
TRUE = {
    "exit": PUT + command("recover") + "expect = { exit = 0 }",
    "error": PUT + ROT + command("recover") + 'expect = { exit = 4, error = "damage" }',
    "changed": PUT + command("recover") + "expect = { changed = false }",
    "findings": PUT + ROT + command("check") + 'expect = { exit = 1, findings = "log-damage" }',
    "check": PUT + TORN + LOOK + 'expect = { check = "problems" }',
    "acknowledged": PUT + TORN + command("recover") + 'expect = { acknowledged = "all-but-damaged" }',
    "bytes": PUT + command("truncate", "to_record = 9") + command("undo") + 'expect = { bytes = "sound" }',
    "settled": PUT + TORN + LOOK + "expect = { settled = false }",
}


@pytest.mark.parametrize("expectation", FALSE)
def test_a_false_expectation_is_named(expectation: str, tmp_path: Path) -> None:
    result = run(FALSE[expectation], tmp_path)
    assert result.verdict == "failed"
    assert [failure.expectation for failure in result.failures] == [expectation]
    assert result.failures[0].step == len(result.steps)
    assert result.failures[0].actual
    unexpected = result.failures[0].text == f"step {len(result.steps)} failed unexpectedly"
    assert unexpected == (expectation == "carried out")


@pytest.mark.parametrize("expectation", TRUE)
def test_and_a_true_one_holds(expectation: str, tmp_path: Path) -> None:
    result = run(TRUE[expectation], tmp_path)
    assert (result.verdict, result.failures) == ("passed", [])


def test_what_was_cut_may_not_come_back(tmp_path: Path) -> None:
    """The old log is put back behind the command's back: messages that were given up are read again."""
    cut = command("truncate", "to_record = 9") + 'expect = { acknowledged = "before-the-cut", nothing_new = true }\n'
    text = PUT + cut + command("undo") + "expect = { nothing_new = true }"
    result = run(text, tmp_path)
    assert [failure.expectation for failure in result.failures] == ["nothing_new"]


def test_one_try_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    torn = PUT + TORN + command("recover") + 'crash = { how = "kill" }\n'
    result = run(torn + LOOK + "expect = { settled = true }", tmp_path, thorough=True)
    (step,) = [step for step in result.steps if step.of]
    assert step.tried == step.of > 10
    assert 0 < result.failed < step.tried
    assert result.failures[0].branch.startswith("recover killed at change 1 of ")
    told = result.to_json()
    assert DrillResult.from_json(told).to_json() == told


def test_a_command_that_fails_by_itself_is_not_interrupted(tmp_path: Path) -> None:
    result = run(PUT + ROT + command("recover") + 'crash = { how = "kill" }', tmp_path)
    assert "fails without an interruption" in result.failures[0].actual


def test_nothing_to_interrupt_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "choose", lambda *_: [])
    result = run(PUT + TORN + command("recover") + 'crash = { how = "kill" }', tmp_path)
    assert "nothing to interrupt" in result.failures[0].actual


@pytest.mark.parametrize("how", ["kill", "power-cut"])
def test_puts_that_end_before_a_moment_are_interrupted_at_their_end(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many changes a run makes hangs on when threads flush: the run that is cut may make fewer than the dry one."""
    monkeypatch.setattr(crash, "choose", lambda total, *_: [1, total + 1000, total + 1001])
    crashed = f'[[step]]\ndo = "put"\ncount = 3\ncrash = {{ how = "{how}", sample = 2 }}\n'
    after = command("recover") + 'expect = { check = "clean", acknowledged = "all", nothing_new = true }\n'
    lost = LOOK + "expect = { settled = false }\n"
    result = run(PUT + crashed + after + lost, tmp_path)
    assert result.steps[1].tried == 2 < result.steps[1].of
    word = "killed" if how == "kill" else "power cut"
    branches = [failure.branch for failure in result.failures]
    assert [branch.startswith(f"{word} before change 1 of about ") for branch in branches] == [True, False]
    assert branches[1] == f"{word} when the puts had ended"


def test_kept_stores_stay(tmp_path: Path) -> None:
    result = run_drill(drill(PUT), str(tmp_path / "kept"), keep=True)
    assert result.scratch == str(tmp_path / "kept")
    assert list((tmp_path / "kept").rglob("commitlog"))


def test_a_small_file_system_is_asked_for(tmp_path: Path) -> None:
    result = run("[store]\nfile_system = 1_000_000\n" + PUT, tmp_path)
    assert result.verdict == "not run"
    assert "file system" in str(result.why)


def test_a_daemon_that_lacks_its_packages_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "engine.drill.served", None)  # as when aiohttp is missing
    result = run('[[step]]\ndo = "open"\nserve = true\n[[step]]\ndo = "close"\n', tmp_path)
    assert result.verdict == "not run"
    assert "not installed" in str(result.why)


def test_choosing() -> None:
    rng = random.Random(1)
    assert choose(5, None, rng) == choose(5, 9, rng) == [1, 2, 3, 4, 5]
    found = choose(100, 7, rng)
    assert (len(found), found[0], found[-1]) == (7, 1, 100)
    assert len(choose(100, 1, rng)) == 1
    assert choose(0, 3, rng) == []


# --- copies of a store ------------------------------------------------------------------------------------------------

KILLED = (
    TORN
    + '[[step]]\ndo = "damage"\nkind = "not-closed"\n'
    + command("recover")
    + 'crash = { how = "kill", sample = 3 }\n'
    + command("recover")
    + 'expect = { store = "planned", check = "clean", acknowledged = "all-but-damaged", nothing_new = true, '
    "settled = true, takes_puts = 3 }"
)


@pytest.mark.parametrize("name", ["clean-small", "transient-ext", "lmq"])
def test_a_copy_of_a_store(name: str, fixture_copy: Callable[[str], Path], tmp_path: Path) -> None:
    root = fixture_copy(name)
    before = stores.snapshot(root)
    config = StoreConfig(store_path_root_dir=root)
    if name == "transient-ext":
        config = config.with_changes(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    if name == "lmq":
        config = config.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    report = run_drills([drill(KILLED)], source=config, wanted=RunOptions(scratch=str(tmp_path / "scratch")))
    (result,) = report.drills
    assert result.failures == []
    assert result.verdict == "passed"
    assert "a copy of" in result.store
    assert stores.snapshot(root) == before
    assert report.original is not None
    assert report.original.untouched
    assert not report.failed
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["disk-full-guard", "serve-disk-guard"])
def test_a_copy_that_has_the_topics_of_the_drill(name: str, tmp_path: Path) -> None:
    """What it holds is none of the drill's, and no stranger."""
    config = StoreConfig(store_path_root_dir=tmp_path / "store").with_changes(
        mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400
    )
    with MessageStore.open(config) as store:
        for number in range(9):
            assert store.put(Message("Orders", b"body", number % 3, {"KEYS": "k", "UNIQ_KEY": f"old{number}"})).ok
    (result,) = run_drills([shipped(name)], source=config).drills
    assert result.failures == []
    assert "a copy of 9 records" in result.store


def test_a_record_that_a_copy_loses_is_missed(fixture_copy: Callable[[str], Path]) -> None:
    config = StoreConfig(store_path_root_dir=fixture_copy("clean-small"))
    text = ROT + command("recover", "cut = true") + 'expect = { acknowledged = "all-but-damaged" }'
    (result,) = run_drills([drill(text)], source=config).drills
    assert [failure.expectation for failure in result.failures] == ["acknowledged"]
    assert "lost" in result.failures[0].actual


def test_an_original_that_changes_meanwhile_is_told(fixture_copy: Callable[[str], Path]) -> None:
    root = fixture_copy("clean-small")

    def meddle(name: str, done: int, total: int) -> None:
        os.utime(root / "checkpoint", ns=(1, 1))

    report = run_drills([drill(LOOK)], source=StoreConfig(store_path_root_dir=root), progress=meddle)
    assert [result.verdict for result in report.drills] == ["passed"]
    assert report.original is not None
    assert not report.original.untouched
    assert report.failed


def test_what_can_not_be_copied(fixture_copy: Callable[[str], Path], tmp_path: Path, monkeypatch) -> None:
    root = fixture_copy("clean-small")
    config = StoreConfig(store_path_root_dir=root)
    wanted = RunOptions(scratch=str(tmp_path / "scratch"))
    with pytest.raises(NotAStore):
        run_drills([drill(LOOK)], source=StoreConfig(store_path_root_dir=tmp_path / "none"), wanted=wanted)
    elsewhere = config.with_changes(store_path_commit_log=str(tmp_path / "log"))
    with pytest.raises(InvalidArgument, match="outside of it"):
        run_drills([drill(LOOK)], source=elsewhere, wanted=wanted)
    with StoreLock(Disk(), str(root)), pytest.raises(StoreLocked, match="locked by"):
        run_drills([drill(LOOK)], source=config, wanted=wanted)
    with pytest.raises(InvalidArgument, match="inside the store"):
        run_drills([drill(LOOK)], source=config, wanted=RunOptions(scratch=str(root / "scratch")))
    assert not (root / "scratch").exists()
    monkeypatch.setattr(apart, "COPIES", 1 << 40)
    with pytest.raises(DiskFull, match="--scratch"):
        run_drills([drill(LOOK)], source=config, wanted=wanted)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_copying_keeps_bytes_times_and_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "f").write_bytes(bytes(300_000) + b"x" + bytes(500_000))
    os.utime(source / "f", ns=(5, 7))
    files.copy_tree(Disk(), str(source), str(tmp_path / "copy"))
    assert stores.contents(tmp_path / "copy") == stores.contents(source)
    assert (tmp_path / "copy" / "f").stat().st_mtime_ns == 7
    assert files.data_bytes(Disk(), str(tmp_path / "copy")) < 200_000
    one, two = (files.snapshot(Disk(), str(tmp_path / name)) for name in ("source", "copy"))
    assert one["f"] == two["f"]
    (tmp_path / "copy" / "f").write_bytes(bytes(300_000) + b"y" + bytes(500_000))
    assert files.digest(Disk(), str(tmp_path / "copy" / "f")) != one["f"].digest


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_fails_its_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\nkill -BUS $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(apart.sys, "executable", str(dying))
    report = run_drills([drill(LOOK)])
    assert report.failed
    assert "SIGBUS" in report.drills[0].failures[0].actual


def test_where_nothing_can_be_mounted_a_drill_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_NAMESPACES", (["no-unshare-here"], ["false"]))
    report = run_drills([shipped("disk-full-real"), drill(LOOK)])
    assert [result.verdict for result in report.drills] == ["not run", "passed"]
    assert "no-unshare-here is not installed" in str(report.drills[0].why)
    assert report.incomplete
    assert not report.failed
    assert not report.to_json()["ok"]
