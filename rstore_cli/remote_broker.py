"""A running broker that a command reads from: its address, accounts and TLS, as options."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from engine.client.signed_peer import RequestSigner

HaPort = Annotated[
    int | None,
    typer.Option(
        "--ha-port",
        min=1,
        max=65535,
        metavar="PORT",
        help="Replication port of the broker (default: the one that it reports).",
    ),
]
Acl = Annotated[
    Path | None,
    typer.Option("--acl", metavar="FILE", help="ACL file (plain_acl.yml) with an account, if the broker demands one."),
]
HaTls = Annotated[bool | None, typer.Option("--ha-tls", help="Connect by TLS, and check the broker's certificate.")]
TlsCa = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="CA certificates for that (PEM; default: the system's).")
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="Own certificate, if the broker demands one (PEM).")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Private key of that certificate (PEM).")]


def tls_of(
    other: Mapping[str, str], ha_tls: bool | None, ca: str | None, cert: str | None, key: str | None
) -> ssl.SSLContext | None:
    """TLS to the broker; None: plain text. `other`: keys of a broker's properties file.

    Raises:
        InvalidArgument, StorageError: as `TlsSettings`.
    """
    from engine.broker.ha.settings import HaSettings
    from engine.broker.net.tls import TlsSettings

    if not HaSettings.of(other, tls=ha_tls).tls:
        return None
    return TlsSettings.of(other, cert=cert, key=key, trust=ca).slave_context()


def signer_of(file: Path | None) -> RequestSigner | None:
    """Who signs with an account of an ACL file. Raises StorageError, InvalidArgument: the file can't be read."""
    if file is None:
        return None
    import logging

    from engine.broker.acl.files import AclFiles
    from engine.broker.acl.signer import Signer
    from engine.files.disk import Disk

    path = file.absolute()
    files = AclFiles(
        Disk(), str(path), str(path.parent / "acl"), lambda: time.time_ns() // 1_000_000, logging.getLogger("rstore")
    )
    files.load()
    return Signer(files, admin=False)
