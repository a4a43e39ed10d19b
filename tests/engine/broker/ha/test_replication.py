"""A master and its slave, both ours, over a real socket: what the slave has is what the master has, byte for byte."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave import LinkStatus
from engine.config import BrokerRole
from engine.log.results import PutMessageStatus
from engine.store import MessageStore
from engine.wire.ha import HEADER, TransferReader, encode_ack, encode_header
from tests.engine.broker.ha.pair import QUICK, WAIT_S, Pair, log_of, until
from tests.engine.opening import bodies, message, small


def test_the_slave_has_the_masters_bytes(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    one.put(500)
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    one.put(1500)
    until(lambda: client.state.end == one.master.log.max_offset)
    until(lambda: one.service.slaves[0].lag == 0)
    assert client.state.status is LinkStatus.FOLLOWING
    end = one.master.log.max_offset
    store = one.slaves[0][0]
    assert store.wait_dispatched()
    assert one.master.wait_dispatched()
    for queue_id in range(3):
        assert bodies(store, "T", queue_id) == bodies(one.master, "T", queue_id)
    assert len(store.query("T", "k7").messages) == 2
    assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_an_empty_slave_begins_with_the_last_file_unless_told_otherwise(pair: Callable[..., Pair]) -> None:
    one = pair()
    one.put(1500)
    client = one.slave(start=None)
    until(lambda: client.state.end == one.master.log.max_offset)
    assert one.slaves[0][0].log.min_offset == one.master.log.segments[-1].offset > 0


def test_cut_connections_and_restarts(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    client = one.slave()
    for turn in range(5):
        one.put(100)
        client._cut()
        if turn == 2:
            one.close_slave()
            one.put(100)
            client = one.slave()
        follower = client
        until(lambda follower=follower: follower.state.end == one.master.log.max_offset)  # type: ignore[misc]
    assert client.state.compared > 0
    end = one.master.log.max_offset
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_slave_that_is_ahead_says_where(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    one.put(10)
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset)
    one.close_slave()
    ahead = MessageStore.open(small(tmp_path / "slave"))
    end = ahead.log.max_offset
    assert ahead.put(message("more")).ok
    ahead.close()
    client = one.slave()
    until(lambda: client.state.status is LinkStatus.DIVERGED)
    error = client.state.error
    assert error is not None
    assert error.offset == end
    assert "ahead" in str(error)


def test_a_slave_with_other_bytes_says_where(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair()
    one.put(10)
    other = MessageStore.open(small(tmp_path / "slave"))
    for i in range(12):
        assert other.put(message(b"x" * 100, i % 3, KEYS=f"k{i}")).ok
    other.close()
    client = one.slave()
    until(lambda: client.state.status is LinkStatus.DIVERGED)
    error = client.state.error
    assert error is not None
    ours, theirs = (log_of(tmp_path / name, 1000) for name in ("slave", "master"))
    assert error.offset == next(i for i in range(1, 1000) if ours[i] != theirs[i])


def test_a_sync_master_waits_for_its_slave(pair: Callable[..., Pair]) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    client = one.slave()
    until(lambda: client.state.end == one.master.log.max_offset and one.service.slaves[0].acked is not None)
    for i in range(20):
        result = one.master.put(message(str(i)))
        assert result.status is PutMessageStatus.PUT_OK
        assert result.append is not None
        assert client.state.end >= result.append.next_offset
    assert one.master.put(message(), wait=False).ok


def test_a_slave_that_is_silent_lets_puts_wait_in_vain(pair: Callable[..., Pair]) -> None:
    one = pair(BrokerRole.SYNC_MASTER, ha=replace(QUICK, housekeeping_ms=5000), slave_timeout=500)
    one.put(1)
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.sendall(encode_ack(one.master.log.max_offset))
        until(lambda: bool(one.service.slaves) and one.service.slaves[0].acked is not None)
        began = time.monotonic()
        assert one.master.put(message()).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert time.monotonic() - began > 0.4
        until(lambda: not one.service.slaves)  # housekeeping: it is silent still


@pytest.mark.parametrize("report", [1 << 40, -1])
def test_a_report_that_cannot_be_true_ends_the_connection(pair: Callable[..., Pair], report: int) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.settimeout(WAIT_S)
        link.sendall(encode_ack(report))
        said = link.recv(100)
        assert said == (encode_header(0, 0) if report > 0 else b"")  # where our log ends
        assert link.recv(1) == b""
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("report", [1 << 40, -1])
def test_so_does_a_later_one(pair: Callable[..., Pair], report: int) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    one.put(1)
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.settimeout(WAIT_S)
        link.sendall(encode_ack(1))
        assert link.recv(1)
        link.sendall(encode_ack(one.master.log.max_offset))
        until(lambda: bool(one.service.slaves) and one.service.slaves[0].lag == 0)
        link.sendall(encode_ack(report))
        while link.recv(1 << 16):
            pass
    until(lambda: one.service.rejections["fault"] == 1)
    until(lambda: not one.service.slaves)
    assert one.master.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_a_slave_that_takes_little_at_a_time_gets_every_byte(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    one.put(1)
    data = bytearray(1)
    reader = TransferReader()
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", one.port))
        link.settimeout(WAIT_S)
        link.sendall(encode_ack(1))
        until(lambda: bool(one.service.slaves) and one.service.slaves[0].acked is not None)
        stream = one.service._links[0]._stream  # the system takes a part of a transfer only
        stream._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(50):
            one.put(1, 20_000)
            while len(data) < one.master.log.max_offset:
                for offset, body in reader.feed(link.recv(3001)):
                    assert offset == len(data)
                    data += body
                link.sendall(encode_ack(len(data)))
    end = one.master.log.max_offset
    one.close()
    assert bytes(data) == log_of(tmp_path / "master", end)


def test_what_begins_the_next_file_goes_with_what_ends_this_one(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.broker.ha.link._LOOK_S", 600.0)
    one = pair(BrokerRole.SYNC_MASTER, ha=HaSettings(heartbeat_ms=600_000, housekeeping_ms=600_000))
    one.put(1)
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.settimeout(WAIT_S)
        link.sendall(encode_ack(1))
        reader = TransferReader()
        end = 1
        for _ in range(20):  # of 20 KB each, in files of 64 KiB; each is one wake
            while end < one.master.log.max_offset:
                end = max(end, *(transfer.end for transfer in reader.feed(link.recv(1 << 16))), 0)
            one.put(1, 20_000)
        assert len(one.master.log.segments) > 5


def test_puts_of_many_threads_go_in_order(pair: Callable[..., Pair], tmp_path: Path) -> None:
    one = pair(BrokerRole.SYNC_MASTER)
    client = one.slave()
    until(lambda: bool(one.service.slaves) and one.service.slaves[0].acked is not None)
    stream = one.service._links[0]._stream
    stream._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(one.put, 40, 9000) for _ in range(8)]:
            done.result()
    end = one.master.log.max_offset
    until(lambda: client.state.end == end)
    assert client.state.error is None
    one.close()
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_transfers_stay_within_files_and_batches(pair: Callable[..., Pair]) -> None:
    one = pair()
    one.put(2000)
    end = one.master.log.max_offset
    reader = TransferReader()
    at, heartbeats = 1, 0
    with socket.create_connection(("127.0.0.1", one.port)) as link:
        link.sendall(encode_ack(1))
        while not heartbeats:
            for offset, body in reader.feed(link.recv(1 << 16)):
                assert offset == at
                assert len(body) <= QUICK.batch
                assert not body or offset // 65536 == (offset + len(body) - 1) // 65536
                at += len(body)
                heartbeats += not body
    assert at == end


def test_many_slaves_at_a_time(pair: Callable[..., Pair]) -> None:
    one = pair()
    clients = [one.slave(f"slave-{i}") for i in range(4)]
    putting = threading.Thread(target=one.put, args=(2000,))
    putting.start()
    putting.join()
    for client in clients:
        until(lambda client=client: client.state.end == one.master.log.max_offset)  # type: ignore[misc]
    assert HEADER.size == 12
