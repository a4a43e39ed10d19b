"""Commands that ask a cluster whose name server or broker answers nonsense: one line, an exit code, no escapes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import ConsumerSettings, StartAt
from engine.client.messages import OutgoingMessage, ReceivedMessage
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import Process, root
from tests.support.mutating import Mutating, mutating
from tests.support.wide import WIDE

__all__ = ["root"]

SEEDS = 40 if WIDE else 4
ID = "0" * 32
ASKS: tuple[tuple[str, ...], ...] = (
    *(("topic", verb, "T") for verb in ("status", "route", "clusters", "rates", "order")),
    ("topic", "list"), ("topic", "list", "--groups"), ("topic", "allocate", "T", "--clients", "a,b"),
    ("topic", "create", "T", "--queues", "3", "--order", "--dry-run"), ("topic", "perm", "T", "4", "--dry-run"),
    ("topic", "delete", "T", "--dry-run"),
    ("group", "list"), ("group", "config", "G"), ("group", "create", "G", "--retries", "3", "--dry-run"),
    ("group", "delete", "G", "--dry-run"),
    *(("consumer", verb, "G") for verb in ("progress", "connections", "status")), ("consumer", "lag"),
    ("consumer", "progress", "G", "--clients"),
    ("producer", "connections", "P", "T"), ("producer", "list"),
    ("offset", "reset", "G", "T", "--to", "first", "--dry-run"), ("offset", "skip", "G", "T", "--dry-run"),
    ("offset", "clone", "G", "H", "T", "--dry-run"),
    ("message", "key", "T", "k"), ("message", "offset", "T", "0", "0"), ("message", "units", "T", "0", "--group", "G"),
    ("message", "id", ID, "--topic", "T"),
    ("dlq", "list"), ("dlq", "list", "G"), ("dlq", "resend", "G", "--dry-run"),
    *(("broker", verb) for verb in ("status", "config")), ("broker", "set", "fileReservedTime", "5", "--dry-run"),
    ("cluster", "list"), ("cluster", "list", "--more"),
    ("namesrv", "config"), ("namesrv", "set", "k", "v", "--dry-run"), ("namesrv", "kv-list", "S"),
    ("namesrv", "kv-set", "S", "a", "c", "--dry-run"), ("namesrv", "wipe-write", "broker-a", "--dry-run"),
    ("acl", "version"),
)  # fmt: skip
OTHERS = (
    ("send", "T", "--body", "x"), ("trace", "T", "k"), ("consume", "T", "--from-beginning", "-n", "1"),
    ("consume", "T", "--from-beginning", "--json", "-n", "1"),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def requests_are_waited_for() -> None:
    """No longer than usual: what is not understood any more is not answered."""


@contextmanager
def clients(names: str) -> Iterator[None]:
    """A producer that has sent, and a consumer that is connected, of a client in a thread of its own."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        ready.set()

    async def run() -> None:
        async with ClusterClient(ClientConfig((names,))) as client:
            producer = client.producer("P")
            await producer.send(OutgoingMessage("T", b"hello", keys=("k",)))
            async with client.push_consumer("G", handle, ConsumerSettings(start=StartAt.FIRST)) as consumer:
                await consumer.subscribe("T")
                await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def peer(root: Path, cli: Cli) -> Iterator[Mutating]:
    process = Process(root)
    names, broker = process.where["nameService"], process.where["broker"]
    for words in (
        ("topic", "create", "T", "--queues", "1", "--yes"),
        ("topic", "create", "%DLQ%G", "--queues", "1", "--yes"),
        ("namesrv", "kv-set", "S", "a", "b", "--yes"),
    ):
        assert cli("admin", *words, "--namesrv", names).code == 0, words
    with clients(names), mutating(names, broker) as found:
        yield found
    assert process.stop() == 0


def judge(words: tuple[str, ...], seed: tuple[int, int], ran: object) -> None:
    text = ran.out + ran.err  # type: ignore[attr-defined]
    where = (words, seed, ran)
    assert ran.code in (0, 1, 2, 4, 5), where  # type: ignore[attr-defined]
    assert "bug in rstore" not in text, where
    assert "Traceback" not in text, where
    assert all(one.isprintable() or one == "\n" for one in text), where
    assert ran.code != 4 or "127.0.0.1:" in text, where  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "swapped"),
    [
        (("group", "config", "G"), (b'"consumeEnable":true', b'"\\u001b[31m":"\\u001b[32m"')),
        (
            ("consumer", "status", "G"),
            (b'"properties":{', b'"jstack":"a\\n\\tb\\u001b[31m","properties":{"\\u009b1m":"x",'),
        ),
    ],
)
def test_names_and_texts_of_peers_act_on_no_terminal(
    words: tuple[str, ...], swapped: tuple[bytes, bytes], peer: Mutating, cli: Cli
) -> None:
    peer.begin()
    peer.swapped = swapped
    ran = cli("admin", *words, "--namesrv", peer.names)
    judge(words, (0, 0), ran)
    assert "\\x1b[31m" in ran.out


@pytest.mark.wide
def test_each_question_of_admin(peer: Mutating, cli: Cli) -> None:
    ask_each([("admin", *words) for words in ASKS], peer, cli)


@pytest.mark.wide
def test_each_other_command(peer: Mutating, cli: Cli) -> None:
    ask_each(OTHERS, peer, cli)


def ask_each(commands: Sequence[tuple[str, ...]], peer: Mutating, cli: Cli) -> None:
    """Each command, once for each of its questions and seed, with another answer to it."""
    bad = []
    for number, words in enumerate(commands):
        asked = (*words, "--namesrv", peer.names)
        peer.begin()
        assert cli(*asked).code in (0, 1, 5), words  # 5: the daemon has no accounts
        questions = len(peer.asked)
        assert questions > 0, words
        for at in range(questions):
            for seed in range(SEEDS):
                peer.begin(at, seed=seed + 1000 * number)
                try:
                    judge(words, (at, seed), cli(*asked))
                except AssertionError as error:
                    bad.append(str(error)[:600])
    assert not bad, "\n\n".join(bad[:400])
