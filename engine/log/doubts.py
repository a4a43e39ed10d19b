"""Sound records whose header, topic or properties are suspect or unusual (engine.format.judge), found in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.format import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.log.batch import RecordBatch


class Doubt(NamedTuple):
    """Physical offset and size (bytes) of a record, why, and whether it is unusual only, and not suspect."""

    offset: int
    size: int
    reason: str
    unusual: bool = False


def doubts_of(batch: RecordBatch) -> tuple[Doubt, ...]:
    """The suspect and unusual records of a batch, in log order. By a kernel, where the batch was read by one."""
    doubts = []
    for i in _doubtful(batch):
        record = batch.record(i)
        verdict = judge.of_record(record, batch.topic(i), batch.properties(i))
        if verdict is not None:
            doubts.append(Doubt(batch.offset(i), len(record), *verdict))
    return tuple(doubts)


def _doubtful(batch: RecordBatch) -> Iterator[int]:
    """Records that are to be judged one by one."""
    table = batch.table
    if table is None:
        yield from range(len(batch))
        return
    import numpy as np

    from engine.log.kernels.doubt import doubts

    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    rows = np.empty(len(table), dtype=np.int64)
    yield from rows[: doubts(data, np.ascontiguousarray(table), rows)].tolist()
