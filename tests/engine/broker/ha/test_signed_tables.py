"""A slave whose master has an ACL asks for the tables with an account of its own ACL files, where that is demanded."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from engine.broker.ha import sync
from engine.broker.ha.settings import HaSettings
from engine.config import BrokerRole
from engine.wire.codes import RequestCode as C
from tests.engine.broker.acl.accounts import FILE, MINE, OPERATOR, acl_file, ask, is_denied
from tests.engine.broker.client import Client, daemon, send_fields
from tests.engine.broker.ha.test_roles import config, until
from tests.engine.opening import assert_sound
from tests.rstore_cli.test_serve import Process

ACCOUNT = "accounts:\n  - accessKey: {key}\n    secretKey: {secret}\n    admin: {admin}\n"
SIGNS = "requests for the master's tables are signed"


@pytest.mark.parametrize(
    ("accounts", "signs_as", "refused"),
    [
        (FILE, MINE, None),
        (ACCOUNT.format(key=OPERATOR, secret="12345678", admin="true"), OPERATOR, None),
        (
            ACCOUNT.format(key=MINE, secret="87654321", admin="false"),
            MINE,
            f"Check signature failed for accessKey={MINE}",
        ),
        (None, None, "No accessKey is configured"),
    ],
    ids=["the first that is no admin", "an admin where there is no other", "another secret", "no accounts"],
)
def test_a_slave_signs_where_its_master_demands_it(
    tmp_path: Path,
    accounts: str | None,
    signs_as: str | None,
    refused: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sync, "FIRST_S", 0.05)
    masters, slaves = config(tmp_path / "m", BrokerRole.ASYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)
    acl: dict[str, object] = {}
    if accounts is not None:
        (tmp_path / "mine").mkdir()
        acl = {"acl_enable": True, "acl_file": acl_file(tmp_path / "mine", accounts)}

    def refusals() -> list[str]:
        return [getattr(one, "why", "") for one in caplog.records if "tables of the master" in one.getMessage()]

    async def run() -> None:
        async with daemon(tmp_path / "m", config=masters, acl_enable=True, acl_file=acl_file(tmp_path)) as master:
            client = await Client.to(master.listening.broker)
            assert (await ask(client, OPERATOR, C.SEND_MESSAGE_V2, send_fields("Mine"), b"x")).code == 0
            ha = replace(HaSettings(), master_address=str(master.listening.ha), master_broker=master.listening.broker)
            async with daemon(tmp_path / "s", config=slaves, ha=ha, broker_id=1, **acl) as slave:
                if refused is None:
                    await until(lambda: slave.broker.role.rounds > 0)
                    assert slave.broker.topics.find("Mine") is not None
                else:
                    await until(lambda: any(refused in why for why in refusals()))
                    assert slave.broker.topics.find("Mine") is None

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    signed = [getattr(one, "account", "") for one in caplog.records if SIGNS in one.getMessage()]
    assert signed == ([] if signs_as is None else [signs_as])
    assert bool(refusals()) == (refused is not None)
    for one in (masters, slaves):
        assert_sound(one)


def test_a_slave_signs_for_no_other_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sync, "FIRST_S", 0.05)
    masters, slaves = config(tmp_path / "m", BrokerRole.ASYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)

    async def run() -> None:
        async with daemon(tmp_path / "m", config=masters) as master:
            ha = replace(HaSettings(), master_address=str(master.listening.ha), master_broker=master.listening.broker)
            more = {"acl_enable": True, "acl_file": acl_file(tmp_path)}
            async with daemon(tmp_path / "s", config=slaves, ha=ha, broker_id=1, **more) as slave:
                await until(lambda: slave.broker.role.rounds > 0)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert not [one for one in caplog.records if SIGNS in one.getMessage()]
    for one in (masters, slaves):
        assert_sound(one)


def test_two_daemons_with_an_acl(tmp_path: Path) -> None:
    """As processes: what the master got signed is on the slave, topics and all."""
    accounts = ("--acl", acl_file(tmp_path))
    master = Process(tmp_path / "m", *accounts)
    slave = Process(tmp_path / "s", *accounts, "--role", "slave", "--master", master.where["broker"],
                    more=f"haMasterAddress={master.where['ha']}\n")  # fmt: skip

    async def put() -> None:
        client = await Client.to(master.where["broker"])
        assert is_denied(await client.ask(C.GET_ALL_TOPIC_CONFIG))
        assert (await ask(client, MINE, C.SEND_MESSAGE_V2, send_fields("Mine"), b"x")).code == 0
        copy = await Client.to(slave.where["broker"])
        for _ in range(3000):
            topics = orjson.loads((await ask(copy, MINE, C.GET_ALL_TOPIC_CONFIG)).body)["topicConfigTable"]
            offset = await ask(copy, MINE, C.GET_MAX_OFFSET, {"topic": "Mine", "queueId": "0"})
            if "Mine" in topics and offset.fields.get("offset") == "1":
                return
            await asyncio.sleep(0.02)
        raise AssertionError("not copied")

    try:
        asyncio.run(put())
        assert (slave.stop(signal.SIGTERM), master.stop(signal.SIGTERM)) == (0, 0)
    finally:
        for one in (slave, master):
            one.process.kill()
    assert "Mine" in json.loads((tmp_path / "s" / "config" / "topics.json").read_text())["topicConfigTable"]
