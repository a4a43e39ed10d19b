"""Replication against Apache: our slave behind its master, its slave behind our master, and what goes wrong."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.request
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
from engine.wire.codes import ResponseCode
from tests.compat import real_broker, served, toolchain
from tests.compat.replicas import Produced, consume, log_bytes, log_end, produce, proxied, until
from tests.engine.broker import certificates
from tests.engine.opening import assert_sound
from tests.support.wide import WIDE

pytestmark = pytest.mark.interop

MANY = 100_000 if WIDE else 50_000
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


def end_of(root: Path) -> int:
    """Where the log of a store that runs ends: the last byte that is not 0.

    Apache's makes its next file in advance: there it is the beginning of that one, from some moment on; ask `log_end`.
    """
    last = max((root / "commitlog").iterdir(), key=lambda path: int(path.name), default=None)
    if last is None:
        return 0
    data = last.read_bytes().rstrip(b"\0")
    return int(last.name) + len(data)


UNDER_LOAD = 1 << 20
"""Bytes of log that a slave has got when its master is killed: thousands of messages, few of which it had before."""


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
    """MANY messages under load; the connection is cut five times, then the slave is killed and started again."""
    with real_broker.broker(tmp_path / "master", names, COMMON) as master, proxied(master.ha) as proxy:
        settings = f"{SLAVE}haMasterAddress={proxy.address}\n"
        with served.serve(tmp_path / "slave", settings, "--namesrv", names) as slave:
            found: list[Produced] = []
            load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", MANY, pause_s=0.05)))
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
        proxy = all_of_them.enter_context(proxied(master.ha))
        # Apache's slave begins an empty log with its master's last file: it is there before there are two.
        slave_settings = f"{SLAVE}haMasterAddress={proxy.address}\n"
        with real_broker.broker(tmp_path / "slave", names, slave_settings) as slave:
            found: list[Produced] = []
            produced = produce(master.broker, "Load", 1, name="first")
            until(lambda: log_end(slave.broker) > produced.last, 60)
            load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", MANY, pause_s=0.05)))
            load.start()
            for _ in range(5):
                time.sleep(1)
                proxy.cut()
            slave.kill()
        with real_broker.broker(tmp_path / "slave", names, slave_settings) as slave:
            load.join()
            assert len(found[0].bodies) == MANY
            until(lambda: log_end(slave.broker) > found[0].last, 90)
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
    slaves = f"{SLAVE}haSendHeartbeatInterval=500\n"
    with ExitStack() as all_of_them:
        if whose_slave == "ours":
            master = all_of_them.enter_context(real_broker.broker(tmp_path / "master", names, sync))
            where = f"haMasterAddress={master.ha}\n"
            own = all_of_them.enter_context(served.serve(tmp_path / "slave", slaves + where, "--namesrv", names))
            slave = own.broker
        else:
            ours = all_of_them.enter_context(served.serve(tmp_path / "master", sync, "--namesrv", names))
            master = ours  # type: ignore[assignment]
            where = f"haMasterAddress={ours.ha}\n"
            slave = all_of_them.enter_context(real_broker.broker(tmp_path / "slave", names, slaves + where)).broker
        until(lambda: produce(master.broker, "Load", 1, name="probe").codes == {0}, 60, "no slave came")
        found: list[Produced] = []
        load = threading.Thread(target=lambda: found.append(produce(master.broker, "Load", 50_000)))
        load.start()
        until(lambda: log_end(slave) > UNDER_LOAD, 120, "the slave gets nothing")
        master.kill()
        load.join()
        (produced,) = found
        assert len(produced.bodies) > 100
        until(lambda: log_end(slave) > produced.last, 60, "the slave lacks what was acknowledged")
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
    with real_broker.broker(tmp_path / "master", names, COMMON) as master, proxied(master.ha) as proxy:
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
            until(lambda: log_end(slave.broker) > third.last, 30)
            until(lambda: len(consume(slave.broker, "Load")) == len(bodies), 120)  # its own time on a busy machine
            assert consume(slave.broker, "Load") == bodies
        assert_same(tmp_path / "master", tmp_path / "slave", third)
    assert_sound(config(tmp_path / "slave"))


ACL = """globalWhiteRemoteAddresses:
  - 127.0.0.1
accounts:
  - {accessKey: operator, secretKey: 87654321, admin: true}
"""
"""Apache's slaves sign nothing: the tables of a master with an ACL are copied from addresses that it trusts."""


def guard(by: str, place: Path) -> tuple[tuple[str, ...], ssl.SSLContext | None]:
    """Options of a master that lets not everybody in, and what a client needs; None: plain text."""
    if by == "acl":
        (place / "acl.yml").write_text(ACL)
        return ("--acl", str(place / "acl.yml")), None
    made = certificates.make(place / "certificates")
    return ("--tls-mode", "enforcing", "--tls-cert", made.cert, "--tls-key", made.key), made.client()


@pytest.mark.parametrize(
    ("by", "allow", "host"),
    [
        ("acl", "127.0.0.1", "127.0.0.1"),
        ("acl", "registered", "127.0.0.5"),
        ("tls", "127.0.0.1", "127.0.0.5"),
        ("tls", "registered", "127.0.0.1"),
    ],
)
def test_apaches_slave_of_a_guarded_master(names: str, tmp_path: Path, by: str, allow: str, host: str) -> None:
    """haAllow names its address, or the word for what registered; the port is where haListen says."""
    options, tls = guard(by, tmp_path)
    # Apache's slave asks for topics on the VIP port, two below
    options = (*options, "--namesrv", names, "--port", str(real_broker.free_port(4)))
    settings = f"{COMMON}brokerRole=SYNC_MASTER\nhaAllow={allow}\nhaListen={host}\n"
    with served.serve(tmp_path / "master", settings, *options) as master:
        _, _, port = master.ha.rpartition(":")
        slaves = f"{SLAVE}haSendHeartbeatInterval=500\nhaMasterAddress={host}:{port}\n"
        with real_broker.broker(tmp_path / "slave", names, slaves) as slave:
            until(lambda: produce(master.broker, "Load", 1, name="probe", tls=tls).codes == {0}, 60, "no slave came")
            produced = produce(master.broker, "Load", 2000, tls=tls)
            until(lambda: log_end(slave.broker) > produced.last, 60)
            if by == "acl":  # with TLS demanded it gets no tables: its requests for them are plain text
                until(lambda: consume(slave.broker, "Load") >= produced.bodies, 90)
    assert_same(tmp_path / "master", tmp_path / "slave", produced)
    assert_sound(config(tmp_path / "master"))


def rejected(port: int) -> float:
    """How many slaves a master has rejected by their address, as its metrics say."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    name = 'rstore_slave_connections_rejected_total{reason="address"} '
    (value,) = (line.removeprefix(name) for line in lines if line.startswith(name))
    return float(value)


@pytest.mark.parametrize(
    ("by", "allow", "slaves_name"),
    [
        ("acl", "127.0.0.9, fd00::/8", "broker-a"),
        ("tls", "127.0.0.9", "broker-a"),
        ("acl", "registered", "broker-b"),
    ],
)
def test_apaches_slave_that_is_kept_out(names: str, tmp_path: Path, by: str, allow: str, slaves_name: str) -> None:
    """Of another address than haAllow names, or registered as another broker's: it gets no byte, and is no slave."""
    options, tls = guard(by, tmp_path)
    metrics = real_broker.free_port(1)
    options = (*options, "--namesrv", names, "--metrics-port", str(metrics))
    settings = f"{COMMON}brokerRole=SYNC_MASTER\nhaAllow={allow}\n"
    with served.serve(tmp_path / "master", settings, *options) as master:
        assert rejected(metrics) == 0
        slaves = f"{SLAVE}brokerName={slaves_name}\nhaMasterAddress={master.ha}\n"
        with real_broker.broker(tmp_path / "slave", names, slaves):
            until(lambda: rejected(metrics) >= 1)
            before = rejected(metrics)
            assert produce(master.broker, "Load", 10, tls=tls).codes == {ResponseCode.SLAVE_NOT_AVAILABLE}
            until(lambda: rejected(metrics) > before)
        assert not any(path.read_bytes().strip(b"\0") for path in (tmp_path / "slave").glob("commitlog/*"))
    log = [json.loads(line) for line in (tmp_path / "master.log").read_text().splitlines() if line.startswith("{")]
    told = [one for one in log if one["message"] == "slave connection rejected"]
    assert told
    for one in told:
        assert one["why"] == f"haAllow does not allow it: {allow}"
        assert one["peer"].startswith("127.0.0.1:")
    assert "slave connected" not in {one["message"] for one in log}
    assert_sound(config(tmp_path / "master"))
