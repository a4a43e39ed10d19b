"""RUNBOOK.md as a test reads it: its incidents, the commands of each, and what they are said to print.

An incident is a heading `## N. …` with a line `<!-- scene: NAME -->` below it. In its `console` blocks a line `$ …` is
a command, `# exit N` at its end the exit code that is not 0, and what follows is its output: `…` stands for any text in
a line, and alone in a line for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RUNBOOK = Path(__file__).resolve().parents[2] / "RUNBOOK.md"
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words as typed, its exit code, and its output as stated (stdout, then stderr)."""

    line: str
    code: int
    shown: tuple[str, ...]

    def prints(self, output: str) -> bool:
        """Whether an output is what is shown."""
        pattern = "".join(_pattern(line) for line in self.shown)
        return re.fullmatch(pattern, output.rstrip("\n") + "\n" if output else "") is not None


@dataclass(frozen=True, slots=True)
class Incident:
    """A numbered section."""

    title: str
    scene: str
    commands: tuple[Command, ...]


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in line.split("…")) + r"\n"


def incidents(path: Path = RUNBOOK) -> list[Incident]:
    """All of them, in order."""
    parts = re.split(r"^## +(\d+\. .*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        (scene,) = re.findall(r"<!-- scene: ([a-z-]+) -->", text)
        blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        found.append(Incident(title, scene, tuple(command for block in blocks for command in _commands(block))))
    return found


def _commands(block: str) -> list[Command]:
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            stated = _EXIT.search(line)
            found.append(Command(_EXIT.sub("", line[2:]), int(stated[1]) if stated else 0, ()))
        else:
            last = found.pop()
            found.append(Command(last.line, last.code, (*last.shown, line)))
    return found
