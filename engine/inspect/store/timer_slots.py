"""RocketMQ 5's timer wheel against its timer log: the slots that a broker would go by, and that the log denies.

A broker that starts reads the timer log from the file before that of `lastTimerLogFlushPos` on, and makes each unit
there the last one of its slot. So a slot may be stale as far as such units are its last; it must not be where they lie
before, and no slot that waits may name a unit that is not in the log. The number of messages in a slot is no more than
a metric, and after a crash it is stale. Source: TimerMessageStore#recover, #recoverAndRevise.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.written import data_ranges
from engine.format import names, timer_wheel
from engine.format.timer_wheel import SLOT_SIZE, TimerSlot
from engine.inspect.store.timer_wheel import read_timer_check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile
    from engine.format.timer_check import TimerCheck
    from engine.inspect.store.survey import StoreFiles
    from engine.inspect.store.timer_chains import Counted
    from engine.inspect.store.timer_log import TimerFiles

_PIECE = 1 << 18
"""Bytes of one read."""


@dataclass(frozen=True, slots=True)
class WrongSlot:
    """What is wrong with the wheel: its file as a whole (`number` None), or a slot."""

    number: int | None
    reason: str


def wrong_slots(
    disk: Disk, files: StoreFiles, timer: TimerFiles, counted: Counted, check: TimerCheck | None
) -> Iterator[WrongSlot]:
    """What is wrong with the wheel, by slot. Raises StorageError."""
    import numpy as np

    due, last = counted.wheel()
    read = last >= _read_from(timer, check)
    numbers, slots = np.zeros(0, np.int64), np.zeros(0, timer_wheel.slot_dtype())
    path = os.path.join(files.root, names.TIMER_WHEEL)
    entry = disk.look(path)
    if entry is not None and entry.is_file:
        reader = disk.open_reader(path)
        try:
            size = reader.size()
            if size not in (0, timer_wheel.FILE_SIZE):  # a broker makes an empty one anew
                yield WrongSlot(None, f"the timer wheel has {size} bytes instead of {timer_wheel.FILE_SIZE}")
            numbers, slots = _used(reader)
        finally:
            reader.close()
    first = 0 if check is None else check.last_read_time // counted.precision
    own_due, own_last = slots["due"].astype(np.int64), slots["last"].astype(np.int64)
    waits = own_due >= first
    invalid = waits & ((own_due % timer_wheel.SLOTS != numbers) | (slots["first"] < 0) | (own_last < slots["first"]))
    waits &= ~invalid
    same = waits & (due[numbers] == own_due)
    revised = (due[numbers] >= 0) & read[numbers]
    stale = same & (own_last != last[numbers]) & ~revised
    absent = waits & ~same & ~revised
    for i in np.flatnonzero(invalid | absent | stale).tolist():
        slot, number = TimerSlot(*slots[i].item()), int(numbers[i])
        if invalid[i]:
            yield WrongSlot(number, timer_wheel.fault(slot, number) or "invalid slot")
        elif stale[i]:
            yield WrongSlot(number, f"its last unit is at {int(last[number])}, the slot names {slot.last}")
        else:
            yield WrongSlot(number, f"no unit of its due time is in the timer log, the slot names {slot.last}")
    named = np.zeros(timer_wheel.SLOTS, np.bool_)
    named[numbers[same]] = True
    for number in np.flatnonzero((due >= 0) & ~read & ~named).tolist():
        yield WrongSlot(number, f"its last unit is at {int(last[number])}, the slot does not name it")


def _used(reader: RawFile) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """The slots that are not zeros: their numbers, and slot_dtype()[n]. Holes of the file are not read."""
    import numpy as np

    size = min(reader.size(), timer_wheel.FILE_SIZE)
    numbers, slots = [np.zeros(0, np.int64)], [np.zeros(0, timer_wheel.slot_dtype())]
    done = 0
    for low, high in data_ranges(reader, 0, size):
        start, stop = max(done, low // SLOT_SIZE * SLOT_SIZE), min(size, -(-high // SLOT_SIZE) * SLOT_SIZE)
        for at in range(start, stop, _PIECE):
            piece = reader.read(at, min(_PIECE, stop - at))
            held = timer_wheel.decode_many(piece)
            words = np.frombuffer(piece, np.int64, len(held) * 4).reshape(-1, 4)
            used = np.flatnonzero(words.any(axis=1))
            numbers.append(used + at // SLOT_SIZE)
            slots.append(held[used])
        done = max(done, stop)
    return np.concatenate(numbers), np.concatenate(slots)


def has_timer(disk: Disk, files: StoreFiles, timer: TimerFiles) -> bool:
    """Whether a RocketMQ 5 broker keeps a timer log or wheel here, or did: rstore's own daemon has neither.

    Where both are gone, config/timercheck tells: its broker has taken messages into them. Raises StorageError.
    """
    wheel = disk.look(os.path.join(files.root, names.TIMER_WHEEL))
    has_log = bool(timer.files or timer.odd) or disk.is_dir(os.path.join(files.root, names.TIMER_LOG))
    return has_log or (wheel is not None and wheel.is_file) or _has_taken_some(disk, files)


def _has_taken_some(disk: Disk, files: StoreFiles) -> bool:
    with contextlib.suppress(FormatError):  # it tells nothing
        check = read_timer_check(disk, files)
        return check is not None and check.queue_offset > 0
    return False


def _read_from(timer: TimerFiles, check: TimerCheck | None) -> int:
    """Where a broker that starts begins to read the timer log (bytes)."""
    flushed = 0 if check is None else check.last_timer_log_flush_pos
    begin = max(0, flushed - timer.size)
    before = [one.offset for one in timer.files if one.offset <= begin]
    return max(before, default=timer.files[0].offset if timer.files else 0)


def place_of(number: int | None) -> str:
    """How a slot's place is written."""
    return names.TIMER_WHEEL if number is None else f"{names.TIMER_WHEEL} at {number * SLOT_SIZE}"
