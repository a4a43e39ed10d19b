"""Which snapshots stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backup.repository import SnapshotName
from engine.backup.retention import Keep, kept
from engine.errors import InvalidArgument

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def named(hours: list[int]) -> list[SnapshotName]:
    moments = [BEGIN + timedelta(hours=hour) for hour in sorted(set(hours))]
    return [
        SnapshotName(f"{i:032x}", int(moment.timestamp() * 1000), f"{moment:%Y%m%dT%H%M%S}.000Z-{i:032x}")
        for i, moment in enumerate(moments)
    ]


def test_no_rule_would_keep_nothing() -> None:
    with pytest.raises(InvalidArgument):
        kept(named([1, 2]), Keep())


def test_days_and_weeks() -> None:
    """Each hour of 30 days: the newest of 3 days, and of 2 weeks, whose last is one of the days."""
    snapshots = named(list(range(24 * 30)))
    stay = kept(snapshots, Keep(daily=3, weekly=2))
    hours = sorted(int(one.snapshot_id, 16) for one in snapshots if one.snapshot_id in stay)
    assert hours == [24 * 25 - 1, 24 * 28 - 1, 24 * 29 - 1, 24 * 30 - 1]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_newest_stays_and_no_rule_keeps_more_than_it_says(
    hours: list[int], last: int, daily: int, monthly: int
) -> None:
    keep = Keep(last=last, daily=daily, monthly=monthly)
    snapshots = named(hours)
    if not keep:
        return
    stay = kept(snapshots, keep)
    assert snapshots[-1].snapshot_id in stay
    assert len(stay) <= last + daily + monthly
    assert kept([one for one in snapshots if one.snapshot_id in stay], keep) == stay
