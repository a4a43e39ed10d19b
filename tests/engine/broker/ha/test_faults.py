"""Replication with peers that lie, are silent or die, disks that are full, and logs whose beginning has gone."""

from __future__ import annotations

import errno
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.ha.follower import Diverged
from engine.broker.ha.master import LINKS, PER_ADDRESS
from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave import LinkStatus
from engine.config import BrokerRole
from engine.errors import DiskFull
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.log.incoming import BadRecord
from engine.log.results import PutMessageStatus
from engine.log.scan import RecordBatch, Scanner
from engine.store import MessageStore
from engine.wire.ha import encode_ack, encode_header
from tests.engine.broker.ha.pair import QUICK, WAIT_S, Pair, log_of, until
from tests.engine.opening import assert_sound, bodies, message, small

Make = Callable[..., Pair]
PATIENT = HaSettings(housekeeping_ms=120_000, retry_ms=50)
NOISE = random.Random(7).randbytes(1 << 16)


@contextmanager
def liar(*said: bytes) -> Iterator[int]:
    """A master that says this to each slave that reports, and then closes; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(WAIT_S)
                    try:
                        client.recv(8)
                        for piece in said:
                            client.sendall(piece)
                        client.shutdown(socket.SHUT_WR)
                        client.recv(8)
                    except OSError:
                        pass

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (NOISE, "invalid transfer of"),
        (struct.pack(">qi", 1, 1 << 30), "invalid transfer of 1073741824 bytes at offset 1"),
        (struct.pack(">qi", 1, -5), "invalid transfer of -5 bytes"),
        (struct.pack(">qi", -1, 10), "invalid transfer of 10 bytes at offset -1"),
        (struct.pack(">qi", (1 << 63) - 1, 100) + bytes(100), "invalid transfer of 100 bytes"),
        (encode_header(12345, 10) + bytes(10), "the master sent offset 12345, expected 1"),
        (encode_header(1, 1000) + NOISE[:1000], "no sound record: no message magic"),
        (encode_header(1, 1000) + bytes(1000), "no sound record: nothing written here"),
        (encode_header(1, 7) + NOISE[:7], "no sound record: no message magic"),
        (b"\0", "the connection was closed"),
        (b"", "the connection was closed"),
    ],
)
def test_a_slave_takes_nothing_of_a_master_that_lies_and_then_follows_another(
    pair: Make, tmp_path: Path, said: bytes, named: str
) -> None:
    one = pair()
    one.put(20)
    with liar(said) as port:
        client = one.slave(port=port)
        until(lambda: client.state.error is not None)
        state = client.state
        assert state.end == state.appended == 0
        assert named in str(state.error)
        assert state.status is (LinkStatus.AWAY if "closed" in named else LinkStatus.FAULTY)
        assert one.slaves[0][0].log.segments == ()
        client.follow(f"127.0.0.1:{one.port}")
        until(lambda: client.state.end == one.master.log.max_offset)
    end = one.master.log.max_offset
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_master_that_dies_within_a_transfer(pair: Make, tmp_path: Path) -> None:
    one = pair()
    one.put(50)
    head = log_of(tmp_path / "master", 5000)[1:]
    whole = max(offset for offset in ends_of(one.master) if offset <= 3334)
    assert whole < 3334
    with liar(encode_header(1, len(head)) + head[:3333]) as port:
        client = one.slave(port=port)
        until(lambda: client.state.end == whole)  # cut within a record, whose beginning is not appended
        until(lambda: client.state.status is LinkStatus.AWAY)
        client.follow(f"127.0.0.1:{one.port}")
        until(lambda: client.state.end == one.master.log.max_offset)
        assert client.state.compared >= whole - 1
    end = one.master.log.max_offset
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_slave_that_never_reads_harms_nobody(pair: Make) -> None:
    """The writer waits in the system's call; the others, and puts, go on; it is let go in the end."""
    one = pair(BrokerRole.SYNC_MASTER, ha=replace(QUICK, housekeeping_ms=2000))
    client = one.slave()
    one.put(100)
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", one.port))
        link.sendall(encode_ack(1))
        until(lambda: len(one.service.slaves) == 2)
        one.put(2000, size=3000)
        until(lambda: client.state.end == one.master.log.max_offset)
        until(lambda: any(slave.lag == 0 for slave in one.service.slaves))
        assert one.master.put(message()).status is PutMessageStatus.PUT_OK
        until(lambda: len(one.service.slaves) == 1)


def test_many_that_never_report_are_bounded_and_make_room(pair: Make) -> None:
    """Of one address few, of many addresses LINKS; a slave that comes then is served."""
    one = pair(ha=PATIENT)
    one.put(10)
    before = threading.active_count()
    with ExitStack() as held:
        for i in range(200):
            source = (f"127.0.0.{2 + i // 20}", 0)
            held.enter_context(socket.create_connection(("127.0.0.1", one.port), 10, source))
        until(lambda: len(one.service.slaves) == LINKS)
        hosts = Counter(slave.address.rpartition(":")[0] for slave in one.service.slaves)
        assert max(hosts.values()) <= PER_ADDRESS
        client = one.slave()
        until(lambda: client.state.end == one.master.log.max_offset)
        assert len(one.service.slaves) <= LINKS
        assert threading.active_count() <= before + LINKS + 20
    until(lambda: len(one.service.slaves) == 1)
    assert one.service.rejections["silent"] > 100


def test_those_that_are_behind_and_do_not_come_on_give_way(pair: Make) -> None:
    """All places are taken by sockets that have asked for the log and read nothing of it; also of the slave's own
    address."""
    one = pair(ha=replace(PATIENT, heartbeat_ms=100), mapped_file_size_commit_log=1 << 22)
    one.put(2000, size=3000)  # more than sockets take
    with ExitStack() as held:
        for i in range(2 * LINKS):
            link = held.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.bind((f"127.0.0.{1 + i // 16}", 0))
            link.connect(("127.0.0.1", one.port))
            with suppress(OSError):  # it was rejected already
                link.sendall(encode_ack(1))
        until(lambda: one.service.rejections["limit"] > 0)
        assert len(one.service.slaves) <= LINKS
        client = one.slave()
        until(lambda: client.state.end == one.master.log.max_offset)
        assert one.service.rejections["replaced"] > 0


def test_an_address_with_many_connections_gives_way_to_one_with_few(pair: Make) -> None:
    """All places are taken by sockets that read and report as slaves do."""
    one = pair(ha=QUICK)  # with heartbeats, so that the slave that comes stays, however long this takes
    one.put(5)
    end = one.master.log.max_offset
    with ExitStack() as held:
        for i in range(LINKS):
            source = (f"127.0.0.{2 + i // PER_ADDRESS}", 0)
            link = held.enter_context(socket.create_connection(("127.0.0.1", one.port), 10, source))
            link.sendall(encode_ack(end))
        until(lambda: [slave.acked for slave in one.service.slaves] == [end] * LINKS)
        client = one.slave()
        until(lambda: client.state.end == end and client.state.status is LinkStatus.FOLLOWING)
        assert one.service.rejections["replaced"] == 1
        assert one.service.rejections["limit"] == 0


def test_a_byte_now_and_then_is_no_sign_of_life(pair: Make) -> None:
    """haHousekeepingInterval (2 s here) is for a whole report, the first and each other."""
    one = pair(ha=replace(QUICK, housekeeping_ms=2000))
    one.put(5)
    for said in (b"", encode_ack(one.master.log.max_offset)):
        with socket.create_connection(("127.0.0.1", one.port)) as link:
            link.sendall(said)
            began = time.monotonic()
            with suppress(OSError):
                while time.monotonic() - began < 60:
                    link.sendall(b"\0" if time.monotonic() - began < 1.5 else b"")
                    link.settimeout(0.3)
                    with suppress(TimeoutError):
                        if not link.recv(1 << 20):
                            break
            assert 1.5 < time.monotonic() - began < 30
    assert one.service.rejections["silent"] == 1


def test_what_was_not_sent_can_not_be_acknowledged(pair: Make) -> None:
    """A put is acknowledged by what a connection was sent; who reports more is cut off, a first report confirms
    nothing."""
    one = pair(BrokerRole.SYNC_MASTER, ha=PATIENT, slave_timeout=500)
    one.put(3)
    end = one.master.log.max_offset
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.settimeout(WAIT_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        link.sendall(encode_ack(1))
        until(lambda: bool(one.service.slaves) and one.service.slaves[0].acked == 1)
        one.put(2000, size=12_000)  # more than the system holds for a connection
        link.sendall(encode_ack(one.master.log.max_offset))  # more than was sent: nothing was read
        until(lambda: one.service.rejections["fault"] == 1)  # before anything is read, and more is sent
        with suppress(ConnectionResetError):
            while link.recv(1 << 20):
                pass
    until(lambda: not one.service.slaves)
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE

    statuses = []
    putting = threading.Thread(target=lambda: statuses.append(one.master.put(message()).status))
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.sendall(encode_ack(one.master.log.max_offset))
        until(lambda: bool(one.service.slaves) and one.service.slaves[0].acked is not None)
        putting.start()
        until(lambda: one.master.log.max_offset > end)
        with socket.create_connection(("127.0.0.1", one.port)) as other:
            other.sendall(encode_ack(one.master.log.max_offset))
            putting.join()
    assert statuses == [PutMessageStatus.FLUSH_SLAVE_TIMEOUT]


def test_a_full_disk_stops_a_slave_until_there_is_room(pair: Make, tmp_path: Path) -> None:
    disk = FaultyDisk(None)
    one = pair()
    one.put(10)
    client = one.slave(disk=disk)
    until(lambda: client.state.end == one.master.log.max_offset)
    log = str(tmp_path / "slave" / "commitlog")
    disk.fail_when(
        lambda doing: doing.path.startswith(log) and doing.operation in (Operation.CREATE, Operation.ALLOCATE),
        errno.ENOSPC,
    )
    one.put(1500)
    until(lambda: isinstance(client.state.error, DiskFull))
    assert 0 < client.state.end < one.master.log.max_offset
    disk.heal()
    until(lambda: client.state.end == one.master.log.max_offset)
    assert client.state.error is None
    end = one.master.log.max_offset
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_record_damaged_on_the_way_is_named_and_not_appended(pair: Make, tmp_path: Path) -> None:
    one = pair()
    one.put(30)
    end = one.master.log.max_offset
    data = bytearray(log_of(tmp_path / "master", end)[1:])
    at = end * 2 // 3
    data[at - 1] ^= 0x10
    sound = max(offset for offset in ends_of(one.master) if offset <= at)
    with liar(encode_header(1, len(data)) + data) as port:
        client = one.slave(port=port)
        until(lambda: client.state.status is LinkStatus.FAULTY)
        state, store = client.state, one.slaves[0][0]
        assert isinstance(state.error, BadRecord)
        assert (state.error.offset, state.end) == (sound, sound)
        assert store.wait_dispatched()
        assert store.errors == ()
        served = [body for queue in range(3) for body in bodies(store, "T", queue)]
        assert 10 < len(served) < 30
    client.follow(f"127.0.0.1:{one.port}")  # what is here is the master's
    until(lambda: client.state.end == end)
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_faulty_master_is_tried_less_and_less_and_stays_named(pair: Make) -> None:
    one = pair()
    with liar(NOISE) as port:
        began = time.monotonic()
        client = one.slave(port=port)
        states: list[LinkStatus] = []
        until(lambda: client._faults >= 5)
        assert time.monotonic() - began > 0.05 * (2 + 4 + 8 + 16)  # from retry_ms on, twice as long each time
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            states.append(client.state.status)
            time.sleep(0.01)
        assert set(states) == {LinkStatus.FAULTY}
    assert client.state.error is not None  # away as well now, but named still
    assert "invalid transfer" in str(client.state.error)


def test_a_file_for_a_few_records(pair: Make, tmp_path: Path) -> None:
    size = 4096
    one = pair(mapped_file_size_commit_log=size)
    client = one.slave()
    one.put(200)
    client._cut()
    one.put(200)
    until(lambda: client.state.end == one.master.log.max_offset)
    end = one.master.log.max_offset
    assert end > 10 * size
    store = one.slaves[0][0]
    assert store.wait_dispatched()
    assert bodies(store, "T", 1) == bodies(one.master, "T", 1)
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def ends_of(store: MessageStore) -> list[int]:
    """Where its records end, physical."""
    scanned = Scanner(store.log).scan(0, store.log.max_offset)
    return [
        int(row[0] + row[1]) + event.start for event in scanned if isinstance(event, RecordBatch) for row in event.rows
    ]


def expire(store: MessageStore, files: int) -> int:
    """The first files of a log go, as they do by age; where it begins then."""
    assert store.wait_dispatched()
    for _ in range(files):
        assert store.log.files.delete_first(0)
    return store.log.min_offset


def test_an_empty_slave_begins_where_its_masters_log_does(pair: Make, tmp_path: Path) -> None:
    one = pair()
    one.put(2000)
    begin = expire(one.master, 2)
    assert begin > 0
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    assert one.slaves[0][0].log.min_offset == begin


def test_expiry_within_what_is_compared_and_behind_a_slave(pair: Make) -> None:
    one = pair()
    one.put(1200)
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    end = client.state.end
    one.close_slave()
    one.put(1200)
    begin = expire(one.master, 1)
    client = one.slave()  # asks for what has gone, is told, and asks for what is there
    until(lambda: client.state.end == one.master.log.max_offset)
    assert client.state.compared == end - begin
    end = client.state.end
    one.close_slave()
    one.put(3000)
    while one.master.log.min_offset <= end:
        expire(one.master, 1)
    client = one.slave()
    until(lambda: client.state.status is LinkStatus.DIVERGED)
    error = client.state.error
    assert isinstance(error, Diverged)
    assert error.offset == end
    assert f"log start is {one.master.log.min_offset}" in str(error)


def test_a_master_that_says_elsewhere_where_its_log_begins(pair: Make) -> None:
    """Apache's service sends heartbeats of what was asked for, and does not say that it has gone."""
    one = pair()
    one.put(2000)
    begin = expire(one.master, 1)
    with liar(encode_header(1, 0)) as port:
        client = one.slave(port=port)
        until(lambda: client.state.error is not None)
        client.follow(f"127.0.0.1:{one.port}")
        client.know(begin, one.master.log.max_offset)
        until(lambda: client.state.lag == 0)
    assert one.slaves[0][0].log.min_offset == begin


def test_a_slave_of_a_master_that_was_emptied(pair: Make, tmp_path: Path) -> None:
    """More is here than is compared: the master says where its log ends."""
    one = pair()
    other = MessageStore.open(small(tmp_path / "slave"))
    for _ in range(500):
        assert other.put(message(b"x" * 100)).ok
    other.close()
    client = one.slave(overlap=100)
    until(lambda: client.state.status is LinkStatus.DIVERGED)
    assert client.state.error is not None
    assert client.state.error.offset == 0
    assert "ahead" in str(client.state.error)


def test_a_slave_that_reports_before_the_put_asks(pair: Make) -> None:
    """A report that comes between the append and the wait for it answers the put, too."""
    one = pair(BrokerRole.SYNC_MASTER)
    client = one.slave()
    one.put(10)
    end = one.master.log.max_offset
    until(lambda: client.state.end == end and one.service.slaves[0].acked == end)
    future = one.service.replicate(end)
    assert future.done
    assert future.outcome is PutMessageStatus.PUT_OK


def test_a_slave_that_comes_back_reports_what_was_compared(pair: Make) -> None:
    one = pair()
    one.put(100)
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    client._cut()
    until(lambda: client.state.compared > 0)
    until(lambda: [slave.lag for slave in one.service.slaves] == [0])


def test_only_what_is_committed_leaves_a_transient_pool(pair: Make, tmp_path: Path) -> None:
    one = pair(transient_store_pool_enable=True, transient_store_pool_size=3)
    client = one.slave()
    ahead = []
    for _ in range(20):
        one.put(50)
        ahead.append(one.slaves[0][0].log.max_offset <= one.master.log.committed_where)
    until(lambda: client.state.end == one.master.log.files.max_wrote_position)
    assert all(ahead)
    end = client.state.end
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_throttled_slave_goes_no_faster_and_stops_at_once(pair: Make) -> None:
    one = pair()
    one.put(3000)
    began = time.monotonic()
    client = one.slave(bytes_per_s=400_000)
    until(lambda: client.state.appended > 200_000)
    assert time.monotonic() - began > 200_000 / 400_000 * 0.5
    began = time.monotonic()
    client.stop()
    assert time.monotonic() - began < 60  # who is silent is waited for twice as long


def test_both_sides_end_quickly_while_the_other_is_there(pair: Make, tmp_path: Path) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    client = one.slave()
    one.put(100)  # within one file: a log that ends behind a closing blank loses that blank when it is recovered
    began = time.monotonic()
    one.service.stop()
    assert time.monotonic() - began < 60  # who is silent is waited for twice as long
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("HAConnection")]
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    began = time.monotonic()
    client.stop()
    assert time.monotonic() - began < 60  # who is silent is waited for twice as long
    one.close()
    assert_sound(small(tmp_path / "master"))


@pytest.mark.parametrize("said", ["a..b:1", "127.0.0.1:" + "1" * 5000])
def test_a_slave_is_told_of_a_master_at_no_address_and_then_of_its_own(pair: Make, said: str) -> None:
    one = pair()
    one.put(20)
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    client.follow(said)
    until(lambda: client.state.error is not None and "is not HOST:PORT" in str(client.state.error))
    one.put(20)
    client.follow(f"127.0.0.1:{one.port}")
    until(lambda: client.state.end == one.master.log.max_offset)
