"""Reading messages: by queue offset, by physical offset, by key. The same for an open store and a read-only view.

Everything here works over small protocols: a log that gives bytes by physical offset, a queue that gives units by queue
offset. Nothing is written, nothing is remembered.

`get_message` follows DefaultMessageStore#getMessage, #isTheBatchFull and #checkInDiskByCommitOffset (4.9.8) to the
letter, the corrected next offsets included. A unit that repeats its predecessor (a bridged place) is read like any
other.

Other than Apache's, a query compares topic and key with the message: the index holds only a hash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import properties
from engine.format.message import StoredMessage, decode, topic_and_properties
from engine.format.queue_unit import UNIT, UNIT_SIZE, is_ext_address
from engine.format.record import MAGICS, MIN_RECORD_SIZE, SIZE_AND_MAGIC, store_time_of
from engine.log.natives import ASKED_FOR
from engine.log.records import Place, Records
from engine.log.results import GetMessageStatus, GetResult, QueryResult
from engine.log.whole_run import whole_run

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.selected import SelectedBuffer
    from engine.format.queue_ext import ExtUnit
    from engine.format.record_columns import RecordColumns
    from engine.log.filters import MessageFilter
    from engine.log.queue_time import StoreTimeOf

AT_ONCE = 256 << 10
"""Bytes that are read at once, at most, for the records of one get; one that is larger is read by itself."""
_FOUND = GetMessageStatus.FOUND
_made = tuple.__new__
"""As in engine.log.commitlog."""
FILTER_BYTES = 16000
"""Bytes of units that one get looks at, unless more messages are asked for. Source: maxFilterMessageCount."""
_FILTER_UNITS = FILTER_BYTES // UNIT_SIZE
FILTER_TERMS = 16_000
"""Terms of an expression over properties that one get works out, a record counting as one for each of its pages, too:
some ms. A get that has come so far gives what it has, and the offset at which the next one continues, as one does that
has looked at all its units. Apache has no such bound: there each pull has a thread."""
_PAGE_BITS = 12


class LogReader(Protocol):
    """The log by physical offset."""

    @property
    def min_offset(self) -> int:
        """Of its first byte; −1 when it is empty."""
        ...

    def read_at(self, offset: int, size: int) -> memoryview | None:
        """Exactly `size` bytes, within one file; None when they are not there."""
        ...

    def mapped_from(self, offset: int) -> memoryview | None:
        """What is readable of its file from `offset` on, where that is mapped; None: it is to be asked for."""
        ...

    def readable(self, offset: int, size: int, length: int) -> tuple[int, memoryview] | None:
        """Bytes of one file with the record of `size` bytes at `offset` in them; `length` from there on would do.

        (physical offset of the first, bytes). None when it is not there, or has to be asked for by `read_at`.
        """
        ...

    def roll_next_file(self, offset: int) -> int:
        """Where the next file starts."""
        ...


class QueueReader(Protocol):
    """A consume queue by queue offset."""

    @property
    def min_offset(self) -> int:
        """Of the first message."""
        ...

    @property
    def max_offset(self) -> int:
        """After the last one."""
        ...

    def select(self, offset: int, most: int | None = None) -> SelectedBuffer | None:
        """Units from `offset` to the end of its file, `most` at most; to be released."""
        ...

    def roll_next_file(self, offset: int) -> int:
        """First offset of the next file."""
        ...

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """The extension unit at an address."""
        ...


class TimedQueueReader(QueueReader, Protocol):
    """A consume queue by store time, too (ms)."""

    def offset_by_time(self, timestamp: int, store_time_of: StoreTimeOf, min_physical_offset: int) -> int:
        """The offset stored nearest to a time, by Apache's rules."""
        ...

    def lower_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset stored then or later."""
        ...

    def upper_bound_by_time(self, timestamp: int, store_time_of: StoreTimeOf) -> int:
        """First offset stored later."""
        ...


GetKernel: TypeAlias = (
    "Callable[[memoryview, int, memoryview, int, int, ReadLimits], tuple[RecordColumns, int, int] | None]"
)
"""engine.log.kernels.get.get."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much one get may give. Sizes in bytes.

    Attributes:
        memory: what lies at most so far before the log end counts as being in memory.
        bytes_in_memory, count_in_memory, bytes_in_disk, count_in_disk: at most so much of one kind.
        correct_offsets: whether a wrong offset is answered with a better one (not on a slave, as a rule).
        filter_terms: FILTER_TERMS.
    """

    memory: int
    bytes_in_memory: int
    count_in_memory: int
    bytes_in_disk: int
    count_in_disk: int
    correct_offsets: bool
    filter_terms: int = FILTER_TERMS

    @classmethod
    def of(cls, config: StoreConfig, physical_memory: int | None = None) -> ReadLimits:
        """The limits of a store with these settings on a machine with so much memory (default: this one)."""
        total = total_physical_memory() if physical_memory is None else physical_memory
        return cls(
            int(total * (config.access_message_in_memory_max_ratio / 100.0)),
            config.max_transfer_bytes_on_message_in_memory,
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
            config.broker_role is not BrokerRole.SLAVE or config.offset_check_in_slave,
        )

    def is_full(self, size: int, max_msgs: int, total: int, count: int, in_disk: bool) -> bool:
        """Whether a message of `size` must wait for the next get. Source: DefaultMessageStore#isTheBatchFull."""
        if total == 0 or count == 0:
            return False
        if max_msgs <= count:
            return True
        if in_disk:
            return total + size > self.bytes_in_disk or count > self.count_in_disk - 1
        return total + size > self.bytes_in_memory or count > self.count_in_memory - 1


def total_physical_memory() -> int:
    """Bytes of memory of this machine. Source: StoreUtil#getTotalPhysicalMemorySize."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def get_message(
    log: LogReader,
    log_end: int,
    queue: QueueReader | None,
    offset: int,
    max_msgs: int,
    limits: ReadLimits,
    message_filter: MessageFilter | None = None,
) -> GetResult:
    """Messages of a queue from a queue offset on. `log_end`: the log end (physical), to tell memory from disk."""
    if queue is None:
        return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0 if limits.correct_offsets else offset)
    low, high = queue.min_offset, queue.max_offset
    selected = queue.select(offset, max(_FILTER_UNITS, max_msgs)) if low <= offset < high else None
    if selected is None:
        return _not_found(queue, offset, low, high, limits)
    try:
        size = selected.size
        units = selected.view if size % UNIT_SIZE == 0 else selected.view[: size // UNIT_SIZE * UNIT_SIZE]
        readable = None
        if message_filter is None and (run := whole_run(units, log_end, max_msgs, limits)) is not None:
            physical, sizes, first, end, last = run
            length = end - first if end - first <= AT_ONCE else _log_bytes(units, 0, max_msgs)
            readable = log.readable(physical[0], sizes[0], length)
            if readable is not None and readable[0] <= first and end <= readable[0] + len(readable[1]):
                records = Records(run=(readable[1], readable[0], physical, sizes))
                return GetResult(_FOUND, offset + len(sizes), low, high, records, log_end - last > limits.memory)
        status, seen, places, last = _collect(log, log_end, queue, units, max_msgs, limits, message_filter, readable)
    finally:
        selected.release()
    return GetResult(status, offset + seen, low, high, Records(places), log_end - last > limits.memory)


def get_columns(
    log: LogReader,
    log_end: int,
    queue: QueueReader | None,
    offset: int,
    max_msgs: int,
    limits: ReadLimits,
    kernel: GetKernel | None,
) -> GetResult:
    """As `get_message` without a filter, the records decoded to columns: `GetResult.columns`.

    Raises:
        FormatError: a unit points at bytes that are no record.
    """
    if kernel is not None and queue is not None:
        low, high = queue.min_offset, queue.max_offset
        selected = queue.select(offset, max(_FILTER_UNITS, max_msgs)) if low <= offset < high else None
        if selected is not None:
            with selected:
                units = selected.view[: selected.size // UNIT_SIZE * UNIT_SIZE]
                physical, size, _ = UNIT.unpack_from(units)  # one is there, as the queue's end comes after it
                readable = log.readable(physical, size, _log_bytes(units, 0, max_msgs))
                answer = None if readable is None else kernel(units, *readable, log_end, max_msgs, limits)
            if answer is not None:
                columns, seen, last = answer
                far = log_end - last > limits.memory
                return GetResult(_FOUND, offset + seen, low, high, Records((), columns), far)
    result = get_message(log, log_end, queue, offset, max_msgs, limits)
    result.columns()
    return result


def _log_bytes(units: memoryview, first: int, many: int) -> int:
    """Bytes of log from the record of one unit to the end of the last that this get may give: `AT_ONCE` at most."""
    physical, size, _ = UNIT.unpack_from(units, first * UNIT_SIZE)
    last = min(first + max(many, 1), len(units) // UNIT_SIZE) - 1
    end, last_size, _ = UNIT.unpack_from(units, last * UNIT_SIZE)
    length: int = end + last_size - physical
    return length if 0 < length <= AT_ONCE else min(max(size * many, 0), AT_ONCE)


def _not_found(queue: QueueReader, offset: int, low: int, high: int, limits: ReadLimits) -> GetResult:
    """The answer where the queue has no unit."""

    def corrected(new: int) -> int:
        return new if limits.correct_offsets else offset

    if high == 0:
        status, following = GetMessageStatus.NO_MESSAGE_IN_QUEUE, corrected(0)
    elif offset < low:
        status, following = GetMessageStatus.OFFSET_TOO_SMALL, corrected(low)
    elif offset == high:
        status, following = GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    elif offset > high:
        status, following = GetMessageStatus.OFFSET_OVERFLOW_BADLY, corrected(high)
    else:
        status, following = GetMessageStatus.OFFSET_FOUND_NULL, corrected(queue.roll_next_file(offset))
    return GetResult(status, following, low, high)


def _collect(
    log: LogReader,
    log_end: int,
    queue: QueueReader,
    units: memoryview,
    max_msgs: int,
    limits: ReadLimits,
    message_filter: MessageFilter | None,
    readable: tuple[int, memoryview] | None = None,
) -> tuple[GetMessageStatus, int, list[Place], int]:
    """(status, units seen, messages, physical offset of the last unit looked at).

    `readable`: what is known already of the log around the first unit's record.
    """
    status = GetMessageStatus.NO_MATCHED_MESSAGE
    places: list[Place] = []
    count = total = 0
    next_file: int | None = None
    last = 0
    terms_left = limits.filter_terms
    base, data = readable or (0, memoryview(b""))
    end = base + len(data) if readable else -1
    for seen, (physical, size, tags_code) in enumerate(UNIT.iter_unpack(units)):
        last = physical
        if next_file is not None and physical < next_file:
            continue
        full = total and limits.is_full(size, max_msgs, total, count, log_end - physical > limits.memory)
        if full or terms_left <= 0:
            return status, seen, places, last
        if message_filter is not None and not _matches_queue(queue, tags_code, message_filter):
            if total == 0:
                status = GetMessageStatus.NO_MATCHED_MESSAGE
            continue
        if not base <= physical <= end - size or size < 0:
            readable = log.readable(physical, size, _log_bytes(units, seen, max_msgs - count))
            if readable is None and (record := log.read_at(physical, size)) is not None:
                readable = physical, record
            base, data = readable or (0, memoryview(b""))
            end = base + len(data) if readable else -1
            if not readable or size < 0 or physical > end - size:
                if total == 0:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                next_file = log.roll_next_file(physical)
                continue
        at = physical - base
        if message_filter is not None:
            terms_left -= message_filter.terms and message_filter.terms + (size >> _PAGE_BITS)
            if not message_filter.matches_log(data[at : at + size]):
                if total == 0:
                    status = GetMessageStatus.NO_MATCHED_MESSAGE
                continue
        places.append((data, at, size))
        count += 1
        total += size
        status = _FOUND
        next_file = None
    return status, len(units) // UNIT_SIZE, places, last


def _matches_queue(queue: QueueReader, tags_code: int, message_filter: MessageFilter) -> bool:
    if not is_ext_address(tags_code):
        return message_filter.matches_queue(tags_code, None)
    ext = queue.ext_unit(tags_code)
    return message_filter.matches_queue(None if ext is None else ext.tags_code, ext)


def record_at(log: LogReader, offset: int) -> memoryview | None:
    """The record at a physical offset; None when the log has no bytes there.

    Raises:
        FormatError: no record starts there.
    """
    head = log.mapped_from(offset)  # with the record in it, in one step: a query asks for one each time
    if head is None or len(head) < MIN_RECORD_SIZE:
        head = log.read_at(offset, MIN_RECORD_SIZE)
    if head is None:
        return None
    size, magic = SIZE_AND_MAGIC.unpack_from(head)
    if magic not in MAGICS:
        raise FormatError(f"no message starts here: magic 0x{magic:08X}", offset=offset)
    record = None
    if size >= MIN_RECORD_SIZE:
        record = head[:size] if size <= len(head) else log.read_at(offset, size)
    if record is None:
        if log.read_at(offset, MIN_RECORD_SIZE) is None:  # its file has just been deleted
            return None
        raise FormatError(f"invalid total size {size}", offset=offset)
    return record


def look_message(log: LogReader, offset: int) -> StoredMessage | None:
    """The message at a physical offset; None when the log has no bytes there. Source: #lookMessageByOffset.

    Raises:
        FormatError: no record starts there.
    """
    record = record_at(log, offset)
    return None if record is None else decode(record)


def is_cold(log_end: int, queue: QueueReader, offset: int, limits: ReadLimits) -> bool:
    """Whether the message at a queue offset lies too far before the log end to be in memory; no for none there."""
    selected = queue.select(offset, 1) if queue.min_offset <= offset < queue.max_offset else None
    if selected is None:
        return False
    with selected:
        physical, _, _ = UNIT.unpack_from(selected.view)
    return bool(log_end - physical > limits.memory)


def store_timestamp_at(log: LogReader, offset: int, size: int) -> int:
    """Store time (ms) of the message at (physical offset, size), −1 when it is not there.

    Source: CommitLog#pickupStoreTimestamp.
    """
    if offset < log.min_offset or size < MIN_RECORD_SIZE:
        return -1
    head = log.read_at(offset, MIN_RECORD_SIZE)
    time = None if head is None else store_time_of(head)
    return -1 if time is None else time


def store_timestamp_of(log: LogReader, queue: QueueReader, offset: int) -> int:
    """Store time (ms) of the message at a queue offset, −1 when it is not there. Source: #getMessageStoreTimeStamp."""
    selected = queue.select(offset, 1) if queue.min_offset <= offset < queue.max_offset else None
    if selected is None:
        return -1
    with selected:
        physical, size, _ = UNIT.unpack_from(selected.view)
    return store_timestamp_at(log, physical, size)


def has_key(record: StoredMessage, topic: str, key: str) -> bool:
    """Whether it is what a query for (topic, key) asks for: the unique key, or a word of KEYS."""
    return record.topic == topic and _names_key(record.properties, key)


def _names_key(pairs: Mapping[str, str], key: str) -> bool:
    if pairs.get(properties.UNIQ_KEY) == key:
        return True
    keys = pairs.get(properties.KEYS)
    return keys is not None and key != "" and key in keys.split(" ")  # as key_words, which leaves empty words out


def _is_asked_for(record: memoryview, topic: str, key: str) -> bool:
    """As `has_key` of the record decoded, of a plain one without decoding all of it. Raises FormatError as that."""
    known = topic_and_properties(record.tobytes()) if len(record) >= MIN_RECORD_SIZE else None
    if known is None:
        return has_key(decode(record), topic, key)
    return known[0] == topic and _names_key(properties.parse(known[1]), key)


def verifier(log: LogReader, topic: str, key: str, chosen: dict[int, memoryview]) -> Callable[[int], bool]:
    """Decides which offsets of an index walk count: messages that are there and have topic and key, each once.

    Those that count are put into `chosen`, by physical offset.
    """
    asked_for = ASKED_FOR.after(1)

    def accept(offset: int) -> bool:
        if offset in chosen:
            return False
        if asked_for is not None and (there := log.mapped_from(offset)) is not None:
            size = asked_for(there, topic, key, properties.UNIQ_KEY, properties.KEYS, None)
            if size is not None:
                if size:
                    chosen[offset] = there[:size]
                return bool(size)
        try:
            record = record_at(log, offset)
            if record is None or not _is_asked_for(record, topic, key):
                return False
        except FormatError:  # the index is ahead of a cut log, or after an expired one
            return False
        chosen[offset] = record
        return True

    return accept


def query_result(chosen: Mapping[int, memoryview], timestamp: int, offset: int) -> QueryResult:
    """The answer to a query, in log order as Apache's queryMessage sorts it."""
    if len(chosen) == 1:
        return _made(QueryResult, (tuple(chosen.values()), tuple(chosen), timestamp, offset))
    places = tuple(sorted(chosen))
    return _made(QueryResult, (tuple(map(chosen.__getitem__, places)), places, timestamp, offset))
