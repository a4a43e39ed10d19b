"""Messages that follow one another appended in one go: as many as the file takes, then the next file, as one by one.

They are written by call, not through the map: so much at a time takes the system no page fault, and the process no
memory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from engine.errors import OutOfDescriptors, StorageError
from engine.format.record import BLANK_SIZE
from engine.log.results import AppendedRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.mapped_file import MappedFile
    from engine.log.derive import TopicQueue
    from engine.log.prepare_run import PreparedRun


def append_run(
    prepared: PreparedRun, table: dict[TopicQueue, int], file_for: Callable[[int], MappedFile], now: int
) -> AppendedRun:
    """Append a run under the append lock, as far as it goes. What kept the rest from it is in the answer.

    Where a write fails, the rest is left for puts one by one: they end at the very record that can't be written.

    Args:
        prepared: the run.
        table: the next queue offset of each queue; those of what was appended are moved on.
        file_for: the file that takes so many bytes next.
        now: store time, ms.
    """
    import numpy as np

    starts = prepared.starts
    physical = np.zeros(len(prepared), dtype=np.int64)
    offsets = np.zeros(len(prepared), dtype=np.int64)
    done, failure = 0, None
    while done < len(prepared):
        try:
            file = file_for(int(starts[done + 1] - starts[done]))
        except StorageError as error:
            failure = error
            break
        room = starts[done] + file.file_size - BLANK_SIZE - file.wrote_position
        stop = int(np.searchsorted(starts, room, side="right")) - 1
        first = file.file_from_offset + file.wrote_position
        following = np.array([table.get(queue, 0) for queue in prepared.queues], dtype=np.int64)
        offsets[done:stop] = prepared.settle(done, stop, following, first, now)
        if not _written(file, prepared.records[starts[done] : starts[stop]].data):
            break
        file.store_timestamp = now
        moved = zip(prepared.queues, following.tolist(), strict=True)
        table.update({queue: offset for queue, offset in moved if offset})
        physical[done:stop] = starts[done:stop] - starts[done] + first
        done = stop
    return AppendedRun(now, physical[:done], offsets[:done], np.diff(starts[: done + 1]), failure)


def _written(file: MappedFile, data: memoryview) -> bool:
    try:
        return append_by_call(file, data) is not None
    except StorageError:
        return False


def append_by_call(file: MappedFile, data: bytes | bytearray | memoryview) -> int | None:
    """Append many bytes to a file; their position, or None: no room. What a failed write left after the end is wiped.

    Raises StorageError.
    """
    position = file.wrote_position
    try:
        return file.append_many(data)
    except OutOfDescriptors:  # nothing was written, and the map needs none
        return file.append(data)
    except StorageError:
        if not file.has_write_buffer:  # it could look like records
            with contextlib.suppress(StorageError):
                file.write_many_at(position, bytes(len(data)))
        raise
