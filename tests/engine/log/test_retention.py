"""Which files go, and when: the rule as numbers, held against a second telling of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker_conf.values import shown
from engine.config import StoreConfig
from engine.log.retention import DeletionRound, DiskSpace, DiskUse, RetentionRules, Stay, Why

HOUR = 3_600_000


def rules(**changes: object) -> RetentionRules:
    return RetentionRules.of(StoreConfig().with_changes(**changes))


def used(log: float, queues: float = 0.1) -> DiskUse:
    return DiskUse((("/log", log),), queues)


# --- deleteWhen ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected", "problems"),
    [
        ("04", {4}, 0),
        ("4", {4}, 0),
        ("03;04;23", {3, 4, 23}, 0),
        (" 3 ; 4;", set(), 1),
        ("03; 4", {3}, 1),
        ("04 # at night", set(), 1),
        ("04;;5", {4}, 1),
        ("04;", {4}, 0),
        ("0", {0}, 0),
        ("24", set(), 1),
        ("-1;5", {5}, 0),
        ("noon;5;x", set(), 1),
        ("5;noon", {5}, 1),
        ("²", set(), 1),
        ("", set(), 1),
        (";", set(), 1),
    ],
)
def test_the_hours_of_delete_when(text: str, expected: set[int], problems: int) -> None:
    rules = RetentionRules.of(StoreConfig(delete_when=text))
    assert (rules.hours, len(rules.problems)) == (expected, problems)
    assert all(shown(text) in one for one in rules.problems)


def test_a_part_that_is_no_number_ends_the_round_at_other_hours() -> None:
    rules = RetentionRules.of(StoreConfig(delete_when="04;x;16"))
    full = rules.space(DiskUse((("/a", 0.99),), 0.99))
    assert [rules.why(full, hour, by_hand=False) for hour in (3, 4, 16)] == [None, Why.SPACE, None]
    assert rules.why(full, 3, by_hand=True) is Why.BY_HAND
    assert full.full
    sound = RetentionRules.of(StoreConfig(delete_when="99"))
    assert sound.why(full, 3, by_hand=False) is Why.SPACE


# --- the disks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "above", "hurry", "full"),
    [
        (0.75, False, False, False),
        (0.76, True, False, False),
        (0.85, True, False, False),
        (0.86, True, True, False),
        (0.90, True, True, False),
        (0.91, True, True, True),
        (-1.0, False, False, False),
    ],
)
def test_the_ratios(log: float, above: bool, hurry: bool, full: bool) -> None:
    found = rules().space(used(log))
    assert (found.above, found.hurry, found.full) == (above, hurry, full)
    assert not rules(clean_file_forcibly_enable=False).space(used(log)).hurry
    other = rules().space(used(0.1, queues=log))
    assert (other.above, other.hurry, other.full) == (above, hurry, full)


@pytest.mark.parametrize(("limit", "taken"), [(0, 0.10), (10, 0.10), (50, 0.50), (95, 0.95), (200, 0.95)])
def test_the_limit_is_taken_within_limits(limit: int, taken: float) -> None:
    assert rules(disk_max_used_space_ratio=limit).max_used == taken
    assert RetentionRules.of(StoreConfig(), max_used=limit, reserved_hours=1.5).max_used == taken
    assert RetentionRules.of(StoreConfig(), reserved_hours=1.5).reserved_ms == 1.5 * HOUR


def test_of_several_directories_the_emptiest_counts() -> None:
    found = rules().space(DiskUse((("/a", 0.99), ("/b", 0.86), ("/c", 0.30)), 0.2))
    assert found == DiskSpace(above=False, hurry=False, full=False, full_paths=("/a", "/b"))
    assert rules().space(DiskUse((("/a", 0.91), ("/b", 0.92)), 0.2)).full


def test_the_queues_disk_hurries_only_where_the_log_gives_no_reason() -> None:
    assert rules().space(used(0.70, queues=0.95)).hurry
    assert not rules().space(used(0.80, queues=0.95)).hurry
    assert rules().space(used(0.80, queues=0.95)).full


def test_the_reasons() -> None:
    quiet, tight = rules().space(used(0.1)), rules().space(used(0.8))
    assert rules().why(quiet, 4, by_hand=False) is Why.TIME
    assert rules().why(quiet, 5, by_hand=False) is None
    assert rules().why(tight, 5, by_hand=False) is Why.SPACE
    assert rules().why(quiet, 5, by_hand=True) is Why.BY_HAND


# --- the files -------------------------------------------------------------------------------------------------------


def test_the_files() -> None:
    now = 1000 * HOUR
    ages = [100, 73, 72, 71.9, 100, 100]
    modified = [round(now - age * HOUR) for age in ages]
    assert rules().batch(modified, now, hurry=False) == DeletionRound(3, Stay.YOUNG)
    assert rules().batch(modified, now, hurry=True) == DeletionRound(6, Stay.LAST)
    assert rules().batch([0] * 10, now, hurry=False) == DeletionRound(10, Stay.LAST)
    assert rules().batch([0] * 11, now, hurry=False) == DeletionRound(10, Stay.BATCH)
    assert rules().batch([], now, hurry=True) == DeletionRound(0, Stay.LAST)
    assert rules(file_reserved_time=0).batch([now, now + 1], now, hurry=False) == DeletionRound(1, Stay.YOUNG)


def test_no_more_files_are_asked_for_their_age_than_needed() -> None:
    asked = iter([0, 0, 999 * HOUR, 0, 0])
    assert rules().batch(asked, 1000 * HOUR, hurry=False).count == 2
    assert len(list(asked)) == 2


PER_CENT = st.one_of(st.just(-1), st.integers(0, 100), st.sampled_from([10, 75, 76, 85, 86, 90, 91, 95]))


@given(
    log=st.lists(PER_CENT, min_size=1, max_size=3),
    queues=PER_CENT,
    limit=st.integers(0, 120),
    forcibly=st.booleans(),
    by_hand=st.booleans(),
    hour=st.integers(0, 23),
    when=st.sets(st.integers(0, 23), max_size=3),
    reserved=st.integers(0, 100),
    ages=st.lists(st.integers(-5, 120), max_size=15),
)
def test_a_round_as_a_second_telling_has_it(
    log: list[int],
    queues: int,
    limit: int,
    forcibly: bool,
    by_hand: bool,
    hour: int,
    when: set[int],
    reserved: int,
    ages: list[int],
) -> None:
    """The same rule told file by file and in whole per cents; `ages` in hours, the last file's included."""
    now = 10_000 * HOUR
    config = {
        "disk_max_used_space_ratio": limit,
        "file_reserved_time": reserved,
        "clean_file_forcibly_enable": forcibly,
    }
    tested = rules(**config, delete_when=";".join(map(str, sorted(when))) or "99")
    space = tested.space(
        DiskUse(
            tuple((str(i), p / 100 if p >= 0 else -1.0) for i, p in enumerate(log)),
            queues / 100 if queues >= 0 else -1.0,
        )
    )
    why = tested.why(space, hour, by_hand=by_hand)
    modified = [now - age * HOUR for age in ages]
    gone = tested.batch(modified[:-1], now, hurry=space.hurry).count if why is not None else 0

    threshold = 10 if limit < 10 else 95 if limit > 95 else limit
    emptiest = sorted(log)[0]
    log_tight = emptiest > threshold
    tight = log_tight or queues > threshold
    any_age = forcibly and (emptiest >= 86 or (queues >= 86 and not log_tight))
    expected = []
    if by_hand or tight or hour in when:
        for number, age in enumerate(ages):
            is_last = number == len(ages) - 1
            if is_last or len(expected) == 10 or not (age >= reserved or any_age):
                break
            expected.append(number)
    assert gone == len(expected)
    assert space.full == (emptiest >= 91 or queues >= 91)
    assert space.full_paths == tuple(str(i) for i, p in enumerate(log) if p >= 86)
