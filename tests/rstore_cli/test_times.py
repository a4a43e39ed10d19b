"""A time is taken in the same words by every command that takes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.walking import commands

WHERE_A_TIME_IS_TAKEN = {
    ("get", "T", "0", "--at"),
    ("consume", "T", "--at"),
    ("query", "T", "k", "--begin"),
    ("query", "T", "k", "--end"),
    ("truncate", "--to-time"),
    ("salvage", "prune", "--older-than"),
    ("rebuild-config", "--offsets"),
    ("config", "restore", "topics.json", "--at"),
    ("admin", "offset", "reset", "x", "y", "--to"),
    ("admin", "message", "key", "x", "y", "--begin"),
    ("admin", "message", "key", "x", "y", "--end"),
    ("admin", "dlq", "list", "--since"),
    ("admin", "dlq", "resend", "x", "--since"),
    ("restore", "--to-time"),
    ("backup", "forget", "--archived-before"),
    ("pipeline", "stats", "--begin"),
    ("pipeline", "stats", "--end"),
    ("pipeline", "lag", "--at"),
    ("pipeline", "export", "x", "--output", "y", "--begin"),
    ("pipeline", "export", "x", "--output", "y", "--end"),
    ("pipeline", "grep", "x", "--begin"),
    ("pipeline", "grep", "x", "--end"),
}
DURATIONS = {("recover", "--time-box"), ("check", "--time-box")}


@pytest.mark.parametrize("words", sorted(WHERE_A_TIME_IS_TAKEN))
def test_an_hour_ago_is_a_time_wherever_a_time_is_taken(words: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    for text in ("1 hour ago", "yesterday", "14:05", "2 days ago"):
        ran = cli("--store", tmp_path, *words, text)
        assert ran.code != 0  # there is no store
        assert "not a time" not in ran.err
    assert "not a time" in cli("--store", tmp_path, *words, "when it broke").err


def test_every_option_that_takes_a_time_is_walked() -> None:
    found = {
        (*words, option)
        for words, command in commands()
        for parameter in command.params
        if parameter.metavar in ("TIME", "TIME|ID", "AGE", "WHERE")
        for option in parameter.opts[:1]
    }
    walked = {(*(w for w in words if not w.startswith("-")), words[-1]) for words in WHERE_A_TIME_IS_TAKEN}
    plain = {tuple(w for w in words if w not in ("T", "0", "k", "x", "y", "topics.json")) for words in walked}
    assert found - DURATIONS == plain
