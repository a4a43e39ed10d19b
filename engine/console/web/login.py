"""Who may log in: whoever has the token that the console printed, and the accounts of the brokers' ACL.

An account of the console's own ACL file is checked against it; without a file, brokers are asked: a request that is
signed with the account has to pass where one that is not signed is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from engine.broker.acl.files import AclFiles
from engine.broker.acl.perms import Perm
from engine.client.peers import Credentials
from engine.console.web.sessions import ConsoleRight
from engine.errors import RefusedByBroker, RStoreError
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.broker.acl.accounts import Account
    from engine.console.web.clusters import Connected
    from engine.console.web.context import Console
    from engine.console.web.sessions import Session

ACL_DIRECTORY = "acl"
LOG = logging.getLogger("rstore.console")


async def token_session(console: Console) -> Session:
    """The session of whoever had the token: all rights that the console gives.

    Where brokers have an ACL, it asks them with the console's account, or with an admin's of the ACL file.

    Raises:
        InvalidArgument, StorageError: of the ACL file.
    """
    options = console.options
    account = options.account
    if account is None and options.acl is not None:
        accounts = await asyncio.to_thread(_accounts, options.acl)
        admin = next((one for one in accounts.values() if one.admin), None)
        account = None if admin is None else Credentials(admin.access_key, admin.secret_key.decode())
    return console.sessions.open("token", _rights(console, admin=True), account)


def _rights(console: Console, *, admin: bool) -> frozenset[ConsoleRight]:
    options = console.options
    rights = {ConsoleRight.LOOK}
    if not options.redact:
        rights.add(ConsoleRight.BODIES)
    if admin:
        rights.add(ConsoleRight.FILES)
        if options.write:
            rights.add(ConsoleRight.CHANGE)
    return frozenset(rights)


async def log_in_account(console: Console, access: str, secret: str) -> Session:
    """The session of an account.

    Raises:
        NotLoggedIn: no such account, or another secret; TooManyFailures; InvalidArgument, StorageError: of the ACL file
    """
    console.sessions.demand_calm()
    wrong = "no account has this access key and secret key"
    if not access or not secret:
        raise console.sessions.failed("an access key and a secret key are required, or the token")
    given = Credentials(access, secret)
    if console.options.acl is not None:
        account = (await asyncio.to_thread(_accounts, console.options.acl)).get(access)
        if account is None or not hmac.compare_digest(account.secret_key, secret.encode()):
            raise console.sessions.failed(wrong)
        rights = _rights(console, admin=account.admin)
        return console.sessions.open(access, rights, given, None if account.admin else partial(_may_consume, account))
    if not console.options.name_servers or not await _is_known(console, given):
        raise console.sessions.failed(wrong)
    return console.sessions.open(access, _rights(console, admin=False) | _changes(console), given)


def _changes(console: Console) -> set[ConsoleRight]:
    """Brokers judge each change of such an account."""
    return {ConsoleRight.CHANGE} if console.options.write else set()


def _accounts(path: Path) -> Mapping[str, Account]:
    from engine.files.disk import Disk

    directory = os.path.join(os.path.dirname(os.fspath(path)), ACL_DIRECTORY)
    files = AclFiles(Disk(), os.fspath(path), directory, lambda: time.time_ns() // 1_000_000, LOG)
    files.load()
    return files.table.accounts


def _may_consume(account: Account, topic: str) -> bool:
    return account.may(topic, Perm.SUB, strict=True)


async def _is_known(console: Console, given: Credentials) -> bool:
    """Whether brokers with an ACL take what is signed so. False where they take what is not signed, too."""
    async with AsyncExitStack() as stack:
        try:
            plain, signed = [await _connected(console, account, stack) for account in (None, given)]
            brokers = (await signed.admin.clusters()).brokers
            if not brokers:
                return False
            ask = brokers[0].address, RequestCode.GET_BROKER_RUNTIME_INFO
            try:
                await plain.admin.json(*ask)
            except RefusedByBroker:
                await signed.admin.json(*ask)
                return True
        except RStoreError:
            return False
    return False


async def _connected(console: Console, account: Credentials | None, stack: AsyncExitStack) -> Connected:
    """A client that is left with the stack."""
    one = await console.clusters.connect(account)
    stack.push_async_callback(console.clusters.leave, one)
    return one
