"""A drill's store behind the daemon: real sockets, several clients that send, and a consumer that continues meanwhile.

The daemon runs in a thread of this process, on the drill's own disk, which is how that disk can fail under it; the
clients are those of `engine.client`, in a thread of their own. A producer sends each message once, to a queue that the
drill chose, and what it is answered goes into the drill's ledger as any put does: an answer is never hidden by another
try.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import field
from typing import TYPE_CHECKING

from engine.broker.serve import Daemon
from engine.broker.settings.broker_settings import BrokerSettings
from engine.client.client import ClientConfig, ClusterClient
from engine.client.consumer_settings import GroupSettings
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.client.queues import MessageQueue
from engine.client.sending import SendStatus
from engine.client.task_errors import first_error
from engine.dataclass import dataclass
from engine.drill.ledger import Stored
from engine.drill.loop_thread import LoopThread
from engine.errors import RefusedByBroker, RStoreError, StorageError
from engine.format import properties
from engine.format.hosts import parse as parse_host
from engine.format.message import Message, encode, parse_msg_id, patch
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.broker.net.ports import Listening
    from engine.client.pull_consumer import PullConsumer
    from engine.client.sending import SendResult
    from engine.drill.ledger import DrillLedger
    from engine.format.batch import BatchItem
    from engine.store import MessageStore

GROUP = "drill"
FULL_REMARKS = (
    "service not available now. It may be caused by",
    "create mapped file failed, server is busy or broken.",
)
"""What a client of Apache's is told when the disk is full. Source: SendMessageProcessor#handlePutMessageResult."""
_BROKER, _CLUSTER = "broker-a", "DefaultCluster"
_PRODUCERS = "producers"
_ONCE = ProducerSettings(timeout_s=30.0, retries=0, compress_above=1 << 31)
"""Every answer is the drill's to judge, and every body lies in the log as the drill made it."""
_PAUSE_S = 0.02
_OFFSETS_MS = 200


@dataclass(frozen=True, slots=True)
class RefusedPut:
    """A put that was not stored, as its client was told."""

    code: int
    remark: str

    @property
    def clear(self) -> bool:
        """Whether it is DISK_FULL, or of one that is slow meanwhile."""
        if self.code == ResponseCode.SYSTEM_BUSY:
            return True
        known = self.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE)
        return known and self.remark.startswith(FULL_REMARKS)

    def __str__(self) -> str:
        return f"{self.code} {self.remark}"


@dataclass(slots=True)
class _Faults(logging.Handler):
    """Errors of the daemon that nobody should ever see."""

    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        logging.Handler.__init__(self, logging.WARNING)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Served:
    """See the module. `stop` it before the store is closed.

    Attributes:
        address: `ip:port` of the broker.
        consumed: UNIQ_KEYs of what the consumer got.
    """

    def __init__(self, store: MessageStore, topics: Sequence[str], queues: int) -> None:
        """Raises StorageError: nothing can be listened on."""
        self._faults = _Faults()
        self._running = AsyncExitStack()
        self._daemon, self._clients = LoopThread("drill-daemon"), LoopThread("drill-clients")
        try:
            listening = self._daemon.run(self._serve(store))
        except BaseException:
            self._close()
            raise
        self.address = listening.broker
        self.consumed: set[str] = set()
        self._config = ClientConfig((str(listening.names),))
        self._log = logging.Logger("drill")
        self._log.addHandler(logging.NullHandler())  # what fails is tried again, and what never succeeds is judged
        self._committed: dict[tuple[str, int], int] = {}
        self._stopping = asyncio.Event()
        wanted = [MessageQueue(topic, _BROKER, queue_id) for topic in topics for queue_id in range(queues)]
        self._consumer = self._clients.begin(self._consume(wanted))

    def stop(self) -> None:
        """Stop consumer and daemon, as SIGTERM does. Raises StorageError: the daemon met an error of its own."""
        try:
            self._clients.call(self._stopping.set)
            self._consumer.result()
            self._daemon.run(self._running.aclose())
        finally:
            self._close()
        if self._faults.errors:
            raise StorageError(f"the daemon logged an error: {self._faults.errors[0]}")

    def _close(self) -> None:
        self._clients.close()
        self._daemon.close()

    async def _serve(self, store: MessageStore) -> Listening:
        log = logging.Logger("drill")
        log.addHandler(self._faults)
        settings = BrokerSettings(
            broker_name=_BROKER,
            cluster_name=_CLUSTER,
            listen_port=0,
            name_service_port=0,
            flush_offsets_ms=_OFFSETS_MS,
        )
        daemon = await self._running.enter_async_context(Daemon(settings, store, asyncio.get_running_loop(), log))
        return daemon.listening

    # --- producers --------------------------------------------------------------------------------------------------

    def put(self, ledger: DrillLedger, count: int, clients: int, patience_ms: int) -> list[RefusedPut]:
        """Put so many messages through so many clients at a time; the refusals.

        Args:
            ledger: makes the messages, and is told what became of them.
            count: of messages.
            clients: at a time.
            patience_ms: how long each is tried again while it is refused.

        Raises:
            PeerLost, NoRoute, FormatError: a message was neither stored nor refused.
        """
        return self._clients.run(self._put(ledger, count, clients, patience_ms))

    async def _put(self, ledger: DrillLedger, count: int, clients: int, patience_ms: int) -> list[RefusedPut]:
        refused: list[RefusedPut] = []
        left = iter(range(count))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(self._put_some(ledger, left, patience_ms, refused))
        except BaseExceptionGroup as problems:
            raise first_error(problems) from None
        return refused

    async def _put_some(
        self, ledger: DrillLedger, left: Iterator[int], patience_ms: int, refused: list[RefusedPut]
    ) -> None:
        """One client: puts messages while others are left."""
        async with ClusterClient(self._config, self._log) as client:
            producer = client.producer(_PRODUCERS, _ONCE)
            for _ in left:
                topic, queue_id, item = ledger.make()
                message = OutgoingMessage(topic, item.body, system=properties.parse(item.properties_raw.decode()))
                until = time.monotonic() + patience_ms / 1000
                while True:
                    try:
                        sent = await producer.send(message, queue=MessageQueue(topic, _BROKER, queue_id))
                    except RefusedByBroker as refusal:
                        refused.append(RefusedPut(refusal.response, refusal.remark))
                    else:
                        stored = _stored(item, sent, (await client.peers.to(sent.address)).local)
                        ledger.add([stored])
                        if sent.status is SendStatus.SEND_OK:
                            ledger.acknowledged.append(stored)
                        break
                    if time.monotonic() >= until:
                        break
                    await asyncio.sleep(_PAUSE_S)

    # --- the consumer -----------------------------------------------------------------------------------------------

    def wait_consumed(self, wanted: set[str], patience_s: float) -> set[str]:
        """Wait until the consumer has got these; those that it hasn't."""
        end = time.monotonic() + patience_s
        while (missing := wanted - self.consumed) and time.monotonic() < end:
            time.sleep(_PAUSE_S)
        return missing

    def committed(self) -> dict[tuple[str, int], int]:
        """Where the consumer is, as it tells the broker: by topic and queue."""
        return dict(self._committed)

    async def _consume(self, wanted: Sequence[MessageQueue]) -> None:
        settings = GroupSettings(persist_s=_OFFSETS_MS / 1000)
        async with (
            ClusterClient(self._config, self._log) as client,
            client.pull_consumer(GROUP, settings) as consumer,
            asyncio.TaskGroup() as group,
        ):
            pulls = [group.create_task(self._pull(consumer, queue)) for queue in wanted]
            await self._stopping.wait()
            for one in pulls:
                one.cancel()

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        """One pull after another that may wait."""
        at: int | None = None
        while True:
            try:
                if at is None:
                    at = await consumer.committed(queue) or await consumer.min_offset(queue)
                result = await consumer.pull(queue, at, wait=True)
            except RStoreError:  # the topic is not there yet, or what the drill does to the broker
                await asyncio.sleep(_PAUSE_S)
                continue
            self.consumed.update(message.id for message in result.messages)
            at = self._committed[queue.topic, queue.queue_id] = result.next_offset
            consumer.update_offset(queue, at)
            await consumer.commit()


def _stored(item: BatchItem, sent: SendResult, local: tuple[str, int] | None) -> Stored:
    """The record as it must lie there, but for its store time. `local`: the client's end of its connection."""
    assert local is not None
    _, offset = parse_msg_id(sent.offset_id)
    topic, _, queue_id = sent.queue
    raw = properties.join({**properties.parse(item.properties_raw.decode()), "CLUSTER": _CLUSTER}).encode()
    message = Message(
        topic,
        item.body,
        queue_id,
        born_timestamp=sent.born_ms,
        born_host=parse_host("{}:{}".format(*local)),
        store_host=parse_host(sent.address),
    )
    record = encode(message, raw)
    patch(record, 0, queue_offset=sent.queue_offset, physical_offset=offset, store_timestamp=0)
    return Stored(topic, queue_id, sent.queue_offset, offset, sent.id, raw, bytes(record), timed=False)
