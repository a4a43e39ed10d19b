"""What a recovery changes of that which RocketMQ 5 keeps beside log, queues and index: timer, epochs, checkpoint."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.format import names, timer_log, timer_wheel
from engine.repair.recover.epoch_plan import plan_epochs, plan_replica_offsets
from engine.repair.recover.timer_plan import check_bytes, plan_timer
from engine.repair.salvage.salvage import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.log.source import LogSource
    from engine.repair.recover.epoch_plan import EpochPlan
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.timer_plan import TimerPlan


def with_newer_parts(disk: Disk, plan: RecoverPlan, log: LogSource) -> RecoverPlan:
    """The plan with what it changes of these. `log`: as it will be. Raises StorageError."""
    if plan.refusal is not None or not plan.files.log:
        return plan
    return replace(
        plan,
        timer=plan_timer(disk, plan, log),
        epochs=plan_epochs(disk, plan),
        replica=plan_replica_offsets(disk, plan),
    )


def replaced(plan: RecoverPlan) -> set[str]:
    """Paths of files that get new content at one stroke."""
    paths = set() if plan.epochs is None else set(plan.epochs.paths)
    return paths | {_timer_check(plan)} if plan.timer is not None else paths


def newer_pieces(disk: Disk, plan: RecoverPlan) -> Iterator[Piece]:
    """What is saved of them, in the order in which it changes. Raises StorageError."""
    if plan.timer is not None:
        yield from _timer_pieces(disk, plan, plan.timer)
    if plan.epochs is not None:
        action = "remove" if plan.epochs.content is None else "overwrite"
        for path in plan.epochs.paths:
            yield Piece(action, path, 0, disk.stat(path).size, plan.epochs.why)


def _timer_pieces(disk: Disk, plan: RecoverPlan, timer: TimerPlan) -> Iterator[Piece]:
    new = set(timer.paths(plan.files.root))
    sizes = dict(timer.old)
    for path, size in timer.old:
        if path not in new:
            yield Piece("remove", path, 0, size, timer.why)
    for path in (*sorted(new), os.path.join(plan.files.root, names.TIMER_WHEEL), _timer_check(plan)):
        there = path in sizes or disk.exists(path)
        size = disk.stat(path).size if there else 0
        yield Piece("overwrite" if there else "create", path, 0, size, timer.why)


def _timer_check(plan: RecoverPlan) -> str:
    return os.path.join(plan.files.root, names.CONFIG, names.TIMER_CHECK)


class NewerApplier:
    """Does what the plan says of them, once log and queues are what it says."""

    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan

    def run(self) -> None:
        """Timer log, wheel, timercheck, then the epochs. Raises DiskFull, StorageError."""
        if self._plan.timer is not None:
            self._timer(self._plan.timer)
        if self._plan.epochs is not None:
            self._epochs(self._plan.epochs)

    def _timer(self, timer: TimerPlan) -> None:
        disk, root = self._disk, self._plan.files.root
        directory = os.path.join(root, names.TIMER_LOG)
        paths = timer.paths(root)
        for path in (path for path, _ in timer.old if path not in paths):
            disk.step("recover.remove-timer-log")
            disk.unlink(path)
        if paths:
            disk.mkdirs(directory)
        room = timer_log.units_of_file(timer.file_size)
        for number, path in enumerate(paths):
            units = b"".join(unit.encode() for unit in timer.units[number * room : (number + 1) * room])
            if number + 1 < len(paths):
                units += timer_log.encode_blank(timer.file_size - len(units))
            self._write(path, timer.file_size, [(0, units)])
        if disk.is_dir(directory):
            disk.sync_dir(directory)
        wheel = os.path.join(root, names.TIMER_WHEEL)
        self._write(
            wheel,
            timer_wheel.FILE_SIZE,
            [(number * timer_wheel.SLOT_SIZE, slot.encode()) for number, slot in timer.slots],
        )
        disk.sync_dir(root)
        disk.step("recover.timer-check")
        path = _timer_check(self._plan)
        disk.mkdirs(os.path.dirname(path))
        before = disk.read_file(path, len(check_bytes(timer.check, b""))) if disk.exists(path) else b""
        disk.write_file_atomically(path, check_bytes(timer.check, before))

    def _write(self, path: str, size: int, parts: list[tuple[int, bytes]]) -> None:
        """A file of `size` bytes: these parts, all else zeros."""
        disk = self._disk
        disk.step("recover.timer-file")
        file = disk.open_raw(path, writable=True, create=True)
        try:
            file.set_size(0)
            file.set_size(size)
            for at, data in parts:
                file.write(at, data)
            file.sync(0, size)
        finally:
            file.close()

    def _epochs(self, epochs: EpochPlan) -> None:
        """The copy first: a broker goes to it where the file is broken."""
        disk, content = self._disk, epochs.content
        for path in reversed(epochs.paths):
            disk.step("recover.epoch-file")
            if content is None:
                disk.unlink(path)
                disk.sync_dir(os.path.dirname(path))
            else:
                disk.write_file_atomically(path, content)
