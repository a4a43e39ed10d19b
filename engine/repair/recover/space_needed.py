"""What applying a recovery's plan takes of the disk beside what is saved: index files at their full length, units of
queues, units of their extension, zeros where there were holes. Counted in blocks and step by step, with what the steps
before give back, so that a repair that does not fit is refused before its first byte, and one that fits is not.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from typing import TYPE_CHECKING

from engine.errors import NotAFile
from engine.files.listing import list_segments
from engine.files.written import blocks_taken, data_ranges
from engine.format import names, timer_check, timer_log, timer_wheel
from engine.format.queue_unit import UNIT_SIZE
from engine.log.consume_queue_ext import blocks_of_units, units_end
from engine.repair.recover.batch_apply import parts_of
from engine.repair.recover.index_plan import index_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.files.disk import Disk
    from engine.repair.recover.batch_plan import BatchQueuePlan
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.queue_plan import QueuePlan


def space_needed(disk: Disk, plan: RecoverPlan) -> dict[str, int]:
    """Bytes that each file system must have free, by a directory on it; those without a need are left out.

    Raises:
        StorageError.
    """
    return _Space(disk, plan).peaks()


class _Space:
    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._files = {segment.path: segment.file for segment in plan.files.log}
        self._places: dict[int, str] = {}
        self._taken: dict[int, int] = defaultdict(int)
        self._peaks: dict[int, int] = defaultdict(int)

    def peaks(self) -> dict[str, int]:
        """In the order of `apply`."""
        log = self._plan.log
        for shift in {one.segment.offset: one.segment for one in log.shifts}.values():  # a copy that takes its place
            blocks = self._blocks(shift.file)
            self._take(shift.file, blocks)
            self._take(shift.file, -blocks)
        for segment in log.added:
            self._take(os.path.dirname(segment.path), blocks_taken([(0, segment.size)]))
        for taken in log.taken:
            path, start = taken.segment.file, taken.segment.offset
            self._take(path, self._holes(path, [(p.offset - start, p.end - start) for p in taken.patches]))
        for bridge in log.bridges:
            path, start = bridge.segment.file, bridge.segment.offset
            zeros = ((low - start, high - start) for low, high in (patch.zeros for patch in bridge.patches))
            self._take(path, self._holes(path, zeros))
        for path in log.removed:
            self._give(self._files.get(path, path))
        if log.tail is not None:
            path, position, length = log.tail
            path = self._files.get(path, path)
            self._take(path, self._holes(path, [(position, position + length)]))
        self._extension()
        for queue in self._plan.queues:
            if queue.changed:
                self._queue(queue)
        for batch_queue in self._plan.batches:
            if batch_queue.changed:
                self._batch_queue(batch_queue)
        self._index()
        self._timer()
        return {self._places[device]: peak for device, peak in self._peaks.items() if peak > 0}

    def _take(self, path: str, count: int) -> None:
        """A step that takes `count` bytes of the file system on which `path` is, or will be."""
        path = self._disk.nearest(path)
        device = self._disk.device(path)
        there = self._disk.behind_link(path)  # a link's own directory may be on another disk
        self._places.setdefault(device, there if self._disk.is_dir(there) else os.path.dirname(there))
        self._taken[device] += count
        self._peaks[device] = max(self._peaks[device], self._taken[device])

    def _give(self, path: str) -> None:
        """A file that goes."""
        if self._disk.exists(path) and self._disk.link_of(path) == "":
            self._take(path, -self._blocks(path))

    def _blocks(self, path: str) -> int:
        return self._disk.blocks(path) if self._disk.exists(path) else 0

    def _holes(self, path: str, ranges: Iterable[tuple[int, int]], *, grows: bool = False) -> int:
        """Bytes of blocks that ranges of a file take when they get zeros: of its holes, as far as it has any.

        With `grows` they begin at the end of what it holds, where blocks without data lie: it got them by steps.
        """
        entry = self._disk.look(path)
        if entry is None or not entry.is_file:  # a stray, which is set aside before
            return 0
        reader = self._disk.open_reader(path)
        try:
            size = reader.size()
            missing = max(0, blocks_taken([(0, size)]) - self._disk.blocks(path))
            wanted = [one for one in ranges if one[0] < one[1]] if missing else []
            held = (span for low, high in wanted for span in data_ranges(reader, low, min(high, size)))
            ahead = max(0, self._disk.blocks(path) - blocks_taken(data_ranges(reader, 0, size))) if grows else 0
            return min(missing, max(0, blocks_taken(wanted) - blocks_taken(held) - ahead))
        finally:
            reader.close()

    # --- extension --------------------------------------------------------------------------------------------------

    def _extension(self) -> None:
        """What goes of it, and an extension unit for each unit that is written, in files that get blocks by steps."""
        config, base = self._plan.files.config, os.path.join(self._plan.files.root, names.CONSUMEQUEUE_EXT)
        gone: set[str] = set()
        ends: dict[str, int] = {}
        for cut in self._plan.ext:
            for path, _ in cut.removed:
                self._give(path)
                gone.add(path)
            if cut.tail is not None:
                path, position, length = cut.tail
                self._take(path, self._holes(path, [(position, position + length)]))
                ends[path] = position
        if not config.enable_consume_queue_ext:
            return
        size, runs = config.mapped_file_size_consume_queue_ext, defaultdict[int, list[int]](list)
        for run in self._plan.writes.runs():
            runs[int(run["queue"][0])].append(len(run))
        for queue in (one for one in self._plan.queues if one.number in runs):
            directory = names.queue_directory(base, queue.queue.topic, queue.queue.queue_id)
            segments = list_segments(self._disk, [directory], size).files if self._disk.is_dir(directory) else ()
            last = max((one for one in segments if one.path not in gone), key=lambda one: one.offset, default=None)
            end = None if last is None else last.offset + self._units_end(last.path, ends.get(last.path, size))
            for offset, span in blocks_of_units(size, end, runs[queue.number]).items():
                path = os.path.join(directory, names.segment_name(offset))
                there = last is not None and path == last.path
                self._take(path, self._holes(path, [span], grows=True) if there else blocks_taken([span]))

    def _units_end(self, path: str, size: int) -> int:
        reader = self._disk.open_reader(path)
        try:
            return units_end(reader.read(0, size))
        finally:
            reader.close()

    # --- queues -----------------------------------------------------------------------------------------------------

    def _queue(self, queue: QueuePlan) -> None:
        """New files are sparse: what units take. In a file that is there, its holes that get units, or zeros."""
        size = self._plan.files.config.mapped_file_size_consume_queue
        base = os.path.join(self._plan.files.root, names.CONSUMEQUEUE)
        directory = names.queue_directory(base, queue.queue.topic, queue.queue.queue_id)
        ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for span in sorted((*queue.written, *queue.fills, queue.front, queue.pre_blanks)):
            for offset, low, high in _parts(span, size):
                ranges[offset].append((low, high))
        end = queue.max_offset * UNIT_SIZE
        for offset in self._offsets(directory):  # only the file that holds the queue's end gets zeros, later ones go
            low, high = max(end, offset), min(queue.old_extent * UNIT_SIZE, offset + size)
            if offset < end and low < high:
                ranges[offset].append((low - offset, high - offset))
        for offset, spans in ranges.items():
            path = os.path.join(directory, names.segment_name(offset))
            with contextlib.suppress(NotAFile):  # what stands in a file's place is moved away first
                if self._disk.exists(path):
                    self._take(path, self._holes(path, spans))
                    continue
            if offset < queue.max_offset * UNIT_SIZE:
                self._take(path, blocks_taken(spans))

    def _batch_queue(self, queue: BatchQueuePlan) -> None:
        """As `_queue`; files that get another length are sparse, too."""
        held = queue.held
        for file in queue.removed:
            self._give(file.path)
        ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for span in (*queue.spans, queue.cleared):
            for first, low, high in parts_of(*span, held.file_units):
                ranges[first].append((low, high))
        there = {file.first: file for file in held.files if file not in queue.removed}
        for first, spans in ranges.items():
            if first not in there:
                self._take(held.path_of(first), blocks_taken(spans))
                continue
            path, size = there[first].path, there[first].size
            inside = [(low, min(high, size)) for low, high in spans if low < size]
            after = [(max(low, size), high) for low, high in spans if high > size]
            self._take(path, self._holes(path, inside) + blocks_taken(after))

    def _offsets(self, directory: str) -> list[int]:
        """Of the files in a queue's directory, by their names."""
        entries = self._disk.listdir(directory) if self._disk.is_dir(directory) else ()
        return sorted(offset for name in entries if (offset := names.segment_offset(name)) is not None)

    # --- index ------------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        """Each file that is made, and each that is written to, gets blocks for all of its bytes."""
        index, layout = self._plan.index, self._plan.files.index_layout
        if not index.enabled:
            return
        directory = index_directory(self._plan.files)
        for name in index.removed:
            self._give(os.path.join(directory, name))
        whole = blocks_taken([(0, layout.file_size)])
        capacity = layout.entries - 1  # its count begins with 1
        last = index.names_after[-1] if index.names_after else None
        keys = index.keys_put - sum(len(insert.keys) for insert in index.inserts)
        written = {rewind.name for rewind in index.rewinds}
        room = 0
        if last is not None and keys:
            room = max(0, capacity - index.last_entries)
            written |= {last} if room else set()
        for name in sorted(written):
            path = os.path.join(directory, name)
            self._take(path, max(0, whole - self._blocks(path)))
        made = -(-max(0, keys - room) // capacity)
        made += sum(-(-len(insert.keys) // capacity) for insert in index.inserts)
        self._take(directory, made * whole)

    # --- timer ------------------------------------------------------------------------------------------------------

    def _timer(self) -> None:
        """Files that are emptied and written, and stay sparse: units, slots that are used, config/timercheck."""
        timer, root = self._plan.timer, self._plan.files.root
        if timer is None:
            return
        paths = timer.paths(root)
        for path in (path for path, _ in timer.old if path not in paths):
            self._give(path)
        room = timer_log.units_of_file(timer.file_size)
        for number, path in enumerate(paths):
            last = number + 1 == len(paths)
            end = (len(timer.units) - number * room) * timer_log.UNIT_SIZE if last else timer.file_size
            self._take(path, blocks_taken([(0, end)]) - self._blocks(path))
        wheel = os.path.join(root, names.TIMER_WHEEL)
        slots = [(number * timer_wheel.SLOT_SIZE, (number + 1) * timer_wheel.SLOT_SIZE) for number, _ in timer.slots]
        self._take(wheel, blocks_taken(slots) - self._blocks(wheel))
        self._take(os.path.join(root, names.CONFIG, names.TIMER_CHECK), blocks_taken([(0, timer_check.FILE_SIZE)]))


def _parts(span: tuple[int, int], size: int) -> Iterator[tuple[int, int, int]]:
    """Units [start, end) by file of a queue: (offset of the file, bytes [low, high) in it)."""
    low, end = span[0] * UNIT_SIZE, span[1] * UNIT_SIZE
    while low < end:
        offset = low - low % size
        high = min(end, offset + size)
        yield offset, low - offset, high - offset
        low = high
