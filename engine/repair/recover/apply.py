"""Apply a recovery's plan, step by step; killed at any of them, planning again finds the rest to do.

Order: save what goes (salvage), set strays aside, then the log (mend, tail, segments), the queues, the index, the
checkpoint, and last the abort file. What is derived is changed only after the log that it is derived from. Each of them
has a module of its own beside this one, which has the order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.files.directories import PRIVATE
from engine.format.checkpoint import SAFETY_MS
from engine.inspect.store.moves import quarantine_target
from engine.log.state import StoreState
from engine.repair.background import BackgroundWorker
from engine.repair.recover.batch_apply import BatchQueueApplier
from engine.repair.recover.bridge import BridgedLog
from engine.repair.recover.index_apply import IndexApplier
from engine.repair.recover.log_apply import LogApplier, take_blank_away
from engine.repair.recover.marks import Marks
from engine.repair.recover.memory import forget
from engine.repair.recover.newer_parts import NewerApplier
from engine.repair.recover.pieces import end_of, pieces_of
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.queue_apply import QueueApplier, cut_extension
from engine.repair.recover.shifted import put_back
from engine.repair.recover.space_needed import space_needed
from engine.repair.salvage.finish import finish, part, parted, settle
from engine.repair.salvage.relocate import relocate
from engine.repair.salvage.salvage import demand_space_needed, save

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.odd import OddFile
    from engine.log.source import Segment


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
        again: words of the command that does the same once more: where there is no space to save, it is named.
        clean: leave the store as after a clean shutdown (checkpoint, no abort file); the daemon continues instead.

    Raises:
        the plan's refusal; NoSpaceToSave; DiskFull, StorageError: run it again, nothing acknowledged is lost.
    """
    if plan.refusal is not None:
        raise plan.refusal
    _demand_as_planned(disk, plan)
    settle(disk, plan.files.config)
    killed = parted(disk, plan.files.config)
    salvage = None
    marks = clean and plan.marks
    making = space_needed(disk, plan)
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
            healed=[(taken.offset, taken.length) for taken in plan.log.taken],
            end=end_of(plan),
            into=salvage_dir,
            making=making,
            again=again,
        )
        part(disk, plan.files.config, killed)
        killed = ()
    else:
        demand_space_needed(disk, making)
    state = _Applier(disk, plan, salvage).run(clean)
    forget(disk, plan.files.root)
    finish(disk, plan.files.config, whole=not killed and (keep or not (plan.changed or marks)))
    return Applied(state, salvage)


def _demand_as_planned(disk: Disk, plan: RecoverPlan) -> None:
    """A plan belongs to the files that it saw."""
    for segment in plan.files.log:
        if segment not in plan.log.added and not disk.exists(segment.file):
            raise InvalidArgument("the store has changed since it was planned", path=segment.file, hint="plan again")


class _Applier:
    def __init__(self, disk: Disk, plan: RecoverPlan, salvage: str | None) -> None:
        self._disk = disk
        self._plan = plan
        self._salvage = salvage
        self._files = plan.files

    def run(self, clean: bool) -> StoreState:
        disk, plan = self._disk, self._plan
        self._set_aside(plan.set_aside_first)
        self._put_back()
        self._lay_out()
        self._set_aside(plan.set_aside_then)
        if plan.trap is not None:  # before the log becomes shorter: who is killed in between must not fall into it
            Marks(disk, plan).mark(SAFETY_MS, abort=True)
        LogApplier(disk, plan).run()
        self._set_aside(plan.set_aside_last)
        if not clean:
            take_blank_away(disk, plan)
        disk.step("recover.log-done")
        cut_extension(disk, plan)
        index_files = self._derived()
        disk.step("recover.index-done")
        NewerApplier(disk, plan).run()
        if clean:
            Marks(disk, plan).leave_clean(index_files)
        return replace(plan.state, index_files=index_files)

    def _derived(self) -> tuple[str, ...]:
        """Queues and index, side by side: neither is made of the other. The names of the index files."""
        with BackgroundWorker(self._disk) as worker:
            worker.run(QueueApplier(self._disk, self._plan).run)
            if self._plan.batches:
                worker.run(BatchQueueApplier(self._disk, self._plan.batches).run)
            self._disk.step("recover.queues-done")
            return IndexApplier(self._disk, self._plan).run()

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
            disk.mkdirs(os.path.dirname(target), mode=PRIVATE)
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

    def _make_segment(self, segment: Segment) -> None:
        """A missing file of the log, of zeros: a run that is killed then leaves damage where the gap was."""
        disk = self._disk
        disk.step("recover.make-segment")
        file = disk.open_raw(segment.path, writable=True, create=True)
        try:
            file.set_size(segment.size)
            file.sync(0, segment.size)
        finally:
            file.close()
        disk.sync_dir(os.path.dirname(segment.path))

    def _lay_out(self) -> None:
        """Give the log's files their own names, and the setting's length: all that follows works on those."""
        disk, layout = self._disk, self._plan.layout
        for segment in self._plan.log.added:
            self._make_segment(segment)
        relocate(disk, [one.way for one in layout.relocations], self._salvage)
        for resize in layout.resizes:
            disk.step("recover.resize-segment")
            file = disk.open_raw(resize.segment.path, writable=True)
            try:
                file.set_size(resize.segment.size)
                file.sync(0, resize.segment.size)
            finally:
                file.close()
