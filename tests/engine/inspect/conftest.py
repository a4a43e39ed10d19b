"""Stores of these tests lie in memory: a repair syncs each file that it changes."""

from __future__ import annotations

from tests.support.in_memory import tmp_path

__all__ = ["tmp_path"]
