"""Timer messages of killed RocketMQ 5 stores: repaired, their real broker delivers each that waits, and none twice."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from engine.client.connection import RemotingClient
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.repair.change import carry_out
from engine.repair.recover.change import RecoverChange
from engine.repair.truncate.change import TruncateChange
from tests.compat import real_broker, toolchain
from tests.compat.timers import delivered, make_topic, records, send, until, waiting
from tests.support.wide import WIDE

pytestmark = pytest.mark.interop
SETTINGS = (
    "brokerName=broker-a\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmappedFileSizeTimerLog=1060\n"
    "maxHashSlotNum=200\nmaxIndexNum=800\ntimerWheelEnable=true\ndiskMaxUsedSpaceRatio=99\n"
)
"""A file of the timer log takes twenty units."""
SOON, MID, LATE = 6, 25, 30
"""On a slow machine some of Mid may be delivered before the kill, too: those wait no more."""


async def _fill(address: str) -> None:
    async with await RemotingClient.connect(address) as client:
        for topic in ("Soon", "Mid", "Late"):
            await make_topic(client, topic)
        await send(client, "Late", LATE, 3_600_000)
        await send(client, "Mid", MID, 6_000)
        await send(client, "Soon", SOON, 1_500)
        await until(client, "Soon", SOON)


async def _await_the_rest(address: str) -> None:
    async with await RemotingClient.connect(address) as client:
        await until(client, "Soon", SOON)
        await until(client, "Mid", MID)
        await send(client, "Soon", 1, 1_500, first=SOON)
        await until(client, "Soon", SOON + 1)


def _assert_each_once(root: Path) -> None:
    assert delivered(root, "Soon") == Counter({f"Soon-{at}": 1 for at in range(SOON + 1)})
    assert delivered(root, "Mid") == Counter({f"Mid-{at}": 1 for at in range(MID)})
    assert waiting(root) == Counter({f"Late-{at}": 1 for at in range(LATE)})


@pytest.mark.wide
@pytest.mark.parametrize("version", ("5.3.3", "5.5.0") if WIDE else ("5.3.3",))
def test_each_that_waits_is_delivered_once(version: str, tmp_path: Path) -> None:
    apache, root = toolchain.apache_broker5(version), tmp_path / "store"
    config = StoreConfig(store_path_root_dir=root)
    with real_broker.name_server(tmp_path / "names", apache=apache) as names:
        with real_broker.broker(root, names, SETTINGS, apache=apache) as running:
            asyncio.run(_fill(running.broker))
            running.kill()
        copies = [one for one in records(root) if one.topic == "Soon"]
        assert len(copies) == SOON
        cut = carry_out(TruncateChange(to_offset=copies[2].physical_offset, agreed=True), Disk(), config)
        assert cut.plan.repair.timer is not None
        assert cut.plan.repair.timer.waiting == SOON - 2 + MID - delivered(root, "Mid").total() + LATE
        assert delivered(root, "Soon").total() == 2
        assert check(Disk(), config).ok
        with real_broker.broker(root, names, SETTINGS, apache=apache) as running:
            asyncio.run(_await_the_rest(running.broker))
    _assert_each_once(root)


def test_those_whose_timer_files_are_gone_are_delivered_once(tmp_path: Path) -> None:
    """Timer log and wheel are gone: without a repair their broker delivers none of what it had taken into them."""
    apache, root = toolchain.apache_broker5("5.3.3"), tmp_path / "store"
    config = StoreConfig(store_path_root_dir=root, other={"mappedFileSizeTimerLog": "1060"})  # no file tells
    with real_broker.name_server(tmp_path / "names", apache=apache) as names:
        with real_broker.broker(root, names, SETTINGS, apache=apache) as running:
            asyncio.run(_fill(running.broker))
            running.kill()
        shutil.rmtree(root / "timerlog")
        (root / "timerwheel").unlink()
        recovered = carry_out(RecoverChange(), Disk(), config)
        assert recovered.plan.repair.timer is not None
        assert recovered.plan.repair.timer.waiting == MID - delivered(root, "Mid").total() + LATE
        assert check(Disk(), config).ok
        with real_broker.broker(root, names, SETTINGS, apache=apache) as running:
            asyncio.run(_await_the_rest(running.broker))
    _assert_each_once(root)
