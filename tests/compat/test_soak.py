"""Hours of a broker's life in little time: small files that roll and expire, connections that come and go.

At the end it holds the same memory, descriptors and maps as at the beginning, and the store is clean.

Two minutes or so by default; RSTORE_SOAK=SECONDS makes it longer (`RSTORE_SOAK=540`): so long behind the warm-up. The
log's files are made old by setting their times: what was written a quarter of a minute ago counts as expired.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import check
from tests.compat.served import serve
from tests.engine.opening import assert_sound
from tests.load.clients import rolled_back
from tests.load.run import Held, start

SECONDS = int(os.environ.get("RSTORE_SOAK") or 48)
WARM_UP_S = 150
"""At most (see `warm_up`)."""
pytestmark = [pytest.mark.interop, pytest.mark.timeout(SECONDS + WARM_UP_S + 350)]

SETTINGS = """
brokerName=broker-a
mappedFileSizeCommitLog=2097152
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=10000
maxIndexNum=40000
fileReservedTime=1
deleteWhen=00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23
cleanResourceInterval=1000
deleteCommitLogFilesInterval=1
transactionCheckInterval=2000
transactionTimeOut=2000
flushConsumerOffsetInterval=500
"""
KEPT_S = 15
BUSY = "2 "
"""Flow control: a machine that is short of everything may be slow for a moment, and what was refused isn't stored."""
PATIENCE_S = 120
SETTLE_S = 8
"""Until as many files are there as stay."""
MIB = 1 << 20


@contextmanager
def old_files(root: Path) -> Iterator[None]:
    """Makes log files old, as hours would."""
    ended = threading.Event()

    def age() -> None:
        while not ended.wait(1):
            now = time.time()
            for file in sorted((root / "commitlog").glob("0*"))[:-2]:
                try:
                    if now - KEPT_S > file.stat().st_mtime > now - 3600:
                        os.utime(file, (now - 7200, now - 7200))
                except FileNotFoundError:
                    continue  # expired meanwhile

    thread = threading.Thread(target=age)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_it_is_the_same_at_the_end(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with serve(root, SETTINGS) as served, old_files(root):
        pid, names = served.process.pid, served.names
        with (
            start("produce", names, "tags", clients=3, kind="tags", body=3000, rate=150, hang_up_every=200) as tags,
            start("produce", names, "mixed", clients=3, kind="mixed", body=500, rate=60) as mixed,
            start("produce", names, "brief", clients=2, body=100, rate=60, hang_up_every=3) as brief,
            start("consume", names, "all", clients=2, retry_every=100, hang_up_every=400) as everything,
            start("consume", names, "some", clients=1, tags="a || b") as some,
        ):
            warm_up(root)
            samples = sampled(pid)
            producers = (tags, mixed, brief)
            for one in producers:
                one.quiet()
            acknowledged = {key for one in producers for key in one.told()["keys"]}
            wanted = {key for key in acknowledged if not rolled_back(key)}
            tagged = {key for key in wanted if not of_another_tag(key)}
            missing = everything.until(wanted, PATIENCE_S)
            missing_some = some.until(tagged, PATIENCE_S)
            got, got_some = everything.told(), some.told()
            refused = [code for one in producers for code in one.told()["refused"]]
        tell(samples, acknowledged, got, got_some)
        assert all(code.startswith(BUSY) for code in refused), refused
        assert len(missing) <= got["skipped"], "neither consumed nor expired"
        assert len(missing_some) <= got_some["skipped"]
        assert not [key for key in got_some["keys"] if of_another_tag(key)]
        assert not [key for key in got["keys"] if rolled_back(key)]
        assert got["refused"] == got_some["refused"] == {}
        assert got["sent_back"] > 0
        steady(samples)
    log = (tmp_path / "store.log").read_text()
    assert "Traceback" not in log, log[-3000:]
    config = StoreConfig(store_path_root_dir=root)
    assert_sound(config)
    found = check(Disk(), config)
    assert found.ok, found.findings


def of_another_tag(key: str) -> bool:
    """Whether a message has the third tag, which the consumer of two tags does not get."""
    return key.startswith("tags-") and int(key.rpartition("-")[2]) % 3 == 2


def warm_up(root: Path) -> None:
    """Wait for the first file that expires: until then they pile up.

    Source: DefaultMessageStore#addScheduleTask, which begins to clean after a minute.
    """
    begun = time.monotonic()
    while not int(min((file.name for file in (root / "commitlog").iterdir()), default="0")):
        assert time.monotonic() < begun + WARM_UP_S, "nothing has expired"
        time.sleep(1)
    time.sleep(SETTLE_S)


def sampled(pid: int) -> list[Held]:
    """What the process holds, second by second."""
    found = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(1)
        found.append(Held.by(pid))
    return found


def thirds(samples: list[Held]) -> tuple[list[Held], list[Held]]:
    """The first and the last third."""
    return samples[: len(samples) // 3], samples[-(len(samples) // 3) :]


def steady(samples: list[Held]) -> None:
    first, last = thirds(samples)

    def grown(name: str) -> float:
        before, after = (statistics.median(getattr(one, name) for one in part) for part in (first, last))
        return after - before

    assert grown("rss") < 24 * MIB, [one.rss // MIB for one in samples]
    assert grown("descriptors") < 20, [one.descriptors for one in samples]
    assert grown("maps") < 40, [one.maps for one in samples]
    assert grown("threads") < 4, [one.threads for one in samples]


def tell(samples: list[Held], acknowledged: set[str], *consumers: dict[str, Any]) -> None:
    """The numbers, for who runs it with -s."""
    first, last = thirds(samples)
    for name in ("rss", "descriptors", "maps", "threads"):
        parts = [statistics.median(getattr(one, name) for one in part) for part in (first, last)]
        print(f"{name}: {parts[0]:.0f} to {parts[1]:.0f}, at most {max(getattr(one, name) for one in samples)}")
    print(f"{len(acknowledged)} acknowledged")
    for one in consumers:
        print({name: value for name, value in one.items() if not isinstance(value, list | dict)}, len(one["keys"]))
