"""A batch in which no stale tail may begin is known without a look at each record."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.format.judge import Row
from engine.inspect.check.stale_tail import ascends_from, goes_back
from engine.log.batch import RecordBatch

SIZE = 100
RECORDS = st.lists(st.tuples(st.integers(5, 9), st.sampled_from([0, 0, 0, 7])), min_size=1, max_size=5)
"""Of each its store time, and how far off its own offset is."""


@given(RECORDS, st.sampled_from([0, 4, 6, 7, 9, 10]), st.booleans(), st.booleans())
def test_no_tail_may_begin(records: list[tuple[int, int]], stored: int, by_kernels: bool, noted: bool) -> None:
    names = Row._fields
    rows = [
        Row(
            **{
                **dict.fromkeys(names, 0),
                "position": n * SIZE,
                "size": SIZE,
                "stored_offset": n * SIZE + off,
                "store_timestamp": time,
            }
        )
        for n, (time, off) in enumerate(records)
    ]
    batch = RecordBatch(0, memoryview(b""), np.array(rows, dtype=np.int64) if by_kernels else rows)
    times = [time for time, _ in records]
    moved = any(off for _, off in records)
    if noted:
        batch.note(messages=len(rows), newest=max(times), ascends=times == sorted(times), in_place=not moved)
    ascends = times == sorted(times) and times[0] >= stored
    assert ascends_from(batch, stored) == (ascends and not moved)
    if ascends_from(batch, stored):
        assert not goes_back(batch, stored)[0].any()
