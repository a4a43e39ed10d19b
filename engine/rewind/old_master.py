"""Whether the master that a slave takes over from is still there: two masters of one name part their messages."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import PeerLost, RStoreError
from engine.wire.address import parse_address

if TYPE_CHECKING:
    from engine.client.remote_broker import BrokerFacts, RemoteBroker

_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True)
class OldMaster:
    """What is known of it.

    Attributes:
        address: `host:port` of its broker, or of its replication service; None: nobody said where it is.
        answers: whether somebody does there.
        facts: what it said of itself.
    """

    address: str | None = None
    answers: bool = False
    facts: BrokerFacts | None = None

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "address": self.address,
            "answers": self.answers,
            "maxOffset": None if self.facts is None else self.facts.end,
        }


def look_for(broker: RemoteBroker | None, service: str) -> OldMaster:
    """Ask whether it is there.

    Args:
        broker: the old master's broker, where it is known.
        service: `host:port` of its replication service (haMasterAddress), "" where that is not known either.
    """
    if broker is not None:
        try:
            facts = broker.facts()
        except PeerLost:
            return OldMaster(broker.address)
        except RStoreError:  # an answer, of whatever kind
            return OldMaster(broker.address, answers=True)
        return OldMaster(broker.address, answers=True, facts=facts)
    if not service:
        return OldMaster()
    with suppress(OSError), socket.create_connection(parse_address(service), _CONNECT_S):
        return OldMaster(service, answers=True)
    return OldMaster(service)
