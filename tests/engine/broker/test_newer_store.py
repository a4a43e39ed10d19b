"""The daemon on a store that a broker of RocketMQ 5 left: what is there is read, what comes is written as there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import NewerStore
from engine.files.disk import Disk
from engine.format.message import StoredMessage, decode_each
from engine.format.names import RETRY_PREFIX
from engine.format.property_crc import is_sealed
from engine.format.record import MESSAGE_MAGIC_V2, total_size_at
from engine.inspect.store.change_gate import ChangeKind, refuse_open
from engine.wire.codes import RequestCode
from tests.engine.broker.client import Client, daemon, pull_fields
from tests.support import newer

GROUP = "G" * 200


async def pulled(client: Client, topic: str, count: int) -> list[StoredMessage]:
    await client.until_there(topic, count)
    got: list[StoredMessage] = []
    while len(got) < count:
        answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, len(got), GROUP))
        assert answer.code == 0, answer.remark
        got += decode_each(answer.body)
    return got


@pytest.mark.parametrize("name", ["default", "property-crc"])
def test_what_is_there_is_read_and_what_comes_is_written_as_there(name: str, tmp_path: Path) -> None:
    root = newer.unpack(name, tmp_path)
    before = {path.name: path.read_bytes() for path in (root / "rocksdbstore").iterdir()}

    async def run() -> None:
        config = StoreConfig(store_path_root_dir=root)
        async with daemon(root, config=config) as found:
            client = await Client.to(found.listening.broker)
            await client.heartbeat(GROUP, "T")
            there = await pulled(client, "T", 10)
            back = {"group": GROUP, "offset": str(there[3].physical_offset), "originTopic": "T"}
            assert (await client.put("T", b"new")).code == 0
            assert (await pulled(client, "T", 11))[-1].body == b"new"
            fields = {**back, "delayLevel": "1", "originMsgId": "", "unitMode": "false"}
            answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            assert answer.code == 0, answer.remark
            (again,) = await pulled(client, RETRY_PREFIX + GROUP, 1)
            assert (again.body, again.magic) == (there[3].body, MESSAGE_MAGIC_V2)

    asyncio.run(run())
    (log,) = (root / "commitlog").iterdir()
    data, at, sealed = log.read_bytes(), 0, set()
    while (size := total_size_at(data, at)) > 0:
        sealed.add(is_sealed(data[at : at + size]))
        at += size
    assert sealed == {name == "property-crc"}
    assert {path.name: path.read_bytes() for path in (root / "rocksdbstore").iterdir()} == before


def test_one_whose_timer_messages_wait_in_its_own_files_is_refused(tmp_path: Path) -> None:
    root = newer.unpack("timer", tmp_path)
    config = StoreConfig(store_path_root_dir=root)
    refuse_open(Disk(), config, ChangeKind.PUT)
    with pytest.raises(NewerStore, match=r"with timer messages \(timerlog/\)"):
        refuse_open(Disk(), config, ChangeKind.SERVE)
