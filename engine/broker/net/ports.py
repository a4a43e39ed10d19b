"""What is listened on, and whether clients can reach what they are told; a port that is taken, with what sets it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, StorageError
from engine.format.hosts import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.broker.settings.broker_settings import BrokerSettings

BROKER = "--port or listenPort"
VIP = "two below --port or listenPort"
HA = "one above --port or listenPort"
NAMES = "--names-port, or --no-names"
METRICS = "--metrics-port"
"""What sets a port, as messages name it."""
VIP_BELOW = 2
HA_ABOVE = 1
"""Where the ports lie that go by the broker's. Source: BrokerController#initialize (listenPort - 2),
BrokerStartup#createBrokerController (listenPort + 1)."""
_HIGHEST = 65535
_OF_ALL = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Instead of every address of a machine one that a browser takes."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where clients find us: what they are told. `metrics`: where who watches does; `ha`: where a master's slaves do.

    `host`: the address that is listened on; `ha_host`: for slaves.
    """

    broker: str
    names: str | None
    metrics: str | None = None
    ha: str | None = None
    host: str = ""
    ha_host: str = ""

    @property
    def ha_bound(self) -> str | None:
        """Where a master's service listens."""
        return None if self.ha is None else joined(self.ha_host, self.ha.rpartition(":")[2])

    @property
    def bound(self) -> str:
        """Where the broker listens."""
        return joined(self.host, self.broker.rpartition(":")[2])

    @property
    def url(self) -> str | None:
        """Where a browser of this machine finds what there is to be watched."""
        if self.metrics is None:
            return None
        host, _, port = self.metrics.rpartition(":")
        return f"http://{_OF_ALL.get(host, host)}:{port}/"

    @property
    def names_bound(self) -> str | None:
        """Where the name service does."""
        return None if self.names is None else joined(self.host, self.names.rpartition(":")[2])


def ha_host(settings: BrokerSettings) -> str:
    """Where a master's service listens: on loopback, once who may use the daemon is said, and not who may copy."""
    ha, host = settings.ha, settings.listen_host
    if ha.listen:
        return ha.listen
    if settings.is_guarded and not ha.allow and not ha.tls and not is_loopback(host):
        return "::1" if ":" in host else "127.0.0.1"
    return host


def ha_open_to_all(settings: BrokerSettings) -> str | None:
    """Why everybody who reaches the replication port gets the log while an ACL or TLS is on; None: not everybody."""
    ha = settings.ha
    shown = ha.tls and settings.tls.demands_certificates
    if not settings.is_guarded or ha.allow or shown or is_loopback(ha_host(settings)):
        return None
    by = "with TLS, but without certificates of slaves" if ha.tls else "in plain text"
    return f"replication listens on {ha_host(settings)} {by}: whoever connects gets the log; set haAllow"


def joined(host: str, port: int | str) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def binding(host: str, port: int, option: str) -> Iterator[None]:
    """A port is opened inside. Raises StorageError with the port, the system's reason and what sets it."""
    try:
        yield
    except UnicodeError:  # of the codec for names of hosts
        hint = "use --listen with an address of this machine"
        raise StorageError(f"cannot listen on {joined(host, port)}: not the name of a host", hint=hint) from None
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
        unknown = number == errno.EADDRNOTAVAIL or number <= 0
        hint = "use --listen with an address of this machine" if unknown else f"use another port: {option}"
        if number == errno.EADDRINUSE:
            hint = f"ss -ltnp 'sport = :{port}' shows the process that has it; {hint}"
        raise StorageError(f"cannot listen on {joined(host, port)}: {reason}", hint=hint) from None


def demand_free(settings: BrokerSettings, *, is_slave: bool) -> None:
    """Look whether each port that the settings name can be listened on, before a store is opened or made for it.

    Nothing is listened on: a client that comes now is refused as before. Who takes a port between this look and
    `binding` is told there.

    Raises:
        StorageError: a port is in use or not allowed. InvalidArgument: an invalid port, or one that is used twice.
    """
    by_port: dict[int, str] = {}
    for port, option in _fixed(settings, is_slave=is_slave):
        if not 0 <= port <= _HIGHEST:
            raise InvalidArgument(f"invalid port {port} ({option})")
        if by_port.setdefault(port, option) != option:
            raise InvalidArgument(f"port {port} is used twice: {by_port[port]}, and {option}")
    for port, option in by_port.items():
        host = ha_host(settings) if option == HA else settings.listen_host
        with binding(host, port, option):
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            addresses = dict.fromkeys((one[0], one[4]) for one in resolved)
            for family, address in addresses:
                _look(family, address, only=len(addresses) == 1)


def _fixed(settings: BrokerSettings, *, is_slave: bool) -> Iterator[tuple[int, str]]:
    """The ports that are told, with what sets each; 0 is any free one."""
    broker = settings.listen_port
    if broker:
        yield broker, BROKER
        yield broker - VIP_BELOW, VIP
        if not is_slave:
            yield broker + HA_ABOVE, HA
    for port, option in ((settings.name_service_port, NAMES), (settings.metrics_port, METRICS)):
        if port:
            yield port, option


def _look(family: int, address: Any, *, only: bool) -> None:
    """Bind and let go, as a listener of asyncio binds. Raises OSError.

    Where a name has more than this address, a machine need not have it: `localhost` is ::1 without IPv6, too.
    """
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        if only or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise


def unreachable(settings: BrokerSettings, address: str) -> str | None:
    """Why clients of other machines can't reach what they are told; None: they can, or none are meant to.

    Apache's broker listens on every address, and finds out one to tell; ours on 127.0.0.1, and tells that.
    """
    here, ip_is_loopback = is_loopback(settings.listen_host), is_loopback(settings.broker_ip1)
    if here and not ip_is_loopback:
        return (
            f"clients get the address {address}, but only {settings.listen_host} is listened on: add --listen 0.0.0.0"
        )
    if ip_is_loopback and not here:
        return f"clients get the address {address}, which only this machine can reach: set brokerIP1 to another one"
    return None
