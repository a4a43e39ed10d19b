"""A number before a noun goes through `counted`: no text says "1 messages"."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.format.quantities import counted

ROOT = Path(__file__).resolve().parents[2]
NOUN = re.compile(
    r"^ (?:(?!of |more than )[a-z-]+ )?"
    r"(?:messages|records|groups|topics|queues|segments|repairs|keys|entries|pieces|units|connections|clients|offsets"
    r"|files|rows|tasks|splits|findings|lines|accounts|slaves|times|batches|drills|members)\b|^ [a-z]+\(s\)"
)
TOLD = [*sorted((ROOT / "rstore_cli").rglob("*.py")), *sorted((ROOT / "engine").rglob("*.py"))]
ALWAYS_MANY = {
    "end.stale.records", "_MOST_QUEUES", "_ROWS_AT_MOST", "len(counts)", "BATCH_MAX", "group.count", "layout.entries",
    "MOST_LINES", "len(lines) - _REFUSED_LINES + 1", "queue_id", "busy",
}  # fmt: skip
"""Numbers that are two at least, or limits."""


@pytest.mark.parametrize("path", TOLD, ids=lambda path: str(path.relative_to(ROOT)))
def test_nouns_agree_with_their_numbers(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            number = ast.unparse(value.value)
            by_hand = NOUN.match(str(text.value)) and "counted(" not in number and "count(" not in number
            assert not by_hand or number in ALWAYS_MANY, f"{path.name}:{node.lineno}: {number}{text.value}"


def test_counted() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 1000)] == [
        "no messages",
        "1 message",
        "2 messages",
        "1,000 messages",
    ]
    assert counted(1000, "entry", "entries", zero=True) == "1,000 entries"
    assert [counted(n, "entry", "entries", zero=True) for n in (0, 1)] == ["0 entries", "1 entry"]
