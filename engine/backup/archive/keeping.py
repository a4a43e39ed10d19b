"""What `expire --archive` keeps: a segment goes only when its bytes were read back from the repository.

Theory. A segment of the store is proved piece by piece: the file's bytes have the name of the snapshot's piece (a
keyed hash), and the piece that the repository gives has that name, too. So names and times of snapshots are believed
in nothing: a snapshot of another store holds other bytes. Before the first file goes, each segment gets its object in
the archive (archived.py), which keeps its pieces from then on. A lease keeps `prune` away from the first look until
then; who was stopped for so long that its lease was taken for stale sees that before it deletes.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backup.archive.archived import (
    ArchivedSegment,
    archived_names,
    get_archived,
    newest_of,
    put_archived,
)
from engine.backup.archive.tables import tables_of
from engine.backup.create.create import store_name
from engine.backup.leases import Lease
from engine.backup.manifest import JOINED, PIECE_SIZE
from engine.errors import Refused, RStoreError, StorageError
from engine.inspect.store.archive_note import ArchiveNote, archive_note, note_path
from engine.log.source import ClosedLog
from engine.repair.expire.archive import HeldSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.manifest import SegmentPieces
    from engine.backup.repository import Repository
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment

_AHEAD = 2


class ArchiveKeeper:
    """See `SegmentArchive` (engine.repair.expire.archive), and the module.

    Args:
        repository: that has the store's snapshots, and gets the archive.
        name: of the store's snapshots; None: as it is noted, else as `backup create` names them.
        what: the command, for others who want to work in the repository.
    """

    def __init__(self, repository: Repository, name: str | None = None, *, what: str = "expire --archive") -> None:
        self._repository = repository
        self._name = name
        self._what = what
        self._lease: Lease | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """See SegmentArchive."""
        with Lease(self._repository.objects, self._what) as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def store_of(self, disk: Disk, files: StoreFiles) -> str:
        """The name that snapshots of the store have. Raises Refused: its archive is in another repository."""
        return self._note(disk, files).store

    def held(
        self,
        disk: Disk,
        files: StoreFiles,
        segments: Sequence[Segment],
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[tuple[HeldSegment, ...], str]:
        """See SegmentArchive."""
        note = self._note(disk, files)
        archived = newest_of(self._archived(note.archive, {one.offset for one in segments}))
        candidates = self._candidates(note, segments, archived) if segments else {}
        total, done = sum(one.size for one in segments), 0
        held: list[HeldSegment] = []

        def tick(size: int) -> None:
            nonlocal done
            done = min(done + size, total)
            if progress is not None:
                progress(done, total)

        with (
            ClosedLog(disk, files.log) as log,
            ThreadPoolExecutor(self._repository.threads(), "rstore-archive") as pool,
        ):
            for segment in segments:
                other = archived.get(segment.offset)
                why = f"no snapshot of store {note.store!r} has it: rstore backup create"
                for name in candidates.get(segment.offset, ()):
                    why = self._why_not(pool, log, segment, name, tick)
                    if not why and other is not None and other.pieces != name and not _is_of(other, files):
                        why = (
                            f"{other.root} on {other.host} has archived other bytes there: this store is a copy of it; "
                            f"remove {note_path(files.root)} to begin an archive of its own"
                        )
                        break
                    if not why:
                        held.append(HeldSegment(segment, name))
                        break
                if why:
                    return tuple(held), f"segment {segment.offset}: {why}"
        return tuple(held), ""

    def keep(
        self, disk: Disk, files: StoreFiles, held: Sequence[HeldSegment], progress: Callable[[int, int], None] | None
    ) -> None:
        """See SegmentArchive."""
        note = self._note(disk, files)
        if note != archive_note(disk, files.root):
            disk.mkdirs(os.path.dirname(note_path(files.root)))
            disk.write_file_atomically(note_path(files.root), note.encode())
        there = newest_of(self._archived(note.archive, {one.segment.offset for one in held}))
        total, before = sum(one.segment.size for one in held), 0
        with ClosedLog(disk, files.log) as log:
            for one in held:
                newest = there.get(one.segment.offset)
                if newest is None or newest.pieces != one.name:
                    after = 0 if newest is None else newest.archived + 1
                    self._put(log, files, note, one, after, progress and _shifted(progress, before, total))
                before += one.segment.size
                disk.step("archive.kept")
        self._demand()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _demand(self) -> None:
        if self._lease is None:
            raise Refused("the archive is not held: nothing is deleted", path=self._repository.where)
        self._lease.demand()

    def _note(self, disk: Disk, files: StoreFiles) -> ArchiveNote:
        """The store's note as it will be. Raises Refused: its archive is in another repository."""
        own = self._repository.facts.repository_id
        note = archive_note(disk, files.root)
        if note is None:
            name = self._name or store_name(files.config)
            return ArchiveNote(os.urandom(8).hex(), own, self._repository.where, name)
        if note.repository != own:
            raise Refused(
                f"the store's archive is in another repository: {note.location}",
                path=note_path(files.root),
                hint="name that one with --archive, or remove this note to begin an archive here",
            )
        return replace(note, location=self._repository.where, store=self._name or note.store)

    def _candidates(
        self, note: ArchiveNote, segments: Sequence[Segment], archived: dict[int, ArchivedSegment]
    ) -> dict[int, list[str]]:
        """Names of what may hold the segments, by offset: of snapshots, the newest first, and of the archive itself."""
        sizes = {one.offset: one.size for one in segments}
        candidates: dict[int, dict[str, None]] = {}
        for _, snapshot in self._repository.each(self._repository.snapshots()[::-1]):
            if isinstance(snapshot, RStoreError) or snapshot.store != note.store:
                continue
            for one in snapshot.segments:
                if sizes.get(one.offset) == one.size:
                    candidates.setdefault(one.offset, {})[one.pieces] = None
        for segment in archived.values():
            if sizes[segment.offset] == segment.size:
                candidates.setdefault(segment.offset, {})[segment.pieces] = None
        return {offset: list(some) for offset, some in candidates.items()}

    def _archived(self, archive: str, offsets: set[int]) -> Iterator[ArchivedSegment]:
        for name in archived_names(self._repository, archive):
            if name.offset in offsets:
                yield get_archived(self._repository, name)

    def _why_not(
        self, pool: ThreadPoolExecutor, log: ClosedLog, segment: Segment, name: str, tick: Callable[[int], None]
    ) -> str:
        """Why a segment is not proved; empty where it is."""
        try:
            pieces = self._repository.get_segment(name)
        except RStoreError as error:
            return f"{error}: rstore backup create --full"
        under_way: deque[Future[str]] = deque()
        why = ""
        try:
            for number, at in enumerate(range(0, segment.size, PIECE_SIZE)):
                if len(under_way) >= self._repository.threads() * _AHEAD and (why := under_way.popleft().result()):
                    return why
                under_way.append(pool.submit(self._piece, log, segment, pieces, number, at))
                tick(min(PIECE_SIZE, segment.size - at))
            return next((why for future in under_way if (why := future.result())), "")
        finally:
            for future in under_way:
                future.cancel()

    def _piece(self, log: ClosedLog, segment: Segment, pieces: SegmentPieces, number: int, at: int) -> str:
        """Why a piece of the file is not proved; empty where it is."""
        length = min(PIECE_SIZE, segment.size - at)
        try:
            data = log.read(segment.offset + at, length)
        except StorageError as error:
            return f"the disk can't read it ({error}): rstore check"
        if len(data) < length:
            return "its file is shorter than it was: rstore check"
        mine = self._name_of(data)
        theirs = pieces.pieces[number] if number < len(pieces.pieces) else None
        is_joined = theirs is not None and JOINED in theirs
        if mine == theirs or is_joined:
            try:
                back = None if theirs is None else self._repository.get_piece(theirs)
            except RStoreError as error:
                return f"{error}: rstore backup create --full"
            if not is_joined or back is None or self._name_of(memoryview(back)) == mine:
                return ""
        return f"the snapshot has other bytes from {segment.offset + at} on: rstore backup create --full"

    def _name_of(self, data: memoryview) -> str | None:
        """The name of a piece, zeros at its end left out; None: zeros alone."""
        content = data if data and data[-1] else memoryview(bytes(data).rstrip(b"\0"))
        return self._repository.hash_of(content) if content else None

    def _put(
        self,
        log: ClosedLog,
        files: StoreFiles,
        note: ArchiveNote,
        held: HeldSegment,
        after_ms: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        segment = held.segment
        tables = tables_of(log, files.config, segment, progress)
        made = self._repository.get_segment(held.name)
        archived = ArchivedSegment(
            store=note.store,
            root=os.path.abspath(files.root),
            host=socket.gethostname(),
            archived=max(time.time_ns() // 1_000_000, after_ms),
            offset=segment.offset,
            size=segment.size,
            pieces=held.name,
            first_time=max(0, made.first_time),
            newest_time=made.newest_time,
            messages=made.messages,
            queues=tables.queues,
            units=tuple(self._repository.put_piece(data, prove=True)[0] for data in tables.units),
            keys=tuple((low, self._repository.put_piece(data, prove=True)[0]) for low, data in tables.keys),
        )
        self._demand()
        put_archived(self._repository, note.archive, archived)


def _is_of(archived: ArchivedSegment, files: StoreFiles) -> bool:
    """Whether this very store has archived it: a repair may have changed a file since."""
    return (archived.root, archived.host) == (os.path.abspath(files.root), socket.gethostname())


def _shifted(progress: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: progress(min(before + done, total), total)
