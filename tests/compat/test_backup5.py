"""A running RocketMQ 5 broker is backed up beside it; its own release goes on with what is restored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.format.message import decode_each
from engine.inspect.store.newer import FORCED
from engine.wire.codes import RequestCode
from tests.compat import real_broker, toolchain
from tests.compat.generate5 import SMALL
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.rstore_cli.conftest import Cli, cli

__all__ = ["cli"]
pytestmark = pytest.mark.interop

GROUP, FIRST, AFTER = "CID_BACKED_UP", 200, 20
CASES: Mapping[str, Mapping[str, object]] = {
    "5.3.3": {},
    "5.5.0": {"enabledAppendPropCRC": "true", FORCED: "true"},
}
"""By release, settings beside the sizes: with these, a start ends the log at the first record without a CRC."""


async def _sends(address: str, first: int, count: int) -> None:
    client = await Client.to(address)
    await client.heartbeat(GROUP, "T")
    for number in range(first, first + count):
        fields = send_fields("T", 0, f"KEYS\x01k{number}\x02TAGS\x01t")
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"body-%d" % number)
        assert answer.code == 0, answer.remark


async def _has(address: str, count: int) -> None:
    """Its queue has the first `count` messages, and no others."""
    client = await Client.to(address)
    await client.heartbeat(GROUP, "T")
    bodies: list[bytes] = []
    async with asyncio.timeout(120):
        while len(bodies) < count:
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", len(bodies), GROUP))
            if answer.code == 0:
                bodies += [one.body for one in decode_each(answer.body)]
            else:
                await asyncio.sleep(0.05)
    assert bodies == [b"body-%d" % number for number in range(count)]


@pytest.mark.parametrize("release", CASES)
def test_it_is_backed_up_while_it_runs_and_goes_on_elsewhere(
    release: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        apache = toolchain.apache_broker5(release)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root, new = tmp_path / "store", tmp_path / "new"
    settings = "".join(f"{k}={v}\n" for k, v in {"brokerName": "broker-a", **SMALL, **CASES[release]}.items())
    conf = tmp_path / "broker.conf"
    conf.write_text(settings)
    monkeypatch.setenv("RSTORE_REPO", str(tmp_path / "repo"))
    monkeypatch.setenv("RSTORE_REPO_KEY", "the key of a test")
    assert cli("backup", "init").code == 0
    with real_broker.serve(root, settings, apache=apache) as broker:
        asyncio.run(_sends(broker.broker, 0, FIRST))
        assert cli("--store", root, "-c", conf, "backup", "create").code == 0
        asyncio.run(_sends(broker.broker, FIRST, AFTER))
        created = cli("--store", root, "-c", conf, "backup", "create", "--json")
        assert created.code == 0, created
        broker.kill()
    restored = cli("--store", new, "-c", conf, "restore", "--json")
    assert (restored.code, restored.json["check"]["ok"]) == (0, True), restored
    with real_broker.serve(new, settings, apache=apache) as broker:
        asyncio.run(_has(broker.broker, FIRST + AFTER))
        asyncio.run(_sends(broker.broker, FIRST + AFTER, 1))
        asyncio.run(_has(broker.broker, FIRST + AFTER + 1))
