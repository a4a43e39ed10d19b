"""A snapshot together with what its store had deleted before: the archived segments below its log, as segments of it.

A segment that both have is the snapshot's: a run of `expire --archive` was killed before it deleted the file, or the
snapshot is older than that. So the log of both has no byte twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backup.archive.archive import StoreArchive, archive_of
from engine.backup.manifest import SegmentRef
from engine.errors import NotFound
from engine.inspect.store.archive_note import archive_note

if TYPE_CHECKING:
    from engine.backup.snapshot_disk import SnapshotDisk


def archived_before(disk: SnapshotDisk) -> tuple[SegmentRef, ...]:
    """The archived segments below a snapshot's log, by offset: of the archive that the store's note named when it was
    backed up; of the only one of a store of that name, where it had none yet. Empty: there is no archive.

    Raises:
        InvalidArgument: several archives have the name, and nothing says which. FormatError, NotReached, StorageError.
    """
    snapshot, repository = disk.snapshot, disk.repository
    note = archive_note(disk, disk.root)
    if note is not None and note.repository == repository.facts.repository_id:
        archive = StoreArchive(repository, note.archive)
    else:
        try:
            archive = archive_of(disk, disk.config(), repository, snapshot.store)
        except NotFound:
            return ()
    return tuple(
        SegmentRef(
            offset=one.offset, size=one.size, held=one.size, pieces=one.pieces, mtime_ns=one.archived * 1_000_000,
            is_complete=True, messages=one.messages, newest_time=one.newest_time,
        )
        for one in archive.segments()
        if one.end <= snapshot.start
    )  # fmt: skip
