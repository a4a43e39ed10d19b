"""Goes by the words of rstore alone: runs the next command that each answer names, as it is printed, to the end.

The end is a store that `rstore check` finds nothing wrong in, or words that name no command: what a person has to
bring, or what nothing in the store decides. A command that is named again while the store is as it was then would be a
circle.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import command
from .command import Ran
from .tree import tree

MOST = 8
"""Commands that a walk may take."""
ASKING = frozenset({"recover", "undo", "truncate", "reindex", "rebuild-config"})
"""Commands that ask before they change a store: the one word that is added to what was printed."""
LOOKING = ("status", "doctor", "check", "plan-start")


class Circle(AssertionError):
    """A command was named again, and nothing had changed."""


@dataclass
class Walk:
    """What was run. `clean`: the last word was a check that found nothing; `brought`: what a person has to bring;
    `left`: codes of what check found last, and no command mends.
    """

    ran: list[Ran] = field(default_factory=list)
    clean: bool = False
    brought: str | None = None
    left: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "\n".join(
            [*map(str, self.ran), f"clean: {self.clean}; to bring: {self.brought}; left: {sorted(self.left)}"]
        )


def walk(store: Path, conf: Path, *first: str) -> Walk:
    """Begin with a command, and follow.

    Raises:
        Circle, AssertionError: more than `MOST` commands, a fault, or an end that is none.
    """
    done, words, seen = Walk(), tuple(first), set[tuple[tuple[str, ...], int]]()
    while True:
        state = (words, hash(tuple(sorted(tree(store, {"lock"}).items()))))
        if state in seen:
            raise Circle(str(done))
        seen.add(state)
        ran = command.run(store, conf, *words)
        done.ran.append(ran)
        assert not ran.is_fault, f"{done}\n{command.traceback_of(store, conf, *words)}"
        assert len(done.ran) <= MOST, str(done)
        following = ran.error.get("next") or ran.said.get("next")
        if following is None:
            assert words[0] == "check", f"the walk ends with {ran}\n{done}"
            assert ran.exit == 0, str(done)
            done.clean = True
            return done
        if following["command"] is None:
            done.brought = following["why"]
            done.left = _wrong(ran) if words[0] == "check" else frozenset()
            return done
        words = literal(store, conf, following["command"])


def _wrong(checked: Ran) -> frozenset[str]:
    """Codes of errors and warnings that a check found."""
    return frozenset(one["code"] for one in checked.said.get("findings", ()) if one["severity"] != "info")


def literal(store: Path, conf: Path, line: str) -> tuple[str, ...]:
    """The words of a command as a shell takes it, without what names the store, which is this one."""
    words = shlex.split(line)
    assert words[0] == "rstore", line
    named = ["--store", str(store), "--follow-links", "-c", str(conf)]
    assert words[1 : 1 + len(named)] == named, line
    rest = words[1 + len(named) :]
    asks: Sequence[str] = ("--yes",) if rest[0] in ASKING or rest[:2] == ["salvage", "replay"] else ()
    return (*rest, *asks)
