"""Whom `rstore serve` would let in with a broker's properties file, and which of its options open or close what.

The file alone does not say it: by default the daemon listens on this machine only, and its options override the file.
It is judged by what the daemon itself goes by (`BrokerSettings`, `ports`, `AccessSettings`), TLS's own file included
(Apache's `tls.config.file`; TlsSystemConfig, TlsHelper). Nothing is started, and nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.broker.access import AccessSettings
from engine.broker.net import ports
from engine.broker.settings.broker_settings import BrokerSettings
from engine.broker_conf.properties import read_properties
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, RStoreError
from engine.format.hosts import is_loopback

if TYPE_CHECKING:
    from engine.files.disk import Disk

_EVERYWHERE = "0.0.0.0"
_CERTIFICATES = "--tls-mode enforcing with --tls-client-auth require"


@dataclass(frozen=True, slots=True)
class Door:
    """One of the daemon's ports, once --listen names an address of the network.

    Attributes:
        port: clients, replication or names.
        open: everybody who reaches it gets what it has.
        who: who gets in, one sentence.
        opens, closes: options of rstore serve that let more in, or fewer; each a phrase.
    """

    port: str
    open: bool
    who: str
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """One line of "ports"."""
        return {"port": self.port, "open": self.open, "who": self.who, "opens": [*self.opens], "closes": [*self.closes]}


@dataclass(frozen=True, slots=True)
class Outlook:
    """See the module. `why`: what keeps the daemon from starting with the file on this machine; None: nothing seen."""

    doors: tuple[Door, ...]
    why: str | None

    def to_json(self) -> dict[str, Any]:
        """The "daemon" of doctor."""
        return {"starts": self.why is None, "why": self.why, "ports": [door.to_json() for door in self.doors]}


def outlook(disk: Disk, path: str) -> Outlook | None:
    """What is to be known of the file; None: it is no properties file. Raises StorageError: it can't be read."""
    try:
        written = read_properties(disk.read_file(path)).values
    except InvalidArgument:
        return None
    is_slave = written.get("brokerRole", "").strip() == "SLAVE"
    try:
        settings = BrokerSettings.of(written)
        AccessSettings.of(settings, logging.getLogger("rstore.doctor"), is_slave=is_slave)
    except RStoreError as error:
        return Outlook((), str(error))
    return Outlook(doors(settings, written, is_slave=is_slave), None)


def doors(settings: BrokerSettings, written: Mapping[str, str], *, is_slave: bool) -> tuple[Door, ...]:
    """Each port with these settings. `written`: the file's keys."""
    away = replace(settings, listen_host=_EVERYWHERE)
    ports = [_clients(away)]
    if not is_slave:
        ports.append(_replication(away))
    if not written.get("namesrvAddr", "").strip():
        ports.append(_names(away))
    return tuple(ports)


def _clients(away: BrokerSettings) -> Door:
    lost = away.open_to_all
    if lost is not None and not away.acl_enable:
        who = "any client may read and write: there is no ACL, and no certificate is demanded"
        return Door("clients", True, who, closes=("--acl FILE", _CERTIFICATES))
    if not away.acl_enable:
        return Door(
            "clients", False, "clients with a trusted certificate may read and write", ("--tls-mode permissive",)
        )
    if lost is None:
        return Door("clients", False, "clients with an account, by TLS", ("--tls-mode permissive",))
    who = "clients with an account; messages can be read on their way"
    return Door("clients", False, who, closes=("--tls-mode enforcing",))


def _replication(away: BrokerSettings) -> Door:
    ha, host = away.ha, ports.ha_host(away)
    if ha.allow:
        return Door("replication", False, "slaves that haAllow names copy the log")
    if is_loopback(host):
        if ha.listen:
            return Door("replication", False, f"only slaves of this machine: haListen = {ha.listen}", _opening(away))
        who = "only slaves of this machine, whatever --listen says, as an ACL or enforced TLS is set"
        return Door("replication", False, who, _opening(away))
    if ha.tls and away.tls.demands_certificates:
        return Door("replication", False, "slaves with a trusted certificate copy the log")
    by = " by TLS, also without a certificate" if ha.tls else ""
    closes = ["--ha-allow LIST", "--ha-listen 127.0.0.1"]
    if ha.tls:
        closes.append("--tls-client-auth require with --tls-ca FILE")
    if not away.is_guarded and not ha.tls and not ha.listen:
        closes += ["--acl FILE", "--tls-mode enforcing"]
    return Door("replication", True, f"whoever connects{by} copies the log", closes=tuple(closes))


def _opening(away: BrokerSettings) -> tuple[str, ...]:
    """What lets slaves of other machines in, safest first; a file's haListen counts until an option overrides it."""
    listen = "--ha-listen ADDRESS"
    also = f"{listen} with " if away.ha.listen else ""
    return f"{also}--ha-allow LIST", f"{also}--ha-tls with --tls-client-auth require", f"{listen} alone, for everybody"


def _names(away: BrokerSettings) -> Door:
    if away.names_allow or away.acl_enable:
        signed = "admins of the ACL" if away.acl_enable else ""
        allowed = "addresses of namesAllow" if away.names_allow else ""
        who = (
            f"everybody reads routes, {' and '.join(filter(None, (signed, allowed)))} register brokers and change them"
        )
        return Door("names", False, who, ("--names-allow LIST",))
    who = "everybody reads routes, registers brokers and changes them"
    return Door("names", True, who, closes=("--names-allow LIST", "--acl FILE", "--no-names"))


def lines(outlook: Outlook) -> Iterator[str]:
    """For a person; without the file's name."""
    if outlook.why is not None:
        yield f"The daemon (serve) does not start with this file here: {outlook.why}"
        return
    yield "With this file the daemon (serve) listens on 127.0.0.1. With --listen ADDRESS:"
    for door in outlook.doors:
        yield f"  {_NAMES[door.port]}: {door.who}"
        for word, options in (("opens it", door.opens), ("closes it", door.closes)):
            if options:
                yield f"    {word}: {', or '.join(options)}"


_NAMES = {"clients": "broker", "replication": "replication", "names": "name server"}
