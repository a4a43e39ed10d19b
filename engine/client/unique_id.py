"""Ids that a client gives its messages (UNIQ_KEY), in the form of Java's.

    address 4 or 16 · process i2 · maker i4 · ms since the month began i4 · number i2, in upper-case hex

The month is that of the local calendar, as in Java: who reads an id gets the time of its making from it. Source:
MessageClientIDSetter#createUniqID, #getNearlyTimeFromID.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

_INT_MASK, _SHORT_MASK = 0xFFFFFFFF, 0xFFFF
_BACK_MS = 1_000_000
"""A clock that was set back by less makes no negative times."""


class UniqueIds:
    """Makes ids. For one thread.

    Args:
        address: 4 or 16 bytes, of this machine.
        process: its process id; of a larger one the low 16 bits count.
        maker: tells makers in one process apart, 32 bits.
        clock: ms since 1970.
    """

    def __init__(self, address: bytes, process: int, maker: int, clock: Callable[[], int]) -> None:
        self._head = f"{address.hex().upper()}{process & _SHORT_MASK:04X}{maker & _INT_MASK:08X}"
        self._clock = clock
        self._number = 0
        self._month_ms, self._next_month_ms = _month(clock())

    def next(self) -> str:
        """A new id: 32 digits, or 56 of an IPv6 address."""
        now = self._clock()
        if now >= self._next_month_ms:
            self._month_ms, self._next_month_ms = _month(now)
        since = now - self._month_ms
        if -_BACK_MS < since < 0:
            since = 0
        number, self._number = self._number, self._number + 1 & _SHORT_MASK
        return f"{self._head}{since & _INT_MASK:08X}{number:04X}"


def _month(now_ms: int) -> tuple[int, int]:
    """When the month of a time began, and when the next one begins, ms since 1970."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() * 1000), int(following.timestamp() * 1000)
