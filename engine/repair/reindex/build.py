"""Consume queues, built aside from what the log gives: the writers are those of an open store."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import list_segments
from engine.files.sync_later import SyncLater
from engine.format import names, queue_ext
from engine.format.quantities import counted
from engine.format.queue_unit import EXT_ADDRESS_MAX, UNIT_SIZE, is_ext_address
from engine.inspect.store.intervals import union
from engine.inspect.store.known import known_places
from engine.inspect.store.losses import Losses
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.log.closed_queue import ClosedExt
from engine.log.consume_queue import ConsumeQueue
from engine.log.consume_queue_ext import ConsumeQueueExt
from engine.log.source import ClosedLog
from engine.log.state import QueueState
from engine.repair.trees import same_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue, Units

MAX_OPEN = 512
"""Queues that are open at the same time."""


@dataclass(slots=True)
class BuiltQueue:
    """One queue that was built. Offsets are queue offsets; `old_extent`: after the last unit of the old files.

    `filled`: offsets without a message, which repeat an adjacent one; `lost`: messages that the queue didn't take.
    """

    queue: TopicQueue
    min_offset: int
    max_offset: int
    max_physical_offset: int
    units: int
    old_extent: int
    filled: int = 0
    lost: int = 0

    def problems(self) -> list[str]:
        """What an operator should hear of it."""
        problems = []
        if self.filled:
            problems.append(
                f"{self.queue}: {counted(self.filled, 'queue offset')} without a message, filled with the previous unit"
            )
        if self.lost:
            problems.append(f"{self.queue}: {counted(self.lost, 'message')} with an invalid or duplicate queue offset")
        return problems


class QueueBuilder:
    """Builds queues below `into`; units of messages before the physical offset `begin` are taken over where sound."""

    def __init__(self, disk: Disk, files: StoreFiles, into: str, begin: int) -> None:
        self._disk = disk
        self._files = files
        self._begin = begin
        self._log_min = files.log[0].offset
        self._into = into
        self._ext_size = (
            files.config.mapped_file_size_consume_queue_ext if files.config.enable_consume_queue_ext else None
        )
        self._old = {
            queue_files.queue: QueueRows(disk, queue_files) for queue_files in files.queues if queue_files.files
        }
        self._open: dict[TopicQueue, ConsumeQueue] = {}
        self._later = SyncLater(disk)
        self._built: dict[TopicQueue, BuiltQueue] = {}

    def append(self, queue: TopicQueue, units: Units) -> None:
        """Append the units of one queue, in log order."""
        target = self._queue(queue, int(units.queue_offset[0]))
        maps = self._bit_maps(queue, units) if self._ext_size is not None else None
        result = target.append(
            units.queue_offset,
            units.physical_offset,
            units.size,
            units.tags_code,
            store_timestamp=units.store_timestamp if self._ext_size is not None else None,
            bit_maps=maps,
        )
        built = self._built[queue]
        built.units += result.appended
        built.filled += result.filled
        built.lost += result.refused + result.ignored
        built.max_offset, built.max_physical_offset = target.max_offset, target.max_physical_offset

    def close(self) -> None:
        """Make everything durable, queue offsets of lost messages at their ends too."""
        with ClosedLog(self._disk, self._files.log) as log:
            known = known_places(self._disk, self._files.root)
            known_ranges = union(known.accepted, known.bridged)
            losses = Losses(log, log.segments[-1].end, known_ranges, self._files.config.max_message_size)
            for built in self._built.values():
                self._keep_end(built, losses)
        self._give_back()
        self._later.flush()

    def _give_back(self) -> None:
        """Close the queues that are open."""
        for target in self._open.values():
            if target.ext is not None:
                while not target.ext.flush():
                    pass
            target.shutdown()
            self._later.directory(target.directory)
            for entry in self._disk.scandir(target.directory):
                self._later.file(entry.path, entry.size)
        self._open.clear()

    def built(self) -> tuple[BuiltQueue, ...]:
        """What was built, by topic and queue id."""
        return tuple(self._built[queue] for queue in sorted(self._built))

    def changed(self) -> frozenset[TopicQueue]:
        """The queues whose files differ from the store's."""
        parts = [names.CONSUMEQUEUE, *([names.CONSUMEQUEUE_EXT] if self._ext_size is not None else [])]
        return frozenset(q for q in self._built if not all(self._same(part, q) for part in parts))

    def _keep_end(self, built: BuiltQueue, losses: Losses) -> None:
        """After a queue's last message keep the queue offsets of lost ones, or the next message would get one of them.

        Units tell of lost messages that repeat the last unit, or point into what is lost: no more than can have been
        lost there.
        """
        import numpy as np

        rows, start = self._old.get(built.queue), built.max_offset
        if rows is None or rows.extent <= start or not built.units:
            return
        target = self._queue(built.queue, start)
        last = target.get(start - 1)
        if last is None:
            return
        kept = 0
        most = losses.most(last.physical_offset, rows.extent - start)
        for at, chunk in rows.chunks(start, start + min(most, rows.extent - start)):
            physical = chunk["physical_offset"].astype(np.int64)
            lost = (physical == last.physical_offset) & (chunk["size"] == last.size)
            lost |= is_real(chunk) & losses.mask(physical)
            if lost.any():
                kept = at + int(np.flatnonzero(lost)[-1]) + 1 - start
        if kept:
            target.repeat_last(kept)
            built.filled += kept
            built.max_offset = target.max_offset

    # --- inside -----------------------------------------------------------------------------------------------------

    def _same(self, part: str, queue: TopicQueue) -> bool:
        return same_directory(
            self._disk,
            names.queue_directory(os.path.join(self._files.root, part), *queue),
            names.queue_directory(os.path.join(self._into, part), *queue),
        )

    def _queue(self, queue: TopicQueue, first: int) -> ConsumeQueue:
        opened = self._open.get(queue)
        if opened is not None:
            return opened
        if len(self._open) >= MAX_OPEN:
            self._give_back()
        size, state = self._files.config.mapped_file_size_consume_queue, None
        built = self._built.get(queue)
        if built is None:
            state = self._take_over(queue, first)
            old = self._old.get(queue)
            low = first if state is None else state.min_offset
            extent = old.extent if old is not None else 0
            self._built[queue] = BuiltQueue(queue, low, first, -1, 0, extent)
        else:
            state = QueueState(queue, built.min_offset, built.max_offset, built.max_physical_offset)
        ext = None
        if self._ext_size is not None:
            ext = ConsumeQueueExt(self._disk, os.path.join(self._into, names.CONSUMEQUEUE_EXT), queue, self._ext_size)
        opened = ConsumeQueue(self._disk, os.path.join(self._into, names.CONSUMEQUEUE), queue, size, ext)
        opened.open(state)
        self._open[queue] = opened
        return opened

    def _take_over(self, queue: TopicQueue, first: int) -> QueueState | None:
        """Copy what is before `first` when all of it are units, of messages before `begin`."""
        import numpy as np

        rows = self._old.get(queue)
        if rows is None or rows.first >= first or rows.extent < first:
            return None
        low = first
        address: int | None = None
        last = -1
        for at, chunk in rows.chunks(rows.first, first):
            physical = chunk["physical_offset"].astype(np.int64)
            real = is_real(chunk)
            if ((physical < 0) | (chunk["size"] <= 0) | (real & (physical >= self._begin))).any():
                return None
            live = np.flatnonzero(real & (physical >= self._log_min))
            if len(live) and low == first:
                low = at + int(live[0])
            codes = chunk["tags_code"].astype(np.int64)
            codes = codes[real & (codes <= EXT_ADDRESS_MAX)]
            if len(codes):
                address = max(int(codes.max()), address if address is not None else int(codes.max()))
            if real.any():
                at_end = np.flatnonzero(real)[-1]
                last = int(physical[at_end]) + int(chunk["size"][at_end])
        if self._ext_size is not None and address is not None and not self._copy_ext(queue, address, self._ext_size):
            return None
        base = os.path.join(self._into, names.CONSUMEQUEUE)
        self._copy(rows.files_before(first), names.queue_directory(base, *queue), first * UNIT_SIZE)
        return QueueState(queue, low, first, last)

    def _copy_ext(self, queue: TopicQueue, address: int, size: int) -> bool:
        """Copy the extension up to the unit at `address`; False when no unit is there."""
        old = os.path.join(self._files.root, names.CONSUMEQUEUE_EXT)
        unit = ClosedExt(self._disk, old, queue, size).get(address)
        if unit is None:
            return False
        end = queue_ext.to_offset(address) + unit.size
        old_files = list_segments(self._disk, [names.queue_directory(old, *queue)], size).files
        files = [(file.path, file.offset, file.size) for file in old_files if file.offset < end]
        self._copy(files, names.queue_directory(os.path.join(self._into, names.CONSUMEQUEUE_EXT), *queue), end)
        return True

    def _copy(self, files: list[tuple[str, int, int]], directory: str, end: int) -> None:
        """Copy files (path, offset, bytes) into `directory`, zeros after the byte `end` of the queue."""
        self._disk.mkdirs(directory)
        for path, offset, size in files:
            target = os.path.join(directory, os.path.basename(path))
            self._disk.copy_file(path, target, length=min(size, end - offset))
            file = self._disk.open_raw(target, writable=True)
            try:
                file.set_size(size)
                file.sync(0, size)
            finally:
                file.close()

    def _bit_maps(self, queue: TopicQueue, units: Units) -> list[bytes]:
        """The filter bit maps that the old extension has for just these messages."""
        rows = self._old.get(queue)
        maps = [b""] * len(units)
        if rows is None or self._ext_size is None:
            return maps
        ext = ClosedExt(self._disk, os.path.join(self._files.root, names.CONSUMEQUEUE_EXT), queue, self._ext_size)
        for run in _runs(units):
            low = int(units.queue_offset[run.start])
            old_units = rows.read(low, low + len(run))
            for i, row in zip(run, old_units, strict=True):
                if int(row["physical_offset"]) != int(units.physical_offset[i]):
                    continue
                code = int(row["tags_code"])
                unit = ext.get(code) if is_ext_address(code) else None
                if unit is not None and (unit.tags_code, unit.store_timestamp) == (
                    int(units.tags_code[i]),
                    int(units.store_timestamp[i]),
                ):
                    maps[i] = unit.bit_map
        return maps


def _runs(units: Units) -> Iterable[range]:
    """Places of units whose queue offsets follow each other: however a log is cut, the same units are looked at."""
    import numpy as np

    cuts = (np.flatnonzero(np.diff(units.queue_offset) != 1) + 1).tolist()
    return (range(start, stop) for start, stop in pairwise((0, *cuts, len(units))))


def same_directory(disk: Disk, one: str, two: str) -> bool:
    """Whether two directories hold files of the same names and bytes; absent is empty."""
    left = {e.name: e for e in disk.scandir(one)} if disk.exists(one) else {}
    right = {e.name: e for e in disk.scandir(two)} if disk.exists(two) else {}
    return left.keys() == right.keys() and all(same_file(disk, left[n].path, right[n].path) for n in left)
