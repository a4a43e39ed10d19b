"""A reader of its own: records, units and index entries from a store's bytes, by FORMAT.md alone.

Nothing of the engine is used here, so that a fault of the engine's readers can't hide one of its repairs. It reads
closed stores of small files as a whole; it raises nothing on damage: what can't be read is not there.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.compat.puts import java_hash

MAGIC = 0xDAA320A7
BLANK = 0xCBD43194
SMALLEST = 91
UNIT = 20
PRE_BLANK = 0x7FFFFFFF
ROLLBACK, PREPARED, NONE, COMMIT = 12, 4, 0, 8
V6_BORN, V6_STORE = 0x10, 0x20
DAMAGED = b"RSTORE_DAMAGED"
"""The topic of what a bridge writes; a short one has only its first letters."""
CRC_NAME, CRC_SIZE = b"__CRC32#", 20
"""A property CRC: name, \\x01, ten digits, \\x02, the last bytes of the properties."""
INNER_BATCH = 0x80
"""The bit of sysFlag: several messages in one record, which has one batch queue unit."""
BATCH_UNIT = 46

_HEAD = struct.Struct(">IIIiiqqiq")
_UNIT = struct.Struct(">qiq")
_INDEX_HEAD = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_BATCH_UNIT = struct.Struct(">qiqqqhii")


class Record(NamedTuple):
    """A record as its fields say; `crc_ok`: of the body."""

    size: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_time: int
    body: bytes
    topic: bytes
    properties: bytes
    crc_ok: bool

    @property
    def kind(self) -> int:
        """NONE, PREPARED, COMMIT or ROLLBACK."""
        return self.sys_flag & 12

    @property
    def inert(self) -> bool:
        """Whether a bridge wrote it."""
        return self.kind == ROLLBACK and (self.topic or b"-") in DAMAGED and not self.told.strip(b"\x02")

    @property
    def told(self) -> bytes:
        """The properties without the property CRC at their end (RocketMQ 5)."""
        sealed = len(self.properties) >= CRC_SIZE and self.properties[-CRC_SIZE:].startswith(CRC_NAME)
        return self.properties[:-CRC_SIZE] if sealed else self.properties


class Unit(NamedTuple):
    """A unit of a queue: where its message lies."""

    offset: int
    size: int
    tags: int


def parse(data: bytes | memoryview, at: int) -> Record | None:
    """The record at a position; None where its lengths don't add up.

    A length below 0 counts as none, as Apache reads it (CommitLog#calMsgLength).
    """
    if at < 0 or len(data) - at < SMALLEST:
        return None
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, _ = _HEAD.unpack_from(data, at)
    if magic != MAGIC or not SMALLEST <= size <= len(data) - at:
        return None
    end = at + size
    store_at = at + 48 + (20 if sys_flag & V6_BORN else 8)
    body_at = store_at + 8 + (20 if sys_flag & V6_STORE else 8) + 12
    if body_at + 4 > end:
        return None
    (store_time,) = struct.unpack_from(">q", data, store_at)
    (body_size,) = struct.unpack_from(">i", data, body_at)
    topic_at = body_at + 4 + max(0, body_size)
    if topic_at + 1 > end:
        return None
    topic_end = topic_at + 1 + data[topic_at]
    if topic_end + 2 > end:
        return None
    (properties_size,) = struct.unpack_from(">h", data, topic_end)
    if topic_end + 2 + max(0, properties_size) != end:
        return None
    body = bytes(data[body_at + 4 : topic_at])
    return Record(
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical,
        sys_flag,
        store_time,
        body,
        bytes(data[topic_at + 1 : topic_end]),
        bytes(data[topic_end + 2 : end]),
        (zlib.crc32(body) & 0x7FFFFFFF) == crc,
    )


def walk(log: Mapping[int, bytes]) -> Iterator[tuple[int, Record]]:
    """The records of a log by physical offset, from each segment's start on, until nothing sound follows in it."""
    for start, data in sorted(log.items()):
        at = 0
        while (record := parse(data, at)) is not None:
            yield start + at, record
            at += record.size


def regular(path: str | os.PathLike[str]) -> bool:
    """Whether there is a regular file (also behind a link): nothing else is ever opened."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def listed(directory: str | os.PathLike[str]) -> list[str]:
    """The names in a directory, [] if it is none."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def content(path: str | os.PathLike[str]) -> bytes:
    """A regular file's bytes; none when it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def named(name: str) -> int | None:
    """The offset that a file's name says."""
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


def read_log(directories: Sequence[Path]) -> dict[int, bytes]:
    """Every segment by the offset that its name says."""
    return {
        offset: content(directory / name)
        for directory in directories
        for name in listed(directory)
        if (offset := named(name)) is not None and regular(directory / name)
    }


def read_queues(root: Path) -> dict[tuple[str, int], dict[int, Unit]]:
    """The units of every queue by queue offset, from its first to the last before a hole; pre-blank ones left out.

    That of a batch queue stands at the queue offset of each message in it.
    """
    found: dict[tuple[str, int], dict[int, Unit]] = {}
    for top, units in ((root / "consumequeue", _units), (root / "batchconsumequeue", _batch_units)):
        for topic in listed(top):
            for queue_id in listed(top / topic):
                if queue_id.isascii() and queue_id.isdigit():
                    found[topic, int(queue_id)] = units(top / topic / queue_id)
    return found


def _files(directory: Path) -> Iterator[tuple[int, bytes]]:
    """The files of a queue by the offset that their names say, as far as none is missing."""
    files = {offset: name for name in listed(directory) if (offset := named(name)) is not None}
    follows: int | None = None
    for start, name in sorted(files.items()):
        if not regular(directory / name) or (follows is not None and start != follows):
            return
        data = content(directory / name)
        yield start, data
        follows = start + len(data)


def _batch_units(directory: Path) -> dict[int, Unit]:
    units: dict[int, Unit] = {}
    for _, data in _files(directory):
        for at in range(0, len(data) - BATCH_UNIT + 1, BATCH_UNIT):
            offset, size, tags, _, base, count, _, _ = _BATCH_UNIT.unpack_from(data, at)
            if offset < 0 or size <= 0 or count <= 0:
                return units
            units.update((base + i, Unit(offset, size, tags)) for i in range(count))
    return units


def _units(directory: Path) -> dict[int, Unit]:
    units: dict[int, Unit] = {}
    for start, data in _files(directory):
        for number in range(len(data) // UNIT):
            unit = Unit(*_UNIT.unpack_from(data, number * UNIT))
            if unit.offset < 0 or unit.size <= 0:
                return units
            if unit != (0, PRE_BLANK, 0):
                units[start // UNIT + number] = unit
    return units


def read_index(root: Path, slots: int, entries: int) -> set[tuple[int, int]]:
    """(hash, physical offset) of each entry that a query of its key comes by: reached from its slot (IndexFile)."""
    found: set[tuple[int, int]] = set()
    for name in listed(root / "index"):
        path = root / "index" / name
        if len(name) == 17 and name.isascii() and name.isdigit() and regular(path):
            found |= _reached(content(path), slots, entries)
    return found


def _reached(data: bytes, slots: int, entries: int) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    first = 40 + slots * 4
    if len(data) < first + entries * UNIT:
        return found
    count = _INDEX_HEAD.unpack_from(data)[5]
    rows = list(_ENTRY.iter_unpack(data[first : first + entries * UNIT]))
    for slot, (at,) in enumerate(struct.iter_unpack(">i", data[40:first])):
        if not 0 < at <= count or count <= 1:
            continue
        for _ in range(count + 1):
            if at >= entries:
                break
            key_hash, offset, seconds, before = rows[at]
            if seconds < 0:
                break
            if key_hash % slots == slot:
                found.add((key_hash, offset))
            if not 0 < before <= count or before == at:
                break
            at = before  # noqa: PLW2901
    return found


def properties_of(record: Record) -> dict[str, str]:
    """The properties by name."""
    found = {}
    for pair in record.properties.decode("utf-8", "replace").split("\x02"):
        name, bar, value = pair.partition("\x01")
        if bar:
            found[name] = value
    return found


@lru_cache(maxsize=1 << 16)
def key_hash(topic: str, key: str) -> int:
    """The hash that an index entry has (IndexFile#indexKeyHashMethod)."""
    value = java_hash(f"{topic}#{key}")
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


def key_hashes(record: Record) -> set[int]:
    """The hashes of the record's keys; none of one that was rolled back."""
    if record.kind == ROLLBACK:
        return set()
    found, topic = properties_of(record), record.topic.decode("utf-8", "replace")
    words = [found.get("UNIQ_KEY", ""), *found.get("KEYS", "").split(" ")]
    return {key_hash(topic, word) for word in words if word}


def queues_of(record: Record, *, dispatched: bool) -> list[tuple[str, int, int]]:
    """(topic, queue id, queue offset) of each unit that the record gets; `dispatched`: to light queues and others."""
    if record.kind in (PREPARED, ROLLBACK):
        return []
    given = properties_of(record)
    number = given.get("INNER_NUM", "") if record.sys_flag & INNER_BATCH else ""
    count = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 1
    topic = record.topic.decode("utf-8", "replace")
    found = [(topic, record.queue_id, record.queue_offset + i) for i in range(count)]
    names, offsets = given.get("INNER_MULTI_DISPATCH", ""), given.get("INNER_MULTI_QUEUE_OFFSET", "")
    if dispatched and names and offsets:
        for name, offset in zip(names.split(","), offsets.split(","), strict=True):
            found.append((name, 0 if name.startswith("%LMQ%") else record.queue_id, int(offset)))
    return found
