"""What is made of what a broker tells of itself: the one that took over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from engine.client.master_tables import number
from engine.config import BrokerRole
from engine.errors import PeerLost
from engine.wire.address import parse_address

if TYPE_CHECKING:
    from engine.client.remote_broker import BrokerFacts
    from engine.rewind.divergence import OtherLog

_TRIES = 5
_PAUSE_S = 0.1
_PUT_WAITS_MS = 5000
"""Default of syncFlushTimeout; slaveTimeout's is less."""


def is_slave(facts: BrokerFacts) -> bool:
    """Whether it says that it is one."""
    return facts.role == BrokerRole.SLAVE.value


def ha_address(facts: BrokerFacts) -> str:
    """`host:port` of its replication service."""
    host, _ = parse_address(facts.address)
    return f"[{host}]:{facts.ha_port}" if ":" in host else f"{host}:{facts.ha_port}"


def settle_s(facts: BrokerFacts) -> float:
    """Seconds after which no put waits any more whose message lies before the end that it told.

    A SYNC_MASTER of Apache's takes the place that a reader begins at for a slave's confirmation (ha_reader.py). One
    that does not say its role counts as one. Source: CommitLog#submitReplicaRequest (4.9.8).
    """
    if facts.role not in ("", BrokerRole.SYNC_MASTER.value):
        return 0.0
    limits = (number(facts.settings, name) or 0 for name in ("syncFlushTimeout", "slaveTimeout"))
    return max(_PUT_WAITS_MS, *limits) / 1000 + 1


def facts_json(facts: BrokerFacts) -> dict[str, Any]:
    """One object."""
    return {
        "broker": facts.address,
        "ha": ha_address(facts),
        "minOffset": facts.start,
        "maxOffset": facts.end,
        "brokerRole": facts.role or None,
    }


class PatientLog:
    """Another log whose connection may be lost now and then: it is asked again. Raises as `OtherLog`."""

    def __init__(self, log: OtherLog) -> None:
        self._log = log

    def read(self, offset: int, length: int) -> bytes:
        """See OtherLog."""
        for attempt in range(_TRIES - 1):
            try:
                return self._log.read(offset, length)
            except PeerLost:  # a master closes one that comes while those before it are closing
                time.sleep(_PAUSE_S * (1 << attempt))
        return self._log.read(offset, length)
