"""No name in the code says only that something was found, or said: it says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.engine.test_layers import ROOT, modules

EMPTY = frozenset({"found", "said"})


def empty_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name, where a local, a parameter, a field or a method is called so."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case _:
                continue
        if name in EMPTY:
            yield node.lineno, name


def test_names_say_what_they_hold() -> None:
    assert modules()
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in modules()}
    offenders = {
        f"{path}:{line}: {name}"
        for path, text in texts.items()
        if any(name in text for name in EMPTY)  # a text without them needs no parsing
        for line, name in empty_names(ast.parse(text))
    }
    assert not offenders


def test_one_that_does_not_is_noticed() -> None:
    text = "def said(found):\n    said = found\n    self.found = found\n    for found in said: pass"
    assert [line for line, _ in sorted(empty_names(ast.parse(text)))] == [1, 1, 2, 3, 4]
