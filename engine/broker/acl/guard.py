"""Judges each request before its handler sees it. Sources: PlainPermissionManager#validate, #checkPerm, AclSigner."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

from engine.broker.acl.accounts import Account
from engine.broker.acl.rights import ANY_ACCOUNT, BadRequest, Perm, Right
from engine.broker.requests.answers import Answer
from engine.broker.requests.table import RIGHTS, demand_rights
from engine.broker.tables.topics import RETRY
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from engine.broker.acl.files import AclFiles
    from engine.broker.net.connection import Connection
    from engine.broker.requests.handler import Handler
    from engine.wire.command import RemotingCommand

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_SAID = "org.apache.rocketmq.acl.common.AclException: "
_REMEMBERED = 1000


class Denied(Exception):
    """The request is not answered; why, in Apache's words."""


def signature(ext: Mapping[str, str], body: bytes | memoryview, secret: bytes, *, query_flag: bool = False) -> str:
    """What a client that knows the secret writes into Signature: HMAC-SHA1 over the values of the fields, sorted by
    their names, and the body; base64. `query_flag`: with _UNIQUE_KEY_QUERY among them.

    Source: AclUtils#combineRequestContent, AclSigner#calSignature.
    """
    skipped = (SIGNATURE,) if query_flag else (SIGNATURE, UNIQUE_KEY_QUERY)
    content = "".join([ext[name] for name in sorted(ext) if name not in skipped])
    made = hmac.digest(secret, b"".join((content.encode("utf-8", "replace"), body)), "sha1")
    return base64.b64encode(made).decode()


class Guard:
    """See the module. For the loop's thread alone."""

    def __init__(self, files: AclFiles, log: logging.Logger) -> None:
        self._files = files
        self._log = log
        self._logged: set[tuple[bytes, str]] = set()

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers, each after the check. Raises UndeclaredRight: nobody has said what a code needs."""
        demand_rights(handlers)
        return {code: self._behind(handler) for code, handler in handlers.items()}

    def _behind(self, handler: Handler) -> Handler:
        def checked(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            try:
                self.check(connection.host.ip, request)
            except Denied as denied:
                self._tell(connection, request, str(denied))
                raise Answer(ResponseCode.SYSTEM_ERROR, _SAID + str(denied)) from None
            return handler(connection, request)

        return checked

    def check(self, address: bytes, request: RemotingCommand) -> None:
        """Let a request pass. `address`: 4 or 16 bytes, where it comes from. Raises Denied."""
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
        right = RIGHTS.get(request.code, ANY_ACCOUNT)  # what isn't served has nothing to give away: `guarded`
        try:
            wanted = right.needs(request)
        except BadRequest as error:
            raise Denied(str(error)) from None
        if wanted.get(TRACE_TOPIC) == Perm.PUB:
            return
        _demand(account, request.code, right, wanted)

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


def _demand(account: Account, code: int, right: Right, wanted: Mapping[str, Perm]) -> None:
    if right.admin and not account.admin:
        raise Denied(f"Need admin permission for request code={code}, but accessKey={account.access_key} is not")
    if account.admin and not account.rights:
        return
    for name, needed in wanted.items():
        is_group = name.startswith(RETRY)
        default = account.default_group if is_group else account.default_topic
        owned = account.rights.get(name, default)
        if owned & Perm.DENY or not owned & needed:
            what = f"group:{name.removeprefix(RETRY)}" if is_group else f"topic:{name}"
            raise Denied(f"No default permission for {what}")
