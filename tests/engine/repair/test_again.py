"""A second recovery changes nothing, whatever bit of a record's header has flipped, and wherever the record lies."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.engine.repair.recover.test_stale_tail import record_at
from tests.engine.repair.test_rules import damage, put, settings
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


@pytest.mark.parametrize("whole_segments", [False, True])
def test_what_the_next_start_reads_is_mended_now(
    base: tuple[Path, list[int]], tmp_path: Path, whole_segments: bool
) -> None:
    """Files behind the log's end go, so that the third last file, where a normal start begins, is another one."""
    root, offsets = base
    store = stores.copy(root, tmp_path / "store")
    size = settings(store).mapped_file_size_commit_log
    files = sorted((store / "commitlog").iterdir())
    if whole_segments:  # the log is cut two segments before its end
        damage(store, int(files[-2].name), bytes(64))
        last = int(files[-2].name)  # the log ends where it begins: it stays
    else:
        (store / "abort").touch()
        (store / "checkpoint").write_bytes(files[-1].stat().st_mtime_ns.to_bytes(8, "big") * 3 + bytes(4072))
        (store / "commitlog" / f"{int(files[-1].name) + size:020d}").write_bytes(bytes(size))
        last = int(files[-1].name)
    wanted = next(one for one in offsets if one >= last - 2 * size)
    damage(store, wanted + 28, (wanted ^ 1 << 15).to_bytes(8, "big"))
    for again in range(2):
        plan = plan_recover(Disk(), settings(store), cut=whole_segments)
        assert plan.refusal is None
        assert plan.changed == (not again), plan.to_json()
        apply(Disk(), plan)
    assert record_at(store, wanted)[28:36] == wanted.to_bytes(8, "big")
