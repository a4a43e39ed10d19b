"""Where what is made once for a machine is kept: compiled kernels, the bench's Java programs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`rstore` below XDG_CACHE_HOME (default: ~/.cache), whether it is there or not.

    Raises RuntimeError where there is no home directory.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rstore"
