"""Running brokers as sources: a master over replication, the store of a slave that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from engine.client.remote_broker import RemoteBroker
from engine.config import of_store
from engine.errors import CannotRepair, PeerLost
from engine.files.disk import Disk
from engine.heal.peer import PeerSource
from engine.heal.sources import StoreSource
from engine.repair.change import Ending
from tests.conftest import Store
from tests.engine.broker.client import daemon
from tests.engine.broker.ha.conftest import pair  # noqa: F401
from tests.engine.broker.ha.pair import Pair, until
from tests.engine.heal.healing import assert_healed, damaged, heal, log_of, records_of, recovered, write
from tests.support import stores

Make = Callable[..., Pair]


@pytest.fixture
def good(fixture_copy: Store) -> Path:
    return recovered(fixture_copy("crashed-small"))


def beside(root: Path, ask: Callable[[str], None]) -> None:
    """Run something in a thread while a daemon serves a store."""

    async def run() -> None:
        async with daemon(root, config=of_store(root)) as serving:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, ask, serving.listening.broker)

    asyncio.run(run())


@pytest.mark.leaves("config-missing", "topic-hidden")  # the daemon makes a topics.json of its own
def test_a_live_master(good: Path, tmp_path: Path) -> None:
    truth = log_of(good)
    store = damaged(good, tmp_path / "store", Random(1), ("body", "missing", "page", "short", "zeros", "head"))

    def ask(address: str) -> None:
        source = PeerSource(RemoteBroker(address))
        outcome = heal(store, source)
        assert_healed(outcome, store, truth)
        assert {name for one in outcome.plan.healed for name in one.copies} == {address}

    beside(stores.copy(good, tmp_path / "master"), ask)


@pytest.mark.leaves
def test_a_live_master_of_another_log(good: Path, fixture_copy: Store, tmp_path: Path) -> None:
    store = damaged(good, tmp_path / "store", Random(1), ("body",))
    before = log_of(store)

    def ask(address: str) -> None:
        with pytest.raises(CannotRepair, match="has other bytes at"):
            heal(store, PeerSource(RemoteBroker(address)))

    beside(recovered(fixture_copy("clean-small")), ask)
    assert log_of(store) == before


@pytest.mark.leaves
def test_a_master_that_goes_away(good: Path, tmp_path: Path) -> None:
    store = damaged(good, tmp_path / "store", Random(1), ("body",))
    gone: list[PeerSource] = []
    beside(stores.copy(good, tmp_path / "master"), lambda address: gone.append(PeerSource(RemoteBroker(address))))
    with pytest.raises(CannotRepair, match="connection refused"):
        heal(store, gone[0])
    with pytest.raises(PeerLost):
        gone[0].read(0, 10)
    assert heal(store, gone[0], good).ending is Ending.APPLIED


@pytest.mark.leaves
def test_the_store_of_a_slave_that_is_open(pair: Make, tmp_path: Path) -> None:  # noqa: F811
    one = pair()
    one.put(900, 200)
    one.slave()
    until(lambda: one.slaves[0][0].log.max_offset == one.master.log.max_offset)
    store = stores.copy_running(tmp_path / "master", tmp_path / "store")
    recovered(store)
    truth = log_of(store)
    records = [one for one in records_of(store) if one[0] < 65536]
    for record in records[20:400:40]:
        write_small(store, record[0] + 90, b"\xff\x00\xff")
    outcome = heal(store, StoreSource(Disk(), str(tmp_path / "slave"), str(store)))
    assert_healed(outcome, store, truth)
    assert len(outcome.plan.healed) >= 5


def write_small(store: Path, offset: int, data: bytes) -> None:
    """As `write`, where segments have 64 KiB: the first one."""
    assert offset < 65536
    write(store, offset, data)
