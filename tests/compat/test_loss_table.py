"""No sound message of any damaged store is lost by us; beside it, what Apache 4.9.8 loses of the same store.

Both sides are read in full and counted in the same way (loss.py). The rows go to the table that conftest.py prints
at the end of the run, and writes to `build/loss.md` and `build/loss.json`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import RStoreError
from tests.compat import batch, corpora, loss, loss_table
from tests.compat.apache import Line, Opened
from tests.compat.corpora import Bases
from tests.compat.loss import Gives, Loss, Truths
from tests.engine.repair import differences
from tests.support import stores

pytestmark = pytest.mark.interop

CASES = corpora.every_case()
HANG = 45.0
"""Seconds that Apache gets to open a store: more than when the corpora were made, as many are opened at once."""


def repair(store: Path, case: Line) -> str:
    """Repairs a damaged store; in a word, by what."""
    config = corpora.config(store, case)
    if case["id"] not in differences.REFUSED:
        _, bridge = corpora.repair(config)
        return "bridge" if bridge else "recover"
    before = stores.snapshot(store)
    with pytest.raises(RStoreError) as refused:
        corpora.repair(config)
    assert refused.value.exit_code == 4
    assert stores.snapshot(store) == before
    return "refused"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_we_lose_no_sound_message(
    case: Line, bases: Bases, truths: Truths, gives: Gives, tmp_path: Path, record_property
) -> None:
    store = bases.damaged(case, tmp_path / "store")
    truth = truths.of(case)
    sound = truth.sound(bases.base(case), store)
    how = repair(store, case)
    assert how != "refused" or not sound
    ours = loss.lost(truth, sound, gives.of(corpora.config(store, case), case, truth)) if sound else Loss()
    recorded = loss.recorded(case, truth, sound)
    row = {name: case[name] for name in ("id", "base", "category", "note", "exit")}
    row |= {"sound": len(sound), "how": how, "ours": ours.to_json()}
    row["recorded"] = None if recorded is None else recorded.to_json()
    record_property(loss_table.OURS, row)
    assert ours == Loss()
    shutil.rmtree(store)


def ends_as_recorded(opened: Opened, case: Line) -> bool:
    """Whether Apache ends a store where it did when the corpus was made."""
    if opened.exit != case["exit"]:
        return False
    if opened.exit != 0:
        return True
    assert opened.final is not None
    queues = {(q["topic"], q["queueId"], q["min"], q["max"]) for q in opened.of_type("holds")}
    return (opened.final.min, opened.final.max) == (
        case["final"]["minPhyOffset"],
        case["final"]["maxPhyOffset"],
    ) and queues == {(q["topic"], q["queueId"], q["min"], q["max"]) for q in case["queues"]}


@pytest.mark.usefixtures("apache_store")
@pytest.mark.timeout(1200)
def test_what_apache_loses(bases: Bases, truths: Truths, tmp_path: Path, record_property) -> None:
    """It opens each damaged store and is asked for all of its messages; it ends as the corpora have recorded."""
    first = sorted(CASES, key=lambda case: case["exit"] is not None)  # one that hangs keeps nobody waiting then
    found: dict[str, Line] = {}
    for chunk in corpora.chunks(first):
        damaged = [bases.damaged(case, tmp_path / case["id"]) for case in chunk]
        sound = [truths.of(case).sound(bases.base(case), store) for case, store in zip(chunk, damaged, strict=True)]
        runs = [
            batch.holds(store, truths.wanted(case), corpora.sizes(case), corpora.settings(case))
            for case, store in zip(chunk, damaged, strict=True)
        ]
        for case, whole, opened in zip(chunk, sound, batch.run(runs, hang=HANG), strict=True):
            assert ends_as_recorded(opened, case), (case["id"], opened.exit, opened.error, opened.stderr)
            truth = truths.of(case)
            lost = loss.lost(truth, whole, loss.held_by_apache(opened, truth))
            recorded = loss.recorded(case, truth, whole)
            assert recorded is None or recorded.place == lost.place, case["id"]
            assert case["exit"] != 0 or case["category"] != "none" or case["abnormal"] or lost == Loss(), case["id"]
            found[case["id"]] = lost.to_json()
        for store in damaged:
            shutil.rmtree(store)
    record_property(loss_table.APACHE, found)
