"""A store with its queues in RocksDB, damaged and recovered: its own broker builds them again, and all is read."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from engine.format.message import decode_each
from engine.wire.codes import RequestCode
from tests.compat import real_broker, toolchain
from tests.compat.generate5 import SMALL
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.rstore_cli.conftest import Cli, cli

__all__ = ["cli"]

pytestmark = pytest.mark.interop

SENT = 300
"""Messages of 900 bytes and more, over several segments of 64 KiB."""
SETTINGS = "".join(
    f"{name}={value}\n" for name, value in {**SMALL, "storeType": "defaultRocksDB", "timerWheelEnable": "false"}.items()
)


async def _send(address: str) -> None:
    client = await Client.to(address)
    for number in range(SENT):
        fields = send_fields("T", number % 2, f"KEYS\x01k{number}")
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"%d-" % number + b"x" * 900)
        assert answer.code == 0, answer.remark


async def _pull(address: str, count: int) -> list[int]:
    """The numbers of all messages of both queues, when so many are there."""
    client = await Client.to(address)
    await client.heartbeat("G", "T")
    numbers: list[int] = []
    async with asyncio.timeout(60):
        for queue_id in (0, 1):
            got: list[int] = []
            while len(got) < (count + 1 - queue_id) // 2:
                fields = pull_fields("T", len(got), queue_id=queue_id)
                answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
                if answer.code:
                    await asyncio.sleep(0.05)
                    continue
                got += [int(one.body.partition(b"-")[0]) for one in decode_each(answer.body)]
            numbers += got
    return sorted(numbers)


@pytest.mark.leaves("not-closed", "index-twice", "topic-unused")
@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_its_broker_builds_the_queues_again(release: str, tmp_path: Path, cli: Cli) -> None:
    """Cut in the middle, then once more with its database damaged."""
    pytest.importorskip("rocksdict")
    try:
        apache = toolchain.apache_broker5(release)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root = tmp_path / "store"
    with real_broker.serve(root, SETTINGS, apache=apache) as broker:
        asyncio.run(_send(broker.broker))
    assert len(list((root / "commitlog").iterdir())) >= 5
    lines = cli("--store", root, "--json", "dump", "commitlog").lines
    cut = next(line["physicalOffset"] for line in lines if line.get("body", "").startswith("200-"))
    shutil.copytree(root, tmp_path / "copy")
    ran = cli("--store", root, "truncate", "--to-offset", str(cut), "--yes")
    assert ran.code == 0, ran
    with real_broker.serve(root, SETTINGS, apache=apache) as broker:
        assert asyncio.run(_pull(broker.broker, 200)) == list(range(200))
    assert cli("--store", root, "check").code == 0
    damaged = tmp_path / "copy"
    table = min((damaged / "consumequeue").glob("*.sst"))
    table.write_bytes(table.read_bytes()[:-7])
    assert cli("--store", damaged, "recover", "--yes").code == 0
    with real_broker.serve(damaged, SETTINGS, apache=apache) as broker:
        assert asyncio.run(_pull(broker.broker, SENT)) == list(range(SENT))
    assert cli("--store", damaged, "check").code == 0
