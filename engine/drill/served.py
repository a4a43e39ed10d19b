"""A drill's store behind the daemon: real sockets, several clients that put, and consumers that continue meanwhile.

The daemon runs in a thread of this process, on the drill's own disk, which is how that disk can fail under it; the
clients have a thread each. What they are answered goes into the drill's ledger as any put does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.broker.serve import Daemon
from engine.broker.settings.broker_settings import BrokerSettings
from engine.drill.ledger import Stored
from engine.drill.wire_client import Gone, WireClient, pull_fields, send_fields
from engine.errors import StorageError
from engine.format import properties
from engine.format.batch import BatchItem
from engine.format.hosts import parse as parse_host
from engine.format.message import Message, decode, encode, patch
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.drill.ledger import DrillLedger
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

GROUP = "drill"
FULL_REMARKS = (
    "service not available now. It may be caused by",
    "create mapped file failed, server is busy or broken.",
)
"""What a client of Apache's is told when the disk is full. Source: SendMessageProcessor#handlePutMessageResult."""
_CLUSTER = "DefaultCluster"
_READY_S = 30
_WAIT_MS = 200
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
        consumed: UNIQ_KEYs of what consumers got.
    """

    def __init__(self, store: MessageStore, topics: Sequence[str], queues: int) -> None:
        """Raises StorageError: nothing can be listened on."""
        self._store = store
        self._ready: Future[str] = Future()
        self._ended = threading.Event()
        self._wire: WireClient | None = None
        self._faults = _Faults()
        self._thread = threading.Thread(target=self._run, name="drill-daemon", daemon=True)
        self._thread.start()
        self.address = self._ready.result(_READY_S)
        self.consumed: set[str] = set()
        self._committed: dict[tuple[str, int], int] = {}
        self._queues = [(topic, queue_id) for topic in topics for queue_id in range(queues)]
        self._consumer = threading.Thread(target=self._consume, name="drill-consumer", daemon=True)
        self._consumer.start()

    def stop(self) -> None:
        """Stop consumers and daemon, as SIGTERM does. Raises StorageError: the daemon met an error of its own."""
        self._ended.set()
        wire = self._wire
        if wire is not None:
            wire.close()
        self._consumer.join()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._faults.errors:
            raise StorageError(f"the daemon logged an error: {self._faults.errors[0]}")

    # --- the daemon -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            self._faults.errors.append(repr(error))
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        log = logging.Logger("drill")
        log.addHandler(self._faults)
        settings = BrokerSettings(
            cluster_name=_CLUSTER, listen_port=0, name_service_port=None, flush_offsets_ms=_OFFSETS_MS
        )
        async with Daemon(settings, self._store, self._loop, log) as daemon:
            self._ready.set_result(daemon.listening.broker)
            await self._stop.wait()

    # --- clients ----------------------------------------------------------------------------------------------------

    def put(self, ledger: DrillLedger, count: int, clients: int, patience_ms: int) -> list[RefusedPut]:
        """Put so many messages through so many clients at a time; the refusals.

        Args:
            ledger: makes the messages, and is told what became of them.
            count: of messages.
            clients: at a time.
            patience_ms: how long each is tried again while it is refused.
        """
        lock = threading.Lock()
        refused: list[RefusedPut] = []
        left = count

        def client() -> None:
            nonlocal left
            with WireClient(self.address) as wire:
                while True:
                    with lock:
                        if not left:
                            return
                        left -= 1
                        topic, queue_id, item = ledger.make()
                    until = time.monotonic() + patience_ms / 1000
                    while True:
                        stored, answer = self._put_one(wire, topic, queue_id, item)
                        with lock:
                            if stored is not None:
                                ledger.add([stored])
                                if answer.code == ResponseCode.SUCCESS:
                                    ledger.acknowledged.append(stored)
                                break
                            refused.append(RefusedPut(answer.code, answer.remark or ""))
                        if time.monotonic() >= until:
                            break
                        time.sleep(_PAUSE_S)

        with ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(client) for _ in range(clients)]:
                done.result()
        return refused

    def _put_one(
        self, wire: WireClient, topic: str, queue_id: int, item: BatchItem
    ) -> tuple[Stored | None, RemotingCommand]:
        """The record as it must lie there, but for its store time; None when it was not stored."""
        fields = properties.parse(item.properties_raw.decode())
        header = send_fields(topic, queue_id, fields)
        answer = wire.ask(RequestCode.SEND_MESSAGE_V2, header, item.body)
        if "msgId" not in answer.fields:
            return None, answer
        raw = properties.join({**fields, "CLUSTER": _CLUSTER}).encode()
        message = Message(
            topic,
            item.body,
            queue_id,
            born_timestamp=int(header["g"]),
            born_host=parse_host(wire.local),
            store_host=parse_host(self.address),
        )
        record = encode(message, raw)
        number, offset = int(answer.fields["queueOffset"]), int(answer.fields["msgId"][-16:], 16)
        patch(record, 0, queue_offset=number, physical_offset=offset, store_timestamp=0)
        return Stored(
            topic, queue_id, number, offset, fields[properties.UNIQ_KEY], raw, bytes(record), timed=False
        ), answer

    # --- consumers --------------------------------------------------------------------------------------------------

    def wait_consumed(self, wanted: set[str], patience_s: float) -> set[str]:
        """Wait until consumers have got these; those that they haven't."""
        end = time.monotonic() + patience_s
        while (missing := wanted - self.consumed) and time.monotonic() < end:
            time.sleep(_PAUSE_S)
        return missing

    def committed(self) -> dict[tuple[str, int], int]:
        """Where the consumers are, as they have told the broker: by topic and queue."""
        return dict(self._committed)

    def _consume(self) -> None:
        while not self._ended.is_set():
            try:
                with WireClient(self.address) as wire:
                    self._wire = wire
                    if not self._ended.is_set():
                        self._pull(wire)
            except (Gone, TimeoutError):
                self._ended.wait(_PAUSE_S)

    def _pull(self, wire: WireClient) -> None:
        """One pull that may wait for each queue."""
        asked: dict[int, tuple[str, int]] = {}

        def ask(queue: tuple[str, int], offset: int) -> None:
            fields = pull_fields(GROUP, *queue, offset, wait_ms=_WAIT_MS, commit=offset)
            asked[wire.request(RequestCode.PULL_MESSAGE, fields)] = queue
            self._committed[queue] = offset

        for queue in self._queues:
            ask(queue, wire.next_offset(GROUP, *queue))
        while not self._ended.is_set():
            answer = wire.answer()
            queue = asked.pop(answer.opaque)
            records, at = bytes(answer.body), 0
            while at < len(records):
                message = decode(records, at)
                at += message.total_size
                self.consumed.add(message.properties.get(properties.UNIQ_KEY, ""))
            if "nextBeginOffset" not in answer.fields:  # the topic is not there yet
                self._ended.wait(_PAUSE_S)
            ask(queue, int(answer.fields.get("nextBeginOffset", self._committed[queue])))
