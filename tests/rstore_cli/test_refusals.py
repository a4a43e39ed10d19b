"""What stands below a refused plan: the reason in a short line, and a next command that works as it stands there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CannotRepair, NextStep, Refused, StorageError
from rstore_cli.error_text import error_lines
from tests.engine.repair.test_rules import damage, put
from tests.rstore_cli.conftest import Cli

BRIDGED = {"known": {"log-bridged", "log-accepted", "log-gap"}, "why": "a record, or a segment, was lost"}


def crashed(root: Path) -> str:
    """A byte of a body in the middle is another one; where the 150th record begins."""
    places = put(root, 200)
    damage(root, places[90] + 95, b"\xff")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))  # so that recovery reads the whole log
    return str(places[150])


def gap(root: Path) -> str:
    """A segment in the middle is not there, nor the queues that would stand for its messages."""
    places = put(root, 200)
    sorted((root / "commitlog").iterdir())[1].unlink()
    for path in (root / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    return str(places[150])


def not_closed(root: Path) -> str:
    places = put(root, 200)
    (root / "abort").touch()
    return str(places[150])


@pytest.mark.parametrize("by_conf", [False, True], ids=["--store", "-c"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (crashed, ["recover", "--yes"]),
        (gap, ["recover", "--dry-run"]),
        (crashed, ["truncate", "--to-offset", "{offset}", "--yes"]),
        (not_closed, ["expire", "--force", "--yes"]),
        (not_closed, ["reindex", "--yes"]),
        (crashed, ["reindex", "--yes"]),
        (crashed, ["plan-start"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else value[0],
)
def test_the_reason_is_a_short_line_and_the_next_command_works(
    make: Callable[[Path], str], words: list[str], by_conf: bool, tmp_path: Path, cli: Cli
) -> None:
    root = tmp_path / "a store"  # a shell must be told with quotes
    offset = make(root)
    named = ["--store", str(root)]
    if by_conf:
        conf = tmp_path / "broker 'a'.conf"
        conf.write_text(f"storePathRootDir={root}\nmappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=400\n")
        named = ["-c", str(conf)]
    ran = cli(*named, *(word.format(offset=offset) for word in words))
    assert ran.code == 4
    first, *_, last = ran.err.splitlines()
    assert first.startswith("rstore: refused: ")
    assert len(first.replace(str(root), "")) < 150
    assert "next:" not in ran.err
    assert last.startswith("Next: rstore ")
    assert ran.next_command[: len(named)] == named
    assert cli(*ran.next_command, "--yes").code == 0


@pytest.mark.leaves("log-damage", "not-closed")
def test_json_has_hint_and_next_step_as_ever(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    crashed(root)
    ran = cli("--store", root, "recover", "--yes", "--json")
    error = ran.json["error"]
    assert error["path"] == str(root / "commitlog" / f"{16384:020d}")
    assert error["hint"].startswith("nothing was changed; --cut ends the log there instead")
    assert f"next: rstore --store {root} recover --bridge (" in error["hint"]
    assert error["next"]["command"] == f"rstore --store {root} recover --bridge"
    assert ran.err.splitlines()[-1] == f"Next: rstore --store {root} recover --bridge"


def test_a_list_in_a_reason_is_cut_where_it_gets_long() -> None:
    error = Refused("; ".join(f"group{n} has not read 5000 of topic/{n}" for n in range(9)), hint="--yes cuts it")
    first, note = error_lines(error, root=None, planned=True)
    assert first.endswith("; … (5 more)")
    assert first.count("has not read") == 4
    assert note == "Note: --yes cuts it"


def test_what_rstore_can_not_do_stands_in_the_same_place() -> None:
    error = CannotRepair(
        "no log", path="/s/commitlog", hint="nothing was changed", next_step=NextStep(None, "mount it")
    )
    assert error_lines(error, root="/s", planned=True) == ["refused: no log at commitlog", "Next: mount it"]


def test_an_error_that_refuses_nothing_is_one_line() -> None:
    following = NextStep("rstore check", "looks")
    for error in (StorageError("reading", path="/s", next_step=following), CannotRepair("odd", path="/s", hint="look")):
        assert error_lines(error, root="/s", planned=False) == [str(error)]
