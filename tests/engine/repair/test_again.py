"""A second recovery changes nothing, whatever bit of a record's header has flipped, and wherever the record lies."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.repair.apply import apply
from engine.repair.recover import plan_recover
from tests.engine.repair.test_rules import damage, put, settings
from tests.engine.repair.test_stale_tail import record_at
from tests.support import stores

FIELDS = {
    "queueId": (12, 4),
    "flag": (16, 4),
    "queueOffset": (20, 8),
    "physicalOffset": (28, 8),
    "sysFlag": (36, 4),
    "bornTimestamp": (40, 8),
    "storeTimestamp": (56, 8),
    "reconsumeTimes": (72, 4),
    "preparedTransactionOffset": (76, 8),
}
MODES: list[dict[str, bool]] = [{}, {"bridge": True}, {"cut": True}, {"whole": True}]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A closed store of several segments; where its records are."""
    root = tmp_path_factory.mktemp("again") / "store"
    return root, put(root, 220)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("place", ["before the start", "behind the start", "the last record"])
def test_a_second_recovery_is_none(base: tuple[Path, list[int]], tmp_path: Path, field: str, place: str) -> None:
    """Bits of each field, in every mode; then other ways of recovery that read no more have nothing to do, either."""
    root, offsets = base
    offset = {"before the start": offsets[20], "behind the start": offsets[210], "the last record": offsets[-1]}[place]
    at, size = FIELDS[field]
    rng = random.Random(f"{field} {place}")
    for options, bit in zip(MODES, rng.sample(range(8 * size), len(MODES)), strict=True):
        store = stores.copy(root, tmp_path / "store")
        byte = offset + at + size - 1 - bit // 8
        damage(store, byte, bytes([record_at(store, offset)[byte - offset] ^ 1 << bit % 8]))
        if rng.random() < 0.4:
            (store / "abort").touch()
        plan = plan_recover(Disk(), settings(store), **options)
        assert plan.refusal is None
        apply(Disk(), plan)
        reads_all = place != "before the start" or "whole" in options or "bridge" in options
        for again in (options, *(MODES if reads_all else ({}, {"cut": True}))):
            found = plan_recover(Disk(), settings(store), **again)
            assert found.refusal is None, (bit, options, again)
            assert not found.changed, (bit, options, again, found.to_json())
        shutil.rmtree(store)
