"""How far each group has popped each queue: what the next pop begins at, and what is committed as its offset.

A queue's offset is committed when the checkpoints of all that was given before it are stored; what was given meanwhile
is known here alone, so that it comes again after a crash.

Source: PopMessageProcessor#getPopOffset, #getInitOffset, PopBufferMergeService#getLatestOffset (5.3.3).
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names

if TYPE_CHECKING:
    from engine.broker.tables.offsets import ConsumerOffsets
    from engine.store import MessageStore

FIRST = 0
"""initMode: a group without an offset begins at the first message. Source: ConsumeInitMode#MIN."""


@dataclass(slots=True, eq=False)
class PopSpan:
    """What one pop took of a queue: the offsets from `start` on, before `end`. `stored`: so is its checkpoint."""

    start: int
    end: int
    stored: bool = False


@dataclass(slots=True)
class _Line:
    spans: deque[PopSpan] = field(default_factory=deque)


class PopPositions:
    """See the module. For the loop's thread alone."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._offsets = offsets
        self._lines: dict[tuple[str, str, int], _Line] = {}

    def next(self, topic: str, group: str, queue_id: int, mode: int = FIRST, *, begins: bool = True) -> int:
        """Where the next pop begins. `mode`: initMode; `begins`: a group without an offset has it from now on."""
        offset = self._offsets.get(group, topic, queue_id)
        if offset is None:
            offset = self._first(topic, queue_id, mode)
            if begins:
                self._offsets.commit(group, topic, queue_id, offset)
        line = self._lines.get((topic, group, queue_id))
        return max(offset, line.spans[-1].end) if line is not None else offset

    def take(self, topic: str, group: str, queue_id: int, start: int, end: int) -> PopSpan:
        """A pop takes what lies in [start, end)."""
        span = PopSpan(start, end)
        self._lines.setdefault((topic, group, queue_id), _Line()).spans.append(span)
        return span

    def stored(self, topic: str, group: str, queue_id: int, span: PopSpan) -> None:
        """The checkpoint of it is stored: the offset is committed, as far as those before are."""
        span.stored = True
        key = (topic, group, queue_id)
        line = self._lines.get(key)
        if line is None:
            return
        while line.spans and line.spans[0].stored:
            self._offsets.commit(group, topic, queue_id, line.spans.popleft().end)
        if not line.spans:
            del self._lines[key]

    def settle(self, topic: str, group: str, queue_id: int, offset: int) -> PopSpan:
        """A pop in order begins there: that is the group's offset, until what it took is acknowledged."""
        self._offsets.commit(group, topic, queue_id, offset)
        return PopSpan(offset, offset, stored=True)

    def failed(self, topic: str, group: str, queue_id: int, span: PopSpan) -> None:
        """It could not be stored: nothing of it was given, and it is popped again, with what was taken after it."""
        line = self._lines.get((topic, group, queue_id))
        if line is None or span not in line.spans:
            return
        while line.spans and line.spans[-1] is not span:
            line.spans.pop()
        line.spans.pop()
        if not line.spans:
            del self._lines[topic, group, queue_id]

    def _first(self, topic: str, queue_id: int, mode: int) -> int:
        low = self._store.min_offset(topic, queue_id)
        if mode == FIRST or topic.startswith(names.RETRY_PREFIX):
            return max(0, low)
        if low <= 0 and not self._store.is_cold(topic, queue_id, 0):
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)
