"""Clients that harm: the broker's memory and descriptors stay bounded, and a client that behaves notices little.

Each kind of nonsense meets a running daemon while a well-behaved producer measures each of its sends. No Java is
needed; these are here because they take seconds each.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.wire.codes import RequestCode
from tests.compat.served import Served, serve
from tests.engine.opening import assert_sound
from tests.load import hostile
from tests.load.run import Held, start
from tests.support.wire import Wire

pytestmark = pytest.mark.interop

MIB = 1 << 20
SETTINGS = "brokerName=broker-a\nmappedFileSizeCommitLog=67108864\n"
MANY = 2000
SLOWEST_MS = 1500
"""No send of the well-behaved client may take longer, on whatever machine; it is tens of ms on a quiet one. What the
machine itself pauses comes on top."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("hostile") / "store"
    with serve(root, SETTINGS) as served:
        with Wire(served.broker) as client:
            for _ in range(200):
                assert client.put("Big", 0, bytes(30_000)).code == 0
            assert client.put("Quiet", 0, b"one").code == 0
        yield served
    log = (root.parent / "store.log").read_text()
    assert "Traceback" not in log, log[-3000:]
    assert_sound(StoreConfig(store_path_root_dir=root))


@dataclass
class Watched:
    """What the daemon held at most while something was done to it, over what it held before.

    Attributes:
        pause_ms: the longest time by which a wait of 20 ms was longer here, beside the daemon.
    """

    rss: int = 0
    descriptors: int = 0
    pause_ms: float = 0.0


@contextmanager
def unharmed(served: Served, *, rss: int, left: int = 64 * MIB) -> Iterator[Watched]:
    """A well-behaved client measures meanwhile. `rss`: bytes that the daemon may grow by; `left`: and keep."""
    pid, watched, ended = served.process.pid, Watched(), threading.Event()
    before = Held.by(pid)

    def watch() -> None:
        while True:
            began = time.monotonic()
            if ended.wait(0.02):
                return
            watched.pause_ms = max(watched.pause_ms, (time.monotonic() - began) * 1000 - 20)
            now = Held.by(pid)
            watched.rss = max(watched.rss, now.rss - before.rss)
            watched.descriptors = max(watched.descriptors, now.descriptors - before.descriptors)

    with Wire(served.broker) as client:  # its first send is one like the others, and makes no topic
        assert client.put("Good", 0, b"one").code == 0
    thread = threading.Thread(target=watch)
    thread.start()  # the machine may pause as soon as there are sends
    try:
        with start("produce", served.names, "good", "Good", rate=200, body=1000) as good:
            good.until_many(1)
            yield watched
            good.until_many(40)
            said = good.end()
    finally:
        ended.set()
        thread.join()
    most = before.descriptors + MANY // 10
    after = until(lambda: Held.by(pid), lambda now: now.descriptors <= most and now.rss - before.rss < left)
    print(f"rss +{watched.rss // MIB} MiB, left {(after.rss - before.rss) // MIB} MiB, descriptors "
          f"+{watched.descriptors}; sends {len(said['keys'])}, p50 {said['p50']:.1f}, p99 {said['p99']:.1f}, "
          f"max {said['max']:.0f} ms, pauses of the machine up to {watched.pause_ms:.0f} ms")  # fmt: skip
    assert served.process.poll() is None
    assert said["refused"] == {}
    assert said["gone"] == 0
    assert len(said["keys"]) > 20
    assert said["max"] < SLOWEST_MS + 2 * watched.pause_ms
    assert said["p50"] < SLOWEST_MS / 30
    assert watched.rss < rss
    assert after.rss - before.rss < left


def until(look: Callable[[], Any], good: Callable[[Any], bool], patience_s: float = 30) -> Any:
    """The first look that is good, or the last."""
    end = time.monotonic() + patience_s
    while not good(found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("nonsense", ["huge_lengths", "deep_headers", "absurd_binary"])
def test_nonsense_costs_its_sender_the_connection(broker: Served, nonsense: str) -> None:
    with unharmed(broker, rss=64 * MIB):
        for _ in range(5):
            assert getattr(hostile, nonsense)(broker.broker)


def test_a_header_of_a_million_fields_is_not_even_read(broker: Served) -> None:
    with unharmed(broker, rss=64 * MIB):
        assert not hostile.many_fields(broker.broker)
    with Wire(broker.broker) as client:  # and many are possible, all the same
        more = dict.fromkeys(map(str, range(9000)), "v")
        answer = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Big", "queueId": "0", **more})
        assert answer.fields["offset"] == "200"


def test_bodies_of_megabytes_that_are_no_json(broker: Served) -> None:
    with unharmed(broker, rss=300 * MIB):
        assert hostile.large_bodies(broker.broker) == [1, 1, 1, 1]


def test_a_client_that_never_reads(broker: Served) -> None:
    with unharmed(broker, rss=3 * 64 * MIB):
        hostile.never_reads(broker.broker, "Big")


def test_frames_that_never_end(broker: Served) -> None:
    """A hundred clients with 12 MiB of a frame each, and then a byte now and then: 256 MiB are kept, not 1200."""
    with unharmed(broker, rss=420 * MIB):
        left = hostile.slow_frames(broker.broker, 100, 12 * MIB, 2, 24)
    assert 10 < left < 25


def test_connections_that_are_half_open(broker: Served) -> None:
    with unharmed(broker, rss=64 * MIB) as watched:
        hostile.half_open(broker.broker, 500, lambda: until(lambda: watched.descriptors, lambda now: now > 10))
    assert watched.descriptors > 10


def test_ten_thousand_held_pulls_on_a_thousand_connections(broker: Served) -> None:
    with Wire(broker.broker) as client:
        assert client.put("Held", 0, b"x").code == 0
    with unharmed(broker, rss=200 * MIB):
        end = hostile.held_pulls(broker.broker, "Held", 1000, 10, 3)
        time.sleep(1)
        began = time.monotonic()
        with Wire(broker.broker) as client:
            assert client.put("Held", 1, b"for all who wait").code == 0
        pid = broker.process.pid  # all of them, however many are left of the test before
        assert until(lambda: Held.by(pid).descriptors, lambda now: now >= 1000) >= 1000
        assert end() == 10_000
        assert time.monotonic() - began < 100


def test_thousands_of_groups_in_one_heartbeat(broker: Served) -> None:
    """Apache takes as many, and so do we: a table of them is written once, not for each."""
    with unharmed(broker, rss=128 * MIB):
        assert hostile.groups_heartbeat(broker.broker, MANY) == 0
    with Wire(broker.broker) as client:
        known = client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert bytes(known.body).count(b'"consumers') >= MANY


def test_thousands_of_topics_in_one_go(broker: Served) -> None:
    """Each is durable before its message is acknowledged."""
    with unharmed(broker, rss=128 * MIB, left=96 * MIB):
        assert hostile.topics_sent_to(broker.broker, MANY) == {0: MANY}
    said = (broker.root / "config" / "topics.json").read_text()
    assert said.count('"garbage') >= 2 * MANY  # as a key, and as its name


def test_connections_leave_the_store_its_descriptors(tmp_path: Path) -> None:
    """With few of them: clients are refused, the store goes on, and so does everybody who is there."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    root = tmp_path / "store"
    try:
        with serve(root, SETTINGS + "mappedFileSizeConsumeQueue=2000\n") as served:
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (700, 700))
            with unharmed(served, rss=64 * MIB), hostile.connections(served.broker, 650):
                time.sleep(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert_sound(StoreConfig(store_path_root_dir=root))
