"""What columns say of a batch is what its records say, read either way."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import StorageError
from engine.format import sysflag
from engine.format.message import Message
from engine.log.batch import RecordBatch
from engine.log.batch_queues import by_queue
from engine.log.derive import TopicQueue
from engine.log.scan import Scanner
from tests.support import logs

NAMES = ["T", "U", "TT", "Topic", "Topig", "é", "x" * 127, *(f"many{i:02d}" for i in range(40))]


def batches(built: logs.Built) -> list[RecordBatch]:
    """The log as one batch, by plain code and (where there are any) by kernels."""
    found = []
    for kernels in (False, True):
        if kernels:
            pytest.importorskip("numba")
        scanner = Scanner(built.log, kernels=kernels, window=1 << 20)
        found.append(next(event for event in scanner.scan(0) if isinstance(event, RecordBatch)))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(-1, 3), st.sampled_from([0, 4, 8, 12, 3])),
        min_size=1,
        max_size=120,
    ),
    st.data(),
)
def test_records_by_queue(put: list[tuple[str, int, int]], data: st.DataObject) -> None:
    built = logs.build([Message(t, b"b" * i, q, sys_flag=f) for i, (t, q, f) in enumerate(put)], segment_size=1 << 20)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(put) - 1))))
    wanted: dict[TopicQueue, list[int]] = defaultdict(list)
    for i in chosen:
        wanted[TopicQueue(put[i][0], put[i][1])].append(i)
    for batch in batches(built):
        found = [(queue, mine.tolist()) for queue, mine in by_queue(batch, np.array(chosen, dtype=np.intp))]
        assert dict(found) == wanted
        assert len(found) == len(wanted)
        assert batch.sizes().tolist() == [row.size for row in batch.rows]
        assert batch.store_timestamps().tolist() == [row.store_timestamp for row in batch.rows]
        assert batch.stored_offsets().tolist() == [row.stored_offset for row in batch.rows]
        assert batch.consumable().tolist() == [sysflag.is_consumable(row.sys_flag) for row in batch.rows]


def test_bytes_that_were_let_go_are_read_again() -> None:
    built = logs.build([Message("T", b"body %d" % i, properties={"KEYS": f"k{i}"}) for i in range(30)])
    for batch in batches(built):
        records = [bytes(batch.record(i)) for i in range(len(batch))]
        reads = built.log.reads
        batch.let_go()
        assert batch.messages == len(batch.offsets()) == 30
        assert built.log.reads == reads, "what the table has needs no bytes"
        assert [bytes(batch.record(i)) for i in range(len(batch))] == records
        assert bytes(batch.first(3).body(2)) == b"body 2"
        assert built.log.reads == reads + 1, "once, for as long as they are held"


def test_bytes_that_were_let_go_and_are_gone() -> None:
    for place in range(2):
        built = logs.build([Message("T", b"body %d" % i) for i in range(30)])
        for batch in batches(built)[place : place + 1]:
            batch.let_go()
            (data,) = built.log.files.values()
            del data[batch.end - 5 :]
            with pytest.raises(StorageError, match="the log has become shorter while it was read") as caught:
                batch.topic(0)
            assert caught.value.offset == batch.end - 5
