"""The stores that come with the repository (fixtures/README.md); the interop tests make and read them, too."""

from __future__ import annotations

from pathlib import Path

from tests.compat.fixtures import FIXTURES, cases, dump, manifest, names, puts, unpack

__all__ = ["FIXTURES", "archive", "cases", "dump", "manifest", "names", "puts", "unpack"]


def archive(name: str) -> Path:
    """The packed store NAME."""
    return FIXTURES / f"{name}.tar.xz"
