"""What a real Apache RocketMQ 4.9.8 wrote and read, from both places: "fixtures/NAME" and, where it is, "golden/NAME".

Both have the same lines (fixtures/README.md), so that a test names the references it wants and runs on all of them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from engine import config
from engine.config import StoreConfig
from tests.support import fixtures, golden

Line = dict[str, Any]
ALL = [*(f"fixtures/{name}" for name in fixtures.names()), *(f"golden/{name}" for name in golden.NAMES)]


def archive(reference: str) -> Path:
    """The packed store; skips the test when it is a golden one that isn't here."""
    place, name = reference.split("/")
    return golden.archive(name) if place == "golden" else fixtures.archive(name)


def puts(reference: str) -> list[Line]:
    """What was put, in order."""
    place, name = reference.split("/")
    return golden.puts(name) if place == "golden" else list(fixtures.puts(name))


def dump(reference: str, *types: str) -> list[Line]:
    """What Apache read, in order; only lines of these types, if any are given."""
    place, name = reference.split("/")
    if place == "golden":
        return golden.dump(name, *types)
    return [line for line in _dump(name) if not types or line["type"] in types]


@functools.lru_cache(maxsize=8)
def _dump(name: str) -> tuple[Line, ...]:
    return tuple(fixtures.dump(name))


def settings(reference: str) -> StoreConfig:
    """The settings that the store was written with."""
    place, name = reference.split("/")
    if place == "fixtures":
        lines = [f"{key}={str(value).lower()}" for key, value in fixtures.manifest(name)["settings"].items()]
        return config.parse("\n".join(lines))
    return StoreConfig() if name == "default-sizes-tiny" else StoreConfig().with_changes(**golden.SMALL_SETTINGS)
