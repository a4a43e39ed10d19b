"""The log and the tables of some topics alone: a store of their own, made from a snapshot's.

Records keep their queue offsets, times and bodies; they lie closer together than before, so that their physical
offsets are new ones, and with them the message IDs that brokers make of physical offsets. The log begins where the
snapshot's does: units of queue files that were backed up because their messages have expired still lie before it.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.format import fastjson, names
from engine.format.message import encode_blank
from engine.format.names import segment_name
from engine.format.nearest import did_you_mean, visible
from engine.format.property_crc import is_sealed, seal
from engine.format.record import BLANK_SIZE, LONG, POSITION_PHYSICAL_OFFSET
from engine.inspect.store.archive_note import ARCHIVE_NOTE
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, FILTERS, OFFSET_TABLE, TOPIC_TABLE, TOPICS
from engine.log.scan import Blank, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile
    from engine.log.source import LogSource

_AT_ONCE = 4 << 20
"""Bytes that are written at once."""
_BACKUP = ".bak"
_FILTER_TABLE = "filterDataByTopic"


@dataclass(slots=True)
class WrittenTopics:
    """What was written: the log's end (physical offset), records by topic, damaged ranges that were passed over."""

    end: int
    records: dict[str, int] = field(default_factory=dict)
    damaged: int = 0


class TopicsLog:
    """Writes the records of some topics as a log. A context manager.

    Args:
        disk: that writes.
        directory: of the log, made already.
        start: physical offset of the first file.
        segment_size: bytes of a file (mappedFileSizeCommitLog).
    """

    def __init__(self, disk: Disk, directory: str, start: int, segment_size: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_size = segment_size
        self._segment = start
        self._at = start
        self._buffer = bytearray()
        self._file: RawFile | None = None

    def __enter__(self) -> TopicsLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self._at

    def append(self, record: memoryview) -> int:
        """A record, at the log's end: its physical offset there. A blank record closes a file that has no room for it
        (CommitLog#doAppend). A property CRC that is the record's own stays so: it covers the physical offset.
        """
        if len(record) + BLANK_SIZE > self._segment + self._segment_size - self._at:
            self._close_with_blank()
        if self._file is None:
            self._open()
        at, place = len(self._buffer), self._at
        sealed = is_sealed(record)
        self._buffer += record
        LONG.pack_into(self._buffer, at + POSITION_PHYSICAL_OFFSET, place)
        if sealed:
            with memoryview(self._buffer) as view:
                seal(view[at:])
        self._at += len(record)
        if len(self._buffer) >= _AT_ONCE:
            self._write()
        return place

    def begin(self, offset: int) -> None:
        """The next record lies at the beginning of a file, where that is the next one that begins; else where it comes.

        `offset`: physical, of that file.
        """
        if self._at > self._segment and offset == self._segment + self._segment_size:
            self._close_with_blank()

    def finish(self) -> None:
        """All is on the disk. Raises StorageError."""
        if self._file is not None:
            self._file.allocate(0, self._segment_size)
            self._close()
        self._disk.sync_dir(self._directory)

    def _close_with_blank(self) -> None:
        """A blank record closes the file, and the next one begins."""
        self._buffer += encode_blank(self._segment + self._segment_size - self._at)
        self._close()
        self._segment += self._segment_size
        self._at = self._segment

    def _open(self) -> None:
        path = os.path.join(self._directory, segment_name(self._segment))
        self._file = self._disk.open_raw(path, writable=True, create=True)
        self._file.set_size(0)
        self._file.set_size(self._segment_size)
        self._written = 0

    def _write(self) -> None:
        assert self._file is not None
        self._file.write(self._written, self._buffer)
        self._written += len(self._buffer)
        self._buffer = bytearray()
        self._disk.step("restore:piece")

    def _close(self) -> None:
        assert self._file is not None
        self._write()
        self._file.sync(0, self._segment_size)
        self._file.close()
        self._file = None


def write_topics(
    log: LogSource,
    end: int,
    topics: frozenset[str],
    target: TopicsLog,
    max_message_size: int,
    progress: Callable[[int], None],
) -> WrittenTopics:
    """Write the records of `topics` that lie before the physical offset `end`; damage is passed over and counted.

    Raises:
        StorageError: the repository can't give a piece, or the disk refused.
    """
    written = WrittenTopics(target.end)
    names_of = {_encoded(topic): topic for topic in topics}
    if log.segments:
        for event in Scanner(log, max_message_size=max_message_size).scan(log.segments[0].offset, end, resume=True):
            if isinstance(event, RecordBatch):
                for i in range(len(event)):
                    topic = names_of.get(event.topic(i))
                    if topic is not None:
                        target.append(event.record(i))
                        written.records[topic] = written.records.get(topic, 0) + 1
            elif not isinstance(event, Blank):
                written.damaged += 1
            progress(event.end)
    target.finish()
    written.end = target.end
    return written


def demand_topics(log: LogSource, topics_json: bytes | None, topics: frozenset[str], where: str) -> None:
    """Raise InvalidArgument where one of `topics` is neither in the snapshot's table nor in its log.

    The log is read for one that is not in the table alone.
    """
    table = _table(topics_json or b"", TOPIC_TABLE)
    known = set() if table is None else set(table[TOPIC_TABLE])
    missing = {_encoded(topic): topic for topic in topics - known}
    seen = set()
    if missing and log.segments:
        for event in Scanner(log).scan(log.segments[0].offset, resume=True):
            if isinstance(event, RecordBatch):
                for i in range(len(event)):
                    seen.add(event.topic(i))
                for topic in seen & missing.keys():
                    del missing[topic]
            if not missing:
                return
    known |= {topic.decode(errors="replace") for topic in seen}
    for name in sorted(missing.values()):
        hint = did_you_mean(name, known) or None
        raise InvalidArgument(f"no topic {visible(name)} in the snapshot", path=where, hint=hint)


def of_topics(path: str, topics: frozenset[str]) -> bool:
    """Whether a file beside the log belongs to a store of these topics, by its path in the store. The note of an
    archive does not: what is archived lies at other offsets."""
    parts = path.split("/")
    if parts[-1] == ARCHIVE_NOTE:
        return False
    if parts[0] == names.CONSUMEQUEUE:
        return parts[1] in topics
    if parts[0] == names.CONFIG:
        return parts[-1].removesuffix(_BACKUP) != DELAYS or names.SCHEDULE_TOPIC in topics
    return path != names.CHECKPOINT


def table_of_topics(path: str, data: bytes, topics: frozenset[str]) -> bytes:
    """A table of config/ with the entries of these topics alone; what is no such table stays as it is."""
    name = path.rpartition("/")[2].removesuffix(_BACKUP)
    table = {TOPICS: TOPIC_TABLE, CONSUMERS: OFFSET_TABLE, FILTERS: _FILTER_TABLE}.get(name)
    value = None if table is None else _table(data, table)
    if table is None or value is None:
        return data
    value[table] = {key: entry for key, entry in value[table].items() if _topic_of(key) in topics}
    return fastjson.dumps(value).encode()


def _table(data: bytes, name: str) -> dict[str, Any] | None:
    """A file of config/ that has the table `name`; None where it is none."""
    try:
        value = fastjson.loads(data.decode())
    except (FormatError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get(name), dict) else None


def _encoded(topic: str) -> bytes:
    """As records have it; an argument of a shell may hold bytes that are no UTF-8."""
    return topic.encode("utf-8", "surrogateescape")


def _topic_of(key: str) -> str:
    """Of `topic@group`, or of a topic itself: no topic has an @. Source: ConsumerOffsetManager, TopicValidator."""
    return key.partition("@")[0]
