"""A heal as a change of a closed store (engine.repair.change): planned, saved, written; undo takes it back."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.format.names import segment_offset
from engine.heal.plan import HealPlan
from engine.heal.planner import HealPlanner
from engine.inspect import next_step
from engine.inspect.finding_codes import Fix
from engine.inspect.store.change_gate import ChangeKind
from engine.inspect.store.settled import with_light_queues
from engine.repair.change import Change, ChangeRun
from engine.repair.recover.apply import apply
from engine.repair.recover.following import after
from engine.repair.recover.pieces import touched
from engine.seals.directory import seals_directory, write_seal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
    from engine.files.disk import Disk
    from engine.files.operations import Touch
    from engine.heal.sources import HealSource
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class HealChange(Change[HealPlan]):
    """Fill in damaged ranges of the log out of copies.

    Attributes:
        sources: where copies are looked for.
        again: words of the command that does the same.
        jobs: threads that read the log (None: one a core).
        seals: the directory of the seals (None: the store's own).
        salvage_dir: save old bytes below this directory instead of the store's salvage/.
    """

    name = "heal"
    kind = ChangeKind.HEAL
    done = "the store is healed"

    sources: tuple[HealSource, ...]
    again: tuple[str, ...] = ("heal",)
    jobs: int | None = None
    salvage_dir: str | None = None
    seals: str | None = None

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.salvage_dir is None else (self.salvage_dir,)

    def settings(self, disk: Disk, config: StoreConfig) -> StoreConfig:
        """See Change."""
        return self._sized(disk, with_light_queues(disk, config))

    def _sized(self, disk: Disk, config: StoreConfig) -> StoreConfig:
        """`config` with the segment size of the sources, where nobody gave one and the files allow it.

        What is left of a log may look like one of larger segments: those between are missing, the others cut.
        """
        sizes = {one.segment_size for one in self.sources if one.segment_size}
        if "mapped_file_size_commit_log" in config.given or len(sizes) != 1:
            return config
        (size,) = sizes
        files = [one for path in config.log_directories if disk.is_dir(path) for one in disk.scandir(path)]
        for one in files:
            offset = segment_offset(one.name) if one.is_file else None
            if offset is not None and (offset % size or one.size > size):
                return config
        return config.with_changes(mapped_file_size_commit_log=size)

    def plan(self, run: ChangeRun, files: StoreFiles) -> HealPlan:
        """See Change."""
        return HealPlanner(run.disk, files, self.sources, run.caller, run.locked, self.jobs, self.seals).plan()

    def refusal(self, plan: HealPlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: HealPlan) -> bool:
        """See Change."""
        return plan.would_change

    def touched(self, disk: Disk, plan: HealPlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return () if plan.repair is None else touched(disk, plan.repair)

    def rewritten(self, disk: Disk, plan: HealPlan) -> Iterable[str]:
        """See Change."""
        kept = {path for path, _ in plan.sealed}
        return (path for path, _ in self.touched(disk, plan) if path not in kept)

    def apply(self, run: ChangeRun, plan: HealPlan) -> str | None:
        """See Change."""
        assert plan.repair is not None
        applied = apply(
            run.disk,
            plan.repair,
            command="heal",
            clean=not plan.log_only,
            salvage_dir=self.salvage_dir,
            again=self.again,
        )
        directory = seals_directory(plan.files.root)
        for path, seal in plan.sealed if self.seals is None else ():  # written by us, and what was sealed
            write_seal(run.disk, directory, replace(seal, mtime_ns=run.disk.stat(path).mtime_ns))
        return applied.salvage

    def if_interrupted(self, plan: HealPlan) -> str:
        """See Change."""
        return (
            "the heal is not finished, nothing is lost; run the same command again. "
            f"What it overwrote is in {os.path.join(plan.files.root, names.SALVAGE)}"
        )

    def following(self, plan: HealPlan) -> NextStep | None:
        """See Change."""
        if plan.log_only:
            return next_step.step(plan.files.config, Fix.BRIDGE)
        return next_step.read(plan.files.config) if plan.repair is None else after(plan.repair)

    def discard(self, disk: Disk, plan: HealPlan) -> None:
        """See Change."""
        plan.store.close()
