"""What repairs saved, taken out of the store: its messages one by one, or the bytes of the log as files again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import CannotRepair, Refused
from engine.files.directories import PRIVATE
from engine.format import names
from engine.format.message import StoredMessage, decode
from engine.inspect.dump.salvage_scan import Counting, ScanReport
from engine.inspect.dump.saved_log import SavedLog, demand_copies, find_repair, log_spans
from engine.inspect.dump.whole_records import batches, whole_records
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.survey import survey
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.dump.saved_log import SavedRepair, Span


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages: of a topic, of a queue id, whose record lay in [start, end) (physical). None: all."""

    topic: str | None = None
    queue_id: int | None = None
    start: int | None = None
    end: int | None = None
    displaced: bool = False

    def takes(self, place: int, message: StoredMessage) -> bool:
        """Whether it is one of them."""
        return (
            self.topic in (None, message.topic)
            and self.queue_id in (None, message.queue_id)
            and (self.start is None or place >= self.start)
            and (self.end is None or place < self.end)
        )


class Export:
    """The messages that a repair saved. `report` says what else was there, once all were taken."""

    def __init__(self, disk: Disk, config: StoreConfig, name: str, wanted: Filter) -> None:
        """Look the repair up.

        Raises:
            InvalidArgument: there is no such repair. CannotRepair: it saved nothing of the log, or was pruned.
            NotAStore, StorageError.
        """
        self._disk = disk
        self._files = survey(disk, config)
        self._wanted = wanted
        self.saved = _with_log(disk, find_repair(disk, self._files.root, name))
        self._counting = Counting()
        self._seen: set[TopicQueue] = set()
        self.messages = 0

    @property
    def report(self) -> ScanReport:
        """What is whole and what is lost in all that the repair saved of the log."""
        scan = self._counting.report
        scan.lost = [lost_range for lost_range in scan.lost if lost_range.file is not None]
        return scan

    def __iter__(self) -> Iterator[tuple[int, StoredMessage]]:
        """The messages, in log order, each with the place that its record had.

        Raises:
            InvalidArgument: there are none, and neither what was saved nor the store knows such a topic or queue.
            StorageError.
        """
        limit = self._files.config.max_message_size
        with SavedLog(self._disk, log_spans(self.saved)) as log:
            for event in whole_records(self._disk, log, log.segments[0].offset, max_message_size=limit):
                self._counting.feed(event)
                for batch, displaced in batches([event]):
                    if displaced and not self._wanted.displaced:
                        continue
                    for i in range(len(batch)):
                        message = decode(batch.record(i))
                        self._seen.add(TopicQueue(message.topic, message.queue_id))
                        if self._wanted.takes(batch.offset(i), message):
                            self.messages += 1
                            yield batch.offset(i), message
        if not self.messages:
            self._demand_known()

    def _demand_known(self) -> None:
        known = KnownNames.of(self._disk, self._files).and_also(self._seen)
        topic, queue_id = self._wanted.topic, self._wanted.queue_id
        if topic is not None and queue_id is not None:
            known.demand_queue(topic, queue_id)
        elif topic is not None:
            known.demand_topic(topic)
        elif queue_id is not None:
            known.demand_queue_id(queue_id)


def export_raw(disk: Disk, config: StoreConfig, name: str, directory: str) -> list[tuple[str, int]]:
    """Write the log that a repair saved as commit log files: `<directory>/commitlog/<offset>`, read by dump and scan.

    A file is as long as it was in the store; what was not saved of it is a hole.

    Returns:
        the files, and the bytes that were saved of each.

    Raises:
        Refused: the directory is not empty. InvalidArgument, CannotRepair as `Export`; DiskFull, StorageError.
    """
    files = survey(disk, config)
    saved = _with_log(disk, find_repair(disk, files.root, name))
    if disk.exists(directory) and (not disk.is_dir(directory) or disk.listdir(directory)):
        raise Refused("the directory is not empty", path=directory, hint="name an empty or a new directory")
    target = os.path.join(directory, names.COMMITLOG)
    roots = disk.roots()  # what is made there is as private as its directory
    roots.add(directory)
    disk = disk.beneath(roots)
    disk.mkdirs(target, mode=PRIVATE)
    by_file: dict[int, list[Span]] = {}
    for span in log_spans(saved):
        by_file.setdefault(span.origin_offset, []).append(span)
    written = []
    for offset, spans in sorted(by_file.items()):
        path = os.path.join(target, names.segment_name(offset))
        file = disk.open_raw(path, new=True)
        try:
            file.set_size(max(files.config.mapped_file_size_commit_log, spans[-1].end - offset))
        finally:
            file.close()
        for span in spans:
            disk.copy_range(span.path, span.position, span.size, path, span.offset - offset)
        written.append((path, sum(span.size for span in spans)))
    disk.sync_dir(target)
    return written


def _with_log(disk: Disk, saved: SavedRepair) -> SavedRepair:
    if saved.state == "pruned":
        raise CannotRepair("the salvage of the repair was pruned (rstore salvage prune)", path=saved.directory)
    if not log_spans(saved):
        raise CannotRepair(
            "the repair saved no part of the commit log, so it has no messages",
            path=saved.directory,
            hint=f"rstore salvage show {saved.id} shows what it saved",
        )
    demand_copies(disk, saved)
    return saved
