"""An error in words: one line; a refusal has the command that continues in a line of its own, as a shell takes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rstore_cli._common import REFUSED

if TYPE_CHECKING:
    from engine.errors import RStoreError

_LONGEST = 160
"""Characters of a refusal's reason: what is more of a list stands in the plan, and in --json."""
_SAID = "nothing was changed"
"""What the word "refused" says already."""


def error_lines(error: RStoreError, *, root: str | None, planned: bool) -> list[str]:
    """What stands on stderr, without the program's name.

    Args:
        error: which.
        root: the store's directory, where it is known: files in it are named from there.
        planned: its plan was shown before.
    """
    command = None if error.next is None else error.next.command
    if error.exit_code != REFUSED or not (planned or command is not None):
        return [str(error)]
    lines = [f"refused: {_cut(error.message)}{_place(error, root)}"]
    hints = [one for one in _own_hint(error).split("; ") if one and one != _SAID]
    if hints:
        lines.append(f"Note: {'; '.join(hints)}")
    if error.next is not None:
        lines.append(f"Next: {command or error.next.why}")
    return lines


def _cut(message: str) -> str:
    """The message as it is, or the first things that it lists."""
    first, *more = message.split("; ")
    for number, one in enumerate(more):
        if len(first) + len(one) > _LONGEST:
            return f"{first}; … ({len(more) - number} more)"
        first += f"; {one}"
    return first


def _place(error: RStoreError, root: str | None) -> str:
    if error.path is None:
        return "" if error.offset is None else f" at {error.offset}"
    path = error.path
    if root is not None and path.startswith(root + os.sep):
        path = os.path.relpath(path, root)
    if error.offset is None:
        return f" at {path}"
    return f" at {error.offset}" + ("" if path == root else f" ({path})")


def _own_hint(error: RStoreError) -> str:
    """The hint without the next step, which ends it."""
    if error.hint is None or error.next is None:
        return error.hint or ""
    return error.hint.removesuffix(f"next: {error.next}").removesuffix("; ")
