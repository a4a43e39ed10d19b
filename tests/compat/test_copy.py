"""`rstore copy` from Apache's broker to ours and back to another of Apache's, killed at seeded moments."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.client.messages import ReceivedMessage
from engine.copying.marker import COPIED
from tests.compat import real_broker, served, toolchain
from tests.rstore_cli.conftest import Cli, cli
from tests.rstore_cli.test_copy import PATIENCE_S, commit, end_of, many, number, offsets_of, read, send

__all__ = ["cli"]

pytestmark = pytest.mark.interop

TOTAL = 4000
"""A broker that refuses no send because the machine is busy."""


def test_through_three_clusters(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name / "store").mkdir(parents=True)
    with ExitStack() as stack:
        try:
            first = stack.enter_context(real_broker.serve(tmp_path / "a" / "store", "brokerName=a\n")).names
            third = stack.enter_context(real_broker.serve(tmp_path / "c" / "store", "brokerName=a\n")).names
        except toolchain.Missing as missing:
            pytest.skip(str(missing))
        second = stack.enter_context(served.serve(tmp_path / "b" / "store", "brokerName=b\n")).names
        send(first, many(TOTAL))
        until_there(first)
        commit(first, "G", "T", {0: 7, 1: 700})
        origin = {number(one): one for one in read(first, "T")}
        for names, copied in ((first, second), (second, third)):
            kill_and_finish(cli, names, copied, tmp_path)
            assert_same(origin, read(copied, "T"))
            offsets = {queue.queue_id: offset for queue, offset in offsets_of(copied, "G", "T").items()}
            place = offsets[1]
            assert place is not None
            (stands,) = {
                number(one) for one in read(copied, "T") if (one.queue.queue_id, one.queue_offset) == (1, place)
            }
            assert (origin[stands].queue.queue_id, origin[stands].queue_offset) == (1, 700)
        back = cli("copy", "--from", third, "--to", first, "--progress", tmp_path / "back", "--yes", "--json")
        assert back.code == 0, back.err
        assert (back.json["copied"], back.json["leftOut"]) == (0, len(read(third, "T")))


def test_by_way_of_rocketmq_5(cli: Cli, tmp_path: Path) -> None:
    few = 400
    for name in ("a", "b", "c"):
        (tmp_path / name / "store").mkdir(parents=True)
    with ExitStack() as stack:
        try:
            first = stack.enter_context(real_broker.serve(tmp_path / "a" / "store", "brokerName=a\n")).names
            apache = toolchain.apache_broker5()
            started = real_broker.serve(tmp_path / "b" / "store", "brokerName=b\n", apache=apache)
            middle = stack.enter_context(started)
        except toolchain.Missing as missing:
            pytest.skip(str(missing))
        last = stack.enter_context(served.serve(tmp_path / "c" / "store", "brokerName=c\n")).names
        send(first, many(few))
        until_there(first, few)
        commit(first, "G", "T", {0: 7})
        origin = {number(one): one for one in read(first, "T")}
        for names, copied in ((first, middle.names), (middle.names, last)):
            done = cli(
                "copy", "--from", names, "--to", copied, "--progress", tmp_path / f"map-{copied}", "--yes", "--json"
            )
            assert done.code == 0, done.err
            assert (done.json["copied"], done.json["doubles"]) == (few, 0)
            until_there(copied, few)
            assert_same(origin, read(copied, "T"))
            assert {queue.queue_id: offset for queue, offset in offsets_of(copied, "G", "T").items()}[0] == 7
        middle.kill()  # its end takes 17 s


def until_there(names: str, total: int = TOTAL) -> None:
    """Apache's broker shows its queues' ends once it has dispatched."""
    deadline = time.monotonic() + PATIENCE_S
    while end_of(names, "T") < total:
        assert time.monotonic() < deadline


def kill_and_finish(cli: Cli, names: str, copied: str, directory: Path) -> None:
    chance = random.Random(names)
    words = ["copy", "--from", names, "--to", copied, "--progress", str(directory / f"map-{copied}"), "--yes"]
    kills = 0
    for _ in range(3):
        until = end_of(copied, "T") + chance.randrange(200, 800)
        # 20 s for all: it is not done before its kill where the test stands still for some of them
        command = [sys.executable, "-m", "rstore_cli.app", *words, "--rate", "200"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and end_of(copied, "T") < until:
            assert time.monotonic() < deadline
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        ended = process.communicate()[1]
    assert kills >= 2, ended
    done = cli(*words, "--json")
    assert done.code == 0, done.err
    counts = Counter(map(number, read(copied, "T")))
    assert counts.keys() == set(range(TOTAL))
    assert sum(counts.values()) - TOTAL == done.json["doubles"]


def assert_same(origin: dict[int, ReceivedMessage], copies: list[ReceivedMessage]) -> None:
    """Each as it was, but for what a broker gives it."""
    for copy in copies:
        one = origin[number(copy)]
        assert (copy.stored.body, copy.id, copy.tags, copy.keys) == (one.stored.body, one.id, one.tags, one.keys)
        assert (copy.stored.born_timestamp, copy.stored.flag) == (one.stored.born_timestamp, one.stored.flag)
        given = {COPIED, "CLUSTER", "MSG_REGION", "TRACE_ON"}
        assert {k: v for k, v in copy.properties.items() if k not in given} == {
            k: v for k, v in one.properties.items() if k not in given
        }
    for queue_id in {copy.queue.queue_id for copy in copies}:
        offsets = [origin[number(copy)].queue_offset for copy in copies if copy.queue.queue_id == queue_id]
        assert offsets == sorted(offsets)
