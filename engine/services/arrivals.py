"""What can be pulled now, and who is told of it (Apache MessageArrivingListener)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.log.derive import QueueNumbers, Units


class Arrival(NamedTuple):
    """A message that can be pulled now. Source: MessageArrivingListener#arriving.

    `next_offset` is the queue offset after it; times in ms; its properties lie in the log at `physical_offset`.
    """

    topic: str
    queue_id: int
    next_offset: int
    tags_code: int
    store_timestamp: int
    physical_offset: int
    size: int


Listener = Callable[[Sequence[Arrival]], None]
"""Called with what arrived, in log order, by who dispatches: it must not block."""

Wanted = Callable[[], bool]
"""Whether a listener would do anything with what arrives; asked by who dispatches or puts, without a lock that puts
take. Who begins to want it calls `listened`."""


class Listeners:
    """Who listens. Thread-safe."""

    def __init__(self) -> None:
        self._all: tuple[tuple[Listener, Wanted], ...] = ()

    def add(self, listener: Listener, wanted: Wanted) -> None:
        """Tell `listener` of everything that arrives from now on, while it is `wanted`."""
        self._all = (*self._all, (listener, wanted))

    @property
    def any_wanted(self) -> bool:
        """Whether anybody would do anything with what arrives."""
        return any(wanted() for _, wanted in self._all)

    def announce(self, units: Units, numbers: QueueNumbers) -> list[Exception]:
        """Tell those who want it of a batch. Returns what their calls raised, which keeps nothing from the others."""
        failures: list[Exception] = []
        listeners = [listener for listener, wanted in self._all if wanted()]
        if not listeners or not len(units):
            return failures
        columns = (units.queue, units.queue_offset, units.tags_code, units.store_timestamp, units.physical_offset)
        arrivals = [
            Arrival(*numbers[number], offset + 1, tags, time, physical, size)
            for number, offset, tags, time, physical, size in zip(
                *(column.tolist() for column in columns), units.size.tolist(), strict=True
            )
        ]
        for listener in listeners:
            try:
                listener(arrivals)
            except Exception as error:  # noqa: BLE001 - a listener is not ours; dispatch must continue
                failures.append(error)
        return failures
