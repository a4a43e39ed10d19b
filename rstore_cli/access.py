"""Whether this user may look into a store at all: said at once, with whose it is and what to type instead."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from engine.errors import StorageError


def demand_access(store: Path, words: Sequence[str]) -> None:
    """Nothing where the store can be listed, or isn't there.

    `words`: the command line as it was typed. Raises StorageError.
    """
    closed = _closed(store)
    if closed is None:
        return
    me, owner = os.geteuid(), closed.stat().st_uid
    if me == owner:
        raise StorageError("permission denied", path=closed, hint=shlex.join(["chmod", "u+rwx", str(closed)]))
    again = shlex.join(["sudo", *(("-u", _name(owner)) if owner else ()), "rstore", *words])
    why = f"permission denied: user {_name(me)} can't read a directory of {_name(owner)}"
    raise StorageError(why, path=closed, hint=again)


def _closed(store: Path) -> Path | None:
    """The store, or the directory above it, that this user may not look into; None: there is none."""
    at = store.absolute()
    while True:
        try:
            there = stat.S_ISDIR(at.stat().st_mode)
        except PermissionError:  # it is a directory above that lets nobody through
            at = at.parent
            continue
        except OSError:
            return None
        through = os.X_OK if at != store.absolute() else os.R_OK | os.X_OK
        return at if there and not os.access(at, through, effective_ids=True) else None


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"  # as sudo takes it
