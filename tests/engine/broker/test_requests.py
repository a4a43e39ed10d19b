"""The table of request codes: each has a handler and a declared right, or the daemon does not start."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from engine.broker.acl.files import AclFiles
from engine.broker.acl.guard import Guard
from engine.broker.acl.rights import ANY_ACCOUNT, NAMES_WRITE, UNGUARDED
from engine.broker.requests.table import ACL, BROKER, NAMES, RIGHTS, RequestEntry, RequestTable, UndeclaredRight
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.opening import assert_sound

APACHE_ADMIN = {17, 25, 200, 207, 215}
"""Permission#ADMIN_CODE of 4.9.8."""
OURS_ADMIN = {50, 51, 53}
"""Codes that change the ACL: engine/broker/acl/__init__.py says why."""
WITH_NEEDS = {10, 11, 12, 15, 34, 35, 36, 38, 310, 320, 324, 325, 361, 370, 200_050, 200_052, 200_054, 200_055}
"""Codes of which PlainAccessValidator#parse asks rights on topics or groups, and those of which we do."""
NAME_WRITES = {100, 102, 103, 104, 205, 216, 318, 322, 327}
"""Codes that change the name service, a registration's question whether anything has changed among them."""


def test_every_code_has_the_right_that_apache_asks_for() -> None:
    admin = {int(code) for code, right in RIGHTS.items() if right.admin}
    assert admin == APACHE_ADMIN | OURS_ADMIN
    needy = {int(code) for code, right in RIGHTS.items() if right.needs is not ANY_ACCOUNT.needs}
    assert needy == WITH_NEEDS
    writes = {int(code) for code, right in NAMES.rights.items() if right == NAMES_WRITE}
    assert writes == NAME_WRITES
    assert {right for code, right in NAMES.rights.items() if code not in writes} == {UNGUARDED}
    assert len(BROKER.rights) + len(ACL.rights) == len(RIGHTS)


def test_a_code_without_a_right_is_refused() -> None:
    with pytest.raises(UndeclaredRight, match="request code 10 has a handler, but no declared right"):
        RequestTable([RequestEntry(RequestCode.SEND_MESSAGE, lambda handler: handler)])


def test_a_code_that_stands_twice_is_refused() -> None:
    row: RequestEntry[object] = RequestEntry(RequestCode.SEND_MESSAGE, lambda _: lambda *_: None, ANY_ACCOUNT)
    with pytest.raises(ValueError, match="request code 10 is declared twice"):
        RequestTable([row, row])


def test_a_guard_takes_no_handler_whose_right_nobody_has_declared(tmp_path: Path) -> None:
    """As the daemon builds it: a handler that came by another way than the table is an error at the start."""
    log = logging.getLogger("test")
    guard = Guard(AclFiles(Disk(), str(tmp_path / "a.yml"), str(tmp_path / "a"), lambda: 1, log), log)
    assert guard.guarded({RequestCode.GET_MAX_OFFSET: lambda *_: None}).keys() == {RequestCode.GET_MAX_OFFSET}
    with pytest.raises(UndeclaredRight, match="9999"):
        guard.guarded({9999: lambda *_: None})


def test_the_ports_answer_what_the_tables_declare(tmp_path: Path) -> None:
    """And no code more: an unknown one is told that it is not supported."""

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            names = found.listening.names
            assert names is not None
            for address, table in ((found.listening.broker, BROKER), (names, NAMES)):
                client = await Client.to(address)
                answers = {code: await client.ask(code, {}) for code in RequestCode}
                served = {
                    code for code, answer in answers.items() if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                }
                assert served == (table.rights.keys() if table is NAMES else RIGHTS.keys())  # the ACL's: it is off

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))
