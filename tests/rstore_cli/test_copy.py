"""`copy`, between two daemons that run beside: what arrives, what is resumed, what is never copied."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumeOutcome, ConsumerSettings, StartFrom
from engine.client.messages import OutgoingMessage, ReceivedMessage
from engine.client.producer import ProducerSettings
from engine.client.queues import MessageQueue
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.copying.marker import COPIED
from engine.errors import NoRoute
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.daemons import daemons

PATIENCE_S = 60
PATIENT = ProducerSettings(timeout_s=PATIENCE_S)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The name servers of a source and a target."""
    with daemons(tmp_path) as made:
        yield made.names_of("a"), made.names_of("b")


def send(names: str, messages: Sequence[OutgoingMessage]) -> None:
    async def run() -> None:
        async with ClusterClient(ClientConfig((names,))) as client:
            producer = client.producer("P", PATIENT)
            for at in range(0, len(messages), 50):
                await producer.send_batch(messages[at : at + 50])

    asyncio.run(run())


def read(names: str, topic: str) -> list[ReceivedMessage]:
    """All that a topic has; nothing where it is not there."""

    async def run() -> list[ReceivedMessage]:
        async with ClusterClient(ClientConfig((names,))) as client:
            try:
                return [one async for one in TopicReader(client, topic).messages(ReadFrom(first=True))]
            except NoRoute:
                return []

    return asyncio.run(run())


def commit(names: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    async def run() -> None:
        async with ClusterClient(ClientConfig((names,))) as client:
            for queue in (await client.route(topic)).read_queues(topic):
                if queue.queue_id in offsets:
                    await BrokerCalls(client).commit(group, queue, offsets[queue.queue_id])

    asyncio.run(run())


def offsets_of(names: str, group: str, topic: str) -> dict[MessageQueue, int | None]:
    async def run() -> dict[MessageQueue, int | None]:
        async with ClusterClient(ClientConfig((names,))) as client:
            queues = (await client.route(topic)).read_queues(topic)
            return {queue: await BrokerCalls(client).group_offset(group, queue) for queue in queues}

    return asyncio.run(run())


def end_of(names: str, topic: str) -> int:
    """Messages that a topic has; 0 where it is not there."""

    async def run() -> int:
        async with ClusterClient(ClientConfig((names,))) as client:
            try:
                queues = (await client.route(topic)).read_queues(topic)
            except NoRoute:
                return 0
            return sum([await BrokerCalls(client).max_offset(queue) for queue in queues])

    return asyncio.run(run())


def many(count: int, size: int = 200) -> list[OutgoingMessage]:
    return [OutgoingMessage("T", b"%07d" % i + b"." * size, "tag", (f"k{i}",), {"n": str(i)}) for i in range(count)]


def number(message: ReceivedMessage) -> int:
    return int(message.properties["n"])


def test_messages_arrive_as_they_were(cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    here, there = two
    large = b"compressed " * 1000
    send(here, many(300))
    sent = cli("send", "T", "--namesrv", here, "--body", large.decode(), "--property", "n=300", "--timeout", "60")
    assert sent.code == 0
    commit(here, "G", "T", {0: 5, 1: 0})
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--json")
    planned = cli(*words, "--dry-run")
    assert (planned.code, planned.json["done"]) == (1, False)
    assert read(there, "T") == []
    assert not (tmp_path / "map").exists()
    done = cli(*words, "--yes")
    assert done.code == 0, done.err
    assert (done.json["copied"], done.json["doubles"]) == (301, 0)
    before = {number(one): one for one in read(here, "T")}
    after = {number(one): one for one in read(there, "T")}
    assert before.keys() == after.keys() == set(range(301))
    for i, one in before.items():
        copy = after[i]
        assert (copy.body, copy.tags, copy.keys, copy.id) == (one.body, one.tags, one.keys, one.id)
        assert (copy.stored.born_timestamp, copy.stored.flag) == (one.stored.born_timestamp, one.stored.flag)
        assert copy.stored.body == one.stored.body  # compressed as it was
        assert {k: v for k, v in copy.properties.items() if k != COPIED} == one.properties
        assert copy.properties[COPIED].endswith(f"/{one.queue_offset}/{one.stored.store_timestamp}")
    order = [[number(one) for one in read(names, "T") if one.queue.queue_id == 0] for names in two]
    assert order[0] == order[1]
    again = cli(*words, "--yes")
    assert (again.json["copied"], again.json["copiedBefore"], again.json["doubles"]) == (0, 301, 0)
    assert {q.queue_id: o for q, o in offsets_of(there, "G", "T").items()}[0] == 5


def test_a_copy_never_goes_back(cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    here, there = two
    send(here, many(50))
    for _ in range(3):
        for a, b in ((here, there), (there, here)):
            done = cli("copy", "--from", a, "--to", b, "--progress", tmp_path / f"from-{a}", "--yes", "--json")
            assert done.code == 0, done.err
    assert [len(read(names, "T")) for names in two] == [50, 50]
    assert done.json["leftOut"] == 50
    with_itself = cli("copy", "--from", here, "--to", here, "--yes")
    assert (with_itself.code, "not copied to itself" in with_itself.err) == (2, True)
    alias = here.replace("127.0.0.1", "localhost")
    refused = cli("copy", "--from", here, "--to", alias, "--progress", tmp_path / "alias", "--yes")
    assert (refused.code, "are one cluster" in refused.err) == (4, True), refused.err


def test_groups_continue_behind_messages_of_others(cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    """The target has messages of its own before, so that no offset is the same on both sides."""
    here, there = two
    send(here, many(400))
    send(there, [OutgoingMessage("T", b"own", properties={"n": "-1"}) for _ in range(37)])
    ends = {queue.queue_id: 0 for queue in offsets_of(here, "G", "T")}
    for one in read(here, "T"):
        ends[one.queue.queue_id] += 1
    stands = {queue: end // 2 for queue, end in ends.items() if queue}
    commit(here, "G", "T", stands)
    assert cli("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes").code == 0
    left = {number(one) for one in read(here, "T") if one.queue_offset >= stands.get(one.queue.queue_id, 0)}
    left -= {number(one) for one in read(here, "T") if one.queue.queue_id == 0}
    given: list[ReceivedMessage] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
        given.extend(messages)
        return ConsumeOutcome.SUCCESS

    async def run() -> None:
        settings = ConsumerSettings(start=StartFrom.LAST_OFFSET)
        async with (
            ClusterClient(ClientConfig((there,))) as client,
            client.push_consumer("G", handle, settings) as consumer,
        ):
            await consumer.subscribe("T")
            async with asyncio.timeout(PATIENCE_S):
                while not left <= {number(one) for one in given}:
                    await asyncio.sleep(0.05)

    asyncio.run(run())
    in_those = [number(one) for one in given if one.queue.queue_id]
    assert Counter(in_those) == Counter(left)


@pytest.mark.parametrize("seed", [1])
def test_killed_at_any_moment(seed: int, cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    here, there = two
    total, chance = 3000, random.Random(seed)
    send(here, many(total))
    commit(here, "G", "T", {0: 7, 1: 700})
    words = [
        *(sys.executable, "-m", "rstore_cli.app", "copy", "--from", here, "--to", there, "--yes"),
        *("--progress", str(tmp_path / "map"), "--rate", "1500"),
    ]
    kills = 0
    for _ in range(4):
        until = end_of(there, "T") + chance.randrange(150, 550)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and end_of(there, "T") < until:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 3
    done = cli("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes", "--json")
    assert done.code == 0, done.err
    counts = Counter(map(number, read(there, "T")))
    assert counts.keys() == set(range(total))
    assert sum(counts.values()) - total == done.json["doubles"]
    assert done.json["copied"] + done.json["copiedBefore"] <= total
    offsets = {queue.queue_id: offset for queue, offset in offsets_of(there, "G", "T").items()}
    source = {one.queue_offset: number(one) for one in read(here, "T") if one.queue.queue_id == 1}
    target = {one.queue_offset: number(one) for one in read(there, "T") if one.queue.queue_id == 1}
    place = offsets[1]
    assert place is not None
    assert target[place] == source[700]
    assert set(map(int, (target[o] for o in target if o >= place))) >= {source[o] for o in source if o >= 700}
    assert json.loads((tmp_path / "map" / "map.json").read_text())["format"] == 1


def test_what_the_map_does_not_know_yet_is_found_at_the_target(cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    """As after a kill right before the map was written; and a request of the killed process that comes late."""
    here, there = two
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes", "--json")
    send(here, many(100))
    assert cli(*words).json["copied"] == 100
    kept = (tmp_path / "map" / "map.json").read_bytes()
    send(here, many(400)[100:])
    assert cli(*words).json["copied"] == 300
    (tmp_path / "map" / "map.json").write_bytes(kept)
    again = cli(*words).json
    assert (again["copied"], again["doubles"]) == (0, 0)
    late = read(there, "T")[0]

    async def store_again() -> None:
        message = OutgoingMessage("T", late.body, properties={COPIED: late.properties[COPIED], "n": "0"})
        async with ClusterClient(ClientConfig((there,))) as client:
            await client.producer("P", PATIENT).send(message, queue=late.queue)

    asyncio.run(store_again())
    send(here, [OutgoingMessage("T", b"last", properties={"n": str(i)}) for i in range(400, 440)])
    last = cli(*words).json
    assert (last["copied"], last["doubles"]) == (40, 1)
    assert Counter(map(number, read(there, "T")))[0] == 2


def test_what_the_target_has_lost_and_written_over_is_copied_again(
    cli: Cli, two: tuple[str, str], tmp_path: Path
) -> None:
    """As after a target's crash: the map has messages that the target lost, and others lie at their offsets now."""
    here, there = two
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes", "--json")
    send(here, many(100))
    assert cli(*words).json["copied"] == 100
    send(there, [OutgoingMessage("T", b"other", properties={"n": "-1"}) for _ in range(400)])
    send(here, many(500)[100:])
    kept = tmp_path / "map" / "map.json"
    fields = json.loads(kept.read_text())
    for queue in (one for one in fields["queues"] if one["runs"]):
        ((source, target, size),) = queue["runs"]
        queue["runs"] = [(source, target, size + 20)]
        queue["next"] += 20
        queue["looked"] += 20
    kept.write_text(json.dumps(fields))
    done = cli(*words)
    assert (done.code, done.json["copied"], done.json["doubles"]) == (0, 400, 0), done.err
    assert "has lost its end" in done.err
    counts = Counter(map(number, read(there, "T")))
    assert (counts.pop(-1), counts) == (400, Counter(range(500)))


def test_a_directory_that_is_in_use_or_of_another_copy(cli: Cli, two: tuple[str, str], tmp_path: Path) -> None:
    here, there = two
    send(here, many(10))
    send(there, [OutgoingMessage("U", b"x")])
    words = ("--progress", tmp_path / "map", "--yes")
    assert cli("copy", "--from", here, "--to", there, *words).code == 0
    other = cli("copy", "--from", there, "--to", here, *words)
    assert (other.code, "the offset map is of a copy from" in other.err) == (2, True), other.err
    none = cli("copy", "--from", here, "--to", there, "--topic", "none*", *words)
    assert (none.code, "the source has no topic none*" in none.err) == (1, True), none.err
    (tmp_path / "map" / "map.json").write_text("{}")
    broken = cli("copy", "--from", here, "--to", there, *words)
    assert (broken.code, "malformed offset map" in broken.err) == (4, True), broken.err
