"""Delay levels: messageDelayLevel, and where a delayed message waits (Apache ScheduleMessageService)."""

from __future__ import annotations

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.numbers import LONG_MAX, LONG_MIN, read_java_int, wrap_long

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LIKE = "times separated by one blank, like 1s 5s 1m 2h"


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The levels of a store: level n (from 1) waits `millis[n - 1]` ms."""

    millis: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS) -> DelayLevels:
        """Levels from a setting like "1s 5s 1m 2h". Source: ScheduleMessageService#parseDelayLevel.

        A setting of blanks alone names no level; Apache's broker starts with it, and puts delayed messages into a queue
        −1 that nobody delivers. It is refused here.

        Raises:
            InvalidArgument: a word is no time, without which Apache's broker does not start, or there is none.
        """
        words = _split(text)
        try:
            levels = cls(tuple(read_java_int(word[:-1], LONG_MIN, LONG_MAX) * _UNITS[word[-1]] for word in words))
        except (ValueError, KeyError, IndexError):
            raise InvalidArgument("messageDelayLevel is not a list of times", hint=_LIKE) from None
        if not words:
            raise InvalidArgument("messageDelayLevel names no level", hint=_LIKE)
        return levels

    @classmethod
    def or_defaults(cls, text: str) -> DelayLevels:
        """For who only reads: the default levels in place of a setting that can't be read, with which no broker ran."""
        try:
            return cls.parse(text)
        except InvalidArgument:
            return cls.parse()

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


def _split(text: str) -> list[str]:
    """Source: String#split(" "), which leaves out empty words at the end."""
    words = text.split(" ")
    while len(text) > 0 and words and not words[-1]:
        words.pop()
    return words
