"""THREATS.md: each threat names the test that shows what holds it, and that test is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.citations import ROOT
from tests.docs.markdown import tables

PAGE = ROOT / ("THREATS" + ".md")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
SHOWN = "shown by"


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def absent(text: str) -> list[str]:
    """The tests that a text names and that are not there."""
    gone = []
    for name, function in NAMED.findall(text):
        path = ROOT / name
        if not path.is_file() or (function and function not in functions(path)):
            gone.append(f"{name}::{function}" if function else name)
    return gone


def test_each_test_that_is_named_is_there() -> None:
    assert absent(PAGE.read_text(encoding="utf-8")) == []


def test_each_threat_names_a_test() -> None:
    rows = [row for table in tables(PAGE.read_text(encoding="utf-8"), marks=True) for row in table if SHOWN in row]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row[SHOWN])] == []


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("`tests/docs/test_threats_md.py::test_no_such`", ["tests/docs/test_threats_md.py::test_no_such"]),
        ("`tests/docs/test_nowhere.py`", ["tests/docs/test_nowhere.py"]),
        ("`tests/docs/test_threats_md.py::test_each_threat_names_a_test`", []),
    ],
)
def test_a_test_that_is_not_there_is_an_offender(text: str, gone: list[str]) -> None:
    assert absent(text) == gone
