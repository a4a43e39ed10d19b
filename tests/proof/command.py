"""Runs rstore's command line in this process, and follows what it says to do next."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstore_cli.app import main

OPTION = re.compile(r"--(?:bridge|cut|whole|yes-the-log-is-gone|salvage-dir)\b")
COMMAND = re.compile(r"rstore ([a-z][a-z-]*)((?: (?!and\b|or\b|then\b|first\b)[-\w./%=]+)*)")
CHANGING = ("recover", "undo", "truncate", "reindex", "expire", "rebuild-config")
"""Commands that ask before they change something."""


@dataclass(frozen=True)
class Ran:
    """One run: its words, exit code, and what it said."""

    words: tuple[str, ...]
    exit: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> dict[str, Any]:
        """The JSON document of stdout, {} where there is none."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def error(self) -> dict[str, Any]:
        """The error of a refusal."""
        found: dict[str, Any] = self.said.get("error") or {}
        return found

    @property
    def is_fault(self) -> bool:
        """Whether an error came up that nobody had thought of."""
        return self.error.get("code") == "internal" or "a bug in rstore" in self.err

    def __str__(self) -> str:
        told = self.err.strip().splitlines()[-1:] or [""]
        return f"rstore {' '.join(self.words)}: exit {self.exit}: {told[0][:600]}"


def run(store: Path, conf: Path, *words: str) -> Ran:
    """Runs `rstore WORDS`, with --json, on a store."""
    out, err = io.StringIO(), io.StringIO()
    begin = time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        # the links of the shapes are the operator's own
        code = main([*words, "--store", str(store), "-c", str(conf), "--follow-links", "--json"])
    return Ran(words, code, out.getvalue(), err.getvalue(), time.perf_counter() - begin)


def traceback_of(store: Path, conf: Path, *words: str) -> str:
    """The traceback of a command that has a fault."""
    import traceback

    os.environ["RSTORE_DEBUG"] = "1"
    try:
        run(store, conf, *words)
    except Exception:  # noqa: BLE001
        return traceback.format_exc()
    finally:
        del os.environ["RSTORE_DEBUG"]
    return ""


def next_words(ran: Ran) -> list[str] | None:
    """The words that a command tells to run next: what it names as such, else the first that its hint names.

    None: it names none.
    """
    told = (ran.error or ran.said).get("next")
    if isinstance(told, dict) and told.get("command"):
        return _typed(shlex.split(told["command"]))
    hint = str(ran.error.get("hint") or "")
    option, command = OPTION.search(hint), COMMAND.search(hint)
    if option is not None and (command is None or option.start() < command.start() or not command.group(2)):
        base: Sequence[str] = [word for word in ran.words if word not in ("--bridge", "--cut", "--yes")]
        if command is not None and command.start() < option.start():
            base = [command.group(1)]
        return _typed(["rstore", *base, option.group()])
    return None if command is None else _typed(["rstore", command.group(1), *command.group(2).split()])


def _typed(words: list[str]) -> list[str]:
    """The words behind `rstore` without the store's place and settings; a change is agreed to."""
    out, rest = [], iter(words[1:])
    for word in rest:
        if word in ("--store", "--config", "-c"):
            next(rest, None)
        elif word != "--follow-links":
            out.append(word)
    return [*out, "--yes"] if out and out[0] in CHANGING and "--yes" not in out else out
