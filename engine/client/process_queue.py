"""Messages of one queue that were pulled and are not consumed yet. No I/O, no clock.

The offset that a group may commit is that of the oldest message which is still here, or after the newest that ever was:
what comes back after a crash is consumed again, and nothing is passed over. Source: ProcessQueue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from engine.client.messages import ReceivedMessage
from engine.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """From when on nothing more is pulled. Source: DefaultMQPushConsumer#pullThreshold…, #consumeConcurrentlyMaxSpan.

    Attributes:
        messages, size: of a queue, waiting or being consumed; bytes of bodies as they are stored.
        span: between the oldest and the newest of them; not for ordered consumption.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """See the module. For one loop.

    Attributes:
        dropped: another consumer has the queue now: nothing more is committed.
        size: bytes of bodies, as they are stored.
        pulled_ms, consumed_ms: when something was, ms since 1970; 0: never.
    """

    def __init__(self) -> None:
        self.dropped = False
        self.pulled_ms = self.consumed_ms = 0
        self.size = 0
        self._waiting: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._taken: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._newest = -1

    def __len__(self) -> int:
        """Messages that are not consumed."""
        return len(self._waiting) + len(self._taken)

    @property
    def has_waiting(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._waiting)

    @property
    def span(self) -> int:
        """From the oldest to the newest, in queue offsets."""
        if not self._waiting:
            return 0
        return next(reversed(self._waiting)) - next(iter(self._waiting))

    def bounds(self) -> tuple[int, int] | None:
        """The first and the last offset; None when it is empty."""
        held = [*self._ends(self._taken), *self._ends(self._waiting)]
        return (min(held), max(held)) if held else None

    @staticmethod
    def _ends(held: OrderedDict[int, ReceivedMessage]) -> tuple[int, ...]:
        return (next(iter(held)), next(reversed(held))) if held else ()

    def is_full(self, limits: FlowLimits, *, ordered: bool) -> bool:
        """Whether to pull nothing more for a while."""
        too_many = len(self) > limits.messages or self.size > limits.size
        return too_many or (not ordered and self.span > limits.span)

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        """Messages that were pulled, in the order of their offsets; one that is here already counts once."""
        for message in messages:
            offset = message.queue_offset
            if offset not in self._waiting and offset not in self._taken:
                self.size += len(message.stored.body)
            self._waiting[offset] = message
            self._newest = max(self._newest, offset)

    def remove(self, messages: Sequence[ReceivedMessage]) -> int | None:
        """They are consumed: the offset that may be committed; None where nothing was here any more."""
        if not self._waiting:
            return None
        for message in messages:
            gone = self._waiting.pop(message.queue_offset, None)
            if gone is not None:
                self.size -= len(gone.stored.body)
        return next(iter(self._waiting)) if self._waiting else self._newest + 1

    # --- in order -----------------------------------------------------------------------------------------------------

    def take(self, most: int) -> list[ReceivedMessage]:
        """The next messages, to be consumed in order: held until `commit` or `put_back`."""
        taken: list[ReceivedMessage] = []
        while self._waiting and len(taken) < most:
            offset, message = self._waiting.popitem(last=False)
            self._taken[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int | None:
        """What was taken is consumed: the offset to commit; None where nothing was taken."""
        if not self._taken:
            return None
        last = next(reversed(self._taken))
        self.size -= sum(len(message.stored.body) for message in self._taken.values())
        self._taken.clear()
        return last + 1

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Of what was taken these wait again, first of all; the rest is consumed."""
        for message in messages:
            self._taken.pop(message.queue_offset, None)
        self.size -= sum(len(message.stored.body) for message in self._taken.values())
        self._taken.clear()
        for message in reversed(messages):
            self._waiting[message.queue_offset] = message
            self._waiting.move_to_end(message.queue_offset, last=False)
