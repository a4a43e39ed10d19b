"""The limits of the machine, one at a time, under a daemon whose clients send: nothing acknowledged is lost.

Twenty SIGKILLs under each kind of flush, no descriptor left, no space left below each directory, a disk that fails, a
clock that jumps. Needs no Java; root for what is mounted, and libfaketime for the clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import http.client
import itertools
import json
import os
import resource
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.client.queues import MessageQueue
from engine.config import StoreConfig
from engine.errors import PeerLost
from engine.read_store import ReadStore
from engine.wire.codes import ResponseCode
from tests.compat.senders import (
    BROKER,
    PATIENCE_S,
    QUEUES,
    TOPIC,
    Acknowledged,
    Ledger,
    Talker,
    all_consumed,
    judged,
    senders,
)
from tests.compat.served import STOP_S, Served, serve
from tests.compat.test_served_disk_full import fill, small_disk

pytestmark = pytest.mark.interop

KILLS = 20
A_ROUND = 60
PAUSE_S = 0.01
ROOM = 32 << 20
DAY_MS = 86_400_000
SHUT_DOWN = 0x8004587D
"""ext4's ioctl EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32). Source: fs/ext4/ext4.h."""
AT_ONCE = 2
"""EXT4_GOING_FLAGS_NOLOGFLUSH: what the journal has not yet written is lost, as in a power cut."""
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
SETTINGS = """
brokerName=broker-a
mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=4000
maxHashSlotNum=100
maxIndexNum=200
maxMessageSize=65536
cleanFileForciblyEnable=false
flushConsumerOffsetInterval=300
waitTimeMillsInSendQueue=60000
osPageCacheBusyTimeOutMills=60000
syncFlushTimeout=60000
"""
"""Small files, so that each run needs new ones; and flow control that a busy machine does not meet."""


@contextmanager
def life(root: Path, ledger: Ledger, more: str = "", *options: str) -> Iterator[Served]:
    """The daemon, from a start to its end; its log is kept in the ledger."""
    ledger.round = len(ledger.logs)
    try:
        with serve(root, SETTINGS + more, *options) as served:
            yield served
    finally:
        ledger.logs.append((root.parent / f"{root.name}.log").read_text())


@contextmanager
def asked(served: Served) -> Iterator[http.client.HTTPConnection]:
    """A connection to /health that stays."""
    assert served.metrics is not None
    connection = http.client.HTTPConnection(served.metrics.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        yield connection
    finally:
        connection.close()


def reasons(connection: http.client.HTTPConnection) -> dict[str, str]:
    """Why /health says that the daemon is unhealthy: code and message. Empty: healthy."""
    connection.request("GET", "/health")
    answer = connection.getresponse()
    given = {one["code"]: one["message"] for one in json.loads(answer.read())["reasons"]}
    assert (answer.status == 200) == (not given), given
    return given


@pytest.mark.timeout(900)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_acknowledged_outlives_twenty_kills(flush: str, tmp_path: Path) -> None:
    """SIGKILL leaves the page cache: ASYNC_FLUSH loses nothing, either."""
    root, ledger = tmp_path / "store", Ledger()
    for turn in range(KILLS):
        with life(root, ledger, f"flushDiskType={flush}\n") as served, senders(ledger, served.names):
            ledger.until(lambda turn=turn: ledger.of_round(turn) >= A_ROUND, f"{A_ROUND} sends are acknowledged")
            served.kill()
    assert not ledger.refused, ledger
    assert (root / "abort").exists()
    with life(root, ledger, f"flushDiskType={flush}\n") as served, Talker(served.names) as client:
        all_consumed(client, ledger)
    judged(root, ledger)
    assert not [log for log in ledger.logs if "Traceback" in log]


def lowest_free(pid: int) -> int:
    """The lowest number that no descriptor of a process has while it opens nothing: with this limit it gets none."""
    looks = [{int(name) for name in os.listdir(f"/proc/{pid}/fd")} for _ in range(50)]
    return min(next(number for number in itertools.count() if number not in look) for look in looks)


def test_no_descriptor_is_left_for_a_while(tmp_path: Path) -> None:
    root, ledger = tmp_path / "store", Ledger()
    with life(root, ledger, "", "--metrics-port", "0") as served:
        pid = served.process.pid
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with asked(served) as health, Talker(served.names) as client, senders(ledger, served.names):
            ledger.until_all_send(A_ROUND, "sends are acknowledged")  # all are connected
            assert not reasons(health)
            early = all_consumed(client, ledger)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free(pid), usual[1]))
            ledger.until(lambda: bool(ledger.refused), "sends are refused")
            code, remark = ledger.send(client, "New", 0, 10)
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE, (code, remark)
            given = reasons(health)
            assert set(given) == {"descriptors"}, given
            all_consumed(client, ledger, early)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
            goes_on(ledger, health, client)
    judged(root, ledger)


def goes_on(ledger: Ledger, health: http.client.HTTPConnection, client: Talker) -> None:
    """What there was none of is there again: sends are acknowledged, a new topic too, and /health says so."""
    before = len(ledger.acknowledged)
    ledger.until(lambda: len(ledger.acknowledged) >= before + 200, "sends are acknowledged again")
    ledger.until(lambda: not reasons(health), "healthy again")
    assert ledger.send(client, "Newer", 0, 10)[0] == 0
    all_consumed(client, ledger)
    assert {code for _, code, _ in ledger.refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}, ledger


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "config"])
def test_no_space_is_left_for_a_while(part: str, tmp_path: Path) -> None:
    root, ledger = tmp_path / "store", Ledger()
    with small_disk(root / part, ROOM):
        with (
            life(root, ledger, "", "--metrics-port", "0") as served,
            asked(served) as health,
            Talker(served.names) as client,
            senders(ledger, served.names, pause_s=PAUSE_S),
        ):
            ledger.until(lambda: len(ledger.acknowledged) >= A_ROUND, "sends are acknowledged")
            assert not reasons(health)
            early = all_consumed(client, ledger)
            fill(root / part / "ballast")
            if part == "config":
                assert ledger.send(client, "New", 0, 10)[0] == ResponseCode.SERVICE_NOT_AVAILABLE
            else:
                ledger.until(lambda: bool(ledger.refused), "sends are refused")
            given = reasons(health)
            assert set(given) == {"disk-full"}, given
            assert part != "config" or "/config/" in given["disk-full"], given
            all_consumed(client, ledger, early)
            (root / part / "ballast").unlink()
            goes_on(ledger, health, client)
        judged(root, ledger)


def mounted(image: Path, place: Path) -> None:
    """Mount an ext4 there; skips where that can't be done."""
    if shutil.which("mount") is None or shutil.which("mkfs.ext4") is None:
        pytest.skip("no mount(8) or mkfs.ext4 here: no disk that fails")
    done = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no image can be mounted here: " + done.stderr.decode().strip())


@contextmanager
def failing_disk(image: Path, place: Path) -> Iterator[None]:
    """An ext4 at this place; unmounted at the end."""
    mounted(image, place)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def shut_down(place: Path) -> None:
    """The file system fails from here on: EIO for each write. Skips where this kernel can't do that."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", AT_ONCE))
    except OSError as error:
        pytest.skip(f"this kernel shuts no ext4 down: {error}")
    finally:
        os.close(descriptor)


def test_a_disk_that_fails_below_the_daemon(tmp_path: Path) -> None:
    """What comes after the failure is not acknowledged, and what SYNC_FLUSH acknowledged before is there after it."""
    root, image, ledger = tmp_path / "store", tmp_path / "image", Ledger()
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(2 * ROOM)
    if shutil.which("mkfs.ext4"):
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with failing_disk(image, root), life(root, ledger, "flushDiskType=SYNC_FLUSH\n") as served:
        with Talker(served.names) as client, senders(ledger, served.names, pause_s=PAUSE_S):
            ledger.until(lambda: len(ledger.acknowledged) >= A_ROUND, "sends are acknowledged")
            with ledger.lock:
                early = dict(ledger.acknowledged)
            shut_down(root)
            late = len(ledger.sent)
            ledger.until(lambda: bool(ledger.refused or ledger.ended), "sends are refused, or the daemon ends")
            with contextlib.suppress(PeerLost):
                code, remark = ledger.send(client, TOPIC, 3, 10)
                assert code, ledger
                assert remark
        served.process.terminate()
        served.process.wait(STOP_S)
    assert not [one for body, one in ledger.acknowledged.items() if int(body[:8]) >= late], ledger
    # What was answered while the ioctl ran is not judged: an msync that is under way then may succeed though its page
    # is lost (4 of 150 shutdowns of an ext4 in a bare loop of writes and msync, Linux 6.18).
    ledger.acknowledged = early
    with failing_disk(image, root):
        with life(root, ledger) as served, Talker(served.names) as client:
            all_consumed(client, ledger)
        judged(root, ledger)


def jump(file: Path, offset: str) -> None:
    """The daemon's clock, from here on."""
    new = file.with_suffix(".new")
    new.write_text(offset + "\n")
    new.replace(file)


def test_the_clock_jumps_by_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = next((str(one) for place in LIBRARIES for one in Path("/").glob(place[1:])), None)
    if library is None:
        pytest.skip("no libfaketime here (Debian: apt-get install libfaketime): no clock that jumps")
    root, ledger, clock = tmp_path / "store", Ledger(), tmp_path / "clock"
    jump(clock, "+0")
    with monkeypatch.context() as there:
        there.setenv("LD_PRELOAD", library)
        there.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
        there.setenv("FAKETIME_NO_CACHE", "1")
        there.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        there.setenv("NO_FAKE_STAT", "1")
        with life(root, ledger) as served, Talker(served.names) as client:
            with senders(ledger, served.names, pause_s=PAUSE_S):
                for offset in ("+1d", "+0", "-1d", "+0", "+1d", "-1d", "+0"):
                    jump(clock, offset)
                    ledger.until_all_send(A_ROUND, f"sends at {offset}")
            searched(client)
            all_consumed(client, ledger)
    assert not ledger.refused, ledger
    with life(root, ledger) as served, Talker(served.names) as client:
        searched(client)
        all_consumed(client, ledger)
    judged(root, ledger)
    with ReadStore(StoreConfig(store_path_root_dir=root)) as store:
        times = [store.message_store_timestamp(TOPIC, 0, at) for at in range(store.max_offset(TOPIC, 0))]
    assert max(times) - min(times) > DAY_MS * 1.9, "the clock did not jump"


def searched(client: Talker) -> None:
    """A search by time answers with an offset of the queue, whatever order the times have."""
    now = time.time_ns() // 1_000_000
    for queue_id in range(QUEUES - 1):
        times = (0, now - 2 * DAY_MS, now - DAY_MS, now, now + DAY_MS, now + 2 * DAY_MS)
        end, offsets = client.searched(MessageQueue(TOPIC, BROKER, queue_id), times)
        assert all(0 <= offset <= end for offset in offsets), offsets


def test_what_is_lost_twice_or_elsewhere_is_told(tmp_path: Path) -> None:
    """The judge of this file: it tells the body, the round, and the log of that life."""
    root, ledger = tmp_path / "store", Ledger()
    with life(root, ledger) as served, Talker(served.names) as client:
        for _ in range(2):
            ledger.send(client, TOPIC, 1, 10)
        twice = list(ledger.sent)[1]
        client.send(TOPIC, 1, twice, "twice")
    ledger.acknowledged[b"00000009 never"] = Acknowledged(0, TOPIC, 1, 7)
    first = next(iter(ledger.acknowledged))
    ledger.acknowledged[first] = dataclasses.replace(ledger.acknowledged[first], queue_offset=1)
    with pytest.raises(AssertionError) as told:
        judged(root, ledger)
    for text in ("00000009", "00000000", "00000001", "stored at []", "sent once or never", "from round 0", "serving"):
        assert text in str(told.value)
