"""`rstore top`: rates between two looks, at a daemon and at any broker; as frames, as JSON, on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.broker.watch.remote_live import as_bytes, offset_table
from engine.config import StoreConfig, parse
from engine.errors import FormatError
from rstore_cli.top_frame import Frame, Look, Sort
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli, Ran
from tests.rstore_cli.test_serve import CONF, Process


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all that look at it."""
    root = tmp_path_factory.mktemp("top") / "store"
    found = Process(root)
    yield found
    assert found.stop() == 0
    assert_sound(parse(CONF, StoreConfig(store_path_root_dir=root)))


def look(ms: int, topics: dict[str, tuple[int, int]], lags: dict[str, int]) -> Look:
    return {
        "time": ms,
        "topics": {
            name: {"putMessages": put, "putBytes": put * 100, "getMessages": got, "getBytes": got * 100}
            for name, (put, got) in topics.items()
        },
        "groups": [{"group": "G", "topic": name, "lag": lag, "members": 1} for name, lag in lags.items()],
    }


def test_rates_are_what_happened_in_between() -> None:
    before = look(1000, {"A": (10, 5), "B": (0, 0)}, {"A": 5, "B": 0})
    now = look(3000, {"A": (30, 25), "B": (2, 0), "New": (4, 0)}, {"A": 1, "B": 2})
    frame = Frame.of(before, now, Sort.PUT)
    rates = {row.topic: (row.put, row.put_bytes, row.got, row.lag) for row in frame.topics}
    assert rates == {"A": (10, 1000, 10, 1), "B": (1, 100, 0, 2), "New": (2, 200, 0, 0)}
    assert [(row.topic, row.growth) for row in frame.groups] == [("B", 1), ("A", -2)]
    order = {sort: [row.topic for row in Frame.of(before, now, sort).topics] for sort in Sort}
    assert order == {
        Sort.PUT: ["A", "New", "B"],
        Sort.GET: ["A", "B", "New"],
        Sort.LAG: ["B", "A", "New"],
        Sort.NAME: ["A", "B", "New"],
    }


def test_a_table_whose_keys_are_objects() -> None:
    text = (
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":1,"maxOffset":7,"minOffset":2},'
        '{"brokerName":"b","queueId":3,"topic":"T"}:{"lastUpdateTimestamp":1,"maxOffset":9,"minOffset":0}}}'
    )
    assert offset_table(text) == {0: (2, 7), 3: (0, 9)}
    assert offset_table('{"offsetTable":{}}') == {}
    for broken in ("", "{}", text[:-2], text.replace("maxOffset", "max"), text.replace(":7", ":x")):
        with pytest.raises(FormatError, match="malformed offsetTable"):
            offset_table(broken)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0 B", 0), ("17 B", 17), ("12.5 KiB", 12_800), ("1.0 GiB", 1 << 30), ("77", 77), ("", None), ("much", None),
     ("1 ?", None), ("nan B", None), ("inf", None)],
)  # fmt: skip
def test_bytes_as_apaches_broker_writes_them(text: str, count: int | None) -> None:
    assert as_bytes(text) == count


@contextmanager
def traffic(where: str) -> Iterator[None]:
    """Puts and gets of topic T, for as long as it is entered."""
    stop, flows = threading.Event(), threading.Event()

    async def run() -> None:
        client, offset = await Client.to(where), 0
        await client.heartbeat("G", "T")
        while not stop.is_set():
            await client.ask(310, send_fields("T"), bytes(1000))
            got = await client.ask(11, pull_fields("T", offset))
            offset = int(got.fields["nextBeginOffset"])
            commit = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
            await client.ask(15, commit)
            flows.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert flows.wait(60)
        yield
    finally:
        stop.set()
        thread.join()


def flowing(cli: Cli, *where: str | Path) -> Ran:
    """A look at the traffic: the first one in which the machine did not stand still."""
    due = time.monotonic() + 60
    while True:
        found = cli("top", *where, "--once", "--json", "--interval", "0.3")
        rates = [row for row in found.json["topics"] if row["topic"] == "T"]
        if (rates and rates[0]["putMessagesPerSecond"] > 10) or time.monotonic() > due:
            return found


def test_of_the_daemon_and_of_any_broker(daemon: Process, cli: Cli) -> None:
    root = daemon.root
    with traffic(daemon.where["broker"]):
        of_daemon = flowing(cli, "--store", root)
        of_broker = flowing(cli, "--broker", daemon.where["broker"])
        text = cli("top", "--store", root, "--once", "--interval", "0.1", "--sort", "lag", "--rows", "1").out
    for found in (of_daemon, of_broker):
        assert found.code == 0, found.err
        row = next(row for row in found.json["topics"] if row["topic"] == "T")
        assert row["putMessagesPerSecond"] > 10
        assert row["getMessagesPerSecond"] > 10
        group = next(row for row in found.json["groups"] if row["topic"] == "T")
        assert (group["group"], group["members"]) == ("G", 1)
        assert found.json["address"] == daemon.where["broker"]
        assert found.json["dispatchLag"] >= 0
        assert 0 < found.json["disks"]["CL"] < 1
    assert of_daemon.json["connections"]["broker"] == 1
    assert of_daemon.json["topics"][0]["putBytesPerSecond"] > 10_000
    assert "puts, gets  " in text
    assert text.count("\nT ") == 1
    no_broker = cli("top", "--broker", daemon.where["nameService"], "--once")
    assert (no_broker.code, "is not a broker" in no_broker.error_line) == (5, True)


def test_nobody_to_ask(new_store: Path, cli: Cli) -> None:
    alone = cli("top", "--store", new_store, "--once")
    assert (alone.code, "no daemon runs on this store" in alone.error_line) == (5, True)
    assert cli("top", "--broker", "127.0.0.1:1", "--once").code == 5
    assert cli("top", "--broker", "here", "--once").code == 2


def test_frames_until_it_is_interrupted(daemon: Process) -> None:
    words = ["top", "--store", str(daemon.root), "--json", "--interval", "0.1"]
    top = subprocess.Popen(
        [sys.executable, "-m", "rstore_cli.app", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert top.stdout is not None
    assert top.stdout.readline().startswith(b'{"time":')
    assert top.stdout.readline().startswith(b'{"time":')
    top.send_signal(signal.SIGINT)
    _, err = top.communicate(timeout=60)
    assert (top.returncode, err) == (0, b"")


@contextmanager
def on_terminal(root: Path) -> Iterator[int]:
    """`rstore top` on a terminal of its own; leaves by itself, with 0, before this is left."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES="40", COLUMNS="120")
        words = [sys.executable, "-m", "rstore_cli.app", "top", "--store", str(root), "--interval", "0.1"]
        os.execv(sys.executable, words)
    try:
        yield master
        rest = _until(master, b"\x1b[?1049l")  # the screen as it was
        assert b"Traceback" not in rest
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(master)


@pytest.mark.parametrize("leave", [b"q", b"\x03"])
def test_on_a_terminal(daemon: Process, leave: bytes) -> None:
    with on_terminal(daemon.root) as master:
        _until(master, b"sorted by lag")
        os.write(master, b"p")
        _until(master, b"sorted by put")
        os.write(master, b"\t")
        _until(master, b"scroll groups")
        os.write(master, leave)


def test_the_screen_outlives_the_daemon(tmp_path: Path) -> None:
    root = tmp_path / "store"
    first = Process(root)
    with on_terminal(root) as master:
        _until(master, b"up for")
        assert first.stop() == 0
        _until(master, b"no daemon runs on this store")
        again = Process(root)
        _until(master, again.where["broker"].encode())
        os.write(master, b"q")
    assert again.stop() == 0


def _until(master: int, wanted: bytes) -> bytes:
    seen = b""
    due = time.monotonic() + 60
    while wanted not in seen:
        assert time.monotonic() < due, seen[-500:]
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 1 << 16)
    return seen
