"""The index among tiered files of RocketMQ 5: each entry with the topic and message that it names, and what is wrong.

An entry has the hash of `topic#key` and the broker's own number of a topic, no name. So each is compared with the
records of all queues of its queue id: the one that lies at its offset, has its size, and a key with this hash, is its
message.

Source: IndexStoreFile#putKey, #queryAsyncFromSegmentFile, MessageStoreDispatcherImpl#constructIndexFile0 (5.3.3).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, NotAStore, RStoreError
from engine.files.listing import is_lost_found
from engine.format import properties
from engine.format.hashing import index_key_hash, tag_index_key
from engine.format.message import decode
from engine.format.quantities import counted
from engine.format.tiered import INDEX_TOPIC, file_offset
from engine.format.tiered_index import (
    HEADER_SIZE,
    INDEX,
    ITEM_SIZE,
    SLOT_SIZE,
    decode_header,
    decode_item,
    decode_slot,
    slot_count,
)
from engine.inspect.dump.dump import DAMAGE
from engine.inspect.dump.tiered import directories, log_segments
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.format.buffers import Buffer
    from engine.format.message import StoredMessage
    from engine.format.tiered_index import TieredIndexHeader, TieredIndexItem
    from engine.inspect.dump.tiered import TieredQueue

ENTRY = "entry"
_LONGEST = 1 << 30
"""Bytes of a record that is looked for: a log file has no more."""


@dataclass(frozen=True, slots=True)
class TieredIndexRow:
    """One entry, or damage, by position and length in bytes in its file.

    Attributes:
        kind: ENTRY or DAMAGE.
        path: the file.
        slot: of an entry.
        item: of an entry.
        stored_ms: when its message was stored, to the second.
        topic: of its message; None: it was not found, or there is no entry.
        reason: what is wrong; None: nothing.
    """

    kind: str
    path: str
    position: int
    length: int
    slot: int | None = None
    item: TieredIndexItem | None = None
    stored_ms: int | None = None
    topic: str | None = None
    reason: str | None = None


def tiered_indexes(disk: Disk, directory: str) -> list[str]:
    """Paths of the directories with index files below a directory, as `tiered_queues` looks for queues.

    Raises:
        NotAStore: there is none. StorageError.
    """
    paths = [
        os.path.join(path, INDEX)
        for path, inside in directories(disk, directory)
        if os.path.basename(os.path.dirname(path)) == INDEX_TOPIC and any(one.name == INDEX for one in inside)
    ]
    if not paths:
        raise NotAStore(
            f"no tiered index here: no directory {INDEX_TOPIC}/ has {INDEX}/ in it",
            path=directory,
            hint="name the directory of the broker's setting tieredStoreFilePath, or one in it",
        )
    return sorted(paths)


def dump_tiered_index(disk: Disk, directory: str, queues: list[TieredQueue]) -> Iterator[TieredIndexRow]:
    """The entries of the files of a directory, in the order in which they lie. `queues`: of the same tiered files.

    Raises StorageError.
    """
    messages = _Messages(disk, queues)
    try:
        for entry in sorted(disk.scandir(directory), key=lambda one: (file_offset(one.name) or 0, one.name)):
            if is_lost_found(entry):
                continue
            yield from _file(disk, entry, messages)
    finally:
        messages.close()


def _file(disk: Disk, entry: Entry, messages: _Messages) -> Iterator[TieredIndexRow]:
    wrong = None
    if not entry.is_file:
        wrong = entry.what
    elif file_offset(entry.name) is None:
        wrong = "a name that no tiered file has"
    if wrong is not None:
        yield TieredIndexRow(DAMAGE, entry.path, 0, entry.size, reason=wrong)
        return
    if not entry.size:
        return
    reader = disk.open_reader(entry.path)
    try:
        data = reader.read(0, reader.size())
        try:
            header = decode_header(data)
            slots = slot_count(data)
        except FormatError as error:
            yield TieredIndexRow(DAMAGE, entry.path, error.offset or 0, len(data), reason=error.message)
            return
        yield from _entries(entry.path, data, header, slots, messages)
    finally:
        reader.close()


def _entries(
    path: str, data: Buffer, header: TieredIndexHeader, slots: int, messages: _Messages
) -> Iterator[TieredIndexRow]:
    """Slot by slot: the entries of each follow those of the one before."""
    expected, count, used = HEADER_SIZE + slots * SLOT_SIZE, 0, 0
    for slot in range(slots):
        begin, length = decode_slot(data, slot)
        at = HEADER_SIZE + slot * SLOT_SIZE
        if length < 0 or length % ITEM_SIZE or begin != expected or begin + length > len(data):
            reason = f"slot {slot} names {length} bytes at {begin}, where its entries begin at {expected}"
            yield TieredIndexRow(DAMAGE, path, at, SLOT_SIZE, slot, reason=reason)
            return
        used += length > 0
        for place in range(begin, begin + length, ITEM_SIZE):
            item = decode_item(data, place)
            topic, why = messages.topic_of(item)
            if item.key_hash % slots != slot:
                why = f"its hash belongs into slot {item.key_hash % slots}"
            stored = header.begin_timestamp + item.time_diff * 1000
            yield TieredIndexRow(ENTRY, path, place, ITEM_SIZE, slot, item, stored, topic, why)
        expected, count = begin + length, count + length // ITEM_SIZE
    if expected != len(data):
        reason = f"{counted(len(data) - expected, 'byte')} after the last entry"
        yield TieredIndexRow(DAMAGE, path, expected, len(data) - expected, reason=reason)
    if (header.slots, header.entries) != (used, count):
        told = counted(header.entries, "entry", "entries")
        reason = f"the header says {told} and {header.slots} slots with some: there are {count} and {used}"
        yield TieredIndexRow(DAMAGE, path, 0, HEADER_SIZE, reason=reason)


class _Messages:
    """Finds the messages of entries."""

    def __init__(self, disk: Disk, queues: list[TieredQueue]) -> None:
        self._disk = disk
        self._queues = queues
        self._logs: dict[TieredQueue, ClosedLog] = {}

    def close(self) -> None:
        """Close the logs that were read."""
        for log in self._logs.values():
            log.close()

    def topic_of(self, item: TieredIndexItem) -> tuple[str | None, str | None]:
        """The topic of an entry's message, and why there is none."""
        for queue in self._queues:
            if queue.queue_id != item.queue_id:
                continue
            stored = self._record(queue, item)
            if stored is not None and stored.topic == queue.topic and item.key_hash in _hashes(stored):
                return queue.topic, None
        where = f"{item.offset} in the log of a queue {item.queue_id}"
        return None, f"no message of {item.size} bytes with such a key lies at {where}"

    def _record(self, queue: TieredQueue, item: TieredIndexItem) -> StoredMessage | None:
        log = self._logs.get(queue)
        if log is None:
            log = self._logs[queue] = ClosedLog(self._disk, log_segments(self._disk, queue))
        if item.offset < 0 or not 0 < item.size <= _LONGEST:
            return None
        data = bytes(log.read(item.offset, item.size))
        try:
            stored = decode(data) if len(data) == item.size else None
        except RStoreError:
            return None
        return stored if stored is not None and stored.total_size == item.size else None


def _hashes(stored: StoredMessage) -> set[int]:
    pairs = stored.properties
    words = properties.key_words(pairs.get(properties.KEYS))
    unique = pairs.get(properties.UNIQ_KEY)
    keys = [f"{stored.topic}#{word}" for word in (*words, *([unique] if unique else []))]
    tag = pairs.get(properties.TAGS)
    return set(map(index_key_hash, [*keys, tag_index_key(stored.topic, tag)] if tag else keys))
