"""Requests and answers by opaque: each request is told once, whatever comes, and in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format.numbers import INT_MAX
from engine.wire.correlation import ConnectionEnded, Correlation


def test_answers_come_in_any_order() -> None:
    requests: Correlation[str] = Correlation()
    asked = {requests.begin(name): name for name in ("a", "b", "c")}
    assert list(asked) == [1, 2, 3]
    assert [requests.settle(opaque) for opaque in reversed(asked)] == ["c", "b", "a"]
    assert requests.close() == []


def test_a_second_answer_reaches_nobody() -> None:
    requests: Correlation[str] = Correlation()
    first, second = requests.begin("a"), requests.begin("b")
    assert requests.settle(first) == "a"
    assert requests.settle(first) is None
    assert requests.settle(second) == "b"


def test_an_answer_that_nobody_waits_for() -> None:
    requests: Correlation[str] = Correlation()
    opaque = requests.begin("a")
    assert requests.settle(opaque + 1) is None
    assert requests.settle(-1) is None
    assert requests.close() == ["a"]


def test_a_request_is_forgotten_by_its_caller() -> None:
    requests: Correlation[str] = Correlation()
    opaque = requests.begin("a")
    requests.forget(opaque)
    requests.forget(opaque)
    assert requests.settle(opaque) is None
    assert requests.close() == []


def test_a_connection_ends_with_requests_under_way() -> None:
    requests: Correlation[str] = Correlation()
    opaque = [requests.begin(name) for name in ("a", "b", "c")]
    assert requests.settle(opaque[1]) == "b"
    assert requests.close() == ["a", "c"]
    assert requests.close() == []
    assert requests.settle(opaque[0]) is None
    with pytest.raises(ConnectionEnded):
        requests.begin("d")


def test_opaques_begin_again_and_pass_over_those_under_way() -> None:
    requests: Correlation[str] = Correlation(INT_MAX - 1)
    assert requests.begin("old") == INT_MAX
    assert (requests.begin("zero"), requests.begin("one")) == (0, 1)
    again: Correlation[str] = Correlation(INT_MAX)
    assert again.begin("slow") == 0
    again._last = INT_MAX
    assert (again.next_opaque(), again.begin("quick")) == (1, 2)
    assert again.settle(0) == "slow"


@given(st.lists(st.tuples(st.sampled_from(["begin", "settle", "forget"]), st.integers(0, 12))))
def test_every_request_is_told_at_most_once(steps: list[tuple[str, int]]) -> None:
    requests: Correlation[int] = Correlation(INT_MAX - 3)
    begun: list[int] = []
    waiting: dict[int, int] = {}
    for step, number in steps:
        opaque = begun[number % len(begun)] if begun else number
        if step == "begin":
            begun.append(requests.begin(len(begun)))
            assert 0 <= begun[-1] <= INT_MAX
            assert begun[-1] not in waiting
            waiting[begun[-1]] = len(begun) - 1
        elif step == "settle":
            assert requests.settle(opaque) == waiting.pop(opaque, None)
        else:
            requests.forget(opaque)
            waiting.pop(opaque, None)
    assert requests.close() == list(waiting.values())
