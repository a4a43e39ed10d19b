"""From a message to the bytes of its record, as far as that goes without the append lock.

What only the lock knows (queue offset, physical offset, store time) is patched in later by `CommitLog`. A message
that the log can't take is refused here, before anything is touched.

Rules and their sources: sizes from DefaultMessageStore#checkMessage(s) and CommitLog.MessageExtEncoder; delayed
messages from CommitLog#asyncPutMessage; properties of a batch from MessageExtEncoder#encode(MessageExtBatch);
further queues from MultiDispatch.

Stricter than Apache, where Apache would write a record that it can't read again: a topic or the properties of a
batch's item over their length field, a record or batch larger than a file, an empty topic or batch, numbers over
their field; and a topic that is no plain directory name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.format import names, properties, sysflag
from engine.format.delay import DelayLevels, queue_of_level
from engine.format.message import BLANK_SIZE, PROPERTIES_MAX_LENGTH, Message, encode, with_properties
from engine.log.derive import TopicQueue
from engine.log.results import MessageRefused, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from engine.config import StoreConfig
    from engine.format.batch import BatchItem
    from engine.format.hosts import Host

_SEPARATOR = properties.SEPARATOR.encode()
_BATCH_ITEM_HEAD = 22
"""Bytes that the client's batch encoding takes beside body and properties (engine.format.batch)."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One append: `records` holds one record or a batch's, one after another.

    Attributes:
        queue: where the messages go (a delayed one: to the schedule topic).
        records: bytes, to be patched in place.
        starts: position of each record.
        numbered: whether they take queue offsets; prepared and rolled back messages don't.
        store_host: as stored.
        further: queues of a multi-dispatch message, besides `queue`.
        message: the message of a multi-dispatch, which is encoded again once its queue offsets are known.
    """

    queue: TopicQueue
    records: bytearray
    starts: tuple[int, ...]
    numbered: bool
    store_host: Host
    further: tuple[TopicQueue, ...] = ()
    message: Message | None = None

    def dispatched(self, table: MutableMapping[TopicQueue, int]) -> Prepared:
        """The same with the further queues' offsets written into it. Source: MultiDispatch#wrapMultiDispatch.

        Raises:
            MessageRefused: the properties are too long now.
        """
        if self.message is None:
            return self
        offsets = properties.MULTI_DISPATCH_SPLITTER.join(str(table.get(queue, 0)) for queue in self.further)
        found = {k: v for k, v in self.message.properties.items() if k != properties.WAIT}
        found[properties.INNER_MULTI_QUEUE_OFFSET] = offsets
        records = _encode(replace(self.message, properties=found))
        return replace(self, records=records, starts=(0,))


class Preparer:
    """Prepares messages by a store's settings. Thread-safe: holds nothing but settings."""

    def __init__(self, config: StoreConfig) -> None:
        self._levels = DelayLevels.parse(config.message_delay_level)
        self._max_message_size = config.max_message_size
        self._max_record = config.mapped_file_size_commit_log - BLANK_SIZE
        self._multi_dispatch = config.enable_multi_dispatch
        self._lmq = config.enable_lmq

    def one(self, message: Message) -> Prepared:
        """A single message.

        Raises:
            MessageRefused: with the status that the put is answered with.
        """
        numbered = sysflag.is_consumable(message.sys_flag)
        self._check_topic(message.topic)
        text = properties.join(message.properties)
        if _java_length(text) > PROPERTIES_MAX_LENGTH:
            raise MessageRefused(f"properties take at most {PROPERTIES_MAX_LENGTH} characters")
        if len(message.body) > self._max_message_size:
            raise MessageRefused(f"a body takes at most {self._max_message_size} bytes", hint="see maxMessageSize")
        further = self._further_queues(message)
        if numbered and properties.delay_level(message.properties) > 0:
            message = self._delayed(message)
            text = properties.join(message.properties)
        records = _encode(message, text.encode("utf-8", "replace"))
        if len(records) > self._max_record:
            raise MessageRefused(f"a record of {len(records)} bytes fits no file: see mappedFileSizeCommitLog")
        queue = TopicQueue(message.topic, message.queue_id)
        if not further:
            return Prepared(queue, records, (0,), numbered, message.store_host)
        return Prepared(queue, records, (0,), numbered, message.store_host, further, message)

    def batch(self, message: Message, items: Sequence[BatchItem]) -> Prepared:
        """A batch: topic, queue, hosts, times and common properties from `message`, the rest from the items.

        Raises:
            MessageRefused: as `one`; also with a transaction or a delay, which a batch can't have.
        """
        self._check_topic(message.topic)
        if not items:
            raise MessageRefused("a batch without messages")
        if sysflag.transaction_type(message.sys_flag) != sysflag.TRANSACTION_NONE:
            raise MessageRefused("a batch can't be part of a transaction")
        if properties.delay_level(message.properties) > 0:
            raise MessageRefused("a batch can't be delayed")
        sent = sum(_BATCH_ITEM_HEAD + len(item.body) + len(item.properties_raw) for item in items)
        if sent > self._max_message_size:
            raise MessageRefused(f"a batch takes at most {self._max_message_size} bytes", hint="see maxMessageSize")
        common = properties.join(message.properties).encode("utf-8", "replace")
        records = bytearray()
        starts: list[int] = []
        for item in items:
            own = item.properties_raw
            between = _SEPARATOR if own and common and not own.endswith(_SEPARATOR) else b""
            single = replace(message, body=item.body, flag=item.flag, prepared_transaction_offset=0)
            starts.append(len(records))
            records += _encode(single, own + between + common)
        if len(records) > self._max_record:
            raise MessageRefused(f"a batch of {len(records)} bytes fits no file: see mappedFileSizeCommitLog")
        queue = TopicQueue(message.topic, message.queue_id)
        return Prepared(queue, records, tuple(starts), True, message.store_host)

    def _delayed(self, message: Message) -> Message:
        """The message as it waits in the schedule topic."""
        level = properties.delay_level(message.properties)
        clamped = self._levels.clamp(level)
        changes = {properties.REAL_TOPIC: message.topic, properties.REAL_QID: str(message.queue_id)}
        if clamped != level:
            changes[properties.DELAY] = str(clamped)
        waiting = with_properties(message, **changes)
        return replace(waiting, topic=names.SCHEDULE_TOPIC, queue_id=queue_of_level(clamped))

    def _further_queues(self, message: Message) -> tuple[TopicQueue, ...]:
        """Queues of INNER_MULTI_DISPATCH; as in Java's split, empty names at the end don't count."""
        text = message.properties.get(properties.INNER_MULTI_DISPATCH, "") if self._multi_dispatch else ""
        if not text.strip():
            return ()
        found = text.rstrip(properties.MULTI_DISPATCH_SPLITTER).split(properties.MULTI_DISPATCH_SPLITTER)
        for name in found:
            self._check_topic(name)
        return tuple(TopicQueue(name, 0 if self._lmq and names.is_lmq(name) else message.queue_id) for name in found)

    def _check_topic(self, topic: str) -> None:
        if _java_length(topic) > names.TOPIC_MAX_LENGTH:
            raise MessageRefused(f"a topic takes at most {names.TOPIC_MAX_LENGTH} characters: {topic[:20]}…")
        if not names.is_directory_name(topic):
            raise MessageRefused(f"a topic that is no directory name: {topic!r}")


def _encode(message: Message, properties_raw: bytes | None = None) -> bytearray:
    if properties_raw is None:
        properties_raw = properties.join(message.properties).encode("utf-8", "replace")
    if len(properties_raw) > PROPERTIES_MAX_LENGTH:
        raise MessageRefused(
            f"properties take at most {PROPERTIES_MAX_LENGTH} bytes, these {len(properties_raw)}",
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        )
    try:
        return encode(message, properties_raw)
    except InvalidArgument as error:
        raise MessageRefused(error.message, hint=error.hint) from None
    except struct.error as error:
        raise MessageRefused(f"a number that its field can't hold: {error}") from None


def _java_length(text: str) -> int:
    """Length in UTF-16 code units, as Java's String.length."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
