"""Replication from masters of RocketMQ 5, plain and under a controller: a copy, a reader of ranges, a slave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.broker.ha.follower import Diverged
from engine.broker.ha.replicate import ReplicateOptions, replicate
from engine.broker.ha.slave import LinkStatus
from engine.client.connection import RemotingClient
from engine.client.remote_broker import RemoteBroker
from engine.config import StoreConfig
from engine.format.message import Message
from engine.store import MessageStore
from tests.compat import real_broker, served, toolchain
from tests.compat.replicas import consume, log_bytes, produce, until
from tests.compat.test_replication import COMMON, SLAVE, assert_same, config
from tests.engine.opening import assert_sound
from tests.support.wide import WIDE

pytestmark = pytest.mark.interop

MANY = 3_000
GET_BROKER_HA_STATUS = 907
"""Of 5.x."""
NO_WHEEL = "timerWheelEnable=false\n"


@contextmanager
def master(work: Path, version: str, *, controlled: bool) -> Iterator[real_broker.RealBroker]:
    """A broker of that release; `controlled`: by a controller within its name server."""
    try:
        apache = toolchain.apache_broker5(version)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    port, names_settings, own = real_broker.free_port(8), "", COMMON + NO_WHEEL
    if controlled:
        names_settings = (
            "enableControllerInNamesrv=true\ncontrollerDLegerGroup=group1\ncontrollerDLegerSelfId=n0\n"
            f"controllerDLegerPeers=n0-127.0.0.1:{port + 3}\ncontrollerStorePath={work / 'controllers'}\n"
        )
        own += f"enableControllerMode=true\ncontrollerAddr=127.0.0.1:{port + 3}\n"
    with (
        real_broker.name_server(work / "names", settings=names_settings, apache=apache) as names,
        real_broker.broker(work / "master", names, own, port=port, apache=apache) as broker,
    ):
        if controlled:  # its name server says that it is up before the controller has made the broker a master
            until(lambda: produce(broker.broker, "Probe", 1).codes == {0}, 120)
        yield broker
        broker.kill()  # its end takes seconds, and what it leaves is not looked at


async def in_sync(address: str) -> tuple[int, list[bool]]:
    """How many slaves a put waits for, and whether each that is connected is one of them."""
    async with await RemotingClient.connect(address) as client:
        answer = await client.ask(GET_BROKER_HA_STATUS, {})
    status = json.loads(bytes(answer.body))
    return status["inSyncSlaveNums"], [one["inSync"] for one in status["haConnectionInfo"]]


@pytest.mark.wide
@pytest.mark.parametrize(
    ("version", "controlled"),
    [("5.3.3", True), ("5.5.0", False), *([("5.5.0", True), ("5.3.3", False)] if WIDE else [])],
)
def test_a_master(tmp_path: Path, version: str, controlled: bool) -> None:
    """A copy, continued, and what has parted; a reader of ranges; a slave of ours, which is followed by consumers."""
    copy = tmp_path / "copy"
    with master(tmp_path, version, controlled=controlled) as broker:
        produced = produce(broker.broker, "Load", MANY, size=500)
        wanted = ReplicateOptions(broker.broker, until_caught_up=True)
        first = replicate(StoreConfig(store_path_root_dir=copy), wanted, lambda _: None)
        assert (first.start, first.lag, first.status) == (0, 0, LinkStatus.FOLLOWING)
        assert_same(tmp_path / "master", copy, produced)
        assert_sound(config(copy))

        remote = RemoteBroker(broker.broker)
        facts = remote.facts()
        with remote.reader(facts) as reader:
            middle = facts.end // 2
            assert reader.read(0, 1000) == log_bytes(copy, 0, 1000)
            assert reader.read(middle, 70_000) == log_bytes(copy, middle, middle + 70_000)

        more = produce(broker.broker, "Load", 500, name="more")
        again = replicate(config(copy), wanted, lambda _: None)
        assert 0 < again.appended < 1 << 20
        assert again.compared > 0
        assert_same(tmp_path / "master", copy, more)

        # whoever registers before its master, whose first try fails, knows it with its next registration
        settings = f"{SLAVE}haMasterAddress={broker.ha}\nregisterNameServerPeriod=10000\n"
        with served.serve(tmp_path / "slave", settings, "--namesrv", broker.names) as slave:
            until(lambda: len(consume(slave.broker, "Load")) == MANY + 500, 120)
            assert_same(tmp_path / "master", tmp_path / "slave", more)
            if controlled:
                # connections that have ended may be there yet: of the copies before, or of a slave that came again
                waited_for, followers = asyncio.run(in_sync(broker.broker))
                assert (waited_for, set(followers)) == (0, {False})

        with MessageStore.open(config(copy)) as store:
            end = store.log.max_offset
            assert store.put(Message("Load", b"of its own")).ok
        with pytest.raises(Diverged) as ahead:
            replicate(config(copy), wanted, lambda _: None)
        assert ahead.value.offset == end
    assert_sound(config(copy))
