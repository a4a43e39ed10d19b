"""What a snapshot is made of: the snapshot itself, the segments that it names, the files beside the log. As JSON.

A segment's pieces stand in an object of their own, named by its content: the next snapshot of a store names the same
one, and a manifest stays small.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from typing import Any, TypeVar

from engine.config import STORE_CONF
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import names

PIECE_SIZE = 4 << 20
"""Bytes of a segment that one piece holds: aligned, so that an unchanged part is the same piece in each snapshot."""
JOINED = "+"
"""Between the names of parts that are one piece together."""
FORMAT = 1
_MOST_NAMES = 1 << 20
_HASH = re.compile("[0-9a-f]{64}")
_SIGNED = {"mtime_ns", "first_time"}
"""Fields that may be negative: a file's time before 1970, the time that a damaged header says."""

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class BackedUpDamage:
    """A range of the log without a sound record when it was backed up: physical offset, bytes, why."""

    offset: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentPieces:
    """A segment: where it begins, its file's length, and how many bytes from its start are held (zeros follow).

    Attributes:
        pieces: names of the pieces, one for each PIECE_SIZE bytes up to `held`; None: zeros. A piece is shorter than
            its part where that ends with zeros. The last one of a segment that a follower has written may be several
            objects: their names with a JOINED between them.
        records: sound records, `messages` of them with a queue unit.
        first_time: storeTimestamp of the first record, ms; 0 without one.
        newest_time: the largest one.
        is_complete: whether the log went on in a later segment: no byte of it is written any more.
    """

    offset: int
    size: int
    held: int
    pieces: tuple[str | None, ...]
    records: int
    messages: int
    first_time: int
    newest_time: int
    is_complete: bool
    damage: tuple[BackedUpDamage, ...] = ()

    @property
    def end(self) -> int:
        """Physical offset after the last byte that is held."""
        return self.offset + self.held

    def encode(self) -> bytes:
        """As it is stored."""
        return _encode(dataclasses.asdict(self))

    @classmethod
    def decode(cls, data: bytes, where: str) -> SegmentPieces:
        """Raises FormatError."""
        fields = _fields(data, where)
        pieces, damage = _list(fields, "pieces", where), _list(fields, "damage", where)
        if not all(
            piece is None or (isinstance(piece, str) and all(map(_is_hash, parts_of(piece)))) for piece in pieces
        ):
            raise FormatError("the segment names no pieces", path=where)
        made = _made(cls, {**fields, "pieces": tuple(pieces), "damage": _all(BackedUpDamage, damage, where)}, where)
        if made.held > made.size or len(made.pieces) != math.ceil(made.held / PIECE_SIZE):
            raise FormatError("the segment's pieces don't add up", path=where)
        return made


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment of a snapshot: where it begins, the name of its SegmentPieces, and its file's time (ns) when it was
    read: the next backup does not read it again while it is complete and has the same length and time."""

    offset: int
    size: int
    held: int
    pieces: str
    mtime_ns: int
    is_complete: bool
    messages: int
    newest_time: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file beside the log, such as config/topics.json: its path in the store, length, pieces (None: zeros)."""

    path: str
    size: int
    pieces: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One backup of a store.

    Attributes:
        store: the name that backups of one store share.
        host: where it was made, and `by` whom, with which `version` of rstore.
        root: the store's directory there.
        started: when it was begun, ms since 1970; `finished`: when its last file was read.
        start: physical offset of the log's first byte; `end`: after the last byte that is held.
        is_live: whether a process had the store locked: the log ends with a proved record then.
        abort: whether the store's abort file was there.
        sizes: of the store's files, by Apache's keys.
        files: what can't be made anew from the log.
        skipped: what in config/ is no regular file, and was not read.
        added: bytes that the repository grew by.
        index_tags: whether the store's broker indexes tags (RocketMQ 5.4 and later).
    """

    store: str
    host: str
    by: str
    version: str
    root: str
    started: int
    finished: int
    start: int
    end: int
    is_live: bool
    abort: bool
    records: int
    messages: int
    damaged: int
    newest_time: int
    sizes: dict[str, int]
    segments: tuple[SegmentRef, ...]
    files: tuple[StoredFile, ...]
    skipped: tuple[str, ...] = ()
    added: int = 0
    format: int = FORMAT
    index_tags: bool = False

    def encode(self) -> bytes:
        """As it is stored."""
        return _encode(dataclasses.asdict(self))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Snapshot:
        """Raises FormatError."""
        fields = _fields(data, where)
        if fields.get("format") != FORMAT:
            raise FormatError(f"snapshot format {fields.get('format')}: a newer rstore reads it", path=where)
        segments = _all(SegmentRef, _list(fields, "segments", where), where)
        rows = [_object(one, where) for one in _list(fields, "files", where)]
        files = tuple(_made(StoredFile, {**row, "pieces": tuple(_list(row, "pieces", where))}, where) for row in rows)
        sizes = _object(fields.get("sizes"), where)
        skipped = tuple(_list(fields, "skipped", where))
        named = [one.pieces for one in segments] + [piece for one in files for piece in one.pieces if piece is not None]
        if not all(map(_is_hash, named)) or not all(type(size) is int for size in sizes.values()):
            raise FormatError("the snapshot names no objects", path=where)
        if not all(isinstance(path, str) for path in skipped):
            raise FormatError("the snapshot's fields have the wrong types", path=where)
        changed = {"segments": segments, "files": files, "sizes": sizes, "skipped": skipped}
        snapshot = _made(cls, {"index_tags": False, **fields, **changed}, where)  # earlier ones do not say it
        _demand_in_order(snapshot, where)
        return snapshot


def parts_of(piece: str) -> list[str]:
    """The objects that a piece is made of, in order: it is one, unless a follower wrote it in parts."""
    return piece.split(JOINED)


def is_beside_the_log(path: str) -> bool:
    """Whether a stored path is that of a file beside the log, and of nothing else below the store or out of it."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return False
    if parts[0] == names.SEALS:
        return len(parts) == 2 and names.seal_offset(parts[1]) is not None
    return path in (names.CHECKPOINT, STORE_CONF) or (parts[0] in (names.CONFIG, names.CONSUMEQUEUE) and len(parts) > 1)


def _demand_in_order(snapshot: Snapshot, where: str) -> None:
    at = -1
    for segment in snapshot.segments:
        if segment.offset < max(at, 0) or not 0 <= segment.held <= segment.size or segment.size <= 0:
            raise FormatError("the snapshot's segments overlap", path=where)
        at = segment.offset + segment.size
    for file in snapshot.files:
        if not is_beside_the_log(file.path):
            raise FormatError("the snapshot has a file that backups do not take", path=where)
        if file.size < 0 or len(file.pieces) != math.ceil(file.size / PIECE_SIZE):
            raise FormatError(f"the pieces of {file.path!r} don't add up", path=where)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def _fields(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise FormatError("no JSON", path=where) from None
    return _object(value, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError("the fields have the wrong types", path=where)
    return value


def _list(fields: dict[str, Any], name: str, where: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list) or len(value) > _MOST_NAMES:
        raise FormatError(f"no list of {name}", path=where)
    return value


def _all(made: type[_Made], rows: list[Any], where: str) -> tuple[_Made, ...]:
    return tuple(_made(made, _object(row, where), where) for row in rows)


def _made(made: type[_Made], fields: dict[str, Any], where: str) -> _Made:
    """A dataclass of plain fields, each of the type that its annotation says; numbers are not negative, but _SIGNED."""
    values = []
    for name, kind in _shape(made):  # type: ignore[arg-type]
        value = fields.get(name)
        if (kind is not None and type(value) is not kind) or (value is None and name not in fields):
            raise FormatError(f"{name} is missing or has the wrong type", path=where)
        if kind is int and value < 0 and name not in _SIGNED:  # type: ignore[operator]
            raise FormatError(f"{name} is negative", path=where)
        values.append(value)
    return made(*values)


@functools.cache
def _shape(made: type[Any]) -> tuple[tuple[str, type | None], ...]:
    """The names of a dataclass's fields, in order, and their types where these are plain."""
    kinds: dict[str, type] = {"int": int, "str": str, "bool": bool}
    return tuple((field.name, kinds.get(str(field.type))) for field in dataclasses.fields(made))


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
