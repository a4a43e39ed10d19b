"""config/timerProgress.json: how far `rstore serve` has delivered timer messages (BROKER.md 2.8).

Beside config/timercheck of RocketMQ 5, which knows no message that waits before others that were delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import FormatError
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.format.timer_check import TimerCheck

NAMES = ("deliveredUntil", "queueOffset", "first")


class TimerProgress(NamedTuple):
    """All messages before `queue_offset` that were due up to `until_ms` are delivered; none waits before `first`."""

    until_ms: int = 0
    queue_offset: int = 0
    first: int = 0

    def to_json(self) -> dict[str, int]:
        """What the file holds."""
        return dict(zip(NAMES, self, strict=True))

    @classmethod
    def of(cls, table: Mapping[str, object]) -> TimerProgress:
        """What a file, or an answer, says. Raises FormatError: a time or queue offset is not a number."""
        try:
            values = [int(str(table.get(name, 0))) for name in NAMES]
        except ValueError:
            raise FormatError("a time or queue offset is not a number") from None
        if not 0 <= min(values) <= max(values) <= LONG_MAX:
            raise FormatError("a time or queue offset is negative, or more than 64 bits")
        return cls(*values)

    @classmethod
    def of_check(cls, check: TimerCheck) -> TimerProgress:
        """What config/timercheck, or an answer, of RocketMQ 5 says."""
        return cls(check.last_read_time, check.last_timer_queue_offset, 0)
