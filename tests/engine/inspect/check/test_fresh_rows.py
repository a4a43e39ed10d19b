"""Rows of queues that have none on disk: with the short way as without it, whatever the log holds."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba")

from engine.files.disk import Disk
from engine.format.queue_unit import UNIT_SIZE, decode_many
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.check import fresh_rows
from engine.inspect.check.fresh_rows import FreshRows
from engine.inspect.check.queue_compare import QueueComparer
from engine.log.derive import QueueNumbers, TopicQueue, Units
from engine.repair.recover import planner
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.test_rules import put, settings
from tests.support import mutate, stores
from tests.support.wide import sample

CASES = corpus.fixture_cases()
Row = tuple[int, int, int, int, int]

offsets_of_a_queue = st.lists(st.one_of(st.just(1), st.just(1), st.just(1), st.integers(-3, 4)), max_size=30)


def units(rows: list[Row]) -> Units:
    queue, queue_offset, physical_offset, size, code = np.array(rows, dtype=np.int64).reshape(len(rows), 5).T
    stored = np.zeros(len(rows), dtype=np.int64)
    return Units(queue.astype(np.int32), queue_offset, physical_offset, size.astype(np.int32), code, stored)


def in_log_order(queues: list[tuple[int, list[int]]], order: list[int]) -> list[Row]:
    """Records of queues (first queue offset, steps), taken in turns."""
    left = {number: [first + sum(steps[:i]) for i in range(len(steps))] for number, (first, steps) in enumerate(queues)}
    rows: list[Row] = []
    place = 100 * MIN_RECORD_SIZE
    while any(left.values()):
        turn = order[len(rows) % len(order)] % len(queues)
        number = next(n % len(queues) for n in range(turn, turn + len(queues)) if left[n % len(queues)])
        rows.append((number, left[number].pop(0), place, MIN_RECORD_SIZE + number, -number))
        place += MIN_RECORD_SIZE + number
    return rows


@given(
    st.lists(st.tuples(st.integers(-1, 50), offsets_of_a_queue), min_size=1, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=7),
    st.lists(st.integers(0, 90), max_size=4),
    st.sets(st.integers(0, 4), max_size=2),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_every_unit_is_taken_or_pending(
    queues: list[tuple[int, list[int]]], order: list[int], cuts: list[int], with_rows: set[int], in_memory: int
) -> None:
    rows = in_log_order(queues, order)
    numbers = QueueNumbers()
    for number in range(len(queues)):
        numbers.number(TopicQueue("T", number))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fresh_rows, "IN_MEMORY", in_memory)
        fresh = FreshRows(least=0)
    comparer = QueueComparer(Disk(), (), numbers, 20 * UNIT_SIZE, fresh=fresh)
    comparer._with_rows = with_rows
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in pairwise(bounds):
        comparer.feed(units(rows[start:end]))
        comparer.flush()
    pending: dict[int, list[Row]] = {}
    for chunk in comparer.pending.chunks():
        for queue, size, queue_offset, physical, code, _ in chunk.tolist():
            pending.setdefault(queue, []).append((queue, queue_offset, physical, size, code))
    for number, (first, steps) in enumerate(queues):
        own = [row for row in rows if row[0] == number]
        found = [one for one in fresh.queues() if one.number == number]
        may = own and number not in with_rows and first >= 0 and first * MIN_RECORD_SIZE <= own[0][2]
        if may and all(step == 1 for step in steps[: len(own) - 1]):
            assert number not in pending
            assert [(one.start, one.end, one.first_place, one.end_place) for one in found] == [
                (first, first + len(own), own[0][2], own[-1][2] + own[-1][3])
            ]
            got = [(start, decode_many(bytes(data)).tolist()) for start, data in fresh.rows_of(number)]
            assert sum(len(some) for _, some in got) == len(own)
            at = first
            for start, some in got:
                assert start == at
                assert some == [(row[2], row[3], row[4]) for row in own[at - first : at - first + len(some)]]
                at += len(some)
        else:
            assert pending.get(number, []) == own
            assert found == []
            assert list(fresh.rows_of(number)) == []


def planned(plan: RecoverPlan) -> tuple[str, list[Any]]:
    """What a plan says, and the rows that it writes, by queue and queue offset (store times aside)."""
    rows = [row[:5] for chunk in plan.writes.chunks() for row in chunk.tolist()]
    return json.dumps([plan.to_json(), str(plan.refusal)], sort_keys=True), sorted(rows)


def with_and_without(patch: pytest.MonkeyPatch, root: Path, config: Any, **choice: Any) -> RecoverPlan:
    """Plan both ways; they must be one. The plan by the short way."""
    patch.setattr(planner, "FreshRows", lambda: None)
    plain = planned(plan_recover(Disk(), config, **choice))
    patch.setattr(planner, "FreshRows", lambda: FreshRows(least=0))
    plan = plan_recover(Disk(), config, **choice)
    assert planned(plan) == plain
    return plan


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(CASES[1::2], 3), ids=lambda case: str(case["id"]))
@pytest.mark.parametrize("choice", [{}, {"bridge": True}], ids=["refusing", "bridge"])
@pytest.mark.parametrize("lost", [None, "consumequeue"], ids=["queues", "no-queues"])
def test_plans_are_the_same(
    case: corpus.Case,
    choice: dict[str, Any],
    lost: str | None,
    fixture_copy: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = fixture_copy(case["base"])
    mutate.apply(root, case["ops"])
    if lost is not None:
        shutil.rmtree(root / lost, ignore_errors=True)
    with_and_without(monkeypatch, root, corpus.config(root, case), **choice)


def test_what_is_written_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 700)
    (tmp_path / "abort").touch()
    before = stores.contents(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "consumequeue")
    plan = with_and_without(monkeypatch, tmp_path, settings(tmp_path))
    assert list(plan.writes.settled.chunks()) == []
    apply(Disk(), plan)
    assert stores.contents(tmp_path / "consumequeue") == before


def test_too_many_groups_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_rows, "MOST_GROUPS", 3)
    numbers = QueueNumbers()
    for number in range(2):
        numbers.number(TopicQueue("T", number))
    comparer = QueueComparer(Disk(), (), numbers, 20 * UNIT_SIZE, fresh=FreshRows(least=0))
    rows = in_log_order([(0, [1] * 12), (5, [1] * 12)], [0, 1])
    for start in range(0, len(rows), 4):
        comparer.feed(units(rows[start : start + 4]))
        comparer.flush()
    assert comparer.fresh() == []
    pending = [row[:5] for chunk in comparer.pending.chunks() for row in chunk.tolist()]
    for number in range(2):
        own = [(q, size, offset, place, code) for q, offset, place, size, code in rows if q == number]
        assert [row for row in pending if row[0] == number] == own


def test_few_units_do_not_load_the_kernel() -> None:
    taken = FreshRows().take(1, set(), units([(0, 0, 0, MIN_RECORD_SIZE, 0)]))
    assert (taken.queues, taken.broken) == ([], [])
    assert taken.left is not None
    assert taken.left.all()
