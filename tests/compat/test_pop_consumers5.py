"""Java's push consumers of RocketMQ 5 that pop from ours: two releases share a group, and what fails comes again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.wire.codes import RequestCode
from tests.compat import served, toolchain
from tests.engine.broker.client import Client

pytestmark = pytest.mark.interop

GROUP, TOPIC = "CID_J", "PoppedByJava"
QUEUES, COUNT = 4, 40
FAILING = {3, 17}
WAIT_S = 150


@contextmanager
def _member(names: str, file: Path, release: str) -> Iterator[None]:
    words = (names, GROUP, TOPIC, str(file), "pop")
    command = served.java_client("Member", *words, class_path=toolchain.clients5(release))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert any("started" in line for line in process.stdout)
            yield
            process.stdin.close()
            assert process.wait(served.STOP_S) == 0
        finally:
            process.kill()


def _bodies(file: Path) -> list[str]:
    return [line.split(" ", 3)[3] for line in file.read_text().splitlines()] if file.exists() else []


async def _prepare(client: Client) -> None:
    """The topic, and that the group pops it."""
    topic = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    more = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    fields = {name: str(value) for name, value in (topic | more).items()}
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
    mode = json.dumps({"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0})
    assert (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode.encode())).code == 0


async def _members_of(client: Client) -> int:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
    return len(json.loads(answer.body)["consumerIdList"]) if answer.code == 0 else 0


async def _offset(client: Client, topic: str, queue_id: int) -> int:
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id)}
    return int((await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).fields["offset"])


async def _consume(address: str, files: list[Path]) -> int:
    """Sends until all is consumed that fails first, and each member has had some; how many messages.

    A member pops from when its rebalance is through: up to 20 s after it is known to the broker.
    """
    client = await Client.to(address)
    until = time.monotonic() + WAIT_S
    while await _members_of(client) < len(files):
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    sent = 0
    while sent < COUNT or not all(_bodies(file) for file in files):
        assert time.monotonic() < until, "one of the two consumed everything"
        body = f"{'fail' if sent in FAILING else 'm'}-{sent}"
        assert (await client.put(TOPIC, body.encode(), sent % QUEUES)).code == 0
        sent += 1
        await asyncio.sleep(0.02)  # so that pops of both find some
    while len([body for file in files for body in _bodies(file)]) < sent + len(FAILING):
        assert time.monotonic() < until, [_bodies(file) for file in files]
        await asyncio.sleep(0.1)
    retry = f"%RETRY%{GROUP}_{TOPIC}"
    while (
        sum([await _offset(client, TOPIC, queue_id) for queue_id in range(QUEUES)]) < sent
        or await _offset(client, retry, 0) < len(FAILING)  # stored a moment after the pop's answer
    ):
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    assert await _offset(client, retry, 0) == len(FAILING)
    return sent


def test_java_consumers_of_both_releases_pop_together(tmp_path: Path) -> None:
    try:
        for release in ("5.3.3", "5.5.0"):
            toolchain.clients5(release)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    files = [tmp_path / "5.3.3", tmp_path / "5.5.0"]

    async def prepare(address: str) -> None:
        await _prepare(await Client.to(address))

    with served.serve(tmp_path / "store", "brokerName=broker-a\n") as mine:
        asyncio.run(prepare(mine.broker))
        with _member(mine.names, files[0], "5.3.3"), _member(mine.names, files[1], "5.5.0"):
            sent = asyncio.run(_consume(mine.broker, files))
    told = Counter(body for file in files for body in _bodies(file))
    assert {body: times for body, times in told.items() if times != 1} == {f"fail-{one}": 2 for one in FAILING}
    assert len(told) == sent
