"""The golden stores beside the repository (../shared/golden): written and read by a real Apache RocketMQ 4.9.8.

They are not part of a clone. Tests that want one say so through `need` (or the fixtures of conftest.py), and are
skipped in plain words where there are none. RSTORE_GOLDEN names another place.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = ("clean-small", "crashed-small", "default-sizes-tiny")
SMALL_SETTINGS = {
    "mapped_file_size_commit_log": 1048576,
    "mapped_file_size_consume_queue": 20000,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
}
"""Settings (fields of StoreConfig) of clean-small and crashed-small; default-sizes-tiny has Apache's defaults."""

Line = dict[str, Any]


def find() -> Path | None:
    """Where the golden stores are, None when they are not here."""
    place = Path(os.environ.get("RSTORE_GOLDEN") or REPOSITORY.parent / "shared" / "golden")
    return place if all((place / f"{name}.tar.xz").is_file() for name in NAMES) else None


def need() -> Path:
    """`find`, or skip the test."""
    place = find()
    if place is None:
        pytest.skip("the golden stores are not here (../shared/golden, or RSTORE_GOLDEN)")
    return place


def archive(name: str) -> Path:
    """The packed store NAME ("crashed-small.after" is one, too)."""
    return need() / f"{name}.tar.xz"


def puts(name: str) -> list[Line]:
    """What was put into NAME, in order."""
    return list(_lines(str(need() / f"{name}.puts.jsonl.xz")))


@functools.lru_cache(maxsize=4)
def _dump(path: str) -> tuple[Line, ...]:
    return tuple(_lines(path))


def dump(name: str, *types: str) -> list[Line]:
    """What Apache read from NAME, in order; only lines of these types, if any are given."""
    lines = _dump(str(need() / f"{name}.dump.jsonl.xz"))
    return [line for line in lines if not types or line["type"] in types]


@functools.lru_cache(maxsize=1)
def _cases(path: str) -> tuple[Line, ...]:
    return tuple(_lines(path))


def cases() -> list[Line]:
    """The damaged copies and what Apache made of them; empty where there are no golden stores (to parametrize with)."""
    place = find()
    return [] if place is None else list(_cases(str(place / "differential.jsonl.xz")))


def _lines(path: str) -> Iterator[Line]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for text in file:
            yield json.loads(text)
