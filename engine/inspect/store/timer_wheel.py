"""The timer wheel of a RocketMQ 5 store, and how far its timer is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import names, timer_check, timer_wheel
from engine.format.numbers import read_java_int
from engine.format.timer_wheel import SLOT_SIZE, TimerSlot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.format.timer_check import TimerCheck
    from engine.inspect.store.survey import StoreFiles

_SLOTS_READ = 1 << 13


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot that is in use: its number, its due time (ms); `reason`: why it is none that a broker writes.

    `waits`: whether its messages are yet to be delivered; None: nothing says how far the timer is.
    """

    number: int
    due_time: int
    slot: TimerSlot
    path: str
    waits: bool | None = None
    reason: str | None = None

    @property
    def offset(self) -> int:
        """Where it lies in the file, bytes."""
        return self.number * SLOT_SIZE


def precision_of(files: StoreFiles) -> int:
    """timerPrecisionMs: how long (ms) a slot is."""
    try:
        return read_java_int(files.config.other.get("timerPrecisionMs", ""), 1)
    except ValueError:
        return timer_wheel.PRECISION_MS


def read_timer_check(disk: Disk, files: StoreFiles) -> TimerCheck | None:
    """How far the timer is; None without the file.

    Raises:
        FormatError: the file is not whole. StorageError.
    """
    path = os.path.join(files.root, names.CONFIG, names.TIMER_CHECK)
    if disk.look(path) is None:
        return None
    try:
        return timer_check.decode(disk.read_file(path, timer_check.FIELDS_SIZE))
    except FormatError as error:
        raise FormatError(error.message, path=path) from None


def dump_timer_wheel(disk: Disk, files: StoreFiles) -> Iterator[SlotRow | FormatError]:
    """The slots that are in use, in the order of the file, and first what is wrong with the file.

    Raises:
        StorageError.
    """
    import numpy as np

    path = os.path.join(files.root, names.TIMER_WHEEL)
    if disk.look(path) is None:
        return
    check: TimerCheck | None = None
    try:
        check = read_timer_check(disk, files)
    except FormatError as error:
        yield error
    precision = precision_of(files)
    reader = disk.open_reader(path)
    try:
        size = reader.size()
        if size not in (0, timer_wheel.FILE_SIZE):  # a broker makes an empty one anew
            yield FormatError(f"the timer wheel has {size} bytes instead of {timer_wheel.FILE_SIZE}", path=path)
        for at in range(0, min(size, timer_wheel.FILE_SIZE), _SLOTS_READ * SLOT_SIZE):
            piece = reader.read(at, min(_SLOTS_READ * SLOT_SIZE, timer_wheel.FILE_SIZE - at))
            slots = timer_wheel.decode_many(piece)
            used = np.frombuffer(piece, np.uint8, len(slots) * SLOT_SIZE).reshape(-1, SLOT_SIZE).any(axis=1)
            for i in np.flatnonzero(used).tolist():
                slot, number = TimerSlot(*slots[i].item()), at // SLOT_SIZE + i
                due = slot.due * precision
                waits = None if check is None else due >= check.last_read_time
                yield SlotRow(number, due, slot, path, waits, timer_wheel.fault(slot, number))
    finally:
        reader.close()
