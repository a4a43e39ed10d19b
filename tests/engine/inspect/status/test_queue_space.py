"""queue_space: what a queue's rows stand for, whole and by samples, against a plain loop over what Apache reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.status import queue_space
from engine.inspect.status.queue_space import QueueSpace, last_row, measure
from engine.inspect.store import queue_rows
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.survey import survey
from tests.engine.inspect.aged import units
from tests.support.wide import examples

Store = Callable[[str], Path]
ALL = 1 << 40


def rows_of(store: Path) -> list[QueueRows]:
    disk = Disk()
    return [QueueRows(disk, q) for q in survey(disk, StoreConfig(store_path_root_dir=store)).queues]


def look(rows: QueueRows, starts: list[int], cuts: list[int], most: int = ALL) -> QueueSpace:
    return measure(rows, last_row(rows), np.array(starts, dtype=np.int64), cuts, most)


@pytest.mark.wide
@pytest.mark.parametrize("name", ["clean-small", "lmq"])
@settings(max_examples=examples(100))
@given(
    starts=st.lists(st.integers(0, 520_000), min_size=1, max_size=6).map(sorted),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    chunk=st.sampled_from([7, 100, 1 << 17]),
)
def test_as_a_loop_counts(name: str, fixture_store: Store, starts: list[int], cuts: list[int], chunk: int) -> None:
    told = units(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_rows, "CHUNK", chunk)
        for rows in rows_of(fixture_store(name)):
            own = [u for u in told if (u["topic"], u["queueId"]) == rows.queue and u["physicalOffset"] >= starts[0]]
            found = look(rows, starts, cuts)
            expected = [[0, 0] for _ in starts]
            for unit in own:
                stretch = max(i for i, start in enumerate(starts) if start <= unit["physicalOffset"])
                expected[stretch][0] += 1
                expected[stretch][1] += unit["size"]
            assert [list(pair) for pair in zip(found.messages.tolist(), found.sizes.tolist(), strict=True)] == expected
            assert found.after == {c: sum(u["size"] for u in own if u["offset"] >= c) for c in cuts}
            assert found.min_offset == min((u["offset"] for u in own), default=found.max_offset)
            assert not found.estimated


def test_a_long_queue_by_samples(fixture_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_space, "_BLOCKS", 16)
    monkeypatch.setattr(queue_space, "_BLOCK_ROWS", 8)
    rows = max(rows_of(fixture_store("clean-small")), key=last_row)
    starts, cuts = [1000, 200_000, 400_000], [0, 50, 130, 200, 10_000]
    exact, rough = look(rows, starts, cuts), look(rows, starts, cuts, most=100)
    assert rough.estimated
    assert (rough.min_offset, rough.max_offset) == (exact.min_offset, exact.max_offset)
    assert exact.min_offset > 0
    assert rough.messages.sum() == pytest.approx(exact.messages.sum(), abs=2)
    assert rough.sizes == pytest.approx(exact.sizes, rel=0.5)
    assert rough.after[10_000] == 0
    assert rough.after[0] == rough.sizes.sum()
    for cut in cuts[:-1]:
        assert rough.after[cut] == pytest.approx(exact.after[cut], rel=0.4)


@pytest.mark.leaves("checkpoint-missing")
def test_an_empty_queue(tmp_path: Path) -> None:
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    (rows,) = rows_of(tmp_path)
    found = look(rows, [0], [0, 5])
    assert (found.min_offset, found.max_offset, found.after) == (0, 0, {0: 0, 5: 0})
