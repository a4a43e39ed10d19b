"""A plan's changes of queues and their extension: units that are written, filled or cleared, files that are deleted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.files.sync_later import SyncLater
from engine.format import names
from engine.format.queue_ext import ExtUnit
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE, QueueUnit, unit_dtype
from engine.log.consume_queue_ext import ConsumeQueueExt
from engine.repair.recover.queue_write import QueueWriter
from engine.repair.trees import zero_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.queue_plan import QueuePlan

_FILL_ROWS = 1 << 16


def cut_extension(disk: Disk, plan: RecoverPlan) -> None:
    """Cut the extension: before units are put there again. Raises DiskFull, StorageError."""
    for cut in plan.ext:
        for path, _ in cut.removed:
            disk.step("recover.remove-ext")
            disk.unlink(path)
            disk.sync_dir(os.path.dirname(path))
        if cut.tail is not None:
            disk.step("recover.zero-ext")
            zero_range(disk, *cut.tail)


class QueueApplier:
    """Does what the plan says of the queues, once the log is what they are made of."""

    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._files = plan.files
        self._later = SyncLater(disk)

    def run(self) -> None:
        """Raises DiskFull, StorageError."""
        changed = {queue.number: queue for queue in self._plan.queues if queue.changed}
        for run in self._plan.writes.runs():
            self._write_rows(changed[int(run["queue"][0])], run)
        for queue in changed.values():
            self._disk.step("recover.queue")
            with self._writer(queue) as writer:
                for start, units in self._plan.writes.fresh_of(queue.number):
                    writer.write(start, units)
                self._finish(queue, writer)
        untouched = {q.queue for q in self._plan.queues} - {q.queue for q in changed.values()}
        aside = {odd.path for odd in self._plan.set_aside}
        for files in self._files.queues:
            if files.files and files.queue in untouched and files.files[-1].path not in aside:
                self._later.file(files.files[-1].path, files.files[-1].size)
        self._later.flush()

    def _write_rows(self, queue: QueuePlan, run: NDArray[np.void]) -> None:
        import numpy as np

        units = np.empty(len(run), dtype=unit_dtype())
        for name in units.dtype.names or ():
            units[name] = run[name]
        if self._files.config.enable_consume_queue_ext:
            units["tags_code"] = self._extend(queue, run)
        with self._writer(queue) as writer:
            writer.write(int(run["queue_offset"][0]), units.tobytes())

    def _extend(self, queue: QueuePlan, run: NDArray[np.void]) -> list[int]:
        """Write an extension unit for each unit: the addresses (or the tags codes, where the files take no more)."""
        config = self._files.config
        base = os.path.join(self._files.root, names.CONSUMEQUEUE_EXT)
        ext = ConsumeQueueExt(self._disk, base, queue.queue, config.mapped_file_size_consume_queue_ext)
        ext.open()
        try:
            addresses = [
                ext.put(ExtUnit(tags_code, stored))
                for tags_code, stored in zip(run["tags_code"].tolist(), run["store_timestamp"].tolist(), strict=True)
            ]
            ext.flush()
        finally:
            ext.shutdown()
        codes = run["tags_code"].tolist()
        return [code if address is None else address for address, code in zip(addresses, codes, strict=True)]

    def _finish(self, queue: QueuePlan, writer: QueueWriter) -> None:
        """Pre-blank units, filled units, nothing after the end."""
        start, end = queue.pre_blanks
        if start < end:
            writer.write(start, PRE_BLANK.encode() * (end - start))
        fills = [
            (start, end, self._row(queue, end if (start, end) in queue.from_after else start - 1))
            for start, end in queue.fills
        ]
        start, end = queue.front
        if start < end:
            unit = None if queue.inert is None else QueueUnit(*queue.inert, 0).encode()
            fills.append((start, end, unit or self._row(queue, end)))
        for start, end, model in fills:
            for at in range(start, end, _FILL_ROWS):
                writer.write(at, model * (min(at + _FILL_ROWS, end) - at))
        if queue.old_extent > queue.max_offset:
            whole_files = -(-queue.max_offset * UNIT_SIZE // self._files.config.mapped_file_size_consume_queue)
            kept = whole_files * self._files.config.mapped_file_size_consume_queue // UNIT_SIZE
            self._disk.step("recover.queue-cut")
            writer.clear(queue.max_offset, min(kept, queue.old_extent))
        writer.remove_from(queue.max_offset)

    def _row(self, queue: QueuePlan, offset: int) -> bytes:
        size = self._files.config.mapped_file_size_consume_queue
        start = offset * UNIT_SIZE - offset * UNIT_SIZE % size
        path = os.path.join(self._directory(queue), names.segment_name(start))
        file = self._disk.open_reader(path)
        try:
            return bytes(file.read(offset * UNIT_SIZE - start, UNIT_SIZE))
        finally:
            file.close()

    def _directory(self, queue: QueuePlan) -> str:
        base = os.path.join(self._files.root, names.CONSUMEQUEUE)
        return names.queue_directory(base, queue.queue.topic, queue.queue.queue_id)

    def _writer(self, queue: QueuePlan) -> QueueWriter:
        return QueueWriter(
            self._disk, self._directory(queue), self._files.config.mapped_file_size_consume_queue, self._later
        )
