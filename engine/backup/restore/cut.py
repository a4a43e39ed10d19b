"""Where a restored log ends: at a moment, an offset, before a message. It is found in the repository itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backup.log import RepositoryLog
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NotFound
from engine.format.message import parse_msg_id
from engine.format.quantities import moment
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.manifest import Snapshot
    from engine.backup.repository import Repository

_CLIENT_ID = b"UNIQ_KEY\x01"


@dataclass(frozen=True, slots=True)
class Upto:
    """How far to restore: one of the three, or none for all. Raises InvalidArgument for more than one.

    `time_ms`: up to the first record that was stored later (storeTimestamp, ms). `offset`: a physical offset.
    `before`: a message, by its offset message ID or the ID that its client gave it: it and all after it stay out.
    """

    time_ms: int | None = None
    offset: int | None = None
    before: str | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.time_ms, self.offset, self.before)) > 1:
            raise InvalidArgument("only one end can be given", hint="--to-time, --to-offset or --before-message")


def find_end(repository: Repository, snapshot: Snapshot, upto: Upto) -> int:
    """The physical offset where the restored log ends: a record's, or the snapshot's end.

    Raises:
        NotFound: no such message. InvalidArgument: a time or an offset that the snapshot can't give.
        StorageError: the repository is damaged where it was looked for.
    """
    if upto.time_ms is not None:
        return _at_time(repository, snapshot, upto.time_ms)
    if upto.before is not None:
        return _of_message(repository, snapshot, upto.before)
    if upto.offset is not None:
        if not snapshot.start <= upto.offset <= snapshot.end:
            raise InvalidArgument(
                f"the snapshot has physical offsets {snapshot.start} to {snapshot.end}, not {upto.offset}"
            )
        return _at_offset(repository, snapshot, upto.offset)
    return snapshot.end


def _at_time(repository: Repository, snapshot: Snapshot, time_ms: int) -> int:
    if time_ms > snapshot.finished:
        raise InvalidArgument(
            f"the snapshot was finished at {moment(snapshot.finished)}: it knows nothing of later moments",
            hint="name a later snapshot: rstore backup list",
        )
    first = next((one for one in snapshot.segments if one.newest_time > time_ms), None)
    if first is None:
        return snapshot.end
    for batch in _records(repository, snapshot, first.offset, snapshot.end):
        later = (batch.store_timestamps() > time_ms).nonzero()[0]
        if len(later):
            return batch.offset(int(later[0]))
    return snapshot.end


def _at_offset(repository: Repository, snapshot: Snapshot, offset: int) -> int:
    """The record that begins at an offset or is the first after it: a record is not cut in two."""
    segment = next((one for one in snapshot.segments if one.offset <= offset < one.offset + one.held), None)
    if segment is None or segment.offset == offset:
        return offset
    for batch in _records(repository, snapshot, segment.offset, snapshot.end):
        if batch.end >= offset:
            ends = batch.offsets() + batch.sizes()
            return int(ends[(ends >= offset).nonzero()[0][0]]) if batch.start < offset else batch.start
    return offset


def _of_message(repository: Repository, snapshot: Snapshot, message_id: str) -> int:
    try:
        _, offset = parse_msg_id(message_id)
    except InvalidArgument:
        offset = -1
    log = RepositoryLog(repository, snapshot)
    if snapshot.start <= offset < snapshot.end and Scanner(log).sound_size(offset):
        return offset
    wanted = b"\x02" + _CLIENT_ID + message_id.encode() + b"\x02"
    for batch in _records(repository, snapshot, snapshot.start, snapshot.end):
        for i in range(len(batch)):
            if wanted in b"\x02" + batch.properties(i) + b"\x02":
                return batch.offset(i)
    raise NotFound(f"no message {message_id!r} in the snapshot", path=repository.where)


def _records(repository: Repository, snapshot: Snapshot, start: int, end: int) -> Iterator[RecordBatch]:
    scanner = Scanner(RepositoryLog(repository, snapshot))
    return (event for event in scanner.scan(start, end, resume=True) if isinstance(event, RecordBatch))
