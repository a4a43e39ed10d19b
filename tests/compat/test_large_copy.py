"""`rstore copy` of a large topic while its process, the source's broker or the target's is killed, again and again.

1 GiB with RSTORE_LARGE=1, as `make interop` runs it. Judged by a reader of its own, of the stores' bytes.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from engine.config import StoreConfig
from engine.errors import PeerLost
from engine.format.batch import BatchItem
from engine.format.message import Message
from engine.store import MessageStore
from tests.compat import served
from tests.compat.replicas import until
from tests.load.ports import free_ports
from tests.proof import own
from tests.rstore_cli.conftest import Cli, cli
from tests.rstore_cli.test_copy import commit, end_of, offsets_of

__all__ = ["cli"]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

T = TypeVar("T")
MIB = 1 << 20
LARGE = os.environ.get("RSTORE_LARGE", "") not in ("", "0")
SIZE = 1024 * MIB if LARGE else 64 * MIB
BODY, QUEUES, TOGETHER = 4096, 4, 32
PATIENCE_S = 120
WHOLE_S = 24
"""How long a copy takes at least that is killed about in its middle: the test may stand still for half of that."""
_NUMBER = struct.Struct(">Q")
CONF = "brokerName={}\nwaitTimeMillsInSendQueue=60000\nosPageCacheBusyTimeOutMills=60000\n"


@dataclass
class Side:
    """A broker that is found again where it was, however often it is killed."""

    root: Path
    ports: tuple[int, int]
    stack: ExitStack
    running: served.Served | None = None

    @property
    def names(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    def start(self) -> None:
        self.stack = ExitStack()
        port, names = map(str, self.ports)
        conf = CONF.format(self.root.parent.name)
        self.running = self.stack.enter_context(served.serve(self.root, conf, "--port", port, "--names-port", names))

    def stop(self) -> None:
        self.stack.close()

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.stack.close()


@contextmanager
def side(directory: Path) -> Iterator[Side]:
    """A store's broker, not yet started."""
    (directory / "store").mkdir(parents=True)
    one = Side(directory / "store", tuple(free_ports(2)), ExitStack())  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.stop()


def fill(source: Side, size: int, cli: Cli) -> int:
    """Put so many bytes of messages into topic T, each with its number; how many messages. The broker runs then."""
    source.start()
    made = ("admin", "topic", "create", "T", "--queues", str(QUEUES), "--yes", "--namesrv", source.names)
    assert cli(*made).code == 0
    source.stop()
    pool = random.Random(7).randbytes(BODY * 64)
    count = 0
    with MessageStore.open(StoreConfig(store_path_root_dir=source.root)) as store:
        while count * BODY < size:
            items = []
            for number in range(count, count + TOGETHER):
                at = number * 131 % (len(pool) - BODY)
                items.append(BatchItem.of(_NUMBER.pack(number) + pool[at : at + BODY - _NUMBER.size], {}, 0))
            assert store.put_batch(Message("T", queue_id=count // TOGETHER % QUEUES), items).ok
            count += TOGETHER
    source.start()
    commit(source.names, "G", "T", {0: 0, 1: count // QUEUES // 3, 2: count // QUEUES})
    return count


Stored = dict[int, list[tuple[int, int, int]]]
"""By queue: queue offset, number and CRC of each message of T, in the order of the offsets."""


def stored(root: Path) -> Stored:
    """What the log of a closed store has."""
    rows: Stored = defaultdict(list)
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            at = 0
            view = memoryview(data)
            while (record := own.parse(view, at)) is not None:
                assert record.crc_ok
                if record.topic == b"T":
                    (number,) = _NUMBER.unpack_from(record.body)
                    rows[record.queue_id].append((record.queue_offset, number, record.crc))
                at += record.size
            view.release()
    return {queue: sorted(found) for queue, found in rows.items()}


def judge(source: Side, target: Side, doubles: int, groups: Sequence[dict[int, int]]) -> None:
    """Each message is there, once or as a counted double, in order; the group stands at the same message."""
    before, after = stored(source.root), stored(target.root)
    assert before.keys() == after.keys() == set(range(QUEUES))
    more = 0
    for queue, rows in before.items():
        first = list(dict.fromkeys((number, crc) for _, number, crc in after[queue]))
        assert first == [(number, crc) for _, number, crc in rows], f"queue {queue}"
        more += len(after[queue]) - len(rows)
        assert [offset for offset, _, _ in after[queue]] == list(range(len(after[queue])))
    assert more == doubles
    here, there = groups
    assert here.keys() == there.keys()
    for queue, place in here.items():
        left = {number for offset, number, _ in before[queue] if offset >= place}
        found = [number for offset, number, _ in after[queue] if offset >= there[queue]]
        assert set(found) >= left
        assert set(found[:1]) <= left


def places(names: str) -> dict[int, int]:
    """Where the group stands in each queue that it has committed something in."""
    offsets = offsets_of(names, "G", "T")
    return {queue.queue_id: place for queue, place in offsets.items() if place is not None}


def answered(ask: Callable[[], T]) -> T:
    """What a broker says that is busy with the copy, or was just started: it is asked until it answers in time."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except PeerLost:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def copying(source: Side, target: Side, directory: Path, *more: str) -> subprocess.Popen[str]:
    words = ("copy", "--from", source.names, "--to", target.names, "--progress", str(directory), "--yes", "--json")
    command = [sys.executable, "-m", "rstore_cli.app", *words, "--patience", str(PATIENCE_S), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_large_copy_killed_five_times(cli: Cli, tmp_path: Path) -> None:
    chance = random.Random(5)
    with side(tmp_path / "a") as source, side(tmp_path / "b") as target:
        total = fill(source, SIZE, cli)
        target.start()
        kills = 0
        while kills < 5:
            reached = answered(lambda: end_of(target.names, "T")) + chance.randrange(total // 16, total // 8)
            process = copying(source, target, tmp_path / "map", "--rate", str(total // WHOLE_S))
            until(lambda at=reached, run=process: run.poll() is not None or end_of(target.names, "T") >= at, PATIENCE_S)  # type: ignore[misc]
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        finish(copying(source, target, tmp_path / "map"), source, target, total)


@pytest.mark.parametrize("killed", ["source", "target"])
def test_a_broker_is_killed_meanwhile(killed: str, cli: Cli, tmp_path: Path) -> None:
    """Twice, and started again: SIGKILL leaves the page cache, so that neither has lost what it had acknowledged."""
    with side(tmp_path / "a") as source, side(tmp_path / "b") as target:
        total = fill(source, 24 * MIB, cli)
        target.start()
        process = copying(source, target, tmp_path / "map", "--rate", str(total // 16))
        for reached in (total // 8, total // 4):  # 12 s before its end, at least
            until(lambda at=reached: end_of(target.names, "T") >= at, PATIENCE_S)  # type: ignore[misc]
            assert process.poll() is None, process.communicate()
            one = source if killed == "source" else target
            one.kill()
            one.start()
        finish(process, source, target, total)


def finish(process: subprocess.Popen[str], source: Side, target: Side, total: int) -> None:
    """It ends whole, and says so; then the stores are judged."""
    out, err = process.communicate(timeout=PATIENCE_S * 3)
    assert process.returncode == 0, err
    done = json.loads(out)
    assert done["copied"] + done["copiedBefore"] == total
    assert done["missing"] == []
    # A kill loses what was committed in the last 5 s.
    groups = [answered(lambda at=one: places(at.names)) for one in (source, target)]  # type: ignore[misc]
    source.stop()
    target.stop()
    judge(source, target, done["doubles"], groups)
    assert Counter(map(len, stored(source.root).values())) == {total // QUEUES: QUEUES}
