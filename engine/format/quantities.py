"""Sizes, durations and times as people write them, and times as they are shown.

The grammar (case and blanks between the parts don't matter):

    size       NUMBER [k|m|g|t] [b|ib]
    duration   NUMBER                        seconds
             | (NUMBER UNIT)+                30s, 90 minutes, 1h30m
    time       ISO 8601                      local time, unless it names an offset
             | DIGITS                        ms since 1970
             | now
             | (NUMBER UNIT)+ ago            2h ago, 1 hour ago, 1 day 12 hours ago; "a" or "an" is the number 1
             | today|yesterday [CLOCK]       local time; midnight without a clock
             | CLOCK                         today: 14:05, 14:05:30
    UNIT       ms, s, sec, second, m, min, minute, h, hr, hour, d, day, w, week, each with a plural s but ms
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time

from engine.errors import InvalidArgument

_WHOLE = r"[0-9]{1,19}"
"""Digits of a 64-bit number."""
_NUMBER = rf"{_WHOLE}(?:\.{_WHOLE})?"
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNIT = r"ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
_PART = re.compile(rf"({_NUMBER}|an?\b)\s*({_UNIT})(?![a-z])[\s,]*")
_CLOCK = re.compile(r"(?:(today|yesterday)\b\s*)?(?:([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def counted(number: int, one: str, many: str | None = None, *, zero: bool = False) -> str:
    """1,200 records, 1 record, no records: the one place that knows a noun's number.

    Args:
        number: how many.
        one: the noun in the singular.
        many: its plural, where that is not the singular with an s.
        zero: whether none is "0 records", not "no records".
    """
    noun = one if number == 1 else many or one + "s"
    return f"{number:,} {noun}" if number or zero else f"no {noun}"


def parse_size(text: str, what: str) -> int:
    """Bytes (or a count) from "64M", "1GiB", "1.5k", "65536". Letters are powers of 1024, as in Apache's own defaults.

    Raises:
        InvalidArgument: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{what}: not a size: {text!r}", hint="like 65536, 64M or 1GiB")
    number, letter = match.groups()
    whole, _, part = number.partition(".")
    unit: int = 1024 ** " kmgt".index(letter.lower() or " ")
    parts: int = 10 ** len(part)
    value, rest = divmod(int(whole + part) * unit, parts)
    if rest:
        raise InvalidArgument(f"{what}: {text} is not a whole number of bytes", hint="like 65536, 64M or 1GiB")
    return value


def parse_duration(text: str, what: str) -> int:
    """Ms from "30s", "5 minutes", "1h30m", "500ms"; a bare number is seconds.

    Raises:
        InvalidArgument: it is no duration.
    """
    plain = text.strip().lower()
    millis = round(float(plain) * 1000) if re.fullmatch(_NUMBER, plain) else _parts_ms(plain)
    if millis is None:
        raise InvalidArgument(f"{what}: not a duration: {text!r}", hint="like 30s, 5 minutes or 1h30m")
    return millis


def parse_time(text: str, what: str, now_ms: int | None = None) -> int:
    """Ms since 1970 from a time as the module's grammar has it.

    Args:
        text: the time.
        what: the option that it was given for, for the error.
        now_ms: the present, ms since 1970 (default: the clock's).

    Raises:
        InvalidArgument: it is no time.
    """
    text = text.strip()
    if re.fullmatch(_WHOLE, text):
        return int(text)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    plain = text.lower()
    if plain == "now":
        return now
    ago = _parts_ms(plain[: -len("ago")].rstrip()) if plain.endswith("ago") else None
    if ago is not None:
        return now - ago
    try:
        moment = _of_a_day(plain, now) or datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            f"{what}: not a time: {text!r}",
            hint='like 2024-05-01T03:00, 14:05, yesterday, "2 hours ago" or 1714532400000',
        ) from None


def time_text(millis: int, form: str, *, utc: bool = False) -> str | None:
    """A time in the form of strftime, local unless `utc`; None where no calendar has it, as a damaged field may say.

    Args:
        millis: ms since 1970, any number.
        form: as strftime's; seconds at most.
        utc: whether UTC is meant.
    """
    try:
        return datetime.fromtimestamp(millis // 1000, UTC if utc else None).strftime(form)
    except (ValueError, OverflowError, OSError):
        return None


def moment(millis: int) -> str:
    """Ms since 1970 as local time; "-" for none (0 or less), the number itself where no calendar has it."""
    if millis <= 0:
        return "-"
    text = time_text(millis, "%Y-%m-%d %H:%M:%S")
    return f"{millis} ms" if text is None else f"{text}.{millis % 1000:03d}"


def _parts_ms(text: str) -> int | None:
    """Ms of numbers with their units, None when it is none of that; `text` in lower case."""
    at, total = 0, 0.0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        number, unit = match.groups()
        letter = "ms" if unit.startswith(("ms", "milli")) else unit[0]
        total += (1.0 if number.startswith("a") else float(number)) * _UNITS_MS[letter]
        at = match.end()
    return round(total) if text else None


def _of_a_day(text: str, now_ms: int) -> datetime | None:
    """Local time on today or yesterday; None when the text is none of that. Raises ValueError: no such clock time."""
    match = _CLOCK.fullmatch(text)
    if match is None or not text:
        return None
    day, clock = match.groups()
    date = datetime.fromtimestamp(now_ms / 1000).date() - timedelta(days=day == "yesterday")
    if clock is None:
        return datetime.combine(date, clock_time())
    return datetime.combine(date, clock_time.fromisoformat(clock if clock[2] == ":" else f"0{clock}"))
