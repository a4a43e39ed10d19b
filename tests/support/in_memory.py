"""Temporary directories in memory, for tests that make thousands of small files and never lose power."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ENOUGH = 1 << 28


def memory() -> Path | None:
    """Where files lie in memory; None where there is not enough of it (a container's /dev/shm may be small)."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    return MEMORY if roomy else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """pytest's, in memory where there is enough of it, and gone with the test."""
    with tempfile.TemporaryDirectory(prefix="rstore-test-", dir=memory()) as place:
        yield Path(place)
