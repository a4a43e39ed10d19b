"""Delay levels: messageDelayLevel, and where a delayed message waits (Apache ScheduleMessageService)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import InvalidArgument
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int, wrap_long

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The levels of a store: level n (from 1) waits `millis[n - 1]` ms."""

    millis: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS) -> DelayLevels:
        """Levels from a setting like "1s 5s 1m 2h". Source: ScheduleMessageService#parseDelayLevel.

        Raises:
            InvalidArgument: a word is no time.
        """
        try:
            return cls(tuple(parse_int(word[:-1], LONG_MIN, LONG_MAX) * _UNITS[word[-1]] for word in text.split(" ")))
        except (ValueError, KeyError, IndexError):
            raise InvalidArgument(
                f"messageDelayLevel is not a list of times: {text!r}", hint="like 1s 5s 1m 2h"
            ) from None

    @property
    def max_level(self) -> int:
        """The highest level; a message asking for more waits this long."""
        return len(self.millis)

    def clamp(self, level: int) -> int:
        """The level that a message asking for `level` gets."""
        return min(level, self.max_level)

    def deliver_timestamp(self, level: int, store_timestamp: int) -> int:
        """When (ms) a message of that level is due. Source: ScheduleMessageService#computeDeliverTimestamp."""
        return wrap_long(store_timestamp + self.millis[self.clamp(level) - 1])


def queue_of_level(level: int) -> int:
    """Queue of SCHEDULE_TOPIC_XXXX where a level waits. Source: ScheduleMessageService#delayLevel2QueueId."""
    return level - 1
