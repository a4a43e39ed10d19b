"""Every damaged store, recovered with `cut`: as Apache, or better by a rule that is named; never worse, never an error.

Beside the comparison with Apache, each case is held against the truth: every message whose record is whole and lies
before the log's end is in its queue at its queue offset, with the unit that Apache wrote for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.inspect.finding_codes import Severity
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus, differences
from tests.support import golden, mutate, stores
from tests.support.checking import check_clean
from tests.support.wide import sample, sample_of_each

GOLDEN = golden.cases()
OURS = corpus.fixture_cases()
OTHER_TAGS = ("cq-garbage", "cq-ext")
"""Categories in which a unit may have another tags code: the damage is in there, or it is an address."""


def ids(case: corpus.Case) -> str:
    return str(case["id"])


def check(case: corpus.Case, base: Path, store: Path) -> None:
    mutate.apply(store, case["ops"])
    damaged = stores.copy(store, store.parent / "damaged")
    if case["id"] in differences.REFUSED:
        with pytest.raises(RStoreError) as refused:
            corpus.recover(store, case)
        assert refused.value.exit_code == 4
        assert stores.snapshot(store) == stores.snapshot(damaged)
        return
    plan, applied = corpus.recover(store, case)
    state = applied.state
    ours = corpus.our_queues(store, state.queues)
    if case["exit"] == 0:
        ended = (case["final"]["minPhyOffset"], case["final"]["maxPhyOffset"])
        if case["id"] in differences.LOG_END:
            assert ended != (state.min_offset, state.max_offset)
        else:
            assert (state.min_offset, state.max_offset) == ended
            theirs = corpus.apache_queues(case)
            nothing = corpus.Outcome()
            other = {q for q in theirs.keys() | ours.keys() if theirs.get(q, nothing) != ours.get(q, nothing)}
            assert (case["id"] in differences.QUEUES) == bool(other), other
    else:
        assert case["id"] in differences.OPENED
    units = corpus.Units(store)
    for line in corpus.whole_messages(case, base, damaged, max(state.min_offset, 0), state.max_offset):
        unit = units.at(line)
        assert unit is not None, line
        assert unit[:2] == (line["cqPhyOffset"], line["cqSize"]), line
        if case["category"] not in OTHER_TAGS:
            assert unit[2] == line["cqTagsCode"], line
    again = plan_recover(Disk(), corpus.config(store, case))
    assert again.refusal is None
    assert not again.changed
    assert plan.to_json()["maxOffset"] == state.max_offset == again.state.max_offset


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(GOLDEN, 14, 3), ids=ids)
def test_golden_case(case: corpus.Case, golden_store: Store, golden_copy: Store) -> None:
    check(case, golden_store(case["base"]), golden_copy(case["base"]))


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample_of_each(OURS, corpus.category, 4, 1), ids=ids)
def test_fixture_case(case: corpus.Case, fixture_store: Store, fixture_copy: Store) -> None:
    store = fixture_copy(case["base"])
    check(case, fixture_store(case["base"]), store)
    if case["id"] not in differences.REFUSED:
        known, why = differences.LEFT.get(case["id"], ((), ""))
        left = check_clean(store, corpus.config(store, case), known=known, why=why)
        assert {f.code for f in left.findings if f.severity is not Severity.INFO} == set(known)


def test_every_difference_is_a_case() -> None:
    listed = {*differences.REFUSED, *differences.OPENED, *differences.QUEUES, *differences.LOG_END}
    known = {case["id"] for case in (*GOLDEN, *OURS)}
    if not GOLDEN:
        listed = {one for one in listed if not one.startswith("v")}
    assert listed <= known
