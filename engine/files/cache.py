"""Where rstore keeps what is its own: made once for a machine (compiled kernels, the bench's Java programs), and a
user's state (the operations log)."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`rstore` below XDG_CACHE_HOME (default: ~/.cache), whether it is there or not.

    Raises RuntimeError where there is no home directory.
    """
    return _own("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """`rstore` below XDG_STATE_HOME (default: ~/.local/state), as `cache_directory`."""
    return _own("XDG_STATE_HOME", ".local/state")


def _own(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / "rstore"
