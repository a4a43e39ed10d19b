"""One consumer group of Java's, Go's and our clients, and what becomes of its messages while everything around changes.

    python -m tests.compat.mixed_group [--messages 200000] [--ordered] [--alone java|go|ours]

Consumers join, leave and are killed, the broker is restarted and killed, queues are added. Each consumer writes a line
for each message before it counts as consumed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from engine.client.admin.session import AdminSession
from engine.client.admin.topics import topic_fields
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.errors import RStoreError
from engine.wire.codes import RequestCode
from tests.compat import real_broker, toolchain
from tests.compat.served import java_client

TOPIC, GROUP = "Mixed", "mixed-group"
QUEUES, MORE_QUEUES = 8, 12
PATIENCE_S = 240
"""A killed consumer of an ordered group holds its queues for a minute at the broker (RebalanceLockManager)."""
AT_ONCE = 32
ROOT = Path(__file__).resolve().parents[2]


class Line(NamedTuple):
    """A message as a consumer was given it. `at`: ns since 1970, of the one clock of this machine."""

    at: int
    queue_id: int
    queue_offset: int
    body: bytes


@dataclass
class Member:
    """A consumer that runs, or has run."""

    name: str
    process: subprocess.Popen[bytes]
    file: Path

    def kill(self) -> None:
        """SIGKILL: its offsets of the last second aren't committed, its locks not given back."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """As an application that ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.kill()

    def lines(self) -> Iterator[Line]:
        """What it was given; a line that a kill has cut is none, and its message isn't consumed."""
        with self.file.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    at, queue_id, queue_offset, body = line.split(b" ", 3)
                    yield Line(int(at), int(queue_id), int(queue_offset), body[:-1])


@dataclass
class Sender:
    """Sends numbered messages by our producer, from a thread of its own; one that fails counts for nothing.

    Until `hurry` it sends some fifty a second: an ordered group's queues change hands in tens of seconds (a lock is
    given back late, and asked for every 20 s), and all would be sent and consumed before the second consumer holds one.
    """

    names: str
    total: int
    acknowledged: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    slowly: int = 0
    """Acknowledged before `hurry`; `total` comes on top."""

    def __post_init__(self) -> None:
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        settings = ProducerSettings(timeout_s=5, retries=0)
        numbers = iter(range(1 << 40))

        async def send() -> None:
            body = b"%09d" % next(numbers)
            try:
                await producer.send(OutgoingMessage(TOPIC, body))
                self.acknowledged.add(body)
            except RStoreError:
                self.unknown.add(body)
                await asyncio.sleep(0.05)

        async def send_all() -> None:
            while len(self.acknowledged) < self.slowly + self.total:
                await send()

        async with ClusterClient(ClientConfig((self.names,), route_period_s=2)) as client:
            producer = client.producer("senders", settings)
            while not self._hurry.is_set():
                await send()
                await asyncio.sleep(0.02)
            await asyncio.gather(*(send_all() for _ in range(AT_ONCE)))

    def hurry(self) -> None:
        """From now on `total` messages, as fast as they go."""
        if not self._hurry.is_set():
            self.slowly = len(self.acknowledged)
            self._hurry.set()

    def until(self, part: float) -> None:
        """Wait until this part of the messages is acknowledged."""
        wanted = self.slowly + part * self.total
        until(lambda: len(self.acknowledged) >= wanted or not self._thread.is_alive(), f"{part:.0%} are sent")
        assert len(self.acknowledged) >= wanted, "the sender has ended"

    def join(self) -> None:
        """Wait until all are sent."""
        self.hurry()
        self._thread.join()


class Outcome(NamedTuple):
    """What became of a run.

    Attributes:
        disordered: (queue, offset) of an ordered group that first came behind a later one.
        by_member: messages given to each consumer. `doubles_by`: to which one first, and to which one again.
    """

    acknowledged: int
    lost: int
    doubles: int
    disordered: list[tuple[int, int]]
    by_member: dict[str, int]
    doubles_by: dict[str, int]
    seconds: float


def until(met: Callable[[], bool], what: str) -> None:
    """Wait for a state."""
    end = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


@dataclass
class Group:
    """The consumers, of the kinds in turn. `how`: concurrent or ordered."""

    names: str
    home: Path
    how: str
    members: list[Member] = field(default_factory=list)

    def join(self, kind: str) -> Member:
        """Start one, and wait until it consumes."""
        file = self.home / f"{len(self.members)}-{kind}"
        file.touch()
        words = [self.names, GROUP, TOPIC, str(file), self.how]
        command = {
            "java": lambda: java_client("Member", *words, options=("-Xmx128m", f"-Duser.home={self.home}")),
            "go": lambda: [str(toolchain.go_clients()), "member", *words],
            "ours": lambda: [sys.executable, "-m", "tests.compat.member", *words],
        }[kind]()
        with (self.home / f"{file.name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, "HOME": str(self.home)},
            )  # fmt: skip
        member = Member(kind, process, file)
        self.members.append(member)
        assert process.stdout is not None
        while line := process.stdout.readline():
            if line.strip() == b"started":
                return member
        raise AssertionError((self.home / f"{file.name}.log").read_text()[-2000:])

    def close(self) -> None:
        """End them all."""
        for member in self.members:
            with contextlib.suppress(BrokenPipeError):
                member.leave() if member.process.poll() is None else member.kill()


def run(home: Path, *, messages: int, how: str, kinds: tuple[str, str, str]) -> Outcome:
    """See the module. Raises toolchain.Missing."""
    began = time.monotonic()
    root, port = home / "store", real_broker.free_port(4)
    root.mkdir(parents=True)
    with ExitStack() as stack:
        names = stack.enter_context(real_broker.name_server(home / "names"))
        group = Group(names, home, how)
        stack.callback(group.close)
        brokers = ExitStack()
        stack.callback(brokers.close)

        def start_broker() -> real_broker.RealBroker:
            return brokers.enter_context(real_broker.broker(root, names, port=port))

        def ask_for_queues(count: int) -> None:
            asyncio.run(_have_queues(names, broker.broker, count))

        broker = start_broker()
        ask_for_queues(QUEUES)
        first, second, third = (group.join(kind) for kind in kinds)
        sender = Sender(names, messages)
        stack.callback(sender.join)
        until(lambda: all(member.file.stat().st_size for member in group.members), "each has consumed a message")
        sender.hurry()
        sender.until(0.1)
        fourth = group.join(kinds[2])
        sender.until(0.2)
        first.kill()
        sender.until(0.3)
        ask_for_queues(MORE_QUEUES)
        sender.until(0.4)
        fifth = group.join(kinds[0])
        group.join(kinds[1])
        sender.until(0.5)
        broker.process.send_signal(signal.SIGTERM)
        broker.process.wait(60)
        brokers.close()
        broker = start_broker()
        sender.until(0.6)
        third.kill()
        sender.until(0.7)
        second.leave()
        sender.until(0.8)
        broker.kill()
        brokers.close()
        broker = start_broker()
        group.join(kinds[0])
        sender.until(0.9)
        fifth.leave()
        fourth.leave()
        group.join(kinds[2])
        sender.join()
        seen: set[bytes] = set()

        def all_consumed() -> bool:
            seen.update(line.body for member in group.members for line in member.lines())
            return sender.acknowledged <= seen

        with contextlib.suppress(AssertionError):  # counted as lost
            until(all_consumed, "everything is consumed")
        group.close()
        return outcome(group, sender, time.monotonic() - began)


def outcome(group: Group, sender: Sender, seconds: float) -> Outcome:
    """What the consumers' files say."""
    lines = sorted((line, member.file.name) for member in group.members for line in member.lines())
    first: dict[bytes, str] = {}
    latest: dict[int, int] = defaultdict(lambda: -1)
    disordered, doubles = [], Counter[str]()
    for line, name in lines:
        if line.body in first:
            doubles[f"{first[line.body]}, {name}"] += 1
        elif group.how == "ordered" and line.queue_offset < latest[line.queue_id]:
            disordered.append((line.queue_id, line.queue_offset))
        first.setdefault(line.body, name)
        latest[line.queue_id] = max(latest[line.queue_id], line.queue_offset)
    by_member = {member.file.name: sum(1 for _ in member.lines()) for member in group.members}
    lost = len(sender.acknowledged - first.keys())
    return Outcome(
        len(sender.acknowledged),
        lost,
        sum(doubles.values()),
        disordered,
        by_member,
        dict(doubles.most_common()),
        seconds,
    )


async def _have_queues(names: str, broker: str, count: int) -> None:
    fields = topic_fields(TOPIC, {"readQueueNums": count, "writeQueueNums": count, "perm": 6})
    async with ClusterClient(ClientConfig((names,))) as client:
        await AdminSession(client).ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--alone", choices=("java", "go", "ours"), help="a group of these clients alone")
    wanted = parser.parse_args()
    kinds = (wanted.alone,) * 3 if wanted.alone else ("java", "go", "ours")
    with tempfile.TemporaryDirectory(prefix="rstore-mixed-") as home:
        how = "ordered" if wanted.ordered else "concurrent"
        print(how, kinds, run(Path(home) / "run", messages=wanted.messages, how=how, kinds=kinds), flush=True)


if __name__ == "__main__":
    main()
