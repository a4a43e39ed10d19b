"""Which brokers there are, by cluster and name, as name servers know them. No I/O. Source: ClusterInfo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.admin.known import demand_known
from engine.client.routes import MASTER, addresses
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NoRoute

if TYPE_CHECKING:
    from engine.wire.peer_object import PeerObject


@dataclass(frozen=True, slots=True, order=True)
class BrokerAt:
    """One broker: where it is registered. `address`: `host:port`."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def __str__(self) -> str:
        """As plans and errors name it."""
        return f"{self.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """See the module. `brokers`: all, sorted by cluster, name and id."""

    brokers: tuple[BrokerAt, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clusters."""
        return tuple(dict.fromkeys(one.cluster for one in self.brokers))

    def demand_cluster(self, cluster: str) -> None:
        """Raises InvalidArgument: there is none of this name."""
        demand_known("cluster", cluster, self.names)

    def selected(self, cluster: str | None = None, broker: str | None = None) -> tuple[BrokerAt, ...]:
        """The brokers of a cluster, or of one broker name or address; all where neither is given.

        Raises:
            InvalidArgument: no such cluster or broker.
        """
        chosen = self.brokers
        if cluster is not None:
            self.demand_cluster(cluster)
            chosen = tuple(one for one in chosen if one.cluster == cluster)
        if broker is not None:
            if all(broker != one.address for one in chosen):
                demand_known("broker", broker, tuple(dict.fromkeys(one.name for one in chosen)))
            chosen = tuple(one for one in chosen if broker in (one.name, one.address))
        return chosen

    def masters(self, cluster: str | None = None, broker: str | None = None) -> tuple[BrokerAt, ...]:
        """The masters among them.

        Raises:
            InvalidArgument: no such cluster or broker. NoRoute: no master is registered there.
        """
        chosen = tuple(one for one in self.selected(cluster, broker) if one.broker_id == MASTER)
        if not chosen:
            raise NoRoute("no master is registered" + ("" if broker is None else f" as {broker}"))
        return chosen

    def changed(self, cluster: str | None, broker: str | None) -> tuple[BrokerAt, ...]:
        """The masters that a change goes to: those of the only cluster where neither is given.

        Raises:
            InvalidArgument: no such cluster or broker; or there are several clusters. NoRoute.
        """
        if cluster is None and broker is None and len(self.names) > 1:
            raise InvalidArgument(
                f"there are several clusters: {', '.join(self.names)}", hint="--cluster NAME or --broker NAME"
            )
        return self.masters(cluster, broker)


def parse_cluster_map(body: PeerObject) -> ClusterMap:
    """The map of a name server's answer.

    Raises:
        FormatError: it is none.
    """
    clusters, table = body.part("clusterAddrTable"), body.table("brokerAddrTable")
    brokers = [
        BrokerAt(cluster, name, number, address)
        for cluster in clusters.fields
        for name in clusters.texts(cluster)
        if name in table
        for number, address in addresses(table[name]).items()
    ]
    return ClusterMap(tuple(sorted(brokers)))
