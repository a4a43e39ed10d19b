"""How far timer messages are delivered, by the log: where timerProgress.json is not there, or is of a longer log.

A log that was cut (`recover --cut`, `truncate`, `rewind`, a restore to a moment, a power failure) has lost copies that
were delivered: their messages wait again. What waits is what has no copy in the log (inspect/store/timer_pending.py).
As messages are delivered in the order of their times, what was due before the first of them is delivered; some of those
due later, in the same second, or that were sent when their time was near, come a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.put.timer_timing import timing_of
from engine.format import names, properties
from engine.format.queue_unit import UNIT, UNIT_SIZE
from engine.format.timer_progress import TimerProgress
from engine.format.timer_wheel import PRECISION_MS
from engine.inspect.store.timer_pending import pending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.inspect.store.timer_pending import Row
    from engine.store import MessageStore

_DISPATCH_MS = 60_000
_AT_ONCE = 1024


def progress_of_log(store: MessageStore, now_ms: int) -> TimerProgress:
    """Of the store as it is. Raises StorageError."""
    store.wait_dispatched(_DISPATCH_MS)
    rows = list(_rows(store))
    if not rows:
        return TimerProgress()
    end = rows[-1][0] + 1
    waiting = pending(store.log, store.config, rows, store.log.max_offset, PRECISION_MS).messages
    due = now_ms
    for one in waiting:
        timing = timing_of({properties.TIMER_OUT_MS: str(one.deliver_time)}, one.store_time)
        if timing is not None:
            due = min(due, timing.event - 1 if timing.rolls else one.deliver_time)
    return TimerProgress(due, end, waiting[0].queue_offset if waiting else end)


def _rows(store: MessageStore) -> Iterator[Row]:
    queue = store.find_queue(names.TIMER_TOPIC, 0)
    at = 0 if queue is None else queue.min_offset
    while queue is not None and (selected := queue.select(at, _AT_ONCE)) is not None:
        with selected:
            units = bytes(selected.view[: selected.size // UNIT_SIZE * UNIT_SIZE])
        if not units:
            return
        for physical, size, _ in UNIT.iter_unpack(units):
            yield at, physical, size
            at += 1
