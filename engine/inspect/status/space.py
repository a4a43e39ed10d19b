"""Space by topic and by hour of store time: from the consume queues and a few looks at the log, never a scan of it.

An hour's bytes are those of the log between two places (blanks and what is in no queue included), and exact. What a
topic has in an hour is known from its units, which point into one of these ranges. Memory is bounded by topics × hours.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.inspect.status.queue_space import QueueSpace
    from engine.inspect.store.log_clock import LogClock
    from engine.log.source import Segment

HOUR_MS = 3_600_000
ALL_HOURS = 24 * 366
"""So many hours are distinguished at most: a store time that is wrong by centuries must not cost as many places."""
OLDER = 0
"""Stands for the hours before those that are distinguished."""


@dataclass(slots=True)
class Hour:
    """A range of the log. `start`: when it begins (ms, a whole hour of UTC), OLDER for all before. `size`: bytes."""

    start: int
    offset: int
    size: int = 0
    messages: int = 0

    def to_json(self, *, counted: bool = True) -> dict[str, Any]:
        """One line of "hours"; its messages are null where nothing counted them."""
        messages = self.messages if counted else None
        return {"hour": self.start, "physicalOffset": self.offset, "bytes": self.size, "messages": messages}


@dataclass(slots=True)
class TopicSpace:
    """A topic's part of the log, by its queues: messages and their bytes (an estimate for very long queues).

    `hours`: start of the hour (ms) → [messages, bytes], where there are any.
    """

    topic: str
    queues: int = 0
    messages: int = 0
    size: int = 0
    estimated: bool = False
    hours: dict[int, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One line of "topics"."""
        return {
            "topic": self.topic,
            "queues": self.queues,
            "messages": self.messages,
            "bytes": self.size,
            "estimated": self.estimated,
            "hours": [{"hour": h, "messages": m, "bytes": b} for h, (m, b) in sorted(self.hours.items())],
        }


class SpaceSum:
    """Adds up queues. `starts`: int64[ranges], the physical offsets at which the hours begin."""

    def __init__(self, hours: Sequence[Hour]) -> None:
        import numpy as np

        self.hours = list(hours)
        self.topics: dict[str, TopicSpace] = {}
        self.estimated = False
        self.starts: NDArray[np.int64] = np.array([h.offset for h in hours], dtype=np.int64)

    def topic(self, name: str) -> TopicSpace:
        """The space of a topic, none so far when it is new."""
        return self.topics.setdefault(name, TopicSpace(name))

    def add(self, topic: str, queue: QueueSpace) -> None:
        """One more queue of a topic."""
        space = self.topic(topic)
        space.messages += queue.max_offset - queue.min_offset if queue.estimated else int(queue.messages.sum())
        space.size += int(queue.sizes.sum())
        space.estimated |= queue.estimated
        self.estimated |= queue.estimated
        for i in queue.messages.nonzero()[0].tolist():
            hour = self.hours[i]
            messages, size = int(queue.messages[i]), int(queue.sizes[i])
            hour.messages += messages
            cell = space.hours.setdefault(hour.start, [0, 0])
            cell[0] += messages
            cell[1] += size

    def by_size(self) -> list[TopicSpace]:
        """The topics, the largest first."""
        return sorted(self.topics.values(), key=lambda t: (-t.size, t.topic))


def hours_of(clock: LogClock | None, segments: Sequence[Segment], oldest: int, newest: int, most: int) -> list[Hour]:
    """The ranges of the log: the last `most` hours up to that of `newest`, before them one for all OLDER ones.

    Args:
        clock: None without a log: then there is one range, which holds everything.
        segments: of the log, by offset.
        oldest, newest: store times (ms) of the log's first and last message.
        most: how many hours are distinguished.
    """
    hours = [Hour(OLDER, 0 if clock is None else clock.start)]
    if clock is None or newest <= 0:
        return hours
    last = newest // HOUR_MS
    first = max(last - most + 1, max(oldest, 0) // HOUR_MS)
    for number in range(first, last + 1):
        start = number * HOUR_MS
        # The log's first record is of this hour, too, when nothing older is there.
        place = clock.start if number == first and start <= oldest else clock.offset_of(start)
        hours.append(Hour(start, max(place, hours[-1].offset)))
    ends = [hour.offset for hour in hours[1:]] + [clock.end]
    for hour, end in zip(hours, ends, strict=True):
        hour.size = covered(segments, hour.offset, end)
    return hours


def covered(segments: Sequence[Segment], start: int, end: int) -> int:
    """Bytes of [start, end) of the log that segments hold."""
    return sum(max(0, min(s.end, end) - max(s.offset, start)) for s in segments)
