"""Apply a recovery's plan, step by step; killed at any of them, planning again finds the rest to do.

Order: save what goes (salvage), set strays aside, then the log (mend, tail, segments), the queues, the index, the
checkpoint, and last the abort file. What is derived is changed only after the log that it is derived from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import DiskFull, InvalidArgument
from engine.files.abort import AbortFile
from engine.files.sync_later import SyncLater
from engine.format import names
from engine.format.checkpoint import FILE_SIZE, SAFETY_MS, Checkpoint
from engine.format.queue_ext import ExtUnit
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE, QueueUnit, unit_dtype
from engine.format.record import (
    BLANK_SIZE,
    INT_SIZE,
    LONG_SIZE,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
)
from engine.inspect.store.moves import quarantine_target
from engine.inspect.store.spool import CHUNK_ROWS
from engine.log.consume_queue_ext import ConsumeQueueExt
from engine.log.derive import Keys
from engine.log.index_file import IndexFile
from engine.log.index_reader import ClosedIndexFile
from engine.log.index_service import IndexService
from engine.log.state import StoreState
from engine.repair.background import BackgroundWorker
from engine.repair.recover.bridge import BridgedLog
from engine.repair.recover.index_plan import index_directory
from engine.repair.recover.memory import forget
from engine.repair.recover.pieces import end_of, pieces_of
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.queue_plan import QueuePlan
from engine.repair.recover.queue_write import QueueWriter
from engine.repair.recover.room import room_to_make
from engine.repair.recover.shifted import put_back
from engine.repair.salvage.finish import finish, part, parted, settle
from engine.repair.salvage.relocate import relocate
from engine.repair.salvage.salvage import demand_room_to_make, save
from engine.repair.trees import zero_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.odd import OddFile

FILL_ROWS = 1 << 16


class Applied:
    """What applying a plan left: where the store stands, and where the old bytes are (None: nothing was saved)."""

    __slots__ = ("salvage", "state")

    def __init__(self, state: StoreState, salvage: str | None) -> None:
        self.state = state
        self.salvage = salvage


def apply(
    disk: Disk,
    plan: RecoverPlan,
    *,
    command: str = "recover",
    keep: bool = True,
    clean: bool = True,
    salvage_dir: str | None = None,
    again: Sequence[str] = ("recover",),
) -> Applied:
    """Do what the plan says. The caller holds the store's lock.

    Args:
        disk: how files are reached.
        plan: of this store, computed since the lock was taken.
        command: names the salvage directory.
        keep: save what goes; without it, it is lost.
        salvage_dir: save it below this directory instead of the store's salvage/, which then leads there.
        again: words of the command that does the same once more: where there is no room to save, it is named.
        clean: leave the store as after a clean shutdown (checkpoint, no abort file); the daemon goes on instead.

    Raises:
        the plan's refusal; NoRoomToSave; DiskFull, StorageError: run it again, nothing acknowledged is lost.
    """
    if plan.refusal is not None:
        raise plan.refusal
    _Applier(disk, plan).check()
    settle(disk, plan.files.config)
    killed = parted(disk, plan.files.config)
    salvage = None
    marks = clean and plan.marks
    making = room_to_make(disk, plan)
    if keep and (plan.changed or marks):
        pieces = list(pieces_of(disk, plan))
        bridged = [(bridge.offset, bridge.length) for bridge in plan.log.bridges]
        salvage = save(
            disk,
            plan.files.config,
            command,
            pieces,
            accepted=plan.accepted,
            bridged=bridged,
            end=end_of(plan),
            into=salvage_dir,
            making=making,
            again=again,
        )
        part(disk, plan.files.config, killed)
        killed = ()
    else:
        demand_room_to_make(disk, making)
    state = _Applier(disk, plan, salvage).run(clean)
    forget(disk, plan.files.root)
    finish(disk, plan.files.config, whole=not killed and (keep or not (plan.changed or marks)))
    return Applied(state, salvage)


def take_blank_away(disk: Disk, plan: RecoverPlan) -> None:
    """A blank at the log's end: puts go on there. Nothing is saved of it, as every blank is the same."""
    if plan.log.blank is None:
        return
    path, at = plan.log.blank
    file = disk.open_raw(path, writable=True)
    try:
        file.write(at, bytes(BLANK_SIZE))
        file.sync(at, at + BLANK_SIZE)
    finally:
        file.close()


class _Applier:
    def __init__(self, disk: Disk, plan: RecoverPlan, salvage: str | None = None) -> None:
        self._disk = disk
        self._plan = plan
        self._salvage = salvage
        self._files = plan.files
        self._later = SyncLater(disk)

    def check(self) -> None:
        """A plan belongs to the files that it saw."""
        for segment in self._files.log:
            if not self._disk.exists(segment.file):
                raise InvalidArgument(
                    "the store has changed since it was planned", path=segment.file, hint="plan again"
                )

    def run(self, clean: bool) -> StoreState:
        disk, plan = self._disk, self._plan
        self._set_aside(plan.set_aside_first)
        self._put_back()
        self._lay_out()
        self._set_aside(plan.set_aside_then)
        if plan.trap is not None:  # before the log becomes shorter: who is killed in between must not fall into it
            self._mark(SAFETY_MS, abort=True)
        self._log()
        self._set_aside(plan.set_aside_last)
        if not clean:
            take_blank_away(disk, plan)
        disk.step("recover.log-done")
        self._ext()
        index_files = self._derived()
        disk.step("recover.index-done")
        if clean:
            self._leave_clean(index_files)
        state = plan.state
        return replace(state, index_files=index_files)

    def _derived(self) -> tuple[str, ...]:
        """Queues and index, side by side: neither is made of the other. The names of the index files."""
        with BackgroundWorker(self._disk) as worker:
            worker.run(self._queues)
            self._disk.step("recover.queues-done")
            return self._index()

    def _set_aside(self, some: tuple[OddFile, ...]) -> None:
        """Move what is no store file to `quarantine/`, under its own path; a saved file of another disk goes."""
        disk, root = self._disk, self._files.root
        for odd in some:
            if odd.copied:  # to where all else is that goes
                disk.step("recover.set-aside")
                disk.unlink(odd.path)
                disk.sync_dir(os.path.dirname(odd.path))
                continue
            target = quarantine_target(disk, root, odd.path)
            disk.mkdirs(os.path.dirname(target))
            disk.step("recover.set-aside")
            disk.replace(odd.path, target)
            disk.sync_dir(os.path.dirname(target))
            disk.sync_dir(os.path.dirname(odd.path))

    def _put_back(self) -> None:
        """Give the records that lie off their place in their segment that place, before the file changes otherwise."""
        log = self._plan.log
        with BridgedLog(self._disk, self._files.log, (), log.shifts) as source:
            for segment in {shift.segment.offset: shift.segment for shift in log.shifts}.values():
                put_back(self._disk, self._files.root, source, segment)

    def _lay_out(self) -> None:
        """Give the log's files their own names, and the setting's length: all that follows works on those."""
        disk, layout = self._disk, self._plan.layout
        relocate(disk, [one.way for one in layout.relocations], self._salvage)
        for resize in layout.resizes:
            disk.step("recover.resize-segment")
            file = disk.open_raw(resize.segment.path, writable=True)
            try:
                file.set_size(resize.segment.size)
                file.sync(0, resize.segment.size)
            finally:
                file.close()

    # --- log --------------------------------------------------------------------------------------------------------

    def _log(self) -> None:
        disk, log = self._disk, self._plan.log
        self._bridge()
        self._mend()
        for path in log.removed:  # the last one first: the rest stays a log at every step
            disk.step("recover.remove-segment")
            disk.unlink(path)
            disk.sync_dir(os.path.dirname(path))
        if log.tail is not None:
            disk.step("recover.zero-tail")
            zero_range(disk, *log.tail)
        self._sync_read_part()

    def _bridge(self) -> None:
        """Write over the damaged ranges: records that a copy holds, inert content."""
        for bridge in (*self._plan.log.taken, *self._plan.log.bridges):
            path, start = bridge.segment.path, bridge.segment.offset
            for patch in bridge.patches:
                low, high = patch.zeros
                if low < high:  # first: once the blank record is there, no recovery looks behind it
                    self._disk.step("recover.bridge-zeros")
                    zero_range(self._disk, path, low - start, high - low)
            file = self._disk.open_raw(path, writable=True)
            try:
                for patch in bridge.patches:
                    at, data = patch.offset - start, patch.head()
                    self._disk.step("recover.bridge")
                    file.write(at, data)
                    file.sync(at, at + len(data))
            finally:
                file.close()

    def _mend(self) -> None:
        """Write a record's own place into its physicalOffset (rule 3), and its row's into queueId and queueOffset."""
        log = self._plan.log
        for offset in log.mends:
            self._write_field(offset, POSITION_PHYSICAL_OFFSET, offset, LONG_SIZE)
        for one in log.requeued:
            self._write_field(one.physical_offset, POSITION_QUEUE_ID, one.queue_id, INT_SIZE)
            self._write_field(one.physical_offset, POSITION_QUEUE_OFFSET, one.queue_offset, LONG_SIZE)

    def _write_field(self, offset: int, position: int, value: int, size: int) -> None:
        """Write `size` bytes of a record's header, durably."""
        segment = next(one for one in self._files.log if one.offset <= offset < one.end)
        at = offset - segment.offset + position
        file = self._disk.open_raw(segment.path, writable=True)
        try:
            self._disk.step("recover.mend")
            file.write(at, value.to_bytes(size, "big"))
            file.sync(at, at + size)
        finally:
            file.close()

    def _sync_read_part(self) -> None:
        """What recovery vouches for must be on disk before the checkpoint says so: it may be in the cache only."""
        gone = set(self._plan.log.removed)
        start = self._plan.log.start_file
        seen = False
        for segment in self._files.log:
            seen = seen or segment.path == start
            if seen and segment.path not in gone:
                self._sync(segment.path, segment.size)

    def _sync(self, path: str, size: int) -> None:
        file = self._disk.open_raw(path, writable=True)
        try:
            file.sync(0, size)
        finally:
            file.close()

    # --- queues -----------------------------------------------------------------------------------------------------

    def _ext(self) -> None:
        """Cut the extension: before units are put there again."""
        for cut in self._plan.ext:
            for path, _ in cut.removed:
                self._disk.step("recover.remove-ext")
                self._disk.unlink(path)
                self._disk.sync_dir(os.path.dirname(path))
            if cut.tail is not None:
                self._disk.step("recover.zero-ext")
                zero_range(self._disk, *cut.tail)

    def _queues(self) -> None:
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
        """Write an extension unit for each row: the addresses (or the tags codes, where the files can take no more)."""
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
        """Pre-blank rows, filled rows, nothing behind the end."""
        start, end = queue.pre_blanks
        if start < end:
            writer.write(start, PRE_BLANK.encode() * (end - start))
        fills = [
            (start, end, self._row(queue, end if (start, end) in queue.from_behind else start - 1))
            for start, end in queue.fills
        ]
        start, end = queue.front
        if start < end:
            unit = None if queue.inert is None else QueueUnit(*queue.inert, 0).encode()
            fills.append((start, end, unit or self._row(queue, end)))
        for start, end, model in fills:
            for at in range(start, end, FILL_ROWS):
                writer.write(at, model * (min(at + FILL_ROWS, end) - at))
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

    # --- index, checkpoint, abort -----------------------------------------------------------------------------------

    def _index(self) -> tuple[str, ...]:
        disk, index = self._disk, self._plan.index
        directory = index_directory(self._files)
        if not index.enabled:
            return index.names_after
        for name in index.removed:
            path = os.path.join(directory, name)
            if disk.exists(path):
                disk.step("recover.remove-index")
                disk.unlink(path)
                disk.sync_dir(directory)
        layout = self._files.index_layout
        for rewind in index.rewinds:
            disk.step("recover.rewind-index")
            file = IndexFile.open(disk, os.path.join(directory, rewind.name), layout)
            try:
                file.rewind(rewind.keep, previous=rewind.previous, end_timestamp=rewind.end_timestamp)
            finally:
                file.shutdown()
        made: list[str] = []
        for insert in index.inserts:
            disk.step("recover.insert-index")
            made += self._insert(directory, insert.name, insert.keys.chunks())
        service = IndexService(disk, directory, layout)
        service.open(index.names_after)
        try:
            since = CHUNK_ROWS
            for keys in index.tail.chunks() if index.keys_put else ():
                if since >= CHUNK_ROWS:
                    disk.step("recover.put-keys")
                    since = 0
                service.put(keys)
                since += len(keys)
            service.flush_all()
            last = [os.path.basename(file.path) for file in service.files]
        finally:
            service.shutdown()
        for name in index.names_after:  # a killed broker's pages may be in the cache only, but the checkpoint vouches
            self._sync(os.path.join(directory, name), layout.file_size)
        return tuple(sorted({*made, *last}))

    def _insert(self, directory: str, name: str, chunks: Iterator[Keys]) -> list[str]:
        """Put keys into files of their own, named from `name` on."""
        made: list[str] = []
        file: IndexFile | None = None
        number = int(name)
        for keys in chunks:
            done = 0
            while done < len(keys):
                if file is None or file.is_full:
                    if file is not None:
                        file.flush()
                        file.shutdown()
                    made.append(f"{number + len(made):017d}")
                    path = os.path.join(directory, made[-1])
                    file = IndexFile.create(self._disk, path, self._files.index_layout)
                columns = (keys.key_hash[done:], keys.physical_offset[done:], keys.store_timestamp[done:])
                done += file.put_keys(*columns)
        if file is not None:
            file.flush()
            file.shutdown()
        return made

    def _leave_clean(self, index_files: tuple[str, ...]) -> None:
        """A checkpoint that says that everything is on disk, and no abort file: as after a clean shutdown.

        With damage left that a normal start would cut at, the abort file stays (or is made), and the checkpoint lets
        the next start begin with the last segment.
        """
        trap = self._plan.trap
        if self._plan.changed or self._plan.marks:
            indexed = self._newest_indexed(index_files) if trap is not None else 0
            self._mark(SAFETY_MS if trap is not None else 0, abort=trap is not None, indexed=indexed)

    def _newest_indexed(self, index_files: tuple[str, ...]) -> int:
        """The newest store time (ms) that an index file holds, 0 without one: a clock may have gone back behind it.

        A broker that was not closed takes files newer than the checkpoint for torn (IndexService#load deletes them).
        """
        directory, layout = index_directory(self._files), self._files.index_layout
        newest = 0
        for name in index_files:
            with ClosedIndexFile(self._disk, os.path.join(directory, name), layout) as file:
                newest = max(newest, file.header.end_timestamp)
        return newest

    def _overwrite_checkpoint(self, path: str, point: bytes) -> None:
        """On a full disk, as Apache does it always: 24 bytes within one sector."""
        file = self._disk.open_raw(path, writable=True)
        try:
            file.write(0, point)
            file.sync(0, len(point))
        finally:
            file.close()

    def _mark(self, ahead_ms: int, *, abort: bool, indexed: int = 0) -> None:
        """The checkpoint at the newest message, and so much behind it; then the abort file, or none."""
        disk, files = self._disk, self._files
        emptied = self._plan.to is not None and self._plan.to == self._plan.log.min_offset
        newest = self._plan.log.end.last_store_timestamp or (0 if emptied else files.checkpoint.physic_msg_timestamp)
        newest += ahead_ms
        path = os.path.join(files.root, names.CHECKPOINT)
        whole = disk.read_file(path, FILE_SIZE) if disk.exists(path) else b""
        point = Checkpoint(newest, newest, max(newest, indexed)).encode()
        try:
            disk.write_file_atomically(path, (point + whole[len(point) :]).ljust(FILE_SIZE, b"\0"))
        except DiskFull:
            if len(whole) < FILE_SIZE:
                raise
            self._overwrite_checkpoint(path, point)
        disk.step("recover.checkpoint-written")
        mark = AbortFile(disk, files.root)
        if abort:
            mark.create()
        elif files.abort:
            mark.remove()
