"""A daemon that is a slave, and one that is its master: what each answers, and the tables that follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.ha import sync
from engine.broker.ha.settings import HaSettings
from engine.broker.serve import Daemon
from engine.client.master_tables import extent
from engine.config import BrokerRole, StoreConfig
from engine.errors import FormatError
from engine.format import timer_check
from engine.format.numbers import LONG_MAX
from engine.format.timer_progress import TimerProgress
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields
from tests.engine.opening import assert_sound

QUICK = HaSettings(heartbeat_ms=100, retry_ms=50)


def config(root: Path, role: BrokerRole, **more: object) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SMALL, broker_role=role, **more)


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def following(master: Daemon) -> HaSettings:
    where = master.listening
    return HaSettings(heartbeat_ms=100, retry_ms=50, master_broker=where.broker, master_address=where.ha)


def test_a_slave_follows_and_says_what_it_does_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "FIRST_S", 0.05)
    monkeypatch.setattr(sync, "EVERY_S", 0.1)
    masters, slaves = config(tmp_path / "m", BrokerRole.ASYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)

    async def run() -> None:
        async with daemon(tmp_path / "m", config=masters, ha=QUICK) as master:
            ha = following(master)
            one = await Client.to(master.listening.broker)
            for i in range(5):
                assert (await one.put("T", b"%d" % i)).code == 0
            await one.put("Late", b"delayed", 0, "DELAY\x011")
            place = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
            await one.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "3"})
            async with daemon(tmp_path / "s", config=slaves, ha=ha, broker_id=1) as slave:
                two = await Client.to(slave.listening.broker)
                await two.until_there("T", 5)
                await until(lambda: slave.broker.role.rounds > 0 and slave.broker.topics.find("T") is not None)
                assert slave.broker.topics.version == master.broker.topics.version
                assert (await two.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)).fields["offset"] == "3"

                found = await two.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))
                assert (found.code, found.fields["nextBeginOffset"]) == (0, "5")
                beyond = await two.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 77))
                assert (beyond.code, beyond.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "77")
                commits = {**pull_fields("T", 0), "sysFlag": "5", "commitOffset": "1"}
                await two.ask(RequestCode.PULL_MESSAGE, commits)
                assert slave.broker.offsets.get("G", "T", 0) == 3

                assert (await two.put("T", b"no")).code == ResponseCode.SERVICE_NOT_AVAILABLE
                end = {
                    "commitOrRollback": "8",
                    "producerGroup": "P",
                    "tranStateTableOffset": "0",
                    "commitLogOffset": "0",
                }
                assert (await two.ask(RequestCode.END_TRANSACTION, end)).code == ResponseCode.SLAVE_NOT_AVAILABLE
                topic = {
                    "topic": "New", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "order": "false",
                    "topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102",
                }  # fmt: skip
                refused = await two.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "slave" in (refused.remark or "")

                await one.until_there("Late", 1)  # the master delivers what was delayed; the slave copies that
                await two.until_there("Late", 1)
                assert slave.broker.store.max_offset("Late", 0) == 1

    asyncio.run(run())
    for root in ("m", "s"):
        assert_sound(StoreConfig(store_path_root_dir=tmp_path / root).with_changes(**SMALL))


def test_a_slave_that_becomes_a_master_delivers_no_timer_message_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits lies before those that were delivered."""
    monkeypatch.setattr(sync, "FIRST_S", 0.05)
    monkeypatch.setattr(sync, "EVERY_S", 0.1)
    monkeypatch.setattr(sync, "TIMERS_S", 0.03)
    masters, slaves = config(tmp_path / "m", BrokerRole.ASYNC_MASTER), config(tmp_path / "s", BrokerRole.SLAVE)

    async def follow() -> None:
        async with daemon(tmp_path / "m", config=masters, ha=QUICK) as master:
            ha = following(master)
            client, timers = await Client.to(master.listening.broker), master.broker.timers
            for milliseconds in (3_600_000, 1, 1, 1):
                assert (await client.put("T", b"x", 0, f"TIMER_DELAY_MS\x01{milliseconds}")).code == 0
            await client.until_there("T", 3)
            await until(lambda: timers.progress.queue_offset == 4 and timers.waiting == 1)
            answer = await client.ask(RequestCode.GET_TIMER_CHECK_POINT)
            assert timer_check.decode(answer.body).master_timer_queue_offset == 0  # where one of RocketMQ 5 goes on
            async with daemon(tmp_path / "s", config=slaves, ha=ha, broker_id=1) as slave:
                copied = slave.broker.timers
                await until(lambda: copied.progress.queue_offset == 4)
                assert copied.progress.first == 0
                await until(lambda: slave.broker.store.max_offset("T", 0) == 3)
                await until(lambda: slave.broker.topics.find("T") is not None)  # else it is delivered nowhere
                copied.take(TimerProgress(LONG_MAX, 99, 99), 1 << 40)  # its log is not here yet
                assert copied.progress.queue_offset == 4

    async def lead() -> None:
        async with daemon(tmp_path / "s", config=config(tmp_path / "s", BrokerRole.ASYNC_MASTER)) as served:
            broker = served.broker
            await until(lambda: broker.timers.waiting == 1)
            broker.now_ms = lambda: time.time_ns() // 1_000_000 + 3_700_000  # type: ignore[method-assign]
            await until(lambda: broker.timers.waiting == 0)
            broker.store.wait_dispatched()
            assert (broker.store.max_offset("T", 0), broker.timers.lost) == (4, 0)

    asyncio.run(follow())
    asyncio.run(lead())


def test_consumers_that_lag_are_sent_to_a_slave(tmp_path: Path) -> None:
    """Whoever is further behind than what fits the memory, where slaves may be read."""
    masters = config(tmp_path / "m", BrokerRole.ASYNC_MASTER, access_message_in_memory_max_ratio=0)

    async def run(slave_read: bool) -> list[str]:
        async with daemon(tmp_path / "m", config=masters, slave_read=slave_read) as master:
            client = await Client.to(master.listening.broker)
            for i in range(3):
                assert (await client.put("T", b"%d" % i)).code == 0
            await client.until_there("T", 3)
            end = int((await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})).fields["offset"])
            answers = [await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", at)) for at in (0, end)]
            return [answer.fields["suggestWhichBrokerId"] for answer in answers]

    assert asyncio.run(run(slave_read=True))[0] == "1"
    assert asyncio.run(run(slave_read=False)) == ["0", "0"]


@pytest.mark.parametrize("said", ["", "x", "1.5", "1" * 5000, str(1 << 63)])
def test_an_extent_that_is_no_number_is_told(said: str) -> None:
    assert extent({"commitLogMinOffset": "-1", "commitLogMaxOffset": "7"}) == (0, 7)
    with pytest.raises(FormatError, match="invalid commitLogMaxOffset"):
        extent({"commitLogMinOffset": "0", "commitLogMaxOffset": said})
