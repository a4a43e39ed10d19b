from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from engine.broker.ha.group import GroupTransfer
from engine.log.results import PutMessageStatus

OK, LATE, NONE = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)


@pytest.fixture
def timeout_ms() -> int:
    """Longer than any pause of the machine."""
    return 60_000


@pytest.fixture
def group(timeout_ms: int) -> Iterator[GroupTransfer]:
    group = GroupTransfer(timeout_ms, lambda error: None)
    group.start()
    yield group
    group.stop()


def test_those_that_come_until_it_closes_wait_for_the_farthest(group: GroupTransfer) -> None:
    first = group.submit(100)
    assert group.submit(300) is group.submit(200) is first
    group.close()
    later = group.submit(400)
    assert later is not first
    group.reported(299)
    assert not first.done
    group.reported(300)
    assert (first.outcome, later.outcome) == (OK, None)
    group.reported(400)  # it is open still
    assert later.outcome is OK


def test_a_report_of_an_earlier_group_leaves_the_others(group: GroupTransfer) -> None:
    futures = []
    for end in (100, 200, 300):
        futures.append(group.submit(end))
        group.close()
    group.reported(200)
    assert [one.outcome for one in futures] == [OK, OK, None]


@pytest.mark.parametrize("timeout_ms", [20])
def test_time_is_over(group: GroupTransfer) -> None:
    first = group.submit(100)
    assert first.wait(60)
    assert first.outcome is LATE
    second = group.submit(200)  # the group was open still
    assert second is not first
    assert second.wait(60)
    group.reported(200)
    assert (first.outcome, second.outcome) == (LATE, LATE)


def test_the_end_answers_who_waits_and_who_comes(group: GroupTransfer) -> None:
    one = group.submit(100)
    group.close()
    two = group.submit(200)
    group.stop()
    began = time.monotonic()
    assert [future.outcome for future in (one, two, group.submit(300))] == [NONE] * 3
    assert time.monotonic() - began < 30
