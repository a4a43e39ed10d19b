"""Options of commands that ask the broker which took over, or the one that it took over from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rstore_cli.remote_broker import signer_of, tls_of

if TYPE_CHECKING:
    from engine.client.remote_broker import RemoteBroker
    from engine.config import StoreConfig

HaPort = Annotated[
    int | None,
    typer.Option(
        "--ha-port",
        min=1,
        max=65535,
        metavar="PORT",
        help="Replication port of the master (default: the one that it reports).",
    ),
]
Acl = Annotated[
    Path | None,
    typer.Option("--acl", metavar="FILE", help="ACL file (plain_acl.yml) with an account, if the master demands one."),
]
HaTls = Annotated[bool | None, typer.Option("--ha-tls", help="Connect by TLS, and check the master's certificate.")]
TlsCa = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="CA certificates for that (PEM; default: the system's).")
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="Own certificate, if the master demands one (PEM).")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Private key of that certificate (PEM).")]


def master_of(
    config: StoreConfig,
    broker: str,
    *,
    ha_port: int | None = None,
    acl: Path | None = None,
    ha_tls: bool | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> RemoteBroker:
    """What these options say. Raises InvalidArgument, StorageError: a file of them can't be read."""
    from engine.client.remote_broker import RemoteBroker

    tls = tls_of(config.other, ha_tls, tls_ca, tls_cert, tls_key)
    return RemoteBroker(broker, ha_port=ha_port, tls=tls, signer=signer_of(acl))
