"""`rstore drill`: what is run, what is told, and that only scratch stores are written."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.drill import apart, library
from tests.rstore_cli.conftest import Cli, process
from tests.support import stores

FAILING = 'name = "mine"\npurpose = "never | true"\n[[step]]\ndo = "put"\ncount = 5\nexpect = { check = "problems" }\n'


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FAILING)
    return path


def test_the_list_and_the_scripts(cli: Cli) -> None:
    ran = cli("drill", "list", "--json")
    assert ran.code == 0
    assert [one["name"] for one in ran.json["drills"]] == list(library.names())
    assert "torn-write" in cli("drill", "list").out
    shown = cli("drill", "show", "torn-write")
    assert shown.out.rstrip("\n") == library.shipped("torn-write").text.rstrip("\n")
    (told,) = cli("drill", "show", "torn-write", "--json").json["drills"]
    assert told["name"] == "torn-write"
    assert told["step"][0]["do"] == "put"


def test_one_drill(cli: Cli) -> None:
    ran = cli("drill", "torn-write", "--sample", "2")
    assert ran.code == 0, ran.out
    assert "1 of 1 drill passed; 2 of " in ran.out
    assert "rstore recover: " in ran.out


def test_several_with_a_report(cli: Cli, tmp_path: Path) -> None:
    ran = cli(
        "drill",
        "run",
        "index-lost",
        "kill-init",
        "--sample=2",
        "--jobs",
        "2",
        "--json",
        "--report",
        tmp_path / "r.json",
    )
    assert ran.code == 0, ran.out
    assert json.loads((tmp_path / "r.json").read_text()) == ran.json
    told = ran.json
    assert told["ok"] is True
    assert [one["name"] for one in told["drills"]] == ["index-lost", "kill-init"]
    assert told["drills"][1]["interruptions"]["tried"] == 2 < told["interruptions"]["of"]
    assert told["original"] is None


def test_a_false_expectation_is_exit_1_and_is_named(cli: Cli, failing: Path, tmp_path: Path) -> None:
    ran = cli("drill", failing, "--report", tmp_path / "r.md")
    assert ran.code == 1
    assert "mine, step 1: check should be problems" in ran.out
    assert "found: nothing is wrong" in ran.out
    report = (tmp_path / "r.md").read_text()
    assert "NOT PASSED" in report
    assert "| 1 | check: problems | nothing is wrong | - |" in report
    assert "never \\| true" in report
    assert cli("drill", "run", "index-lost", failing).code == 1


def test_what_can_not_be_run_here_is_exit_5(cli: Cli, failing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_NAMESPACES", (["no-unshare-here"],))
    ran = cli("drill", "disk-full-real")
    assert ran.code == 5
    assert "disk-full-real was not run: can't mount a small file system here" in ran.out
    assert cli("drill", "disk-full-real", failing).code == 1


def test_a_copy_of_a_store_and_the_proof(fixture_copy: Callable[[str], Path], cli: Cli, tmp_path: Path) -> None:
    root = fixture_copy("clean-small")
    before = stores.snapshot(root)
    scratch = tmp_path / "scratch"
    ran = cli("--store", root, "drill", "queue-bit-rot", "--scratch", scratch, "--report", tmp_path / "r.md")
    assert ran.code == 0, ran.out
    assert f"The store {root} is unchanged" in ran.out
    assert stores.snapshot(root) == before
    assert list(scratch.iterdir()) == []
    assert "is unchanged: SHA-256" in (tmp_path / "r.md").read_text()
    inside = cli("--store", root, "drill", "undo", "--report", root / "r.md")
    assert (inside.code, "inside the store" in inside.error_line) == (2, True)
    kept = cli("--store", root, "drill", "queue-bit-rot", "--scratch", scratch, "--keep")
    assert kept.code == 0
    assert "the stores are in" in kept.out
    assert list(scratch.rglob("commitlog"))
    assert stores.snapshot(root) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "Missing argument"),
        (("torn-writ",), "did you mean torn-write?"),
        (("run",), "the names of drills are required"),
        (("show",), "the name of a drill is required"),
        (("list", "all"), "list takes no more arguments"),
        (("run", "all", "undo"), "all takes no more arguments"),
        (("undo", "--sample", "0"), "--sample"),
        (("undo", "--sample", "3", "--thorough"), "exclude each other"),
        (("undo", "--report", "r.pdf"), ".md or .json"),
    ],
)
def test_usage(args: tuple[str, ...], says: str, cli: Cli) -> None:
    ran = cli("drill", *args)
    assert ran.code == 2
    assert says in ran.error_line


def test_a_broken_script(cli: Cli, failing: Path) -> None:
    failing.write_text(FAILING.replace("count", "cuont"))
    ran = cli("drill", failing, "--json")
    assert ran.code == 2
    assert ran.json["error"]["path"] == str(failing)
    assert "did you mean count?" in ran.error_line
    failing.unlink()
    assert cli("drill", failing).code == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup, and so it is by what is started from here")
    scratch = tmp_path / "scratch"
    with process("drill", "run", "all", "--thorough", "--scratch", scratch) as running:
        try:
            until = time.monotonic() + 120
            while not any("commitlog" in names for _, names, _ in os.walk(scratch)):  # stores come and go meanwhile
                assert time.monotonic() < until
                time.sleep(0.05)
            running.send_signal(number)
            out, err = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 130
    assert out == ""
    assert err == "rstore: interrupted: the scratch stores are deleted, no store was changed\n"
    assert list(scratch.iterdir()) == []
