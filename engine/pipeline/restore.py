"""Rows of a table as the records of a new store, in the order of the log that they came from.

A record keeps what it was: queue offset, store time, hosts, properties, and its place, too, as long as the table goes
on without a gap. So records are appended as a slave appends its master's log, not put: a put would give new times and
offsets, delay what has been delivered, and number transactions anew.

Theory. The new log begins with the file in which the first row lay. A row that lay just after the one before it, or at
the start of the next file, lies there again. After a gap rows move together: their places change. A queue begins at
the offset that its first row has and continues without gaps: after one, offsets change. Operations of transactions
name halves by queue offset, so they change with them; one whose half is not in the table would settle another, and is
left out. Sources: TransactionalMessageUtil, MultiDispatch (4.9.8).
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.format import hosts, names, properties, sysflag
from engine.format.hashing import body_crc
from engine.format.message import (
    Message,
    encode,
    encode_blank,
    patch,
)
from engine.format.numbers import LONG_MAX, parse_int
from engine.format.record import (
    BLANK_SIZE,
    MIN_RECORD_SIZE,
    PROPERTIES_MAX_LENGTH,
    record_size,
)
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC
from engine.log.derive import TopicQueue
from engine.log.prepare import check_length
from engine.repair.replay.choice import settled_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.format.hosts import Host
    from engine.store import MessageStore

NEEDED = (
    *("physical_offset", "size", "topic", "queue_id", "queue_offset", "properties", "body", "body_crc", "flag"),
    *("sys_flag", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    "prepared_transaction_offset",
)
"""Columns that a row must have; `crc_ok` is looked at where it is there."""
_AT_ONCE = 1 << 20
_PLACES = 20


@dataclass(slots=True)
class Restored:
    """What became of the rows.

    Attributes:
        messages, size: records that were written, and their bytes.
        counts: by what else there is to say; see `Restorer`.
        left_out: physical offset in the table and reason of rows that no record was made of: the first of them.
    """

    messages: int = 0
    size: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    left_out: list[tuple[int, str]] = field(default_factory=list)


class Restorer:
    """Appends rows, by ascending physical offset, to a store that was opened empty. To be ended by `finish`.

    Counts: `moved` (records at another place), `renumbered` (at another queue offset), `resized` (of another size:
    text that is no UTF-8, bodies that were decompressed), `operations_changed`, `delayed`, `halves`,
    `further_queues` (records with multi-dispatch that the settings don't give their queues), `left_out`.

    Args:
        store: empty.
        decompressed: whether bodies that were compressed come as their producers had them.
    """

    def __init__(self, store: MessageStore, *, decompressed: bool = False) -> None:
        self._store = store
        self._decompressed = decompressed
        self._file_size = store.config.mapped_file_size_commit_log
        self._numbers = Numbering()
        self._buffer = bytearray()
        self._start = 0
        self._last = -1
        self._in_place = True
        self.done = Restored()

    @property
    def _end(self) -> int:
        return self._start + len(self._buffer)

    def add(self, row: Mapping[str, Any]) -> None:
        """One row.

        Raises:
            FormatError: rows out of order, or two of the same place. DiskFull, StorageError.
        """
        place = row["physical_offset"]
        if self._last < 0:
            self._start = place - place % self._file_size
        if place <= self._last:
            raise FormatError(
                "two rows have the same physical offset" if place == self._last else "rows out of order", offset=place
            )
        self._last = place
        why = None if row.get("crc_ok", True) else "body CRC mismatch"
        if why is None:
            try:
                why = self._append(row, place)
            except InvalidArgument as error:
                why = error.message
        if why is not None:
            self._in_place = False
            self.done.counts["left_out"] += 1
            if len(self.done.left_out) < _PLACES:
                self.done.left_out.append((place, why))

    def finish(self) -> Restored:
        """Write what is left. Raises DiskFull, StorageError."""
        self._flush()
        return self.done

    def _append(self, row: Mapping[str, Any], place: int) -> str | None:
        """Why it can't be, if so."""
        message = self._message(row)
        check_length(message.topic, long_topics=True)
        fields = dict(message.properties)
        queue = TopicQueue(message.topic, message.queue_id)
        if queue.topic == OP_TOPIC and (changed := self._operation(message)) is not message:
            if changed is None:
                return "it settles a half message that is not in the table"
            message = changed
        record = encode(message, self._raw(message, row))
        size = len(record)
        if size > self._file_size - BLANK_SIZE:
            return f"a record of {size} bytes does not fit into a segment: see mappedFileSizeCommitLog"
        at = self._place(place, size)
        number = row["queue_offset"]
        if sysflag.is_consumable(message.sys_flag):
            number = self._numbers.next(queue, row["queue_offset"], at)
            self._further(message, fields, at)
        if queue.topic == HALF_TOPIC:
            self.done.counts["half_messages"] += 1
            self._half(message, fields)
        if fields != message.properties:
            message = message._replace(properties=fields)
            record = encode(message, self._raw(message, row))
            size = len(record)
            self._roll(size)  # a number of more digits
            at = self._end
        patch(record, 0, queue_offset=number, physical_offset=at, store_timestamp=row["store_timestamp"])
        self._buffer += record
        self._count(row, message, at, number, size)
        if len(self._buffer) >= _AT_ONCE:
            self._flush()
        return None

    def _message(self, row: Mapping[str, Any]) -> Message:
        flags = row["sys_flag"]
        body = row["body"] or b""
        if self._decompressed and flags & sysflag.COMPRESSED and body_crc(body) != row["body_crc"]:
            flags &= ~(sysflag.COMPRESSED | sysflag.COMPRESSION_TYPE_MASK)
        return Message(
            topic=row["topic"],
            body=body,
            queue_id=row["queue_id"],
            properties=dict(row["properties"] or ()),
            flag=row["flag"],
            sys_flag=flags,
            born_timestamp=row["born_timestamp"],
            born_host=_host(row["born_host"]),
            store_host=_host(row["store_host"]),
            reconsume_times=row["reconsume_times"],
            prepared_transaction_offset=row["prepared_transaction_offset"],
        )

    def _raw(self, message: Message, row: Mapping[str, Any]) -> bytes:
        """The properties as stored.

        A batch repeats what its messages have in common, and some clients end theirs with a separator. A table has each
        property once; where the record was longer, separators fill it up, which every reader passes over: it keeps its
        size, and all records after it their places.
        """
        raw = properties.join(message.properties).encode("utf-8", "replace")
        topic = len(message.topic.encode("utf-8", "replace"))
        known = record_size(message.stored_sys_flag, len(message.body), topic, len(raw))
        missing = int(row["size"]) - known
        if message.sys_flag != row["sys_flag"] or not 0 < missing <= PROPERTIES_MAX_LENGTH - len(raw):
            return raw
        return raw + properties.SEPARATOR.encode() * missing

    def _count(self, row: Mapping[str, Any], message: Message, at: int, number: int, size: int) -> None:
        done, counts = self.done, self.done.counts
        done.messages += 1
        done.size += size
        counts["moved"] += at != row["physical_offset"]
        counts["renumbered"] += number != row["queue_offset"]
        counts["resized"] += size != row["size"]
        counts["delayed"] += message.topic == names.SCHEDULE_TOPIC

    # --- places -----------------------------------------------------------------------------------------------------

    def _place(self, wanted: int, size: int) -> int:
        """Where the next record of `size` bytes goes: its old place, if nothing before it is missing."""
        at = self._end
        next_file = at - at % self._file_size + self._file_size
        if self._in_place and wanted == next_file and at % self._file_size:
            self._close_file(next_file - at)  # a batch did not fit, though this record alone would
        self._roll(size)
        self._in_place = self._in_place and self._end == wanted
        return self._end

    def _roll(self, size: int) -> None:
        left = self._file_size - self._end % self._file_size
        if size + BLANK_SIZE > left:
            self._close_file(left)

    def _close_file(self, left: int) -> None:
        self._buffer += encode_blank(left) + bytes(left - BLANK_SIZE)
        self._flush()

    def _flush(self) -> None:
        if self._buffer:
            self._store.append_raw(self._start, bytes(self._buffer))
            self._start += len(self._buffer)
            self._buffer.clear()

    # --- what names queue offsets -----------------------------------------------------------------------------------

    def _operation(self, message: Message) -> Message | None:
        """With the new offsets of the halves that it settles; None when none of them is in the table."""
        before = settled_offsets(message.body)
        after = [n for offset in before if (n := self._numbers.half(message.queue_id, offset)) is not None]
        if after == before:
            return message
        if not after:
            return None
        self.done.counts["operations_changed"] += 1
        return message._replace(body=",".join(map(str, after)).encode())

    def _half(self, message: Message, fields: dict[str, str]) -> None:
        """A half that was put back names the one that it was first."""
        try:
            before = parse_int(fields.get(properties.TRAN_PREPARED_QUEUE_OFFSET, ""), 0, LONG_MAX)
        except ValueError:
            return
        after = self._numbers.half(message.queue_id, before)
        if after is not None:
            fields[properties.TRAN_PREPARED_QUEUE_OFFSET] = str(after)

    def _further(self, message: Message, fields: dict[str, str], at: int) -> None:
        """The queues of a multi-dispatch message, and its offsets in them."""
        comma, config = properties.MULTI_DISPATCH_SPLITTER, self._store.config
        targets = fields.get(properties.INNER_MULTI_DISPATCH, "").rstrip(comma).split(comma)
        offsets = fields.get(properties.INNER_MULTI_QUEUE_OFFSET, "").rstrip(comma).split(comma)
        if not targets[0].strip() or len(targets) != len(offsets):
            return
        if not config.enable_multi_dispatch or (not config.enable_lmq and any(map(names.is_lmq, targets))):
            self.done.counts["further_queues"] += 1
            return
        try:
            before = [parse_int(offset, 0, LONG_MAX) for offset in offsets]
        except ValueError:
            return
        queues = [TopicQueue(t, 0 if names.is_lmq(t) and config.enable_lmq else message.queue_id) for t in targets]
        after = [self._numbers.next(queue, offset, at) for queue, offset in zip(queues, before, strict=True)]
        if after != before:
            fields[properties.INNER_MULTI_QUEUE_OFFSET] = comma.join(map(str, after))


@functools.lru_cache(maxsize=4096)
def _host(text: str) -> Host:
    return hosts.parse(text)


class Numbering:
    """Queue offsets without gaps. Remembers those of halves as runs: few, where few are missing."""

    def __init__(self) -> None:
        self._next: dict[TopicQueue, int] = {}
        self._halves: dict[int, list[list[int]]] = {}

    def next(self, queue: TopicQueue, offset: int, at: int) -> int:
        """The offset of the queue's next record, which had `offset` and goes to the physical offset `at`.

        A new queue begins at `offset`, if the log before it could have had so many records: no store believes more.
        """
        number = self._next.get(queue)
        if number is None:
            number = offset if 0 <= offset <= at // MIN_RECORD_SIZE else 0
        self._next[queue] = number + 1
        if queue.topic == HALF_TOPIC:
            runs = self._halves.setdefault(queue.queue_id, [])
            if runs and offset == runs[-1][0] + runs[-1][2] and number == runs[-1][1] + runs[-1][2]:
                runs[-1][2] += 1
            else:
                runs.append([offset, number, 1])
        return number

    def half(self, queue_id: int, offset: int) -> int | None:
        """The offset now of the half that had `offset`; None when it isn't there, and another may get that offset.

        One from before the queue's first half keeps it: nobody gets such an offset any more.
        """
        runs = self._halves.get(queue_id)
        if not runs or (offset < runs[0][0] and runs[0][0] == runs[0][1]):
            return offset
        for before, now, count in reversed(runs):
            if before <= offset < before + count:
                return now + offset - before
        return None
