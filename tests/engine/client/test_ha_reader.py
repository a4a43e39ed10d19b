"""Ranges of a running broker's log, read as a slave reads it, by who must not be taken for a slave."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.net.tls import TlsMode, TlsSettings
from engine.client import ha_reader
from engine.client.ha_reader import HaReader, OutsideLog
from engine.client.remote_broker import RemoteBroker
from engine.client.stream import Untrusted
from engine.config import BrokerRole
from engine.errors import FormatError, PeerLost, StorageError
from engine.log.results import PutMessageStatus
from engine.wire.ha import ACK, encode_header
from tests.engine.broker import certificates
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.broker.ha.conftest import pair  # noqa: F401
from tests.engine.broker.ha.pair import QUICK, Pair, log_of, until
from tests.engine.opening import message

Make = Callable[..., Pair]


def reader_of(one: Pair, timeout_s: float = 20.0) -> HaReader:
    return HaReader("127.0.0.1", one.port, timeout_s=timeout_s, heartbeat_s=0.05)


@contextmanager
def played(*said: bytes) -> Iterator[tuple[int, list[int]]]:
    """A master that says `said` to each connection and waits for its end: its port, and all that was reported."""
    reports: list[int] = []

    def serve(client: socket.socket) -> None:
        with client:
            data = client.recv(ACK.size)
            reports.extend(ACK.unpack(data))
            for piece in said:
                client.sendall(piece)
            while data := client.recv(ACK.size):
                reports.extend(ACK.unpack(data))

    def run() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1], reports
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_any_range(pair: Make, tmp_path: Path) -> None:  # noqa: F811
    one = pair()
    one.put(300, 500)
    end = one.master.log.max_offset
    log = log_of(tmp_path / "master", end)
    draw = random.Random(3)
    with reader_of(one) as reader:
        assert reader.read(0, end) == log
        assert reader.connections == 1
        for _ in range(30):
            first, last = sorted(draw.sample(range(end + 1), 2))
            assert reader.read(first, last - first) == log[first:last]
        reader.close()
        assert reader.read(0, 1) == log[:1]
        before = reader.connections
        assert reader.read(100, 50) + reader.read(5000, 50) == log[100:150] + log[5000:5050]
        assert reader.connections == before  # it went on, and dropped what lies between


def test_what_comes_later(pair: Make, tmp_path: Path) -> None:  # noqa: F811
    one = pair()
    one.put(5)
    with reader_of(one) as reader:
        got = reader.read(0, one.master.log.max_offset)
        assert reader.read_some(len(got), 1 << 20, 0.05) == b""
        one.put(5)
        while len(got) < one.master.log.max_offset:
            got += reader.read_some(len(got), 100, 5)
        assert got == log_of(tmp_path / "master", len(got))
        assert reader.connections == 1


def test_beyond_the_log(pair: Make) -> None:  # noqa: F811
    one = pair()
    one.put(5)
    end = one.master.log.max_offset
    with reader_of(one) as reader:
        for offset in (end - 10, end + 1000):
            with pytest.raises(OutsideLog) as error:
                reader.read(offset, 20)
            assert isinstance(error.value, StorageError)
        assert reader.read(end - 10, 10)


def test_no_put_is_answered_by_what_it_reads(pair: Make) -> None:  # noqa: F811
    """A SYNC_MASTER whose only connection reads all of its log: no put is confirmed by it."""
    one = pair(BrokerRole.SYNC_MASTER, slave_timeout=500)
    one.put(5)
    with reader_of(one) as reader:
        reader.read(0, one.master.log.max_offset)
        put = one.master.put_async(message(b"x" * 100), wait=True)
        reader.read(0, one.master.log.max_offset)
        until(lambda: (reader.beat(), [slave.acked for slave in one.service.slaves] == [0])[1])
        assert put.result().status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_it_reports_once_where_it_begins_and_never_more() -> None:
    with (
        played(encode_header(700, 8), b"recorded", *[encode_header(708, 0)] * 40) as (port, reports),
        HaReader("127.0.0.1", port, heartbeat_s=0.01) as reader,
    ):
        assert reader.read(700, 8) == b"recorded"
        until(lambda: (reader.beat(), len(reports) >= 4)[1])
        assert reports[0] == 700
        assert set(reports[1:]) == {0}


def test_what_it_has_just_received_is_not_asked_for_after_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(range(200))
    with played(encode_header(700, 200), body) as (port, reports), HaReader("127.0.0.1", port) as reader:
        assert reader.read(700, 100) == body[:100]
        reader.close()
        assert reader.read(800, 100) == body[100:]
        assert reports == [700, 700]
        monkeypatch.setattr(ha_reader, "SETTLED_S", 0.0)
        reader.close()
        with pytest.raises(FormatError):  # that master sends 700 whatever is asked for
            reader.read(900, 1)
        assert reports == [700, 700, 900]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", FormatError),
        (encode_header(8, 4) + b"abcd", FormatError),
        (encode_header(8, 0), OutsideLog),
        (encode_header(7000, 0), OutsideLog),
        (encode_header(700, 8) + b"abc", OutsideLog),
        (b"", OutsideLog),
    ],
    ids=["another protocol", "another place", "its log ends", "its log begins later", "half a transfer", "silence"],
)
def test_masters_that_send_no_log(said: bytes, error: type[Exception]) -> None:
    timeout_s = 0.3 if error is OutsideLog else 60.0  # that is judged by what comes, whenever it does
    with played(said) as (port, _), HaReader("127.0.0.1", port, timeout_s=timeout_s) as reader, pytest.raises(error):
        reader.read(700, 8)


def test_nobody_there(pair: Make) -> None:  # noqa: F811
    one = pair()
    one.put(5)
    with reader_of(one) as reader:
        assert reader.read(0, 10)
        port = one.port
        one.service.stop()
        with pytest.raises(PeerLost):
            reader.read(10, one.master.log.max_offset)
        with pytest.raises(PeerLost, match=f"127.0.0.1:{port}"):
            reader.read(10, 10)


def test_over_tls(pair: Make, tmp_path: Path) -> None:  # noqa: F811
    made = certificates.make(tmp_path / "certificates")
    theirs = TlsSettings(TlsMode.ENFORCING, made.cert, made.key, client_auth="require", trust=made.authority)
    one = pair(ha=replace(QUICK, tls=True), tls=theirs.master_context())
    one.put(50)
    end = one.master.log.max_offset
    with HaReader("127.0.0.1", one.port, tls=theirs.slave_context()) as reader:
        assert reader.read(0, end) == log_of(tmp_path / "master", end)
    others = TlsSettings(TlsMode.ENFORCING)
    with HaReader("127.0.0.1", one.port, tls=others.slave_context()) as reader, pytest.raises(Untrusted):
        reader.read(0, 10)


def test_what_a_broker_tells_of_its_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "store", broker_name="broker-x") as serving:
            client = await Client.to(serving.listening.broker)
            assert (await client.put("Told", b"body")).code == 0
            client.writer.close()
            await asyncio.get_running_loop().run_in_executor(None, ask, serving.listening.broker)

    def ask(address: str) -> None:
        remote = RemoteBroker(address)
        facts = remote.facts()
        assert (facts.name, facts.role, facts.start) == ("broker-x", "ASYNC_MASTER", 0)
        assert facts.segment_size == SMALL["mapped_file_size_commit_log"]
        assert facts.end > 0
        tables, missing = remote.tables()
        assert not missing
        assert "Told" in tables["topics.json"]["topicConfigTable"]
        assert remote.extent() == (0, facts.end)
        with remote.reader(facts) as reader:
            assert reader.read(0, facts.end) == log_of(tmp_path / "store", facts.end)

    asyncio.run(run())
