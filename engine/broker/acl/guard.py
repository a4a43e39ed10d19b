"""Judges each request before its handler sees it. Sources: PlainPermissionManager#validate, #checkPerm, AclSigner."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from engine.broker.acl.accounts import Account
from engine.broker.acl.perms import Perm
from engine.broker.acl.rights import ADMIN, ANY_ACCOUNT, BadRequest, Right
from engine.broker.acl.strict import TopicOf, UnknownMessage, no_messages
from engine.broker.requests.answers import Answer
from engine.broker.requests.json_body import NotRead, with_read
from engine.broker.requests.table import RIGHTS, demand_rights
from engine.broker.tables.topics import RETRY
from engine.dataclass import dataclass
from engine.wire.codes import ResponseCode
from engine.wire.signing import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, signature

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Mapping

    from engine.broker.acl.files import AclFiles
    from engine.broker.net.allow import AllowList
    from engine.broker.net.connection import Connection
    from engine.broker.requests.handler import Handler
    from engine.wire.command import RemotingCommand

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DENIAL = "org.apache.rocketmq.acl.common.AclException: "
"""A denial's remark begins so, as Apache's."""
_REMEMBERED = 1000


class Denied(Exception):
    """The request is not answered; why, in Apache's words."""


@dataclass(slots=True)
class GuardAnswer:
    """What became of a request that was judged beside the loop; None: it may pass."""

    denied: Denied | None = None


class Guard:
    """See the module. For the loop's thread alone.

    Args:
        strict: whether what `engine.broker.acl.strict` asks for is asked for, too.
        topic_of: whose message lies at a physical offset.
    """

    def __init__(
        self, files: AclFiles, log: logging.Logger, *, strict: bool = True, topic_of: TopicOf = no_messages
    ) -> None:
        self._files = files
        self._log = log
        self._strict = strict
        self._topic_of = topic_of
        self._logged: set[tuple[bytes, str]] = set()

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers, each after the check. Raises UndeclaredRight: nobody has said what a code needs."""
        demand_rights(handlers)
        return {code: self._behind(handler) for code, handler in handlers.items()}

    def but_from(self, allow: AllowList, handlers: Mapping[int, Handler], hint: str) -> dict[int, Handler]:
        """The same handlers, each after a check that only an admin passes, but for requests from these addresses.

        `hint`: of a denial, what lets an address in.
        """
        return {code: self._behind(handler, ADMIN, allow, hint) for code, handler in handlers.items()}

    def _behind(
        self, handler: Handler, right: Right | None = None, allow: AllowList | None = None, hint: str = ""
    ) -> Handler:
        def checked(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            address = connection.host.ip
            if allow is None or not allow.allows(address):
                try:
                    self.check(address, request, right)
                except Denied as denied:
                    raise self._denied(connection, request, denied, hint) from None
                except NotRead:
                    raise self._beside(connection, request, right, handler, hint) from None
            return handler(connection, request)

        return checked

    def _beside(
        self, connection: Connection, request: RemotingCommand, right: Right | None, handler: Handler, hint: str
    ) -> NotRead:
        """A request with a large body is judged beside the loop, too: it may be about thousands of groups."""
        address, verdict = connection.host.ip, GuardAnswer()

        def judged() -> RemotingCommand:
            read = with_read(request)
            try:
                self.check(address, read, right)
            except Denied as denied:
                verdict.denied = denied
            return read

        def then(connection: Connection, read: RemotingCommand) -> RemotingCommand | None:
            if verdict.denied is not None:
                raise self._denied(connection, read, verdict.denied, hint)
            return handler(connection, read)

        return NotRead(judged, then)

    def _denied(self, connection: Connection, request: RemotingCommand, denied: Denied, hint: str) -> Answer:
        self._tell(connection, request, str(denied))
        return Answer(ResponseCode.SYSTEM_ERROR, f"{DENIAL}{denied}{hint}")

    def check(self, address: bytes, request: RemotingCommand, right: Right | None = None) -> None:
        """Let a request pass. `address`: 4 or 16 bytes, where it comes from. `right`: instead of its code's.

        Raises:
            Denied. Answer: a field that a right depends on makes no sense.
        """
        table = self._files.table
        if any(pattern.matches(address) for pattern in table.white):
            return
        ext = request.fields
        key = ext.get(ACCESS_KEY)
        if key is None:
            raise Denied("No accessKey is configured")
        account = table.accounts.get(key)
        if account is None:
            raise Denied(f"No acl config for {key}")
        if account.white.matches(address):
            return
        if not _signed(request, account):
            raise Denied(f"Check signature failed for accessKey={key}")
        right = right or RIGHTS.get(request.code, ANY_ACCOUNT)  # what isn't served has nothing to give away: `guarded`
        try:
            needs = right.needs(request)
        except BadRequest as error:
            raise Denied(str(error)) from None
        if not account.admin and (right.admin or (self._strict and right.strict_admin)):
            raise Denied(f"Need admin permission for request code={request.code}, but accessKey={key} is not")
        if account.admin and not account.rights:
            return
        for name, needed in needs.items():
            if not (name == TRACE_TOPIC and needed == Perm.PUB) and not account.may(name, needed, strict=self._strict):
                raise Denied(_no_right_on(name))
        if self._strict and not account.admin:
            self._demand(account, request, right)

    def _demand(self, account: Account, request: RemotingCommand, right: Right) -> None:
        """What aclStrict asks for beyond Apache. Raises Denied, Answer."""
        for demand in right.strict:
            try:
                names: Iterable[str] = demand.names(request, self._topic_of)
            except UnknownMessage:
                raise Denied("No message begins at this offset") from None
            for name in names:
                if not account.may(name, demand.perm, strict=self._strict):
                    raise Denied(
                        "No default permission for the message's topic" if demand.hidden else _no_right_on(name)
                    )

    def _tell(self, connection: Connection, request: RemotingCommand, why: str) -> None:
        """Log a denial, once for an address and a reason: clients try again all the time."""
        logged = (connection.host.ip, why)
        if logged in self._logged:
            return
        if len(self._logged) >= _REMEMBERED:
            self._logged.clear()
        self._logged.add(logged)
        self._log.warning("denied", extra={"peer": connection.address, "code": request.code, "why": why})


def _signed(request: RemotingCommand, account: Account) -> bool:
    ext = request.fields
    received = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    ways = (False, True) if UNIQUE_KEY_QUERY in ext else (False,)
    return any(
        hmac.compare_digest(received, signature(ext, request.body, account.secret_key, query_flag=way).encode())
        for way in ways
    )


def _no_right_on(name: str) -> str:
    what = f"group:{name.removeprefix(RETRY)}" if name.startswith(RETRY) else f"topic:{name}"
    return f"No default permission for {what}"
