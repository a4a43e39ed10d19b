"""Messages a second, at most, for all that send together: the rule of every `--rate`.

What was late is made up for, up to `_LATE_S` of it: without that each wait that ends a little late would lower the
rate. What is later than that is not: after a broker was away for a minute, nobody sends a minute's messages at once.
"""

from __future__ import annotations

import asyncio
import time

_LATE_S = 0.1


class Pace:
    """See the module. `rate`: messages a second; None: as fast as they are taken."""

    def __init__(self, rate: float | None) -> None:
        self._each_s = 0.0 if rate is None else 1.0 / rate
        self._due: float | None = None

    def begin(self, now: float, count: int) -> float:
        """When so many may be sent, asked at `now`; both of a monotonic clock, in s."""
        begin = now if self._due is None else max(self._due, now - _LATE_S)
        self._due = begin + count * self._each_s
        return max(begin, now)

    async def wait(self, count: int = 1) -> None:
        """Until so many may be sent."""
        if self._each_s:
            now = time.monotonic()
            await asyncio.sleep(self.begin(now, count) - now)
