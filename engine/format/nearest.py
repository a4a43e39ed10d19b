"""Which names may be meant by one that is not known. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_NEAREST = 3
_ALIKE = 0.6
"""Of 1: how much of two names has to be the same for one to be meant for the other."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The nearest names, as a question; empty where none is near."""
    lower = {one.lower(): one for one in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), lower, _NEAREST, _ALIKE)
    return f"did you mean {' or '.join(visible(lower[one]) for one in close)}?" if close else ""


def visible(name: str) -> str:
    """In quotes where it could not be seen, or not where it ends."""
    return name if name.isprintable() and name == name.strip() != "" else repr(name)
