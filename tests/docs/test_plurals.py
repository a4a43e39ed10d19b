"""A number before a noun goes through `counted`: no text says "1 messages"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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


def by_hand(source: str) -> Iterator[tuple[int, str]]:
    """Lines that put a number before a noun without `counted`, and these words."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            if not NOUN.match(str(text.value)):
                continue
            number = ast.unparse(value.value)
            if "counted(" not in number and "count(" not in number and number not in ALWAYS_MANY:
                yield node.lineno, f"{number}{text.value}"


def test_nouns_agree_with_their_numbers() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in TOLD
        for line, words in by_hand(path.read_text(encoding="utf-8"))
    ] == []


def test_a_number_before_a_noun_is_noticed() -> None:
    assert list(by_hand('print(f"{len(rows)} messages")')) == [(1, "len(rows) messages")]
    assert list(by_hand('print(f"{counted(len(rows), word)} messages, {busy} files, {rate} MiB/s")')) == []


def test_counted() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 1000)] == [
        "no messages",
        "1 message",
        "2 messages",
        "1,000 messages",
    ]
    assert counted(1000, "entry", "entries", zero=True) == "1,000 entries"
    assert [counted(n, "entry", "entries", zero=True) for n in (0, 1)] == ["0 entries", "1 entry"]
