"""The broker that took over, or the one that it took over from, as options name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rstore_cli.remote_broker import signer_of, tls_of

if TYPE_CHECKING:
    from pathlib import Path

    from engine.client.remote_broker import RemoteBroker
    from engine.config import StoreConfig


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
