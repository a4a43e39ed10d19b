"""Brokers that were slow or failed are passed over for a while: Apache's table of penalties. No I/O, no clock.

Source: MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from __future__ import annotations

from engine.dataclass import dataclass

_LATENCY_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
_PENALTY_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
_FAILED_MS = 30_000
"""How slow a broker that failed counts."""


def penalty_ms(latency_ms: int, *, failed: bool = False) -> int:
    """For how long a broker is passed over after an answer that took `latency_ms`, or a failure."""
    if failed:
        latency_ms = _FAILED_MS
    reached = [penalty for limit, penalty in zip(_LATENCY_MS, _PENALTY_MS, strict=True) if latency_ms >= limit]
    return reached[-1] if reached else 0


@dataclass(frozen=True, slots=True)
class _Fault:
    latency_ms: int
    until_ms: int


class FaultTable:
    """Latency and penalty of each broker that was sent to. Times in ms, of any one clock."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def note(self, broker: str, latency_ms: int, now_ms: int, *, failed: bool = False) -> None:
        """A send to this broker took so long, or failed."""
        self._faults[broker] = _Fault(latency_ms, now_ms + penalty_ms(latency_ms, failed=failed))

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Whether nothing speaks against this broker now."""
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.until_ms

    def forget(self, broker: str) -> None:
        """The broker is no longer there."""
        self._faults.pop(broker, None)

    def least_bad(self, now_ms: int) -> str | None:
        """One of the better half of the brokers that are known, each in turn; None: none is."""
        ranked = sorted(
            self._faults.items(), key=lambda one: (now_ms < one[1].until_ms, one[1].latency_ms, one[1].until_ms)
        )
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(len(ranked) // 2, 1)][0]
