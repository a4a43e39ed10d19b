"""Who gets in, and where we go: TLS, ACL and name servers, read and judged before a store is opened for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.broker.names.name_servers import parse_addresses
from engine.dataclass import dataclass
from engine.files.disk import Disk

if TYPE_CHECKING:
    import logging
    import ssl

    from engine.broker.acl.files import AclFiles
    from engine.broker.acl.signer import Signer
    from engine.broker.settings.broker_settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """See the module.

    Attributes:
        context: of listeners. `client_context`: of our own connections to name servers. None: plain text.
        ha_context: of replication: of a master's service, or of a slave to its master. None: plain text.
        name_servers: `host:port` each.
        acl: the files of accounts; None: everybody may do everything.
        signer: of our own requests that need an admin, with one of these accounts. `reader`: of those that need none.
    """

    context: ssl.SSLContext | None
    client_context: ssl.SSLContext | None
    ha_context: ssl.SSLContext | None
    name_servers: tuple[str, ...]
    acl: AclFiles | None
    signer: Signer | None = None
    reader: Signer | None = None

    @classmethod
    def of(cls, settings: BrokerSettings, log: logging.Logger, *, is_slave: bool = False) -> AccessSettings:
        """As the settings say.

        Raises:
            InvalidArgument: settings or files that make no sense. StorageError: a file can't be read.
        """
        addresses = parse_addresses(settings.name_servers)
        acl, signer, reader = None, None, None
        if settings.acl_enable:
            from engine.broker.acl.files import AclFiles
            from engine.broker.acl.signer import Signer

            acl = AclFiles(Disk(), *settings.acl_paths(), lambda: time.time_ns() // 1_000_000, log)
            acl.load()
            signer, reader = Signer(acl, admin=True), Signer(acl, admin=False)
        client_context = settings.tls.client_context() if addresses else None
        tls, ha_context = settings.tls, None
        if settings.ha.tls:
            ha_context = tls.slave_context() if is_slave else tls.master_context()
        return cls(tls.server_context(), client_context, ha_context, addresses, acl, signer, reader)
