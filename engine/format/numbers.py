"""Whole numbers as Java reads and keeps them: the ranges of int and long, and which texts are one."""

from __future__ import annotations

import re
import unicodedata

INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1
LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1

_BMP = 0x10000
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")


def parse_int(text: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """The int that Java's Integer.parseInt reads (Python's int also takes blanks, underscores, any size).

    Raises:
        ValueError: it is none, or not within [low, high].
    """
    if _INTEGER.fullmatch(text) and low <= (value := int(text)) <= high:
        return value
    raise ValueError(f"not an integer in range: {text[:100]!r}")


def read_java_int(text: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """As `parse_int`, for settings: Java takes any decimal digits of the basic plane, and as many zeros before them.

    Raises:
        ValueError: it is none, or not within [low, high].
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        raise ValueError("no digits")
    value = 0
    for char in digits:
        digit = unicodedata.decimal(char, None) if ord(char) < _BMP else None
        if digit is None:
            raise ValueError(f"not an integer: {text[:100]!r}")
        value = value * 10 + digit
        if value > high + 1:
            raise ValueError(f"out of range: {text[:100]!r}")
    value = -value if text[0] == "-" else value
    if not low <= value <= high:
        raise ValueError(f"out of range: {text[:100]!r}")
    return value


def wrap_long(value: int) -> int:
    """`value` as Java's long arithmetic leaves it: the low 64 bits, signed."""
    return (value - LONG_MIN) % (1 << 64) + LONG_MIN
