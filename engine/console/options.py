"""What a console is started with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.dataclass import dataclass

if TYPE_CHECKING:
    import ssl

    from engine.client.peers import Credentials
    from engine.config import StoreConfig

PORT = 18080
"""Not 8080, which half of all services want."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """See the module.

    Attributes:
        store: the store whose inside is shown; None: none.
        name_servers: of the cluster that is shown, `host:port` each; none: no cluster.
        host, port: where it listens; 0: a free port.
        names: host names besides the address itself that browsers may know it by.
        write: changes may be made.
        redact: bodies and values of properties are shown to nobody.
        acl: file of the accounts that may log in (plain_acl.yml).
        account: with which the cluster is asked for whoever logs in by token.
        tls: how brokers are reached; None: plain text.
        operations: file of the operations log.
        conf: the broker's properties file.
    """

    store: StoreConfig | None = None
    name_servers: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = PORT
    names: tuple[str, ...] = ()
    write: bool = False
    redact: bool = False
    acl: Path | None = None
    account: Credentials | None = None
    tls: ssl.SSLContext | None = None
    operations: Path | None = None
    conf: Path | None = None
