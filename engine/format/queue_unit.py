"""The consume queue unit: 20 bytes, `physicalOffset i64, size i32, tagsCode i64`, big-endian (FORMAT.md).

As an array: `UNIT` is the numpy dtype of one unit; n units are n × 20 bytes without padding.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import INT_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

UNIT_SIZE = 20
POSITION_SIZE: Final = struct.calcsize(">q")
POSITION_TAGS_CODE: Final = struct.calcsize(">qi")
UNIT_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
UNIT: Final = struct.Struct(">qiq")
"""physicalOffset, size, tagsCode."""
assert UNIT.size == UNIT_SIZE

PRE_BLANK_SIZE = INT_MAX
"""Size field of the units that fill the front of a queue's first file when it starts in the middle."""

EXT_ADDRESS_MAX = -(1 << 31) - 1
"""A tagsCode at or below this is an address in the extension file. Source: ConsumeQueueExt#isExtAddr."""


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """One unit: where the message lies (physical offset and size, bytes) and the hash of its tags.

    `tags_code` is the delivery time (ms) in SCHEDULE_TOPIC_XXXX, and an address with the extension file.
    """

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """offset ≥ 0 and size > 0. Source: ConsumeQueue#recover. True of a pre-blank unit, too."""
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        """Whether it only fills the front of the queue's first file. Source: ConsumeQueue#fillPreBlank."""
        return self == PRE_BLANK

    def encode(self) -> bytes:
        """The 20 bytes."""
        return UNIT.pack(self.physical_offset, self.size, self.tags_code)


PRE_BLANK = QueueUnit(0, PRE_BLANK_SIZE, 0)


def decode(buffer: Buffer, position: int = 0) -> QueueUnit:
    """The unit at `position` (bytes).

    Raises:
        FormatError: fewer than 20 bytes are there.
    """
    if position < 0 or len(buffer) - position < UNIT_SIZE:
        raise FormatError(
            f"a queue unit has {UNIT_SIZE} bytes, {max(0, len(buffer) - position)} are left",
            offset=position,
        )
    return QueueUnit(*UNIT.unpack_from(buffer, position))


@functools.cache
def unit_dtype() -> np.dtype[np.void]:
    """numpy dtype of one unit (20 bytes, big-endian, packed)."""
    import numpy as np

    return np.dtype(UNIT_FIELDS)


@functools.lru_cache(maxsize=256)
def unpacker(many: int) -> Callable[[Buffer], tuple[int, ...]]:
    """What gives the fields of so many units at the front of a buffer, one after the other, without an object a unit.

    Raises struct.error of fewer bytes.
    """
    return struct.Struct(UNIT.format[:1] + UNIT.format[1:] * many).unpack_from


def decode_many(buffer: Buffer) -> NDArray[np.void]:
    """All whole units in `buffer`, without a copy.

    Returns:
        unit_dtype()[len(buffer) // 20]; a rest of fewer than 20 bytes is left out.
    """
    import numpy as np

    return np.frombuffer(buffer, dtype=unit_dtype(), count=len(buffer) // UNIT_SIZE)


def is_ext_address(tags_code: int) -> bool:
    """Whether `tags_code` is an address in the extension file."""
    return tags_code <= EXT_ADDRESS_MAX
