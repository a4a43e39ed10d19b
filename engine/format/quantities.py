"""Sizes, durations and times as people write them."""

from __future__ import annotations

import re
import time
from datetime import datetime

from engine.errors import InvalidArgument

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)?", re.IGNORECASE)
_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d|w)\s+ago", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_size(text: str, what: str) -> int:
    """Bytes (or a count) from "64M", "1GiB", "1.5k", "65536". Letters are powers of 1024, as in Apache's own defaults.

    Raises:
        InvalidArgument: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{what}: no size: {text!r}", hint="like 65536, 64M or 1GiB")
    number, letter = match.groups()
    value = float(number) * 1024 ** " kmgt".index(letter.lower() or " ")
    if value != int(value):
        raise InvalidArgument(f"{what}: {text} is no whole number of bytes", hint="like 65536, 64M or 1GiB")
    return int(value)


def parse_duration(text: str, what: str) -> int:
    """Ms from "30s", "5m", "500ms"; a bare number is seconds.

    Raises:
        InvalidArgument: it is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{what}: no duration: {text!r}", hint="like 30s or 5m")
    return round(float(match.group(1)) * _UNITS_MS[(match.group(2) or "s").lower()])


def parse_time(text: str, what: str, now_ms: int | None = None) -> int:
    """Ms since 1970 from ISO 8601 (local time unless it says otherwise), epoch ms, or "2h ago".

    Raises:
        InvalidArgument: it is no time.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text.lower() == "now":
        return now
    match = _AGO.fullmatch(text)
    if match is not None:
        return now - round(float(match.group(1)) * _UNITS_MS[match.group(2).lower()])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{what}: no time: {text!r}", hint='like 2024-05-01T03:00, 1714532400000 or "2h ago"'
        ) from None
