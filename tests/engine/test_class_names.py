"""One name a thing: no two public classes of the product have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.engine.test_layers import ROOT, modules


def twice(texts: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    """Names of public classes that several modules (name, text) have, and which."""
    found = defaultdict(list)
    for module, text in texts:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_class_name_stands_twice() -> None:
    texts = ((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in modules())
    assert twice(texts) == {}


def test_one_that_does_is_noticed() -> None:
    texts = [("a.py", "class One: ...\nclass _Own: ..."), ("b.py", "class One: ...\nclass _Own: ...")]
    assert twice(texts) == {"One": ["a.py", "b.py"]}
