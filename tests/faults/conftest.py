"""What every fault test wants: a place in memory, and syncs that cost nothing. `FaultyDisk` models what they mean."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.files.libc import Libc

MEMORY = Path("/dev/shm")
ENOUGH = 1 << 28


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, where there is enough of it: these tests make thousands of small files."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    with tempfile.TemporaryDirectory(prefix="rstore-faults-", dir=MEMORY if roomy else None) as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here needs the device: a kill keeps the page cache, a power cut is a model."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(Libc, "msync", lambda *_: None)
