"""Commands that are printed to be run next: they name the store as the one before did, and work as they are pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from engine.inspect.next_step import STORE_COMMANDS, for_store
from rstore_cli.app import COMMANDS
from tests.rstore_cli.conftest import Cli, Ran


def pasted(text: str, before: str, behind: str = "") -> list[str]:
    """The arguments of the command between two texts, as a shell takes them."""
    (found,) = re.findall(rf"{before}rstore (.+?){behind}$", text, re.MULTILINE)
    return shlex.split(found)


@pytest.fixture
def named(tmp_path: Path, cli: Cli) -> list[str]:
    """Arguments that name a store with three messages, a segment each; a shell has to have both paths quoted."""
    conf = tmp_path / "broker's.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\n")
    words = ["--store", str(tmp_path / "my store"), "-c", str(conf)]
    assert cli(*words, "init").code == 0
    for number in range(3):
        assert cli(*words, "put", "T", "--body", f"body {number}{'.' * 40_000}", "--queue", "0").code == 0
    return words


def test_more_goes_on_with_the_same_options(named: list[str], cli: Cli) -> None:
    page = cli(*named, "get", "T", "0", "--count", "1", "--json")
    for number in range(3):
        (message,) = page.lines
        assert message["body"].startswith(f"body {number}.")
        if number < 2:
            command = pasted(page.err, "more: ")
            assert command[:4] == named
            page = cli(*command)
    assert page.err == ""


def test_a_bad_body_leads_to_verify_crc(named: list[str], cli: Cli) -> None:
    (segment,) = (path for path in (Path(named[1]) / "commitlog").iterdir() if b"body 1" in path.read_bytes())
    sound = segment.read_bytes()
    segment.write_bytes(sound.replace(b"body 1", b"BODY 1"))
    ran = cli(*named, "get", "T", "0")
    assert ran.code == 1
    found = cli(*pasted(ran.err, "Next: "))
    assert (found.code, "body" in found.out) == (1, True)
    segment.write_bytes(sound)


def test_what_brings_it_back_brings_it_back(named: list[str], cli: Cli) -> None:
    done = cli(*named, "offsets", "set", "g", "T", "0", "2", "--yes")
    undo = pasted(done.out, "; ", " restores it.")
    assert undo == [*named, "undo"]
    assert cli(*undo, "--yes").code == 0


def test_a_hint_names_the_store(named: list[str], cli: Cli) -> None:
    """A hint of the engine, which knows no command line; its JSON, too."""
    ran = cli(*named, "salvage", "show", "nosuch", "--json")
    hint = ran.json["error"]["hint"]
    assert hint == f"{shlex.join(['rstore', *named])} salvage list shows them"
    assert hint in ran.error_line
    listed: Ran = cli(*pasted(hint, "", " shows them"))
    assert listed.code == 0
    findings = cli(*named, "check", "--json").json["findings"]
    assert all(shlex.join(named) in f["hint"] for f in findings if "rstore rebuild" in f["hint"])


def test_commands_that_go_by_a_store_are_known() -> None:
    others = {"drill", "pipeline", "bench", "completion", "send", "consume", "admin", "copy"}
    assert set(STORE_COMMANDS) == COMMANDS.keys() - others


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rstore recover writes one", "rstore --store s recover writes one"),
        ("a (rstore salvage list)", "a (rstore --store s salvage list)"),
        ("rstore does not read it", None),
        ("rstore drill list", None),
        ("rstore doctor --conf b.conf", None),
        ("rstore --store s check", None),
        ("permission denied (sudo -u o rstore status --store s --json)", None),
        ("rstore plan-start", "rstore --store s plan-start"),
    ],
)
def test_only_commands_are_completed(text: str, named: str | None) -> None:
    assert for_store(("--store", "s"), text) == (named or text)
    assert for_store((), text) == text
