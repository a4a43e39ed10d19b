"""Which records of a batch are of which queue, without an object for each record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.format.judge import Row
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.batch import RecordBatch

_QUEUE_ID, _TOPIC, _LENGTH = (Row._fields.index(name) for name in ("queue_id", "topic_position", "topic_length"))
_MOST_COMPARED = 16
"""Topics that are looked for in the whole batch; of more than so many, each record is asked for its own."""


def by_queue(batch: RecordBatch, records: NDArray[np.intp]) -> Iterator[tuple[TopicQueue, NDArray[np.intp]]]:
    """The records (places in the batch, ascending) by topic and queue id as they say themselves.

    Topics as texts; bytes that are none are replaced, so that a queue may come more than once.
    """
    import numpy as np

    columns = batch.columns()
    queue_ids = columns[_QUEUE_ID]
    for topic, mine in _by_topic(batch, columns, records):
        name = topic.decode("utf-8", "replace")
        ids = queue_ids[mine]
        for queue_id in np.unique(ids).tolist():
            yield TopicQueue(name, queue_id), mine[ids == queue_id]


def _by_topic(
    batch: RecordBatch, columns: NDArray[np.int64], left: NDArray[np.intp]
) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
    import numpy as np

    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    at, length = columns[_TOPIC], columns[_LENGTH]
    for _ in range(_MOST_COMPARED):
        if not len(left):
            return
        topic = batch.topic(int(left[0]))
        same = length[left] == len(topic)
        letters = at[left[same]][:, None] + np.arange(len(topic))
        same[same] = (data[letters] == np.frombuffer(topic, dtype=np.uint8)).all(axis=1)
        yield topic, left[same]
        left = left[~same]
    rows: dict[bytes, list[int]] = {}
    for i in left.tolist():
        rows.setdefault(batch.topic(i), []).append(i)
    for topic, mine in rows.items():
        yield topic, np.array(mine, dtype=np.intp)
