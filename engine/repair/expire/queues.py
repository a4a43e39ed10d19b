"""What of queues, extension and index follows when the log's first byte moves. Nothing is written here.

A queue file goes when no unit in it points at or after the log's new first byte, which its last unit tells; one whose
last 20 bytes are no unit is read whole (Apache takes zeros there for a unit at 0, and deletes the file).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import list_segments
from engine.format import names, queue_ext
from engine.format.batch_unit import valid_units
from engine.format.queue_unit import UNIT_SIZE, is_ext_address
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queues
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.log.index_reader import ClosedIndexFile

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue


@dataclass(frozen=True, slots=True)
class QueueExpiry:
    """One queue: its min offset before and after, its max offset, and the paths of the files that are deleted."""

    queue: TopicQueue
    old_min: int
    min_offset: int
    max_offset: int
    removed: tuple[str, ...]


def expire_queues(disk: Disk, files: StoreFiles, log_min: int) -> tuple[QueueExpiry, ...]:
    """Every queue that has files, when the log begins at `log_min` (physical)."""
    expiries = []
    for queue in files.queues:
        if not queue.files:
            continue
        rows = QueueRows(disk, queue)
        old = _first_at(rows, rows.first, files.log[0].offset)
        new = _first_at(rows, old, log_min)
        removed: list[str] = []
        for file in queue.files[:-1]:  # never the last one, and only up to the first that stays
            if _points_at(rows, file.offset // UNIT_SIZE, file.size // UNIT_SIZE) >= log_min:
                break
            removed.append(file.path)
        removed += _expire_ext(disk, files, rows, new)
        expiries.append(QueueExpiry(queue.queue, old, new, rows.extent, tuple(removed)))
    return tuple(expiries)


def expire_batch_queues(disk: Disk, files: StoreFiles, log_min: int) -> tuple[QueueExpiry, ...]:
    """The same of the batch queues of RocketMQ 5. Source: BatchConsumeQueue#deleteExpiredFile."""
    expiries = []
    for queue in batch_queues(disk, files)[0]:
        if not queue.files:
            continue
        old, rows = (BatchQueueRows(disk, queue, start) for start in (files.log[0].offset, log_min))
        removed: list[str] = []
        for number, file in enumerate(queue.files[:-1]):
            units = [chunk.units[valid_units(chunk.units)] for chunk in rows.chunks_of(number)]
            if max((int(some["physical_offset"][-1]) for some in units if len(some)), default=-1) >= log_min:
                break
            removed.append(file.path)
        expiries.append(QueueExpiry(queue.queue, old.min_offset, rows.min_offset, rows.max_offset, tuple(removed)))
    return tuple(expiries)


def expire_index(disk: Disk, files: StoreFiles, log_min: int) -> tuple[str, ...]:
    """Names of the index files that end before `log_min`. Source: IndexService#deleteExpiredFile."""
    removed: list[str] = []
    for index_file in files.index[:-1]:
        if not index_file.whole:
            break
        with ClosedIndexFile(disk, index_file.path, files.index_layout) as file:
            if file.header.end_phy_offset >= log_min:
                break
        removed.append(index_file.name)
    return tuple(removed)


def _first_at(rows: QueueRows, start: int, physical: int) -> int:
    """Queue offset of the first unit at or after a physical offset; after the last one when there is none."""
    import numpy as np

    for at, chunk in rows.chunks(start, rows.extent):
        after = np.flatnonzero(is_real(chunk) & (chunk["physical_offset"] >= physical))
        if len(after):
            return at + int(after[0])
    return max(start, rows.extent)


def _points_at(rows: QueueRows, start: int, count: int) -> int:
    """The highest physical offset in a queue's file: its last unit's; −1 for a file without units."""
    last = rows.read(start + count - 1, start + count)
    if is_real(last).all():
        return int(last["physical_offset"][0])
    whole = rows.read(start, start + count)
    real = whole["physical_offset"][is_real(whole)]
    return int(real.max()) if len(real) else -1


def _expire_ext(disk: Disk, files: StoreFiles, rows: QueueRows, first: int) -> list[str]:
    """Extension files that end before that of the first unit that stays. Source: #truncateByMinAddress."""
    if not files.config.enable_consume_queue_ext or first >= rows.extent:
        return []
    address = int(rows.read(first, first + 1)["tags_code"][0])
    if not is_ext_address(address):
        return []
    offset, size = queue_ext.to_offset(address), files.config.mapped_file_size_consume_queue_ext
    directory = os.path.join(files.root, names.CONSUMEQUEUE_EXT, rows.queue.topic, str(rows.queue.queue_id))
    present = list_segments(disk, [directory], size).files
    return [file.path for file in present[:-1] if file.offset + size < offset]
