"""Segments of a store that lie in a repository alone, an object each: what they are made of, and where messages are.

An archived segment is named by no snapshot that must stay: the object itself keeps segment and pieces from `prune`. It
is written before the store's file is deleted, and is never changed. Where a store was archived twice at one offset
(a repair changed the file between a kill and the next run), the later one counts: it is what was deleted.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, TypeAlias

from engine.backup.container import Kind
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.names import SEGMENT_NAME_DIGITS, segment_name
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.backup.repository import Repository

ARCHIVES = "archives"
UNIT_ROWS = 25_000
"""Units in a piece of them (tables.py)."""
_FORMAT = 1
_LARGEST_SEGMENT = 1 << 31
_ID = 32
_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(rf"{ARCHIVES}/([0-9a-f]{{16}})/([0-9]{{{SEGMENT_NAME_DIGITS}}})-([0-9a-f]{{{_ID}}})")

Run: TypeAlias = tuple[int, int, int]
"""Messages of a queue whose queue offsets follow each other: the first one's, its row in the segment's units, how
many."""


@dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """A queue's messages in one segment."""

    topic: str
    queue_id: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """See the module.

    Attributes:
        store: the name of the store's snapshots; `root`: its directory, `host`: where.
        archived: when, ms since 1970.
        offset, size: of the segment: physical offset, bytes of its file.
        pieces: name of its SegmentPieces.
        first_time, newest_time: storeTimestamps of its first record, and the largest, ms.
        messages: sound ones.
        queues: where each queue's messages are, by topic and queue id.
        units: pieces with their units (tables.py).
        keys: pieces with the hashes of their keys, each after the smallest hash in it.
    """

    store: str
    root: str
    host: str
    archived: int
    offset: int
    size: int
    pieces: str
    first_time: int
    newest_time: int
    messages: int
    queues: tuple[ArchivedQueue, ...]
    units: tuple[str, ...]
    keys: tuple[tuple[int, str], ...]
    format: int = _FORMAT

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.offset + self.size

    @property
    def tables(self) -> Iterator[str]:
        """The pieces of its tables."""
        yield from self.units
        yield from (piece for _, piece in self.keys)

    def encode(self) -> bytes:
        """As it is stored."""
        fields = {**dataclasses.asdict(self), "queues": [(one.topic, one.queue_id, one.runs) for one in self.queues]}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")

    @classmethod
    def decode(cls, data: bytes, where: str) -> ArchivedSegment:
        """Raises FormatError."""
        try:
            fields = json.loads(data.decode("utf-8", "surrogateescape"))
            if fields["format"] != _FORMAT:
                raise FormatError(f"archive format {fields['format']}: a newer rstore reads it", path=where)
            queues = tuple(
                ArchivedQueue(topic, queue_id, tuple((first, row, count) for first, row, count in runs))
                for topic, queue_id, runs in fields["queues"]
            )
            tables = {"units": tuple(fields["units"]), "keys": tuple((low, piece) for low, piece in fields["keys"])}
            plain = {field.name: fields[field.name] for field in dataclasses.fields(cls)}
            made = cls(**{**plain, **tables, "queues": queues})
            if not made._is_sound():
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FormatError("no archived segment, or its fields make no sense", path=where) from None
        return made

    def _is_sound(self) -> bool:
        if not all(map(_is_hash, (self.pieces, *self.tables))) or not all(
            0 < count <= UNIT_ROWS * len(self.units) - row for one in self.queues for _, row, count in one.runs
        ):
            return False
        numbers = (self.archived, self.offset, self.size, self.first_time, self.newest_time, self.messages)
        texts = (self.store, self.root, self.host)
        rows = [number for one in self.queues for run in one.runs for number in run]
        lows = [low for low, _ in self.keys]
        return (
            all(type(number) is int and number >= 0 for number in (*numbers, *rows, *lows))
            and all(isinstance(text, str) for text in (*texts, *(one.topic for one in self.queues)))
            and all(type(one.queue_id) is int for one in self.queues)
            and self.offset <= LONG_MAX
            and 0 < self.size <= _LARGEST_SEGMENT
            and lows == sorted(lows)
        )


@dataclass(frozen=True, slots=True, order=True)
class ArchivedName:
    """An archived segment as its object's name tells it: the archive's id, the segment's physical offset."""

    archive: str
    offset: int
    name: str


def put_archived(repository: Repository, archive: str, segment: ArchivedSegment) -> ArchivedName:
    """Store it: all that it names is there. Raises StorageError; FormatError: nobody could read it."""
    data = segment.encode()
    ArchivedSegment.decode(data, repository.path(ARCHIVES))
    name = f"{ARCHIVES}/{archive}/{segment_name(segment.offset)}-{repository.hash_of(data)[:_ID]}"
    repository.put_object(Kind.ARCHIVED, name, data)
    return ArchivedName(archive, segment.offset, name)


def archived_names(repository: Repository, archive: str | None = None) -> list[ArchivedName]:
    """The segments of an archive, or of all, by archive and offset: their names alone are read. Raises StorageError."""
    below = ARCHIVES if archive is None else f"{ARCHIVES}/{archive}"
    matches = (_NAME.fullmatch(one.name) for one in repository.objects.list(below))
    return sorted(ArchivedName(match[1], int(match[2]), match[0]) for match in matches if match is not None)


def get_archived(repository: Repository, name: ArchivedName) -> ArchivedSegment:
    """An archived segment, proved by its name. Raises NotFound, FormatError, StorageError."""
    where = repository.path(name.name)
    data = repository.get_object(Kind.ARCHIVED, name.name)
    if not name.name.endswith(f"-{repository.hash_of(data)[:_ID]}"):
        raise FormatError("the object is damaged: its name is not its content's", path=where)
    segment = ArchivedSegment.decode(data, where)
    if segment.offset != name.offset:
        raise FormatError("the object is that of another segment", path=where)
    return segment


def newest_of(segments: Iterable[ArchivedSegment]) -> dict[int, ArchivedSegment]:
    """Of each offset the segment that counts."""
    newest: dict[int, ArchivedSegment] = {}
    for one in segments:
        if one.offset not in newest or one.archived >= newest[one.offset].archived:
            newest[one.offset] = one
    return newest


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
