"""Text and sizes as people are shown them, on a terminal or in a browser. No I/O."""

from __future__ import annotations

from engine.format.quantities import counted

_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of those around them."""


def size(count: int) -> str:
    """Bytes: 1.5 GiB."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return counted(count, "byte", zero=True) if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def printable(text: str, limit: int | None = None) -> str:
    """Text from a message, safe to show, cut to `limit` characters: what acts on a terminal, or on the direction of
    text, is escaped."""
    shown = text if limit is None or len(text) <= limit else text[:limit]
    if shown.isprintable() and _BIDI.isdisjoint(shown):
        return shown if shown is text else f"{shown}… ({counted(len(text), 'character')})"
    safe = "".join(c if c.isprintable() and c not in _BIDI else c.encode("unicode_escape").decode() for c in shown)
    return safe if shown is text else f"{safe}… ({counted(len(text), 'character')})"
