"""Batch queues that rstore has rebuilt are those of real 5.x brokers to the byte; these start on them and read all."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from engine.client.connection import RemotingClient
from engine.client.pulling import pull_fields
from engine.client.queues import MessageQueue
from engine.client.subscriptions import TopicSubscription
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.inner_batch import inner_messages
from engine.format.message import decode
from engine.format.record import total_size_at
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import real_broker, toolchain
from tests.compat.generate5 import NO_WHEEL, SMALL
from tests.support import newer, stores
from tests.support.checking import check_clean
from tests.support.wide import WIDE

pytestmark = pytest.mark.interop
SETTINGS = "".join(f"{key}={value}\n" for key, value in {**SMALL, **NO_WHEEL, "brokerName": "broker-a"}.items())
BATCHES = "batchconsumequeue"


def recovered(root: Path) -> None:
    given = StoreConfig(store_path_root_dir=root, other={"mapperFileSizeBatchConsumeQueue": "4600"})
    plan = plan_recover(Disk(), given)
    assert plan.refusal is None
    apply(Disk(), plan)


async def _bodies(address: str, queue_id: int) -> list[bytes]:
    """All that a consumer gets of a queue."""
    async with await RemotingClient.connect(address) as client:
        fields = pull_fields("G", MessageQueue("B", "broker-a", queue_id), 0, TopicSubscription("B", "*", "TAG", (), 1))
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields, timeout_s=20)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        data, records, at = bytes(answer.body), [], 0
        while at < len(data):
            records.append(decode(data[at : at + total_size_at(data, at)]))
            at += records[-1].total_size
        return [bytes(one.body) for record in records for one in inner_messages(record)]


@pytest.mark.wide
@pytest.mark.parametrize("version", ("5.3.3", "5.5.0") if WIDE else ("5.5.0",))
def test_what_a_broker_rebuilds_and_reads(version: str, tmp_path: Path) -> None:
    try:
        apache = toolchain.apache_broker5(version)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    theirs = newer.unpack("killed", tmp_path)
    shutil.rmtree(theirs / BATCHES)
    ours = stores.copy(theirs, tmp_path / "ours")
    recovered(ours)
    check_clean(ours)
    with real_broker.name_server(tmp_path / "names", apache=apache) as names:
        with real_broker.broker(theirs, names, SETTINGS, apache=apache):
            pass
        assert stores.contents(ours / BATCHES) == stores.contents(theirs / BATCHES)
        queue = ours / BATCHES / "B" / "0" / ("0" * 20)
        data = queue.read_bytes()
        queue.write_bytes(data[:46] + bytes(46) + data[92:150])
        recovered(ours)
        assert queue.read_bytes() == data
        with real_broker.broker(ours, names, SETTINGS, apache=apache) as broker:
            got = {queue_id: asyncio.run(_bodies(broker.broker, queue_id)) for queue_id in (0, 1)}
    for queue_id, bodies in got.items():
        numbers = [8 * record + 4 * queue_id + i for record in range(5) for i in range(4)]
        assert bodies == [f"B-{number:04}-".encode() * 4 for number in numbers]
