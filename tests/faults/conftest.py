"""What every fault test wants: a place in memory, and syncs that cost nothing. `FaultyDisk` models what they mean."""

from __future__ import annotations

import os

import pytest

from engine.files.libc import Libc
from tests.support.in_memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture(autouse=True)
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here needs the device: a kill keeps the page cache, a power cut is a model."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(Libc, "msync", lambda *_: None)
