"""What is listened on, and whether clients can reach what they are told; a port that is taken, with what sets it."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.broker.settings import BrokerSettings

BROKER = "--port or listenPort"
VIP = "--port or listenPort: the VIP port is two below"
NAMES = "--names-port, or --no-names"
METRICS = "--metrics-port"
"""What sets a port, as messages name it."""
_OF_ALL = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Instead of every address of a machine one that a browser takes."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where clients find us: what they are told. `metrics`: where who watches does; `ha`: where a master's slaves do.

    `host`: the address that is listened on.
    """

    broker: str
    names: str | None
    metrics: str | None = None
    ha: str | None = None
    host: str = ""

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


def joined(host: str, port: int | str) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def binding(host: str, port: int, option: str) -> Iterator[None]:
    """A port is opened inside. Raises StorageError with the port, the system's reason and what sets it."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
        unknown = number == errno.EADDRNOTAVAIL or number <= 0
        hint = "--listen takes an address of this machine" if unknown else f"another port: {option}"
        raise StorageError(f"can't listen on {joined(host, port)}: {reason}", hint=hint) from None


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unreachable(settings: BrokerSettings, told: str) -> str | None:
    """Why clients of other machines can't reach what they are told; None: they can, or none are meant to.

    Apache's broker listens on every address, and finds out one to tell; ours on 127.0.0.1, and tells that.
    """
    here, said = is_loopback(settings.listen_host), is_loopback(settings.broker_ip1)
    if here and not said:
        return f"clients are told {told}, and only {settings.listen_host} is listened on: add --listen 0.0.0.0"
    if said and not here:
        return f"clients are told {told}, which only this machine reaches: brokerIP1 takes an address that they reach"
    return None
