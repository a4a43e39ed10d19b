"""ADMIN.md: every command of `rstore admin` stands in the table or below it, and each that is named is there."""

from __future__ import annotations

import re
from pathlib import Path

import rstore_cli
from rstore_cli.app import COMMANDS
from tests.docs.markdown import section, tables
from tests.rstore_cli.walking import commands

PAGE = Path(rstore_cli.__file__).with_name("ADMIN.md")


def named(text: str) -> set[tuple[str, ...]]:
    """The commands of a text, without options."""
    return {tuple(words.split(" -")[0].split()) for words in re.findall(r"`([^`]+)`", text)}


def test_every_command_is_named_and_there() -> None:
    page = section(PAGE, "mqadmin's words")
    every = {words for words, _ in commands()}
    ours = {words[:3] if words[0] == "admin" else words[:1] for row in tables(page, marks=True)[0]
            for words in named(row["rstore"])}  # fmt: skip
    assert {one for one in ours if one[0] == "admin"} <= every
    assert {one[0] for one in ours} <= COMMANDS.keys()
    below = page.rpartition("|\n")[2]
    assert {words for words in every if words[0] == "admin"} == {
        words for words in ours | named(below) if words[0] == "admin"
    }


def test_a_word_without_a_command_has_its_reason() -> None:
    for row in tables(section(PAGE, "mqadmin's words"))[0]:
        assert row["rstore"] not in ("none", "none yet") or len(row["differs"]) > 20, row
