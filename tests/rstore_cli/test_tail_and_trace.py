"""`tail` and `trace`, of a daemon that runs beside and of the store that it writes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumeOutcome, ConsumerSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.producer import ProducerSettings, TransactionState
from engine.client.push_consumer import PushConsumer
from engine.errors import RStoreError
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import Process, root

__all__ = ["root"]

PATIENCE_S = 120
PROGRAM = [sys.executable, "-m", "rstore_cli.app"]
SEND = ProducerSettings(timeout_s=PATIENCE_S, trace=True)


@pytest.fixture
def names(root: Path) -> Iterator[str]:
    process = Process(root, more="waitTimeMillsInSendQueue=60000\n")
    yield process.where["nameService"]
    assert process.stop() == 0


def until(state: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not state():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def tailing(*words: str) -> Iterator[subprocess.Popen[str]]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send_until(cli: Cli, names: str, process: subprocess.Popen[str], topic: str) -> None:
    """Messages to a topic, until the process has shown as many as it was to, and has ended."""

    def is_over() -> bool:
        assert cli("send", topic, "--namesrv", names, "--body", "x", "--timeout", "60").code == 0
        return process.poll() is not None

    until(is_over)


@pytest.mark.parametrize("where", ["cluster", "store"])
@pytest.mark.parametrize("topics", [["T"], []])
def test_new_messages_are_shown_as_they_come(where: str, topics: list[str], cli: Cli, root: Path, names: str) -> None:
    for topic in ("T", "U"):
        cli("send", topic, "--namesrv", names, "--body", "before", "--timeout", "60")
    place = ["--namesrv", names] if where == "cluster" else ["--store", str(root)]
    with tailing("tail", *topics, *place, "-n", "3", "--json") as process:
        send_until(cli, names, process, "T")
        assert process.stdout is not None
        rows = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.returncode == 0
    assert [(row["topic"], row["body"]) for row in rows] == [("T", "x")] * 3


def test_only_the_topics_that_were_named(cli: Cli, root: Path, names: str) -> None:
    for topic in ("T", "U"):
        cli("send", topic, "--namesrv", names, "--body", "before", "--timeout", "60")
    with tailing("tail", "U", "--store", str(root)) as process:
        assert process.stderr is not None
        assert "from now on" in process.stderr.readline()
        cli("send", "T", "--namesrv", names, "--body", "other", "--timeout", "60")
        cli("send", "U", "--namesrv", names, "--body", "own", "--timeout", "60")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("U/")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert "interrupted: nothing was changed" in process.stderr.read()


def test_a_reader_that_goes_away_ends_it(cli: Cli, root: Path, names: str) -> None:
    cli("send", "T", "--namesrv", names, "--body", "before", "--timeout", "60")
    words = shlex.join([*PROGRAM, "tail", "--store", str(root), "-q"])
    piped = subprocess.Popen(
        ["bash", "-c", f"{words} | head -n 1; exit ${{PIPESTATUS[0]}}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip

    def is_over() -> bool:
        cli("send", "T", "--namesrv", names, "--body", "x", "--timeout", "60")
        return piped.poll() is not None

    until(is_over)
    out, err = piped.communicate()
    assert (piped.returncode, err) == (141, "")
    assert out.startswith("T/")


@pytest.mark.parametrize("words", [("tail", "Ordres"), ("trace", "Ordres", "k")])
def test_topics_that_are_not_there(words: Sequence[str], cli: Cli, root: Path, names: str) -> None:
    cli("send", "Orders", "--namesrv", names, "--body", "x", "--timeout", "60")
    for place in (("--namesrv", names), ("--store", str(root))):
        done = cli(*words, *place)
        assert done.code in (1, 2)
        assert "Ordres" in done.error_line


def rows_of(done: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.out.splitlines()]  # type: ignore[attr-defined]


async def has_dead_letter(consumer: PushConsumer) -> bool:
    """What fails for the last time goes there once the broker is told, which is after that."""
    try:
        (queue,) = await consumer.queues_of("%DLQ%G")
        return await consumer.max_offset(queue) > 0
    except RStoreError:
        return False  # the topic is made with the first


def test_the_life_of_a_message(cli: Cli, root: Path, names: str) -> None:
    ids: dict[str, str] = {}

    async def live() -> None:
        failed: list[str] = []

        async def fail(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
            failed.append(messages[0].topic)
            return ConsumeOutcome.LATER

        async with ClusterClient(ClientConfig((names,))) as client:
            producer = client.producer("P", SEND)
            ids["plain"] = (await producer.send(OutgoingMessage("T", b"1", keys=("key",)))).id
            ids["late"] = (await producer.send(OutgoingMessage("Late", b"1", delay_level=1))).id
            half, _ = await producer.send_transaction(OutgoingMessage("Half", b"1"), lambda _: TransactionState.COMMIT)
            ids["half"] = half.id
            settings = ConsumerSettings(start=StartFrom.FIRST_OFFSET, delay_level=1, most_times=1, trace=True)
            async with client.push_consumer("G", fail, settings) as consumer:
                await consumer.subscribe("T")
                async with asyncio.timeout(PATIENCE_S):
                    while len(failed) < 2 or not await has_dead_letter(consumer):
                        await asyncio.sleep(0.05)

    asyncio.run(live())
    cluster, store = ("--namesrv", names), ("--store", str(root))

    def events(topic: str, key: str, *place: str) -> list[object]:
        return [row["event"] for row in rows_of(cli("trace", topic, key, *place, "--json"))]

    def stages(topic: str, key: str, place: Sequence[str]) -> set[object]:
        return set(events(topic, key, *place))

    def is_consumed(key: str, place: Sequence[str]) -> bool:
        rows = rows_of(cli("trace", "T", key, *place, "--json"))
        return any(row["event"] == "group" and row["group"] == "G" and row["consumed"] for row in rows)

    for place in (cluster, store):
        until(lambda place=place: "dead letter" in stages("T", "key", place))  # type: ignore[misc]
        until(lambda place=place: is_consumed("key", place))  # type: ignore[misc] # offsets are written each 5 s
        rows = rows_of(cli("trace", "T", "key", *place, "--json"))
        assert {row["id"] for row in rows} == {ids["plain"]}
        told = [row["event"] for row in rows]
        assert told.count("stored") == 1
        assert told.count("given to a consumer") == told.count("consumed") == 2
        assert {"sent", "delayed", "retried", "dead letter", "group"} <= set(told)
        (group,) = (row for row in rows if row["event"] == "group" and row["group"] == "G")
        assert (group["consumed"], group["topic"]) == (True, "T")
        until(lambda place=place: {"delayed", "stored"} <= stages("Late", ids["late"], place))  # type: ignore[misc]
        until(lambda place=place: {"half", "committed", "settled"} <= stages("Half", ids["half"], place))  # type: ignore[misc]
        text = cli("trace", "T", ids["plain"], *place).out
        assert text.startswith(f"{ids['plain']}  T  keys key\n")
        assert "stored: T/" in text
        assert "group G: its offset 1 is after T/" in text
        assert cli("trace", "T", "none", *place).code == 1
