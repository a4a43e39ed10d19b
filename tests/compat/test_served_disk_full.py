"""A disk that is really full under real producers: Apache's word for it, nothing lost, and it goes on by itself.

The store lies on a tmpfs of its own. Java producers with their own retries, producers of ours and a consuming group
stay through all of it; nobody starts anything again.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.drill.served import FULL_REMARKS
from engine.format import fastjson
from tests.compat import toolchain
from tests.compat.served import serve
from tests.compat.test_killed_under_load import ended, java_consumes, java_producers
from tests.engine.opening import assert_sound
from tests.load.run import Clients, start

pytestmark = pytest.mark.interop

SIZE = 96 << 20
FULL_S = 4
PATIENCE_S = 90
SETTINGS = """
brokerName=broker-a
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=40000
maxHashSlotNum=20000
maxIndexNum=80000
cleanFileForciblyEnable=false
flushConsumerOffsetInterval=300
"""


@contextmanager
def small_disk(place: Path, size: int = SIZE) -> Iterator[None]:
    """A file system of `size` bytes at this place."""
    place.mkdir(parents=True)
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("no mount(8) here: no small disk")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("no small disk can be mounted here: " + done.stderr.decode().strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(ballast: Path) -> None:
    """Every byte that is left."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass


def refusals(one: Clients) -> dict[str, int]:
    found: dict[str, int] = one.told()["refused"]
    return found


def until_refused(one: Clients) -> None:
    end = time.monotonic() + PATIENCE_S
    while not any(said.startswith(("1 ", "14 ")) for said in refusals(one)):
        assert time.monotonic() < end, "nothing was refused"
        time.sleep(0.1)


def test_a_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    try:
        toolchain.clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root, keys = tmp_path / "store", tmp_path / "java.keys"
    with small_disk(root):
        with serve(root, SETTINGS) as served:
            java = java_producers(served.names, keys)
            try:
                with (
                    start("produce", served.names, "ours", clients=4, body=2000, rate=100) as ours,
                    start("consume", served.names, "group", clients=2) as group,
                ):
                    assert java.stdout is not None
                    assert "sending\n" in java.stdout, "Java's producers have ended"
                    ours.until_many(1000, PATIENCE_S)
                    assert all(one.startswith("2 ") for one in refusals(ours))
                    fill(root / "ballast")
                    until_refused(ours)
                    before = set(ours.told()["keys"])
                    with start("consume", served.names, "late") as late:
                        # The last messages may have no room in their queues, and wait for it; all others are there.
                        end = time.monotonic() + PATIENCE_S
                        while len(before - (got := set(group.told()["keys"]))) >= len(before) // 10:
                            assert time.monotonic() < end, "nothing is consumed while the disk is full"
                            time.sleep(0.1)
                        assert not late.until(got, PATIENCE_S), "nobody new can consume while the disk is full"
                    time.sleep(FULL_S)
                    assert "refused\n" in java.stdout, "Java's producers have ended"
                    (root / "ballast").unlink()
                    end = time.monotonic() + PATIENCE_S
                    while len(ours.told()["keys"]) < len(before) + 200:
                        assert time.monotonic() < end, "sending has not resumed by itself"
                        time.sleep(0.1)
                    java_said = ended(java)
                    ours.quiet()
                    said = ours.told()
                    acknowledged = {*said["keys"], *keys.read_text().split()}
                    assert not group.until(acknowledged, PATIENCE_S), "acknowledged, and not consumed"
                    group.end()  # which tells the broker how far it is
                    for code, remark in (one.split(" ", 1) for one in {**said["refused"], **java_said["refused"]}):
                        if code != "2":  # a disk that fills may be slow, too: flow control
                            assert code in ("1", "14"), remark
                            assert any(word in remark for word in FULL_REMARKS), remark
                    assert java_said["refused"]
                    assert said["gone"] == 0
                    assert java_consumes(served.names, keys)["missing"] == 0
            finally:
                java.kill()
        offsets = fastjson.loads((root / "config" / "consumerOffset.json").read_text())["offsetTable"]
        assert sum(offsets["Load@group"].values()) >= len(acknowledged)
        assert set(fastjson.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]) > {"Load"}
        log = (tmp_path / "store.log").read_text()
        assert "Traceback" not in log, log
        assert_sound(StoreConfig(store_path_root_dir=root))
