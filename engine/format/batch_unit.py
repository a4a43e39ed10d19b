"""The unit of a batch consume queue of RocketMQ 5: 46 bytes, big-endian (FORMAT.md "Unit of a batch queue").

`physicalOffset i64, size i32, tagsCode i64, storeTimestamp i64, baseOffset i64, batchSize i16, compactedOffset i32,
reserved i32`: one unit a record, whatever number of messages is in the record. Source: BatchConsumeQueue (5.3.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

BATCH_UNIT_SIZE = 46
BATCH_UNIT_FIELDS = [
    ("physical_offset", ">i8"),
    ("size", ">i4"),
    ("tags_code", ">i8"),
    ("store_timestamp", ">i8"),
    ("base_offset", ">i8"),
    ("batch_size", ">i2"),
    ("compacted_offset", ">i4"),
    ("reserved", ">i4"),
]
BATCH_UNIT: Final = struct.Struct(">qiqqqhii")
assert BATCH_UNIT.size == BATCH_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class BatchUnit:
    """One unit: where the record lies (physical offset and size, bytes) and which queue offsets its messages have.

    `tags_code`: hash of the record's tags. `store_timestamp`: ms. `base_offset`: queue offset of the record's first
    message; `batch_size`: how many it holds. `compacted_offset`: −1, in the copies of compacted topics, too.
    """

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int = -1
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether a broker reads on after it. Source: BatchConsumeQueue#recover."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.batch_size > 0

    @property
    def end_offset(self) -> int:
        """Queue offset after the record's last message."""
        return self.base_offset + self.batch_size

    def encode(self) -> bytes:
        """The 46 bytes."""
        return BATCH_UNIT.pack(
            self.physical_offset,
            self.size,
            self.tags_code,
            self.store_timestamp,
            self.base_offset,
            self.batch_size,
            self.compacted_offset,
            self.reserved,
        )


def decode(buffer: Buffer, position: int = 0) -> BatchUnit:
    """The unit at `position` (bytes).

    Raises:
        FormatError: fewer than 46 bytes are there.
    """
    if position < 0 or len(buffer) - position < BATCH_UNIT_SIZE:
        raise FormatError(
            f"a batch queue unit has {BATCH_UNIT_SIZE} bytes, {max(0, len(buffer) - position)} are left",
            offset=position,
        )
    return BatchUnit(*BATCH_UNIT.unpack_from(buffer, position))


def batch_unit_dtype() -> np.dtype[np.void]:
    """numpy dtype of one unit (46 bytes, big-endian, packed)."""
    import numpy as np

    return np.dtype(BATCH_UNIT_FIELDS)


def decode_many(buffer: Buffer) -> NDArray[np.void]:
    """All whole units in `buffer`, without a copy; a rest of fewer than 46 bytes is left out."""
    import numpy as np

    return np.frombuffer(buffer, dtype=batch_unit_dtype(), count=len(buffer) // BATCH_UNIT_SIZE)


def valid_units(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of them are valid, as `BatchUnit.is_valid`. bool[len(units)]."""
    valid: NDArray[np.bool_] = (
        (units["physical_offset"] >= 0) & (units["size"] > 0) & (units["base_offset"] >= 0) & (units["batch_size"] > 0)
    )
    return valid
