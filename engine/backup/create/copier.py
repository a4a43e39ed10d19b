"""Snapshots of one store, one after another: what the one before has is not read again.

Theory. The log is append-only: of a segment that the log has left behind no byte is written any more, and the segment
that a broker writes ends, for us, with its last proved record (judging.py). So a copy of the log up to there is what
some moment of the broker was, without its lock. Configuration is read afterwards: offsets of groups may be newer than
the log's end, never older than what had been read when the backup began; a restore that ends earlier takes them back.

What the snapshot before has is not read again: a complete segment of the same length and time is the same segment. A
repair may cut the log within it, or change it, while it is followed: its file's time tells. Of a broker on another
machine no time is known: there all is read again when the bytes before the last snapshot's end are other ones.
What was stored before a kill is in the repository under its name, and is not stored again.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from engine.backup.create.growing import MARK, GrowingSegment
from engine.backup.create.judging import judge_segment
from engine.backup.create.made import Created
from engine.backup.create.pieces import PieceWriter, ReadPace
from engine.backup.create.sealed import ComparedReads, StoredSeals
from engine.backup.manifest import SegmentPieces, SegmentRef, Snapshot, StoredFile
from engine.backup.repository import SNAPSHOTS
from engine.dataclass import dataclass
from engine.errors import RStoreError, StorageError
from engine.format.quantities import counted
from engine.log.scan import LONG, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.create.made import CreateOptions
    from engine.backup.create.origin import Read, StoreOrigin
    from engine.backup.leases import Lease
    from engine.backup.repository import Repository, SnapshotName
    from engine.files.disk import Disk
    from engine.log.source import ClosedLog, Segment

_COMPARED = 4096
"""Bytes of a segment that tell it from another store's."""


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A complete segment that the repository has: what its snapshots name, and what is counted."""

    ref: SegmentRef
    records: int
    damaged: int


class _LogWasCut(Exception):
    """The log was cut since the last snapshot, and no file's time tells which segments are as they were."""


class StoreCopier:
    """Makes snapshots of one store, one after another: what the one before has is not read again.

    Args:
        disk: for steps and waits.
        origin: the store.
        repository: that gets them.
        options: how.
        progress: told how many bytes are done, and of how many.

    Attributes:
        last: the snapshot that it made last; `end`: physical offset up to which that has the log.
    """

    def __init__(
        self,
        disk: Disk,
        origin: StoreOrigin,
        repository: Repository,
        options: CreateOptions,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._disk = disk
        self._origin = origin
        self._repository = repository
        self._options = options
        self._progress = progress
        self._store = options.store or origin.name
        self._known: dict[int, KnownSegment] = {}
        self._tail: GrowingSegment | None = None
        self._closed: tuple[int, KnownSegment] | None = None  # the last segment of a broker that has stopped, its time
        self._notes: list[str] = []
        self._done = self._total = self._read = self._reused = self._segments_added = 0
        self._stored: list[StoredFile] = []
        self._seals = StoredSeals()
        self._mark = b""
        self._followed = 0  # bytes judged in rounds
        self.last: SnapshotName | None = None
        self.end = 0

    def has_more(self) -> bool:
        """Whether `origin` saw more than the last snapshot has. Raises StorageError."""
        return self._origin.grown(self.end, self._mark)

    def take(self, lease: Lease) -> Created:
        """Make a snapshot of what `origin` saw last.

        Raises as `create`: what was stored and no snapshot names is forgotten then, as `prune` may remove it.
        """
        known, tail, mark = dict(self._known), self._tail, self._mark
        try:
            try:
                return self._take(lease)
            except _LogWasCut:  # nobody knows how far back, so nothing that was known is believed
                self._known, self._tail, self._closed = {}, None, None
                created = self._take(lease)
                created.notes.insert(0, "the broker has another log end since: all segments are read again")
                return created
        except BaseException:
            self._known, self._tail, self._closed, self._mark = known, tail, None, mark
            self._seals = StoredSeals()
            raise

    def _take(self, lease: Lease) -> Created:
        origin = self._origin
        began, started = time.monotonic(), self._disk.now_ms()
        self._notes, self._stored = [], []
        self._done = self._read = self._reused = self._segments_added = 0
        if self.last is not None and self._repository.objects.size(f"{SNAPSHOTS}/{self.last.name}") is None:
            # Somebody has forgotten it, so prune may have removed what is known here.
            self._known, self._tail, self._closed, self.last = {}, None, None, None
            self._seals = StoredSeals()
        before = {} if self._options.full or self.last is not None else self._segments_before()
        begun = origin.segments
        self._total = sum(one.size for one in begun)
        with self._writer() as writer:
            segments = [
                known
                for one in begun
                if (known := self._segment(writer, one, before.get(one.offset), is_last=one is begun[-1])) is not None
            ]
            kept = {one.ref.offset for one in segments}
            self._known = {offset: one for offset, one in self._known.items() if offset in kept}
            self._disk.step("backup:log")
            skipped = origin.files(lambda path, read, size: self._file(writer, path, read, size))
            self._note_unreadable(writer.unreadable)
        refs = tuple(one.ref for one in segments)
        snapshot = Snapshot(
            store=self._store,
            host=socket.gethostname(),
            by=user(),
            version=_version(),
            root=origin.root,
            started=started,
            finished=self._disk.now_ms(),
            start=refs[0].offset if refs else origin.start,
            end=refs[-1].offset + refs[-1].held if refs else 0,
            is_live=origin.is_live,
            abort=origin.abort,
            records=sum(one.records for one in segments),
            messages=sum(one.messages for one in refs),
            damaged=sum(one.damaged for one in segments),
            newest_time=max((one.newest_time for one in refs), default=0),
            sizes=origin.sizes,
            segments=refs,
            files=tuple(sorted(self._stored, key=lambda one: one.path)),
            skipped=skipped,
            added=writer.added + self._segments_added,
            index_tags=origin.index_tags,
        )
        self._disk.step("backup:stored")
        lease.demand()
        name = self._repository.put_snapshot(snapshot)
        self.last, self.end = name, snapshot.end
        self._note(name, snapshot)
        return Created(name, snapshot, self._read, self._reused, time.monotonic() - began, self._notes)

    def _writer(self) -> PieceWriter:
        options = self._options
        return PieceWriter(self._repository, options.jobs, ReadPace(options.rate), self._tick, prove=options.full)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _segments_before(self) -> dict[int, SegmentRef]:
        """The segments of this store's newest snapshot, by offset; none where it can't be read, which is noted."""
        for name in reversed(self._repository.snapshots()):
            try:
                snapshot = self._repository.snapshot(name)
            except RStoreError as error:
                self._notes.append(f"snapshot {name.short} can't be read, so more is read again: {error}")
                continue
            if snapshot.store == self._store and snapshot.root == self._origin.root:
                complete = {one.offset: one for one in snapshot.segments if one.is_complete}
                return complete if self._are_the_same(complete) else {}
        return {}

    def _are_the_same(self, complete: dict[int, SegmentRef]) -> bool:
        """Whether the newest of them that is there still begins as it did: else another store has this name now."""
        newest = next((one for one in reversed(self._origin.segments[:-1]) if one.offset in complete), None)
        if newest is None:
            return True
        try:
            piece = self._repository.get_segment(complete[newest.offset].pieces).pieces[0]
            first = self._repository.get_piece(piece)[:_COMPARED] if piece is not None else b""
        except (RStoreError, IndexError):  # it is stored again, if need be
            return True
        if not first or self._origin.is_same(newest, first):
            return True
        self._notes.append(f"segment {newest.offset} is another one than in the last snapshot: all is read again")
        return False

    def _segment(
        self, writer: PieceWriter, segment: Segment, before: SegmentRef | None, *, is_last: bool
    ) -> KnownSegment | None:
        """A segment's pieces, stored; None where the broker has deleted it meanwhile: retention begins at the front."""
        known = None if is_last else self._known.get(segment.offset)
        if is_last:
            self._known.pop(segment.offset, None)  # the log was cut within it: it is complete no more
        try:
            mtime_ns = self._origin.mtime_ns(segment)
            if known is not None and (known.ref.size, known.ref.mtime_ns) == (segment.size, mtime_ns):
                self._tick(segment.size, read=False)
                return known
            known = None
            if before is not None and not is_last and (before.size, before.mtime_ns) == (segment.size, mtime_ns):
                known = self._stored_before(before)
            stopped = is_last and not self._origin.is_live
            if stopped and self._closed is not None and self._closed[0] == mtime_ns:
                known = self._closed[1]
                self._tick(segment.size, read=False)
            elif known is None or is_last:
                known = self._read_segment(writer, segment, mtime_ns, is_last=is_last)
        except StorageError:
            if not self._origin.is_live or self._origin.has(segment):
                raise
            self._notes.append(f"the broker deleted segment {segment.offset} while the backup was made")
            self._total -= segment.size
            return None
        self._closed = (mtime_ns, known) if stopped and known.ref.offset == segment.offset else None
        if known.ref.is_complete:
            self._known[segment.offset] = known
        return known

    def _stored_before(self, before: SegmentRef) -> KnownSegment | None:
        """A segment of the snapshot before, whose list of pieces is still there; None: it isn't."""
        try:
            known = self._repository.get_segment(before.pieces)
        except RStoreError as error:
            self._notes.append(f"segment {before.offset} is stored again: {error}")
            return None
        self._reused += known.held
        self._tick(before.size, read=False)
        return KnownSegment(before, known.records, len(known.damage))

    def _read_segment(self, writer: PieceWriter, segment: Segment, mtime_ns: int, *, is_last: bool) -> KnownSegment:
        origin = self._origin
        left = not is_last
        grows = is_last and origin.is_live
        tail = self._tail if self._tail is not None and self._tail.segment.offset == segment.offset else None
        with origin.opened(segment) as log:
            if tail is not None and not tail.is_still_there(log):
                if any(not one.ref.mtime_ns for one in self._known.values()):
                    raise _LogWasCut
                self._notes.append(f"the broker has another log end since: segment {segment.offset} is read again")
                tail = None
            if tail is not None and not grows and is_last:
                tail = None  # the broker has stopped: what lies after its last record counts, too
            if grows or tail is not None:
                tail = GrowingSegment(segment, segment.offset) if tail is None else tail.copy()
                began = tail.end
                # A round reads little; but kernels pay for many rounds as they do for a long log.
                kernels = True if self._followed >= LONG else None
                scanner = Scanner(log, max_message_size=origin.max_message_size, kernels=kernels)
                tail.advance(self._disk, log, scanner, writer, left=left, jobs=self._options.jobs)
                self._followed += tail.end - began
                self._tick(max(0, segment.size - (tail.end - began)), read=False)
                self._tail = None if left else tail
                made = tail.made(left=left)
            else:
                self._tail = None if is_last else self._tail
                made = self._whole(writer, log, segment, is_last=is_last)
            if is_last:
                size = min(MARK, made.held)
                self._mark = bytes(log.read(made.end - size, size))
        name, added = self._repository.put_segment(made, prove=self._options.full)
        self._segments_added += added
        ref = SegmentRef(
            made.offset, made.size, made.held, name, mtime_ns, made.is_complete, made.messages, made.newest_time
        )
        return KnownSegment(ref, made.records, len(made.damage))

    def _whole(self, writer: PieceWriter, log: ClosedLog, segment: Segment, *, is_last: bool) -> SegmentPieces:
        """A segment that nobody writes."""
        scanner = Scanner(log, max_message_size=self._origin.max_message_size)
        judged = judge_segment(self._disk, log, scanner, segment, live=False, jobs=self._options.jobs)
        held = self._origin.written(segment) if is_last else segment.size
        unreadable = writer.unreadable
        sealed = None if is_last else self._origin.seal(segment)
        reads = ComparedReads(lambda at, length: log.read(segment.offset + at, length), sealed)
        pieces = writer.put(reads, held)
        if reads.changed:
            self._notes.append(f"segment {segment.offset} is not as it was sealed: rstore scrub --once shows where")
        self._tick(segment.size - held, read=False)
        return SegmentPieces(
            segment.offset,
            segment.size,
            held,
            pieces,
            judged.records,
            judged.messages,
            judged.first_time,
            judged.newest_time,
            not is_last and not judged.unreadable and writer.unreadable == unreadable,
            tuple(judged.damage),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _file(self, writer: PieceWriter, path: str, read: Read, size: int) -> None:
        self._stored.append(
            self._seals.stored(path, read, size, lambda: StoredFile(path, size, writer.put(read, size)))
        )

    def _tick(self, size: int, *, read: bool = True) -> None:
        self._done += size
        if read:
            self._read += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def _note_unreadable(self, pages: int) -> None:
        if pages:
            self._notes.append(f"the disk could not read {counted(pages, 'page')} of 4 KiB: zeros in the backup")

    def _note(self, name: SnapshotName, snapshot: Snapshot) -> None:
        self._notes += self._origin.notes
        self._origin.notes.clear()
        if snapshot.damaged:
            ranges = counted(snapshot.damaged, "damaged range")
            self._notes.append(f"the log has {ranges}, and so has the backup: rstore backup show {name.short}")
        if snapshot.skipped:
            self._notes.append(f"not backed up: {'; '.join(snapshot.skipped[:3])}")
        if not snapshot.segments:
            self._notes.append("the log is empty")


def user() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _version() -> str:
    try:
        return version("rstore")
    except PackageNotFoundError:
        return "unknown"
