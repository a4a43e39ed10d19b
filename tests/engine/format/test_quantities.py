"""Times and durations as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from engine.errors import InvalidArgument
from engine.format.quantities import moment, parse_duration, parse_size, parse_time, time_text

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1 hour ago", HOUR),
        ("an hour ago", HOUR),
        ("a day ago", DAY),
        ("2 days ago", 2 * DAY),
        ("2h ago", 2 * HOUR),
        ("30m ago", HOUR // 2),
        ("30 Minutes Ago", HOUR // 2),
        ("1h30m ago", HOUR + HOUR // 2),
        ("1 day, 12 hours ago", DAY + 12 * HOUR),
        ("1.5 min ago", 90_000),
        ("90 secs ago", 90_000),
        ("500ms ago", 500),
        ("3 weeks ago", 21 * DAY),
        ("now", 0),
    ],
)
def test_so_long_ago(text: str, ms: int) -> None:
    assert parse_time(text, "--at", now_ms=100 * DAY) == 100 * DAY - ms


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("today", "2024-03-31T00:00"),
        ("yesterday", "2024-03-30T00:00"),
        ("yesterday 14:05", "2024-03-30T14:05"),
        ("Yesterday 9:05:30", "2024-03-30T09:05:30"),
        ("14:05", "2024-03-31T14:05"),
        ("9:05", "2024-03-31T09:05"),
        ("today 14:05:30.5", "2024-03-31T14:05:30.500000"),
        ("2024-03-31 14:05", "2024-03-31T14:05"),
        ("2024-03-31T12:05Z", "2024-03-31T14:05"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_of_a_day_in_local_time_on_the_day_when_the_clock_changes(text: str, local: str) -> None:
    now = round(datetime.fromisoformat("2024-03-31T18:00").timestamp() * 1000)
    assert parse_time(text, "--at", now_ms=now) == datetime.fromisoformat(local).timestamp() * 1000


@pytest.mark.parametrize(
    "text",
    [
        *("", "2h", "ago", "hour ago", "2 months ago", "1 hour", "2 hours and ago", "24:00", "7:5", "yesterday noon"),
        *("yesterdays", "2023-13-01", "-1h ago", "1,5h ago", "99999999999999999 weeks ago x", "tomorrow"),
    ],
)
def test_what_is_no_time_is_told_with_examples_that_are(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--at: not a time") as told:
        parse_time(text, "--at")
    assert told.value.hint == 'like 2024-05-01T03:00, 14:05, yesterday, "2 hours ago" or 1714532400000'
    for example in ("2024-05-01T03:00", "14:05", "yesterday", "2 hours ago", "1714532400000"):
        parse_time(example, "--at")


@pytest.mark.parametrize(
    ("text", "ms"), [("30", 30_000), ("0.5", 500), ("5m", 300_000), ("5 minutes", 300_000), ("1h30m", HOUR * 3 // 2)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text, "--time-box") == ms


@pytest.mark.parametrize("text", ["", "m", "-1s", "1 month", "5m ago"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a duration"):
        parse_duration(text, "--time-box")


@pytest.mark.parametrize("size", [(1 << 53) + 1, (1 << 63) - 1])
def test_a_size_is_exact(size: int) -> None:
    """A physical offset is one, too; a float has 53 bits."""
    assert parse_size(str(size), "--to-offset") == size
    assert parse_size("1.5k", "--size") == 1536


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_a_number_with_more_digits_than_any_of_a_store_is_none(digits: int) -> None:
    """Of 309 a float is infinite, of 4301 Python reads none."""
    number = "9" * digits
    for parse, texts in (
        (parse_size, (number, f"{number}k", f"1.{number}")),
        (parse_duration, (number, f"{number}d", f"1.{number}s")),
        (parse_time, (number, f"{number} days ago")),
    ):
        for text in texts:
            with pytest.raises(InvalidArgument):
                parse(text, "--option")


# --- times as they are shown ------------------------------------------------------------------------------------------


def test_a_moment_is_local_time_to_the_millisecond(berlin: None) -> None:
    assert moment(1_714_532_400_250) == "2024-05-01 05:00:00.250"
    assert (moment(0), moment(-1)) == ("-", "-")


def test_a_stamp_has_the_form_and_the_zone_that_are_asked_for(berlin: None) -> None:
    assert time_text(1_714_532_400_250, "%H:%M") == "05:00"
    assert time_text(1_714_532_400_250, "%H:%M", utc=True) == "03:00"
    assert time_text(-1, "%H:%M:%S", utc=True) == "23:59:59"


@pytest.mark.parametrize("millis", [1 << 48, 1 << 60, (1 << 63) - 1, -(1 << 60), -(1 << 63)])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Lima"])
def test_what_no_calendar_has_is_told_as_its_number(millis: int, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged field holds any 64 bits. 1 << 48 ms is a year behind 9999."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        try:
            assert time_text(millis, "%Y") is None
            assert time_text(millis, "%Y", utc=True) is None
            assert moment(millis) == ("-" if millis < 0 else f"{millis} ms")
        finally:
            patch.undo()
            time.tzset()
