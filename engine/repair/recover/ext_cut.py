"""What is removed of the queues' extension when the log is cut: everything after the last unit that a queue names.

Units name extension units by address, mostly in order; what a repair wrote again lies at the end, so that the last unit
does not always name the last one. A queue whose extension can't be read (a unit names no sound one) keeps it whole:
extension units that no unit names cost space, nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import list_segments
from engine.files.written import written_end
from engine.format import names, queue_ext
from engine.format.queue_unit import EXT_ADDRESS_MAX
from engine.inspect.store.queue_rows import QueueRows
from engine.log.closed_queue import ClosedExt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue
    from engine.repair.recover.queue_plan import QueuePlan


@dataclass(frozen=True, slots=True)
class ExtCut:
    """One queue's cut. `tail`: path, position and length of what becomes zeros; `removed`: paths and lengths.

    The last file goes first. `bytes_cut`: up to the last byte that isn't zero.
    """

    queue: TopicQueue
    tail: tuple[str, int, int] | None
    removed: tuple[tuple[str, int], ...]
    bytes_cut: int


def plan_ext_cuts(disk: Disk, files: StoreFiles, queues: Iterable[QueuePlan]) -> tuple[ExtCut, ...]:
    """The cuts of all queues, for the units that their plans leave in place."""
    if not files.config.enable_consume_queue_ext:
        return ()
    cuts = (_plan(disk, files, queue) for queue in queues)
    return tuple(cut for cut in cuts if cut is not None)


def _plan(disk: Disk, files: StoreFiles, queue: QueuePlan) -> ExtCut | None:
    size = files.config.mapped_file_size_consume_queue_ext
    base = os.path.join(files.root, names.CONSUMEQUEUE_EXT)
    directory = os.path.join(base, queue.queue.topic, str(queue.queue.queue_id))
    if not disk.exists(directory):
        return None
    present = list_segments(disk, [directory], size).files
    end = 0
    address = _last_address(disk, files, queue)
    if address is not None:
        unit = ClosedExt(disk, base, queue.queue, size).get(address)
        if unit is None:
            return None
        end = queue_ext.to_offset(address) + unit.size
    tail: tuple[str, int, int] | None = None
    removed: list[tuple[str, int]] = []
    cut = 0
    for file in present:
        start = max(end, file.offset)
        written = _last_written(disk, file.path, start - file.offset, file.size) if start < file.offset + size else 0
        if file.offset >= end:
            removed.append((file.path, file.size))
        elif written:
            tail = (file.path, start - file.offset, written)
        cut += written
    return ExtCut(queue.queue, tail, tuple(reversed(removed)), cut) if tail or removed else None


def _last_address(disk: Disk, files: StoreFiles, queue: QueuePlan) -> int | None:
    """The highest address in the units that stay; None when no unit has one."""
    import numpy as np

    queue_files = next((one for one in files.queues if one.queue == queue.queue), None)
    if queue_files is None or not queue_files.files:
        return None
    rows = QueueRows(disk, queue_files)
    best: int | None = None
    for at, chunk in rows.chunks(rows.first, min(rows.extent, queue.max_offset)):
        codes = chunk["tags_code"].astype(np.int64)
        stays = codes <= EXT_ADDRESS_MAX
        for start, end in queue.written:
            stays[max(0, start - at) : max(0, end - at)] = False
        if stays.any():
            highest = int(codes[stays].max())
            best = highest if best is None else max(best, highest)
    return best


def _last_written(disk: Disk, path: str, start: int, size: int) -> int:
    """Bytes from `start` up to the last one that isn't zero."""
    reader = disk.open_reader(path)
    try:
        return written_end(reader, start, size) - start
    finally:
        reader.close()
