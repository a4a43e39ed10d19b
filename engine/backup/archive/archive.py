"""An archive, opened to be read: its segments by name, what each has of a queue or a key, and its log.

Nothing is read before it is asked for: a message by its place costs one archived segment, a list of pieces and a
piece; one of a queue, or with a key, the archived segments without their tables, once (side by side).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.backup.archive.archived import ArchivedSegment, archived_names, get_archived, newest_of
from engine.backup.archive.tables import offsets_of_key, units_from
from engine.backup.create.create import store_name
from engine.backup.log import NamedSegments, RepositoryLog
from engine.errors import InvalidArgument, NotFound
from engine.inspect.store.archive_note import archive_note
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backup.archive.archived import ArchivedName, Run
    from engine.backup.repository import Repository
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.source import Segment

_THREADS = 16
"""Archived segments, and pieces of tables, that are read side by side: they are small."""


class StoreArchive:
    """See the module. Thread-safe.

    Args:
        repository: that has it.
        archive: its id.
    """

    def __init__(self, repository: Repository, archive: str) -> None:
        self._repository = repository
        self._names: dict[int, list[ArchivedName]] = {}
        for name in archived_names(repository, archive):
            self._names.setdefault(name.offset, []).append(name)
        self._offsets = sorted(self._names)
        self._read: dict[int, ArchivedSegment] = {}
        self._logs: dict[int, RepositoryLog] = {}
        self._by_queue: dict[TopicQueue, list[tuple[ArchivedSegment, Run]]] | None = None
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        """The repository's location."""
        return self._repository.where

    @property
    def min_offset(self) -> int | None:
        """Physical offset of its first byte; None: it is empty."""
        return self._offsets[0] if self._offsets else None

    # --- segments ---------------------------------------------------------------------------------------------------

    def segment_at(self, offset: int) -> ArchivedSegment | None:
        """The segment that a physical offset lies in, if it is archived. Raises NotFound, FormatError, StorageError."""
        at = bisect_right(self._offsets, offset) - 1
        if at < 0:
            return None
        segment = self._segment(self._offsets[at])
        return segment if offset < segment.end else None

    def segments(self) -> list[ArchivedSegment]:
        """All, by physical offset. Raises as `segment_at`."""
        with ThreadPoolExecutor(_THREADS, "rstore-archive") as pool:
            return list(pool.map(self._segment, self._offsets))

    def log(self, segment: ArchivedSegment) -> tuple[RepositoryLog, Segment]:
        """The log that a segment is, and the segment in it."""
        with self._lock:
            log = self._logs.get(segment.offset)
            if log is None:
                log = self._logs[segment.offset] = RepositoryLog(self._repository, NamedSegments((segment,)))
        return log, log.segments[0]

    # --- queues and keys --------------------------------------------------------------------------------------------

    def queues(self) -> dict[TopicQueue, list[tuple[ArchivedSegment, Run]]]:
        """Of each queue the runs of its messages, by physical offset. Raises as `segment_at`."""
        with self._lock:
            known = self._by_queue
        if known is None:
            known = {}
            for segment in self.segments():
                for queue in segment.queues:
                    name = TopicQueue(queue.topic, queue.queue_id)
                    known.setdefault(name, []).extend((segment, run) for run in queue.runs)
            with self._lock:
                self._by_queue = known
        return known

    def units(self, segment: ArchivedSegment, row: int, most: int) -> bytes:
        """See `units_from`."""
        return units_from(self._repository, segment, row, most)

    def with_key(self, key_hash: int, begin: int, end: int, below: int) -> Iterator[int]:
        """Physical offsets below `below` of messages whose key may have this hash, newest first, in segments that may
        have messages stored in [begin, end] (ms). Raises as `segment_at`.
        """
        some = [
            one
            for one in reversed(self.segments())
            if one.offset < below and one.keys and one.newest_time >= begin and one.first_time <= end
        ]

        def offsets(segment: ArchivedSegment) -> Sequence[int]:
            return offsets_of_key(self._repository, segment, key_hash)

        with ThreadPoolExecutor(_THREADS, "rstore-archive") as pool:
            for first in range(0, len(some), _THREADS):
                for matches in pool.map(offsets, some[first : first + _THREADS]):
                    yield from reversed(matches)

    def _segment(self, offset: int) -> ArchivedSegment:
        with self._lock:
            known = self._read.get(offset)
        if known is None:
            known = newest_of(get_archived(self._repository, name) for name in self._names[offset])[offset]
            with self._lock:
                self._read[offset] = known
        return known


def archive_of(disk: Disk, config: StoreConfig, repository: Repository, name: str | None = None) -> StoreArchive:
    """The archive of the store that `config` names: the noted one, where it lies in this repository; else that of the
    only store called `name` there.

    Raises:
        NotFound: there is none. InvalidArgument: several have the name. FormatError, StorageError.
    """
    note = archive_note(disk, str(config.store_path_root_dir)) if name is None else None
    if note is not None and note.repository == repository.facts.repository_id:
        return StoreArchive(repository, note.archive)
    wanted = name or (store_name(config) if note is None else note.store)
    names = {one.archive: one for one in archived_names(repository)}
    matching = [one for one in names.values() if get_archived(repository, one).store == wanted]
    if not matching:
        raise NotFound(
            f"no archive of a store {wanted!r}", path=repository.where, hint="rstore expire --archive makes one"
        )
    if len(matching) > 1:
        raise InvalidArgument(
            f"several stores called {wanted!r} have archives here, and this one has no note of its own",
            path=repository.where,
            hint="restore config/rstoreArchive.json from a backup",
        )
    return StoreArchive(repository, matching[0].archive)
