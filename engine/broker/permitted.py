"""Who may ask what, put together: each port's handlers behind the ACL, or behind addresses where there is none.

With an ACL, requests to the broker need what `engine.broker.requests.table` says; the name service is open to read, and
written by admins and from namesAllow. Without one, what changes the daemon's settings or deletes files is answered on
this machine and to adminAllow. A list that is set counts with an ACL, too. SERVE.md says it to operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.acl.rights import NAMES_WRITE
from engine.broker.net.allow import LOOPBACK, AllowList
from engine.broker.requests.places import Places
from engine.broker.requests.table import ACL, BROKER, NAMES

if TYPE_CHECKING:
    import logging

    from engine.broker.acl.files import AclFiles
    from engine.broker.acl.guard import Guard
    from engine.broker.requests.handler import Handler
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.store import MessageStore

NAMES_HINT = "; or add the address to namesAllow, as for brokers that sign nothing"
"""Of a denial of the name service."""
_WRITES = frozenset(code for code, right in NAMES.rights.items() if right is NAMES_WRITE)


class Permitted:
    """See the module. For the loop's thread alone.

    Args:
        acl: the files of accounts; None: there is no ACL.
        address: of our broker, as clients get it.
    """

    def __init__(
        self,
        acl: AclFiles | None,
        settings: CurrentSettings,
        store: MessageStore,
        address: str,
        log: logging.Logger,
        later: Later,
    ) -> None:
        self._later = later
        self._acl = acl
        self._settings = settings
        self._address = address
        self._log = log
        self._guard: Guard | None = None
        if acl is not None:
            from engine.broker.acl.guard import Guard
            from engine.broker.acl.message_topic import MessageTopics

            self._guard = Guard(acl, log, strict=settings.now.acl_strict, topic_of=MessageTopics(store))

    def broker(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Of the broker's port, those of the ACL added."""
        admins = self._settings.now.admin_allow
        if self._guard is None or self._acl is None:
            from engine.broker.handlers.acl_off import AclOff

            return self._places(admins, BROKER.local, handlers | ACL.bind(AclOff()))
        from engine.broker.handlers.acl import AclHandler

        acl = AclHandler(files=self._acl, address=self._address, settings=self._settings, later=self._later)
        guarded = self._guard.guarded(handlers | ACL.bind(acl))
        return self._places(admins, BROKER.local | ACL.local, guarded) if admins else guarded

    def names(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Of the name service's port."""
        admins, writers = self._settings.now.admin_allow, self._settings.now.names_allow
        if self._guard is not None:
            writes = {code: handler for code, handler in handlers.items() if code in _WRITES}
            handlers = handlers | self._guard.but_from(writers, writes, NAMES_HINT)
        elif writers:
            handlers = Places(writers, "namesAllow", self._log).only(_WRITES, handlers)
        return handlers if self._guard is not None and not admins else self._places(admins, NAMES.local, handlers)

    def _places(self, admins: AllowList, codes: frozenset[int], handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Behind this machine's addresses, and those that may administer it."""
        allow = AllowList((*LOOPBACK.networks, *admins.networks))
        return Places(allow, "adminAllow", self._log).only(codes, handlers)
