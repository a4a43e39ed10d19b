"""RocketMQ 5's timer wheel: 1,209,600 slots of 32 bytes, one a second of 14 days (FORMAT.md "Timer wheel slot").

Slot n holds the due time t (in units of timerPrecisionMs, 1000 ms unless set) for which t modulo the number of slots is
n. A slot is not cleared once its messages were delivered: the next due time with the same n overwrites it.

Source: TimerWheel, Slot, TimerMessageStore (TIMER_WHEEL_TTL_DAY; the wheel has twice the slots of these seven days).
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

SLOT_FIELDS = [("due", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")]
_SLOT: Final = struct.Struct(">qqqii")
SLOT_SIZE = 32
assert _SLOT.size == SLOT_SIZE
SLOTS = 2 * 7 * 24 * 3600
FILE_SIZE = SLOTS * SLOT_SIZE
PRECISION_MS = 1000
"""timerPrecisionMs unless set."""


@dataclass(frozen=True, slots=True)
class TimerSlot:
    """One slot: its due time, in units of the wheel's precision, and where its units are in the timer log (bytes).

    `count`: messages put in, less those that delete one. `magic` is not used.
    """

    due: int
    first: int
    last: int
    count: int
    magic: int = 0

    def encode(self) -> bytes:
        """The 32 bytes."""
        return _SLOT.pack(self.due, self.first, self.last, self.count, self.magic)


def decode(buffer: Buffer, position: int = 0) -> TimerSlot:
    """The slot at `position` (bytes), whatever it says: see `fault`.

    Raises:
        FormatError: fewer than 32 bytes are there.
    """
    if position < 0 or len(buffer) - position < SLOT_SIZE:
        raise FormatError(
            f"a slot of the timer wheel has {SLOT_SIZE} bytes, {max(0, len(buffer) - position)} are left",
            offset=position,
        )
    return TimerSlot(*_SLOT.unpack_from(buffer, position))


def slot_dtype() -> np.dtype[np.void]:
    """numpy dtype of one slot (32 bytes, big-endian, packed)."""
    import numpy as np

    return np.dtype(SLOT_FIELDS)


def decode_many(buffer: Buffer) -> NDArray[np.void]:
    """All whole slots in `buffer`, without a copy: slot_dtype()[n]."""
    import numpy as np

    return np.frombuffer(buffer, dtype=slot_dtype(), count=len(buffer) // SLOT_SIZE)


def slot_of(due: int) -> int:
    """Number of the slot of a due time in units of the precision. Source: TimerWheel#getSlotIndex."""
    return due % SLOTS


def fault(slot: TimerSlot, number: int) -> str | None:
    """Why slot `number` holds what no broker writes; None when it may be written by one."""
    if slot.due < 0:
        return f"invalid due time {slot.due}"
    if slot_of(slot.due) != number:
        return f"due time {slot.due} belongs into slot {slot_of(slot.due)}"
    if not 0 <= slot.first <= slot.last:
        return f"invalid first and last unit: {slot.first}, {slot.last}"
    return None
