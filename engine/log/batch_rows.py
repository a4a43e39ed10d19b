"""Units of batch queues as the log derives them: from which records, which queue offsets their properties say.

Source: DispatchRequest and CommitLog#setBatchSizeIfNeeded (5.3.3): `INNER_BASE` and `INNER_NUM` where a record has
both, else its own queue offset and one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import properties
from engine.format.batch_unit import BATCH_UNIT_FIELDS, BATCH_UNIT_SIZE, batch_unit_dtype
from engine.format.inner_batch import place_of
from engine.format.judge import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.log.batch import RecordBatch
    from engine.log.derive import Units

_FRONT_SIZE = 12
_QUEUE_OFFSET = Row._fields.index("queue_offset")


def batch_row_dtype() -> np.dtype[np.void]:
    """A unit of a batch queue behind the number of its queue and the queue offset that the record's header says: 58
    bytes, packed. batch_size 0: the record's properties say no place that a unit can have.
    """
    import numpy as np

    return np.dtype([("queue", "<i4"), ("queue_offset", "<i8"), *BATCH_UNIT_FIELDS])


def no_batch_rows() -> NDArray[np.void]:
    """No row."""
    import numpy as np

    return np.zeros(0, dtype=batch_row_dtype())


def as_batch_units(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The units of rows (batch_row_dtype()), without their queues: batch_unit_dtype()[n]."""
    import numpy as np

    whole = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), _FRONT_SIZE + BATCH_UNIT_SIZE)
    return np.ascontiguousarray(whole[:, _FRONT_SIZE:]).view(batch_unit_dtype()).reshape(len(rows))


def batch_rows(batch: RecordBatch, units: Units) -> NDArray[np.void]:
    """Batch queue units of records, whose plain units are given: the same, with the place that the record says."""
    import numpy as np

    rows = np.zeros(len(units), dtype=batch_row_dtype())
    for name in ("queue", "queue_offset", "physical_offset", "size", "tags_code", "store_timestamp"):
        rows[name] = getattr(units, name)
    rows["compacted_offset"] = -1
    at = np.searchsorted(batch.offsets(), units.physical_offset)
    rows["base_offset"], rows["batch_size"] = _places(batch, at)
    return rows


def _places(batch: RecordBatch, at: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of records (places in the batch): queue offset of the first message, and how many; 0 of an invalid place."""
    import numpy as np

    base = batch.columns()[_QUEUE_OFFSET][at].copy()
    size = np.ones(len(at), dtype=np.int64)
    left = np.arange(len(at))
    if batch.table is not None:
        from engine.log.kernels.inner import inner_places

        left = inner_places(np.frombuffer(batch.buffer, dtype=np.uint8), batch.table, at, base, size)
    for i in left.tolist():
        record = int(at[i])
        pairs = properties.parse(batch.properties(record).decode("utf-8", "replace"))
        try:
            place = place_of(pairs, int(base[i]))
            base[i], size[i] = place.base, place.size
        except FormatError:
            size[i] = 0
    return base, size
