"""What a repair has to save and the disk can't read: nothing was changed, and what the operator can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import NextStep, StorageError
from engine.inspect.next_step import bring, command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import StoreConfig


def unsaved(error: StorageError, config: StoreConfig, again: Sequence[str], into: str | None) -> StorageError:
    """The error of a repair that could not read what it saves, with the next step.

    Only a bridge is named without salvage: it changes nothing of a sound record. What else a repair removes (--cut,
    truncate) is sound, and must not be lost for one bad sector.

    Args:
        error: what reading gave.
        config: of the store.
        again: words of the repair's command; none where there is no such command.
        into: its --salvage-dir.
    """
    if error.hint is not None or error.path is None:  # who may not read the file is told that already
        return error
    message = f"what the repair changes can't be saved: {error.message}"
    copy = f"copy {error.path} to another disk first, with a tool such as ddrescue"
    words = (*again, *(() if into is None else ("--salvage-dir", into)))
    run = command_line(config, *words) if again else "this again"
    instead = f"with the copy in its place, {run} saves all that could be read"
    if "--bridge" not in again:
        return StorageError(message, path=error.path, offset=error.offset, next_step=bring(f"{copy}; {instead}"))
    step = NextStep(
        command_line(config, *again, "--no-salvage", "--yes"),
        "saves nothing, and gives up unreadable data",
        "keeps every sound message",
    )
    return StorageError(message, path=error.path, offset=error.offset, hint=f"{copy}; {instead}", next_step=step)
