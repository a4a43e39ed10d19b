"""Commands in printed texts are found wherever they stand, and no word more: a terminal shows each as a whole."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.inspect.next_step import for_store
from rstore_cli.app import COMMANDS, command_of
from rstore_cli.printed_commands import PARTS, printed_commands
from rstore_cli.screen import fold_text, words
from tests.rstore_cli.conftest import Cli
from tests.support.checking import check_clean

TREE = Path(__file__).parents[2]
NO_TEXT = (
    "engine/bench",
    "rstore_cli/completion_scripts.py",
    "engine/pipeline/plots.py",
    "engine/pipeline/measured.py",
)
"""Headings, names of jobs and scripts of a shell: nothing that is to be run."""
MENTIONED = re.compile(rf"\brstore (?:{'|'.join(COMMANDS)})\b(?!-)")
PLACES = {
    "TOPIC": "T",
    "QUEUE": "0",
    "[OFFSET]": "0",
    "NAME": "T",
    "NAME…": "T",
    "TEXT": "x",
    "HOST:PORT": "127.0.0.1:1",
}
RUN_ON = {
    "backup",
    "heal",
    "scrub",
    "restore",
    "console",
    "serve",
    "replicate",
    "rewind",
    "promote",
    "send",
    "consume",
    "tail",
    "trace",
    "admin",
    "copy",
    "top",
    "pipeline",
    "bench",
    "drill",
}
"""They go on, or need more than a store: only their help is run."""
LACKS = re.compile(r"Missing (?:argument|command)|requires an argument")
"""A text may name a command alone: `rstore offsets set sets it back`."""


def literals() -> Iterator[str]:
    """Each text of the sources that may name a command, but docstrings; what is filled in is a 7."""
    for path in sorted((*TREE.glob("engine/**/*.py"), *TREE.glob("rstore_cli/**/*.py"))):
        if path.relative_to(TREE).as_posix().startswith(NO_TEXT):
            continue
        source = path.read_text(encoding="utf-8")
        if "rstore " not in source:  # what MENTIONED begins with; most modules have no such text
            continue
        nodes = list(ast.walk(ast.parse(source)))
        passed = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                passed |= {id(one) for one in node.values}
        for node in nodes:
            if id(node) in passed:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(one.value) if isinstance(one, ast.Constant) else "7" for one in node.values)


TEXTS = sorted({text for text in literals() if MENTIONED.search(text)})
FOUND = sorted({command for text in TEXTS for command in printed_commands(text)})


def test_every_command_of_a_text_is_found() -> None:
    assert len(TEXTS) > 50
    for text in TEXTS:
        assert len(list(printed_commands(text))) == len(MENTIONED.findall(text)), text


def test_a_named_store_changes_nothing_of_what_is_found() -> None:
    typed = ("--store", "/data/my store", "-c", "/etc/broker's.conf")
    for text in TEXTS:
        plain = [for_store(typed, one) for one in printed_commands(text)]
        assert list(printed_commands(for_store(typed, text))) == plain, text


@pytest.mark.parametrize("command", FOUND)
def test_what_is_found_is_a_command_line(command: str, new_store: Path, tmp_path: Path, cli: Cli) -> None:
    """Each is run, on a store with a message: whatever it makes of it, it takes the words that it was given."""
    assert cli("--store", new_store, "put", "T", "--body", "x").code == 0
    program, *args = command.replace("truncate 7", "truncate --to-offset 0").split()
    assert program == "rstore"
    args = [str(tmp_path / one) if one in ("DIR", "FILE") else PLACES.get(one, one) for one in args]
    if args[0] in RUN_ON:
        args.append("--help")
    named = [] if args[0] in ("drill", "pipeline", "bench", "completion") else ["--store", str(new_store)]
    ran = cli(*named, *args)
    assert "--help)" not in ran.err or LACKS.search(ran.err), ran  # what the parser adds to what it does not take
    assert "fault of rstore" not in ran.err
    shutil.rmtree(new_store / "salvage", ignore_errors=True)
    if "--yes-the-log-is-gone" not in args:
        check_clean(new_store)


def test_the_parts_of_commands_are_those_there_are() -> None:
    for name in COMMANDS:
        parts = getattr(command_of(name), "commands", None)
        if parts is not None:
            assert set(PARTS[name].split()) == set(parts), name
    assert PARTS.keys() <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Next: rstore --store /a/b check (reads the log)", ["rstore --store /a/b check"]),
        ("more: rstore --store /a get orders 0 10 -n 3", ["rstore --store /a get orders 0 10 -n 3"]),
        ("no group knows it; rstore offsets list shows them", ["rstore offsets list"]),
        ("run rstore recover --bridge, then rstore check", ["rstore recover --bridge", "rstore check"]),
        ("saved, which rstore -c '/a b' salvage replay puts back", ["rstore -c '/a b' salvage replay"]),
        ("what it held; rstore --store /a undo brings it back.", ["rstore --store /a undo"]),
        ("moved, where rstore salvage scan --file FILE reads it", ["rstore salvage scan --file FILE"]),
        ("denied (sudo -u o rstore status --store s --json)", ["sudo -u o rstore status --store s --json"]),
        ("x (rstore --store /a dump commitlog --json | grep -F -- '\"a b\"')",
         ["rstore --store /a dump commitlog --json | grep -F -- '\"a b\"'"]),
        ("one with: rstore init", ["rstore init"]),
        ("not read: rstore --store /a verify-crc counts the log's records", ["rstore --store /a verify-crc"]),
        ("rstore does not read it, and rstore statuses are none", []),
    ],
)  # fmt: skip
def test_where_it_begins_and_ends(text: str, found: list[str]) -> None:
    assert list(printed_commands(text)) == found
    assert " ".join(words(text)) == text
    shown = fold_text(text, 20)
    assert all(any(one in line for line in shown) for one in found)
