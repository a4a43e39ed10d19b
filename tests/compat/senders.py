"""Producers of `engine.client` that send to a broker, each body once, and the ledger of what they were answered.

What a ledger has acknowledged must lie in the closed store just where the broker said, once; nothing else may lie
there but what was sent. `judged` compares the two, and tells what is missing, of which round, with the log of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.client.pulling import PullStatus
from engine.client.queues import MessageQueue
from engine.client.sending import SendResult, SendStatus
from engine.config import StoreConfig
from engine.drill.loop_thread import LoopThread
from engine.errors import PeerLost, RefusedByBroker
from engine.format.message import StoredMessage, decode
from engine.read_store import ReadStore
from tests.engine.opening import assert_sound
from tests.support.checking import check_clean

TOPIC, BROKER = "Load", "broker-a"
QUEUES = 4
SENDERS = 3
"""To a queue each; the last queue is left."""
PATIENCE_S = 120
"""How long a state is waited for: a daemon beside busy cores is slow, and only one that stands still is wrong."""
PAUSE_S = 0.01
_LOG_SHOWN = 6000
_STUFF = bytes(range(32, 127)) * 40


class Talker:
    """A client of a cluster for who waits: its producer tries nothing again, its consumer pulls. A context manager.

    Args:
        names: address of the name server.

    Raises:
        PeerLost: it is not there. So do all methods: the broker is gone, or does not answer in time.
    """

    def __init__(self, names: str) -> None:
        log = logging.Logger("talker")
        log.addHandler(logging.NullHandler())
        self._loop = LoopThread("talker")
        self.client = ClusterClient(ClientConfig((names,)), log)
        try:
            self._loop.run(self.client.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self.producer = self.client.producer("producers", ProducerSettings(timeout_s=PATIENCE_S, retries=0))

    def send(self, topic: str, queue_id: int, body: bytes, unique: str) -> SendResult:
        """Send a message. Raises RefusedByBroker."""
        message = OutgoingMessage(topic, body, system={"UNIQ_KEY": unique})
        return self._loop.run(self.producer.send(message, queue=MessageQueue(topic, BROKER, queue_id)))

    def pulled(self, queues: Iterable[MessageQueue]) -> set[bytes]:
        """Every body that a consumer gets from these queues."""

        async def pull() -> set[bytes]:
            found: set[bytes] = set()
            async with self.client.pull_consumer("pullers") as consumer:
                for queue in queues:
                    result = await consumer.pull(queue, 0)
                    while result.status is PullStatus.FOUND:
                        found.update(message.body for message in result.messages)
                        result = await consumer.pull(queue, result.next_offset)
                    assert result.status is PullStatus.NO_NEW_MESSAGE, result
            return found

        return self._loop.run(pull())

    def searched(self, queue: MessageQueue, times: Iterable[int]) -> tuple[int, list[int]]:
        """The end of a queue, and the offsets that searches by these times (ms since 1970) give."""

        async def search() -> tuple[int, list[int]]:
            async with self.client.pull_consumer("pullers") as consumer:
                return await consumer.max_offset(queue), [await consumer.offset_at(queue, at) for at in times]

        return self._loop.run(search())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.run(self.client.__aexit__(kind, error, at))
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Where a broker stored a body, as it answered."""

    round: int
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class Ledger:
    """What was sent and answered, by all senders. `round` counts the daemon's lives; `logs` has the log of each."""

    round: int = 0
    sent: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[bytes, Acknowledged] = field(default_factory=dict)
    refused: list[tuple[int, int, str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    lock: threading.Condition = field(default_factory=threading.Condition)

    def send(self, client: Talker, topic: str, queue_id: int, size: int) -> tuple[int, str]:
        """Send one more body, and note the answer; its code and remark.

        Raises PeerLost: nobody knows what became of it.
        """
        with self.lock:
            number, turn = len(self.sent), self.round
            body = b"%08d " % number + _STUFF[:size]
            self.sent[body] = turn
        code, remark = 0, ""
        try:
            result = client.send(topic, queue_id, body, f"{number:032X}")
            code, remark = result.status.value, result.status.name
        except RefusedByBroker as refusal:
            code, remark = refusal.response, refusal.remark
        with self.lock:
            if code == SendStatus.SEND_OK.value:
                self.acknowledged[body] = Acknowledged(turn, topic, result.queue.queue_id, result.queue_offset)
            else:
                self.refused.append((turn, code, remark))
            self.lock.notify_all()
        return code, remark

    def of_round(self, turn: int) -> int:
        """How many were acknowledged in a round."""
        return sum(one.round == turn for one in list(self.acknowledged.values()))

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait until it is so; fails with all that is known when it does not become so, or all senders have ended."""
        end = time.monotonic() + PATIENCE_S
        with self.lock:
            while not met():
                assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}. {self}"
                assert not self.ended, f"a sender ended before: {what}. {self}"
                self.lock.wait(0.2)

    def until_all_send(self, count: int, what: str) -> None:
        """Wait for so many more to be acknowledged, of each sender two at least: one may have been under way before."""
        before = len(self.acknowledged)

        def met() -> bool:
            more = Counter(one.queue_id for one in list(self.acknowledged.values())[before:])
            return more.total() >= count and all(more[queue_id] > 1 for queue_id in range(SENDERS))

        self.until(met, what)

    def __repr__(self) -> str:
        codes = Counter(self.refused)
        return (
            f"Round {self.round}: {len(self.sent)} sent, {len(self.acknowledged)} acknowledged "
            f"({self.of_round(self.round)} of this round); refused {dict(codes)}; senders that ended: {self.ended}"
        )


@contextmanager
def senders(ledger: Ledger, names: str, *, pause_s: float = 0.0) -> Iterator[None]:
    """Three threads that send, a queue each, until the broker is gone or this ends. `pause_s`: between two sends."""
    stopped = threading.Event()
    ledger.ended.clear()

    def run(queue_id: int) -> None:
        try:
            with Talker(names) as client:
                at = queue_id
                while not stopped.is_set():
                    at += 1
                    refused, _ = ledger.send(client, TOPIC, queue_id, 97 * at % 3500)
                    time.sleep(PAUSE_S if refused else pause_s)
        except PeerLost as error:
            with ledger.lock:
                ledger.ended.append(f"sender {queue_id}: {error!r}")
                ledger.lock.notify_all()

    running = [threading.Thread(target=run, args=(queue_id,)) for queue_id in range(SENDERS)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in running:
            thread.join()


def all_consumed(client: Talker, ledger: Ledger, wanted: Iterable[bytes] | None = None) -> set[bytes]:
    """A consumer gets these bodies, those that were acknowledged before this call by default; which they are."""
    with ledger.lock:
        bodies = set(ledger.acknowledged if wanted is None else wanted)
        queues = {MessageQueue(one.topic, BROKER, one.queue_id) for one in ledger.acknowledged.values()}
    missing = [ledger.acknowledged[body] for body in bodies - client.pulled(queues)]
    assert not missing, f"{len(missing)} were acknowledged and not consumed, {missing[:5]}. {ledger}"
    return bodies


def judged(root: Path, ledger: Ledger, *, known: Sequence[str] = (), why: str = "") -> None:
    """The closed store is sound, and has what the ledger says. `known`: findings that it may have, and why."""
    config = StoreConfig(store_path_root_dir=root)
    stored: dict[bytes, list[StoredMessage]] = defaultdict(list)
    with ReadStore(config) as store:
        for topic in {one.topic for one in ledger.acknowledged.values()}:
            for queue_id in range(QUEUES):
                for message in _messages(store, topic, queue_id):
                    stored[message.body].append(message)
    wrong = []
    last: dict[tuple[str, int], int] = {}
    for body, one in ledger.acknowledged.items():
        places = [(there.topic, there.queue_id, there.queue_offset) for there in stored[body]]
        if places != [(one.topic, one.queue_id, one.queue_offset)]:
            wrong.append((one.round, f"{body[:8].decode()}: acknowledged {one}, stored at {places}"))
        if one.queue_offset <= last.get((one.topic, one.queue_id), -1):
            wrong.append((one.round, f"{body[:8].decode()}: acknowledged {one}, after one that was sent later"))
        last[one.topic, one.queue_id] = one.queue_offset
    for body, messages in stored.items():
        if body not in ledger.sent or len(messages) > 1:
            places = [(there.topic, there.queue_id, there.queue_offset) for there in messages]
            wrong.append((ledger.sent.get(body, 0), f"{body[:8].decode()}: sent once or never, stored at {places}"))
    told = "\n".join(text for _, text in wrong[:20])
    for turn in sorted({turn for turn, _ in wrong})[:3]:
        for log in ledger.logs[turn : turn + 2]:
            told += f"\n--- the daemon's log, from round {turn} on ---\n{log[-_LOG_SHOWN:]}"
    assert not wrong, f"{len(wrong)} differ. {ledger}\n{told}"
    check_clean(root, config, known=known, why=why)
    assert_sound(config)


def _messages(store: ReadStore, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, at)
        yield from map(decode, result.messages)
        assert result.next_begin_offset > at
        at = result.next_begin_offset
