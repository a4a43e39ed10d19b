"""Replication against Apache: our slave behind its master, its slave behind our master, and what goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.broker.ha.follower import Diverged
from engine.broker.ha.replicate import ReplicateOptions, replicate
from engine.broker.ha.slave import LinkStatus
from engine.config import StoreConfig
from engine.format.message import Message
from engine.store import MessageStore
from tests.compat import real_broker, served, toolchain
from tests.compat.replicas import Produced, consume, log_bytes, produce, proxied, until
from tests.engine.opening import assert_sound

pytestmark = pytest.mark.interop

MANY = 100_000
FILE = 4 << 20
COMMON = f"""
brokerName=broker-a
mappedFileSizeCommitLog={FILE}
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=50000
maxIndexNum=200000
"""
SLAVE = COMMON + "brokerRole=SLAVE\nbrokerId=1\n"


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    """Apache's name server."""
    try:
        toolchain.apache_broker()
        with real_broker.name_server(tmp_path / "names") as address:
            yield address
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


def ha_port(broker: str) -> str:
    host, _, port = broker.rpartition(":")
    return f"{host}:{int(port) + 1}"


def end_of(root: Path) -> int:
    """Where the log of a store that runs ends: the last byte that is not 0."""
    last = max((root / "commitlog").iterdir(), key=lambda path: int(path.name), default=None)
    if last is None:
        return 0
    data = last.read_bytes().rstrip(b"\0")
    return int(last.name) + len(data)


def assert_same(master: Path, slave: Path, produced: Produced) -> None:
    """Byte-equal up to what was acknowledged."""
    start = min(int(path.name) for path in (slave / "commitlog").iterdir())
    assert start == 0
    assert produced.last > 0
    end = produced.last + 1
    assert log_bytes(slave, start, end) == log_bytes(master, start, end)


def config(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=FILE).with_changes(
        mapped_file_size_consume_queue=60000, max_hash_slot_num=50000, max_index_num=200000
    )


def test_a_slave_of_apaches_master(names: str, tmp_path: Path) -> None:
    """100 000 messages under load; the connection is cut five times, then the slave is killed and started again."""
    with real_broker.broker(tmp_path / "master", names, COMMON) as master, proxied(ha_port(master.broker)) as proxy:
        settings = f"{SLAVE}haMasterAddress={proxy.address}\n"
        with served.serve(tmp_path / "slave", settings, "--namesrv", names) as slave:
            found: list[Produced] = []
            load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", MANY, pause_s=0.02)))
            load.start()
            for _ in range(5):
                time.sleep(1)
                proxy.cut()
            slave.kill()
        with served.serve(tmp_path / "slave", settings, "--namesrv", names) as slave:
            load.join()
            (produced,) = found
            assert len(produced.bodies) == MANY
            until(lambda: len(consume(slave.broker, "Load")) == MANY, 90)
            assert consume(slave.broker, "Load") == produced.bodies
        assert_same(tmp_path / "master", tmp_path / "slave", produced)
    assert_sound(config(tmp_path / "slave"))


def test_apaches_slave_of_our_master(names: str, tmp_path: Path) -> None:
    """The same the other way round."""
    with ExitStack() as all_of_them:
        settings = COMMON + "brokerRole=ASYNC_MASTER\n"
        port = str(real_broker.free_port(4))  # Apache's slave asks for topics on the VIP port, two below
        options = ("--namesrv", names, "--port", port)
        master = all_of_them.enter_context(served.serve(tmp_path / "master", settings, *options))
        proxy = all_of_them.enter_context(proxied(ha_port(master.broker)))
        # Apache's slave begins an empty log with its master's last file: it is there before there are two.
        slave_settings = f"{SLAVE}haMasterAddress={proxy.address}\n"
        with real_broker.broker(tmp_path / "slave", names, slave_settings) as slave:
            found: list[Produced] = []
            produced = produce(master.broker, "Load", 1, name="first")
            until(lambda: end_of(tmp_path / "slave") > produced.last, 60)
            load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", MANY, pause_s=0.02)))
            load.start()
            for _ in range(5):
                time.sleep(1)
                proxy.cut()
            slave.kill()
        with real_broker.broker(tmp_path / "slave", names, slave_settings) as slave:
            load.join()
            assert len(found[0].bodies) == MANY
            until(lambda: end_of(tmp_path / "slave") > found[0].last, 90)
            bodies = produced.bodies | found[0].bodies
            until(lambda: len(consume(slave.broker, "Load")) == len(bodies), 90)
            assert consume(slave.broker, "Load") == bodies
        assert_same(tmp_path / "master", tmp_path / "slave", found[0])


@pytest.mark.parametrize(
    ("whose_slave", "flush"), [("ours", "ASYNC_FLUSH"), ("apache", "ASYNC_FLUSH"), ("apache", "SYNC_FLUSH")]
)
def test_a_sync_masters_word(names: str, tmp_path: Path, whose_slave: str, flush: str) -> None:
    """What a SYNC_MASTER has acknowledged is on its slave when the master is killed."""
    sync = f"{COMMON}brokerRole=SYNC_MASTER\nflushDiskType={flush}\n"
    slave = f"{SLAVE}haSendHeartbeatInterval=500\n"
    with ExitStack() as all_of_them:
        if whose_slave == "ours":
            master = all_of_them.enter_context(real_broker.broker(tmp_path / "master", names, sync))
            where = f"haMasterAddress={ha_port(master.broker)}\n"
            all_of_them.enter_context(served.serve(tmp_path / "slave", slave + where, "--namesrv", names))
        else:
            ours = all_of_them.enter_context(served.serve(tmp_path / "master", sync, "--namesrv", names))
            master = ours  # type: ignore[assignment]
            where = f"haMasterAddress={ha_port(ours.broker)}\n"
            all_of_them.enter_context(real_broker.broker(tmp_path / "slave", names, slave + where))
        until(lambda: produce(master.broker, "Load", 1, name="probe").codes == {0}, 60, "no slave came")
        found: list[Produced] = []
        load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", 50_000)))
        load.start()
        time.sleep(4)
        master.kill()
        load.join()
        (produced,) = found
        assert len(produced.bodies) > 100
        time.sleep(1)
        assert_same(tmp_path / "master", tmp_path / "slave", produced)


def test_replicate_and_what_stops_it(names: str, tmp_path: Path) -> None:
    """A backup of Apache's broker: resumed, cut within a record, ahead, and of other bytes."""
    copy = tmp_path / "copy"
    with real_broker.broker(tmp_path / "master", names, COMMON) as master:
        produced = produce(master.broker, "Load", 20_000, size=1000)
        wanted = ReplicateOptions(master.broker, until_caught_up=True)
        first = replicate(StoreConfig(store_path_root_dir=copy), wanted, lambda _: None)
        assert (first.start, first.lag, first.status) == (0, 0, LinkStatus.FOLLOWING)
        assert first.appended + 1 == first.end == first.dispatched
        assert_same(tmp_path / "master", copy, produced)
        assert_sound(config(copy))
        assert (copy / "config" / "topics.json").is_file()

        _cut_within_a_record(copy)
        more = produce(master.broker, "Load", 1000, name="more")
        again = replicate(config(copy), wanted, lambda _: None)
        assert 0 < again.appended < 1 << 20
        assert again.compared > 0
        assert_same(tmp_path / "master", copy, more)
        assert_sound(config(copy))

        with MessageStore.open(config(copy)) as store:
            end = store.log.max_offset
            assert store.put(Message("Load", b"of its own")).ok
        with pytest.raises(Diverged) as ahead:
            replicate(config(copy), wanted, lambda _: None)
        assert ahead.value.offset == end
        produce(master.broker, "Load", 1000, name="yet more")
        with pytest.raises(Diverged) as other:
            replicate(config(copy), wanted, lambda _: None)
        assert other.value.offset is not None
        assert end <= other.value.offset < end + 200


def _cut_within_a_record(root: Path) -> None:
    """As a crash does: the last bytes of the log are gone, and nobody has closed the store."""
    end = end_of(root)
    last = max((root / "commitlog").iterdir(), key=lambda path: int(path.name))
    with last.open("r+b") as file:
        file.seek(end - int(last.name) - 333)
        file.write(bytes(333))
    (root / "abort").touch()


def test_a_copy_that_begins_later(names: str, tmp_path: Path) -> None:
    """With the last file, as Apache's slaves; and of a master whose first files have expired."""
    with real_broker.broker(tmp_path / "master", names, COMMON) as master:
        produced = produce(master.broker, "Load", 20_000, size=1000)
        wanted = ReplicateOptions(master.broker, until_caught_up=True, last_file=True)
        found = replicate(StoreConfig(store_path_root_dir=tmp_path / "copy"), wanted, lambda _: None)
        assert found.start > 0
        assert found.start % FILE == 0
        end = produced.last + 1
        master_bytes = log_bytes(tmp_path / "master", found.start, end)
        assert log_bytes(tmp_path / "copy", found.start, end) == master_bytes
    assert_sound(config(tmp_path / "copy"))


def test_networks_that_fail(names: str, tmp_path: Path) -> None:
    """Slow, cut at random, and half open: no wrong byte, and all is there within 30 s of the network's return."""
    with real_broker.broker(tmp_path / "master", names, COMMON) as master, proxied(ha_port(master.broker)) as proxy:
        settings = (
            f"{SLAVE}haMasterAddress={proxy.address}\nhaHousekeepingInterval=3000\nhaSendHeartbeatInterval=1000\n"
        )
        with served.serve(tmp_path / "slave", settings, "--namesrv", names) as slave:
            first = produce(master.broker, "Load", 5000, name="a")
            proxy.delay_s = 0.05
            second = produce(master.broker, "Load", 5000, name="b")
            proxy.delay_s = 0.0
            proxy.stalled = True
            third = produce(master.broker, "Load", 5000, name="c")
            time.sleep(6)  # longer than either side believes in a silent peer
            proxy.cut()
            proxy.stalled = False
            bodies = first.bodies | second.bodies | third.bodies
            until(lambda: len(consume(slave.broker, "Load")) == len(bodies), 30)
            assert consume(slave.broker, "Load") == bodies
        assert_same(tmp_path / "master", tmp_path / "slave", third)
    assert_sound(config(tmp_path / "slave"))
