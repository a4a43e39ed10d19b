"""GLOSSARY.md: one term a thing, and the words that are not used for it are in no help text."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rstore_cli import _spark
from rstore_cli.app import COMMANDS, Commands
from tests.docs.markdown import Table, tables

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "engine" / "GLOSSARY.md"


def rows() -> Table:
    """Every row of every table, code marks kept."""
    return [row for table in tables(GLOSSARY.read_text(encoding="utf-8"), marks=True) for row in table]


def marked(cell: str) -> list[str]:
    """What stands in code marks."""
    return re.findall(r"`([^`]+)`", cell)


def held() -> set[str]:
    """The words that no help text may have."""
    return {word for row in rows() for word in marked(row["not"])}


@functools.cache
def helps() -> Mapping[str, str]:
    """A command's or a group's words → its help, with that of its arguments and options, in one line.

    The options that jobs on Spark share are `pipeline JOB`, and none of a job's own: a new job has them, too.
    """
    group = Commands(name="rstore")
    shared = [one.help for kind in vars(_spark).values() for one in getattr(kind, "__metadata__", ())]
    found = {"rstore": " · ".join(COMMANDS.values()), "pipeline JOB": " · ".join(shared)}

    def add(words: str, command: Any) -> None:
        texts = [command.help, *(getattr(param, "help", None) for param in command.params)]
        if words.startswith("pipeline "):
            texts = [text for text in texts if text not in shared]
        found[words] = " ".join(" · ".join(text for text in texts if text).split())
        for name, inner in getattr(command, "commands", {}).items():
            add(f"{words} {name}", inner)

    for name in COMMANDS:
        add(name, group.get_command(None, name))  # type: ignore[arg-type]
    return found


def offenders(words: Iterable[str], texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Word and command, where a text has the word as a whole; options (`--until-caught-up`) are no words."""
    for word in words:
        whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.IGNORECASE)
        yield from ((word, name) for name, text in texts.items() if whole.search(text))


def test_no_help_text_has_a_word_that_is_not_used() -> None:
    assert list(offenders(held(), helps())) == []


def test_a_text_with_such_a_word_is_found() -> None:
    texts = {"a": "Behind the damage.", "b": "with --behind or left-behind", "c": "The queue row, and so on"}
    assert sorted(offenders(["behind", "queue row"], texts)) == [("behind", "a"), ("queue row", "c")]


def test_every_command_is_looked_at() -> None:
    assert {*COMMANDS, "rstore", "salvage scan", "pipeline verify", "pipeline JOB"} <= helps().keys()
    assert "Spark's master" in helps()["pipeline JOB"]  # the options that jobs share
    assert "Show the plan and change nothing" in helps()["recover"]  # options, too


def test_a_term_stands_once_and_is_no_other_terms_wrong_word() -> None:
    terms = [term.strip() for row in rows() for term in re.split("[,;]", row.get("term", "")) if term.strip()]
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert not held() & set(terms)


@pytest.mark.parametrize("row", [row for row in rows() if "term" in row], ids=lambda row: row["term"])
def test_a_term_is_whole(row: dict[str, str]) -> None:
    assert len(row["means"]) > 10
    for place in marked(row["in the code"]):
        assert (ROOT / place).exists(), place
