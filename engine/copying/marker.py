"""The property that a copied message carries: where it was copied from, so that it is never copied back. No I/O.

`RSTORE_COPIED` has a hop for each copy that the message has been through, the last one at the end, separated by commas:

    COPY/CLUSTER/BROKER/HOST:PORT/QUEUE/OFFSET/STORE-TIME

COPY is the id of the copy's offset map, HOST:PORT the address of the source's master, and the store time (ms) is the
one at the source, which no request can give a message. Names are percent-encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COPIED = "RSTORE_COPIED"


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A master of a cluster: what it is called, and its address."""

    cluster: str
    broker: str
    address: str

    @property
    def name(self) -> str:
        """Cluster and broker."""
        return f"{self.cluster}/{self.broker}"


@dataclass(frozen=True, slots=True)
class Hop:
    """One copy that a message has been through. See the module."""

    copy: str
    place: BrokerPlace
    queue_id: int
    offset: int
    store_ms: int

    def __str__(self) -> str:
        place = self.place
        words = (self.copy, place.cluster, place.broker, place.address)
        return "/".join(
            (*(quote(word, safe=":[]") for word in words), f"{self.queue_id}/{self.offset}/{self.store_ms}")
        )


def hops(properties: Mapping[str, str]) -> list[Hop]:
    """The copies that a message has been through; what is no hop is passed over."""
    return [hop for text in properties.get(COPIED, "").split(",") if (hop := _hop(text)) is not None]


def _hop(text: str) -> Hop | None:
    words = text.split("/")
    if len(words) != 7 or not all(word.isascii() and word.isdecimal() for word in words[4:]):
        return None
    copy, cluster, broker, address = map(unquote, words[:4])
    queue_id, offset, store_ms = map(int, words[4:])
    return Hop(copy, BrokerPlace(cluster, broker, address), queue_id, offset, store_ms)


def marked(properties: Mapping[str, str], hop: Hop) -> dict[str, str]:
    """The properties with one hop more."""
    before = properties.get(COPIED)
    return {**properties, COPIED: f"{before},{hop}" if before else str(hop)}


class WayBack:
    """Tells which messages are not to be copied, as they have been at the target or been through this copy.

    Args:
        copy: id of the copy.
        target: the target's masters. They are known by address: of names many clusters have the same ones. A message
            from a broker that has another address now comes back once, and is not copied again.
    """

    def __init__(self, copy: str, target: Iterable[BrokerPlace]) -> None:
        self._copy = copy
        self._addresses = {place.address for place in target}

    def leads_to(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties has been there."""
        if COPIED not in properties:
            return False
        return any(hop.place.address in self._addresses or hop.copy == self._copy for hop in hops(properties))
