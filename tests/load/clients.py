"""Producers and consumers that go on through kills and full disks, and tell what was acknowledged and what they got.

    python -m tests.load.clients '{"role": "produce", "broker": "127.0.0.1:1", …}'

A process runs until its stdin ends, and says a line of JSON then. Lines on stdin tell it where the broker is now
(`{"broker": address}`), that it sends no more but stays (`{"quiet": true}`), and to say its line (`{"tell": true}`).
Every key is `name-kind-number`; what is to become of a message follows from its number.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.drill.wire_client import Gone, WireClient, pull_fields
from engine.format.message import decode
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand

COMMIT, ROLLBACK = "8", "12"
PAUSE_S = 0.05
HALF = 4
"""A half message's sysFlag."""


@dataclass
class Wanted:
    """What a process does.

    Attributes:
        role: "produce" or "consume".
        broker: address.
        name: of its messages; of its group.
        topic: where.
        queues: so many.
        threads: clients; each has a connection.
        body: bytes of a body.
        kind: "plain", "delayed" (1 s), "transaction", "mixed" (each in turn) or "tags" (a, b, c in turn).
        rate: sends of each thread a second; None: as fast as they are answered.
        retry_every: a consumer gives every so-many-th message back once.
        hang_up_every: a thread opens a new connection after so many requests.
        tags: a consumer's expression.
    """

    role: str
    broker: str
    name: str
    topic: str
    queues: int = 4
    threads: int = 1
    body: int = 200
    kind: str = "plain"
    rate: float | None = None
    retry_every: int = 0
    hang_up_every: int = 0
    tags: str = "*"


@dataclass
class Told:
    """What it has seen: keys, codes and remarks of refusals, times in ms."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    gone: int = 0
    moved: int = 0
    skipped: int = 0
    sent_back: int = 0
    times: list[float] = field(default_factory=list)
    slowest: list[tuple[float, float]] = field(default_factory=list)

    def line(self) -> str:
        with self.lock:
            times = sorted(self.times)
            return self._line(times)

    def _line(self, times: list[float]) -> str:
        said = {
            name: getattr(self, name) for name in ("keys", "places", "doubled", "gone", "moved", "skipped", "sent_back")
        }
        parts = {f"p{part}": times[min(len(times) - 1, int(len(times) * part / 100))] for part in (50, 99) if times}
        return json.dumps({**said, **parts, "max": times[-1] if times else None, "refused": dict(self.refused)})


class Process:
    """The threads of one process."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.told = Told()
        self.stopped = threading.Event()
        self.quiet = False
        self._seen: set[str] = set()
        self._numbers = 0

    def run(self) -> None:
        work = {"produce": self._produce, "consume": self._consume}[self.wanted.role]
        threads = [threading.Thread(target=self._keep_on, args=(work, at)) for at in range(self.wanted.threads)]
        for thread in threads:
            thread.start()
        for line in sys.stdin:
            said = json.loads(line)
            self.wanted.broker = said.get("broker", self.wanted.broker)
            self.quiet = said.get("quiet", self.quiet)
            if "tell" in said:
                print(self.told.line(), flush=True)
        self.stopped.set()
        for thread in threads:
            thread.join()
        print(self.told.line(), flush=True)

    def _keep_on(self, work: Callable[[WireClient, int], None], at: int) -> None:
        while not self.stopped.is_set():
            try:
                with WireClient(self.wanted.broker, 10, self._pushed) as client:
                    work(client, at)
            except (Gone, TimeoutError):
                with self.told.lock:
                    self.told.gone += 1
                self.stopped.wait(PAUSE_S)

    # --- producing --------------------------------------------------------------------------------------------------

    def _produce(self, client: WireClient, at: int) -> None:
        wanted = self.wanted
        body = random.Random(at).randbytes(wanted.body)
        if wanted.kind in ("transaction", "mixed"):
            client.heartbeat(producer=wanted.name)
        sent = 0
        next_at = time.monotonic()
        while not self.stopped.is_set() and (not wanted.hang_up_every or sent < wanted.hang_up_every):
            if self.quiet:
                client.listen(PAUSE_S)
                continue
            number = self._next()
            began = time.monotonic()
            self._send(
                client,
                number,
                body,
                ("plain", "delayed", "transaction")[number % 3] if wanted.kind == "mixed" else wanted.kind,
            )
            took = (time.monotonic() - began) * 1000
            sent += 1
            with self.told.lock:
                self.told.times.append(took)
            if wanted.rate:
                next_at = max(next_at + 1 / wanted.rate, time.monotonic() - 1)
                self.stopped.wait(max(0, next_at - time.monotonic()))

    def _next(self) -> int:
        with self.told.lock:
            self._numbers += 1
            return self._numbers

    def _send(self, client: WireClient, number: int, body: bytes, kind: str) -> None:
        wanted = self.wanted
        key = f"{wanted.name}-{kind}-{number}"
        said = {"UNIQ_KEY": key, "KEYS": key, "TAGS": "abc"[number % 3] if kind == "tags" else "a"}
        if kind == "delayed":
            said["DELAY"] = "1"
        if kind == "transaction":
            said |= {"TRAN_MSG": "true", "PGROUP": wanted.name}
        queue_id = number % wanted.queues
        flags = HALF if kind == "transaction" else 0
        found = client.put(wanted.topic, queue_id, body, said, group=wanted.name, sys_flag=flags)
        with self.told.lock:
            if found.code == ResponseCode.SUCCESS:
                self.told.keys.append(key)
                self.told.places[key] = int(found.fields["msgId"][-16:], 16)
            else:
                self.told.refused[f"{found.code} {found.remark}"] += 1
        if found.code:
            self.stopped.wait(PAUSE_S)
        elif kind == "transaction" and number % 2 == 0:  # the others are asked for
            self._end(client, key, found.fields["queueOffset"], found.fields["msgId"])

    def _end(self, client: WireClient, key: str, queue_offset: str, msg_id: str) -> None:
        client.request(
            RequestCode.END_TRANSACTION, self._end_fields(key, queue_offset, str(int(msg_id[-16:], 16))), oneway=True
        )

    def _end_fields(self, key: str, queue_offset: str, place: str) -> dict[str, str]:
        return {
            "producerGroup": self.wanted.name,
            "tranStateTableOffset": queue_offset,
            "commitLogOffset": place,
            "commitOrRollback": ROLLBACK if rolled_back(key) else COMMIT,
            "msgId": key,
            "transactionId": key,
        }

    def _pushed(self, client: WireClient, command: RemotingCommand) -> None:
        ext = command.fields
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            fields = self._end_fields(ext["msgId"], ext["tranStateTableOffset"], ext["commitLogOffset"])
            client.request(RequestCode.END_TRANSACTION, {**fields, "fromTransactionCheck": "true"}, oneway=True)

    # --- consuming --------------------------------------------------------------------------------------------------

    def _consume(self, client: WireClient, at: int) -> None:
        """Pulls all queues of its share at a time, each with one request that may be held."""
        wanted = self.wanted
        group, retry = wanted.name, f"%RETRY%{wanted.name}"
        if not self._there(client):
            return
        client.heartbeat(consumer=group, topics=(wanted.topic, retry))
        mine = [(wanted.topic, queue) for queue in range(at, wanted.queues, wanted.threads)]
        mine += [(retry, 0)] if at == 0 else []
        asked: dict[int, tuple[tuple[str, int], int]] = {}
        pulls = 0

        def pull(queue: tuple[str, int], offset: int) -> None:
            ext = pull_fields(group, *queue, offset, wait_ms=2000, commit=offset, tags=wanted.tags)
            asked[client.request(RequestCode.PULL_MESSAGE, ext)] = queue, offset

        for queue in mine:
            pull(queue, client.next_offset(group, *queue))
        last_beat = time.monotonic()
        while not self.stopped.is_set() and (not wanted.hang_up_every or pulls < wanted.hang_up_every):
            found = client.answer()
            if found.opaque not in asked:
                continue
            queue, offset = asked.pop(found.opaque)
            pulls += 1
            if found.code == ResponseCode.SUCCESS:
                self._got(client, bytes(found.body))
            elif found.code == ResponseCode.PULL_OFFSET_MOVED:
                with self.told.lock:
                    self.told.moved += 1
                    self.told.skipped += max(0, int(found.fields["nextBeginOffset"]) - offset)
            elif found.code not in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
                with self.told.lock:
                    self.told.refused[f"{found.code} {found.remark}"] += 1
                self.stopped.wait(PAUSE_S)
            pull(queue, int(found.fields.get("nextBeginOffset", offset)))
            if time.monotonic() - last_beat > 20:
                client.heartbeat(consumer=group, topics=(wanted.topic, retry))
                last_beat = time.monotonic()

    def _there(self, client: WireClient) -> bool:
        """Wait for the topic, as Apache's clients do, who have no route to it until somebody has sent something."""
        while not self.stopped.is_set():
            found = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": self.wanted.topic})
            if found.code != ResponseCode.TOPIC_NOT_EXIST:
                return True
            self.stopped.wait(PAUSE_S)
        return False

    def _got(self, client: WireClient, records: bytes) -> None:
        at = 0
        while at < len(records):
            message = decode(records, at)
            at += message.total_size
            said = message.properties
            key = said.get("KEYS", "")
            number = int(key.rpartition("-")[2] or 0)
            if self.wanted.retry_every and number % self.wanted.retry_every == 0 and not message.reconsume_times:
                ext = {
                    "offset": str(message.physical_offset),
                    "group": self.wanted.name,
                    "delayLevel": "1",
                    "originMsgId": message.msg_id,
                    "originTopic": self.wanted.topic,
                }
                if client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0:
                    with self.told.lock:
                        self.told.sent_back += 1
                    continue
            with self.told.lock:
                if key in self._seen:
                    self.told.doubled += 1
                else:
                    self._seen.add(key)
                    self.told.keys.append(key)


def rolled_back(key: str) -> bool:
    """Whether a transaction's message is never to be seen."""
    return "-transaction-" in key and int(key.rpartition("-")[2]) % 5 == 0


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    Process(Wanted(**wanted)).run()


if __name__ == "__main__":
    main()
