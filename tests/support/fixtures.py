"""The stores that come with the repository: fixtures/NAME.tar.xz, each with a manifest of what must be read from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import stores

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def names() -> list[str]:
    """All of them, sorted."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*.tar.xz"))


def archive(name: str) -> Path:
    """The packed store NAME; skips the test when it isn't there."""
    path = FIXTURES / f"{name}.tar.xz"
    if not path.is_file():
        pytest.skip(f"fixtures/{name}.tar.xz is not here")
    return path


def unpack(name: str, into: Path) -> Path:
    """The store NAME unpacked below `into`."""
    return stores.unpack(archive(name), into)


def manifest(name: str) -> dict[str, Any]:
    """Where NAME comes from and what must be read from it: fixtures/NAME.json."""
    path = FIXTURES / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"fixtures/{name}.json is not here")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
