"""Messages put into a store that nobody has open, one after another: opened as a broker would, counted, closed cleanly.

An interruption may not strike while a put is under way: it could come up while a lock of the store is held. So whoever
can be interrupted hands in a context (`held`) in which one waits, and each step that touches the store stands in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.broker_conf.values import ValueKind, read_value
from engine.config import delay_levels
from engine.dataclass import dataclass
from engine.format import hosts, sysflag
from engine.format.columns import MessageColumns
from engine.format.delay import queue_of_level
from engine.format.names import SCHEDULE_TOPIC
from engine.format.properties import DELAY, INNER_MULTI_DISPATCH, delay_level
from engine.inspect.store.guessed_sizes import of_puts
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.survey import demand_store
from engine.log.prepare_run import LEAST
from engine.repair.recover.opening import Policy, recover_for_open
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.format.hosts import Host
    from engine.format.message import Message
    from engine.inspect.store.survey import StoreFiles
    from engine.log.results import AppendedRun, AppendResult, PutResult
    from engine.repair.recover.plan import RecoverPlan

LISTEN_PORT = 10911
"""Apache's default (BrokerStartup#createBrokerController)."""
_AT_ONCE = 1000
_BYTES_AT_ONCE = 1 << 20
_TOLD_EVERY = 64
"""Messages, where they are put one by one."""


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """What a broker's SendResult says of a message, with the topic and queue that it really went to."""

    msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    store_timestamp: int

    @classmethod
    def of(cls, append: AppendResult, message: Message, config: StoreConfig) -> PutAnswer:
        """Of a message that was appended to a store with these settings: a delayed one waits in a topic of its own."""
        topic, queue_id = message.topic, message.queue_id
        level = delay_level(message.properties) if sysflag.is_consumable(message.sys_flag) else 0
        if level > 0:
            topic, queue_id = SCHEDULE_TOPIC, queue_of_level(delay_levels(config).clamp(level))
        return cls(
            append.msg_id,
            topic,
            queue_id,
            append.queue_offset,
            append.physical_offset,
            append.size,
            append.store_timestamp,
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore put`."""
        return {
            "status": "PUT_OK",
            "msgId": self.msg_id,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "physicalOffset": self.physical_offset,
            "storeSize": self.store_size,
            "storeTimestamp": self.store_timestamp,
        }


class PutRun:
    """Puts messages into an open store, and counts them.

    Args:
        store: where to.
        held: makes a context in which an interruption waits.
        on_put: called with the number of messages that are in, after each put.

    Attributes:
        messages: put so far.
        size: bytes of their records.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        held: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_put: Callable[[int], None] | None = None,
    ) -> None:
        self._store = store
        self._held = held
        self._on_put = on_put
        self._began = time.monotonic()
        self.messages = 0
        self.size = 0

    def each(self, messages: Iterable[Message]) -> Iterator[PutAnswer]:
        """Put messages; the answer to each.

        Raises:
            MessageRefused, StorageError: one can't be put; those before it are in, and the error says how many.
        """
        for message in messages:
            yield PutAnswer.of(self._put(message), message, self._store.config)

    def blocks(self, blocks: Iterable[Sequence[Message]], *, answers: bool = True) -> Iterator[PutAnswer]:
        """Put messages that come in blocks, the plain ones of a block in one go; with `answers` the answer to each.

        The same bytes, answers and errors as of `each`, but for store times: one go has one. Where the first ones of
        the rest are not plain, a few are put one by one before the next go. Raises as `each`.
        """
        for block in blocks:
            rest = block
            while rest:
                run = self._put_run(rest)
                if run is None:
                    if answers:
                        yield from self.each(rest[:LEAST])
                    else:
                        for message in rest[:LEAST]:
                            self._put(message)
                    rest = rest[LEAST:]
                    continue
                appended, failed = run
                done, rest = rest[: len(appended)], rest[len(appended) :]
                if answers:
                    each = zip(appended.results([one.store_host for one in done]), done, strict=True)
                    yield from (PutAnswer.of(result, message, self._store.config) for result, message in each)
                if failed is not None:
                    self._counted(failed)

    def alike(
        self,
        message: Message,
        count: int,
        *,
        one_by_one: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Put `count` messages alike: in batches, unless each shall be put `one_by_one`, or can't be in a batch.

        `progress` is called with messages put so far and in all. Raises as `each`.
        """
        length = len(message.body)
        alone = one_by_one or not _fits_batches(message)
        at_once = 1 if alone else max(1, min(_AT_ONCE, count, _BYTES_AT_ONCE // (length + 1)))
        columns = MessageColumns.of(message.body * at_once, [length] * at_once, flag=message.flag)
        for done in range(0, count, at_once):
            now = message._replace(born_timestamp=time.time_ns() // 1_000_000)
            if at_once == 1:
                self._put(now)
            else:
                self._put_columns(now, columns[: count - done])
            if progress is not None and (at_once > 1 or done % _TOLD_EVERY == 0):
                progress(done, count)

    def to_json(self) -> dict[str, Any]:
        """What was put so far, and how fast: the JSON of many messages."""
        seconds = self.seconds
        return {
            "messages": self.messages,
            "bytes": self.size,
            "seconds": round(seconds, 3),
            "messagesPerSecond": round(self.messages / seconds, 1),
            "bytesPerSecond": round(self.size / seconds, 1),
        }

    @property
    def seconds(self) -> float:
        """Since the store was opened."""
        return max(time.monotonic() - self._began, 1e-6)

    def _put(self, message: Message) -> AppendResult:
        with self._held():
            result = self._store.put(message)
        return self._counted(result)

    def _put_run(self, messages: Sequence[Message]) -> tuple[AppendedRun, PutResult | None] | None:
        with self._held():
            run = self._store.put_run(messages)
            if run is not None and len(run[0]):
                self._count(len(run[0]), int(run[0].sizes.sum()))
        return run

    def _put_columns(self, message: Message, columns: MessageColumns) -> None:
        with self._held():
            results = self._store.put_columns(message, columns)
        for result in results:
            self._counted(result)

    def _counted(self, result: PutResult) -> AppendResult:
        if result.append is None or not result.ok:
            raise result.failure(self.messages, str(self._store.config.store_path_root_dir))
        self._count(result.append.message_count, result.append.size)
        return result.append

    def _count(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size
        if self._on_put is not None:
            self._on_put(self.messages)


def _fits_batches(message: Message) -> bool:
    """Whether it may be one of a batch: neither delayed nor for further queues."""
    return not {DELAY, INNER_MULTI_DISPATCH} & message.properties.keys()


@contextmanager
def put_run(
    disk: Disk,
    config: StoreConfig,
    *,
    topic: str | None = None,
    note: Callable[[str], None] | None = None,
    held: Callable[[], AbstractContextManager[None]] = nullcontext,
    on_put: Callable[[int], None] | None = None,
) -> Iterator[PutRun]:
    """A run of puts into the store that `config` names, which is closed at the end.

    Args:
        disk: how files are reached.
        config: the store's settings.
        topic: that of the messages, where they have one: a put makes a topic that the store lacks, so that a note
            says of one that is like another's name that it is new.
        note: called with what is worth knowing of the settings, a sentence each.
        held, on_put: as PutRun has them.

    Raises:
        NotAStore: a typing mistake does not make a directory a store. StoreLocked. Refused: the store needs more than
        what dispatch does once it is open (a put is not the place to change it). CannotRepair, StorageError.
    """
    demand_store(disk, config, os.fspath(config.store_path_root_dir))
    notes: list[str] = []

    def tell(plan: RecoverPlan, _: str | None) -> None:
        notes.extend([*_of_topic(disk, plan.files, topic), *of_puts(plan.files)])

    recover = partial(recover_for_open, policy=Policy.AS_IT_IS, tell=tell)
    store: MessageStore | None = None
    try:
        with held():
            store = MessageStore.open(config, disk, recover=recover)
        if note is not None:
            for text in notes:
                note(text)
        yield PutRun(store, held=held, on_put=on_put)
    finally:
        with held():
            if store is not None:
                store.close()


def _of_topic(disk: Disk, files: StoreFiles, topic: str | None) -> list[str]:
    """Where a topic is new, and its name like another's: it may be a slip of the hand."""
    meant = None if topic is None else KnownNames.of(disk, files).meant_topic(topic)
    return [f"the topic {topic} is new ({meant})"] if meant else []


def store_host(config: StoreConfig) -> Host:
    """The address in new records: the broker's own where its configuration names it."""
    try:
        port = read_value(ValueKind.INT, config.other.get("listenPort", ""))
    except ValueError:  # as a broker leaves out what it can't read
        port = LISTEN_PORT
    return hosts.parse(f"{config.other.get('brokerIP1', '').strip() or '127.0.0.1'}:{port}")
