"""Rebuilding queues and index as a change: built in the store, whose lock is held, or in a directory of the system."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.operations import Touch
from engine.inspect import next_step
from engine.inspect.store.change_gate import ChangeKind
from engine.inspect.store.settled import with_light_queues
from engine.repair.change import Change, ChangeRun
from engine.repair.reindex import swap
from engine.repair.reindex.reindex import ReindexPlan, Scope, build
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class ReindexChange(Change[ReindexPlan]):
    """Rebuild `scope` with `jobs` threads (None: one a core), and swap in what differs."""

    name = "reindex"
    kind = ChangeKind.QUEUES
    done = "queues and index are rebuilt"

    scope: Scope
    jobs: int | None = None

    def settings(self, disk: Disk, config: StoreConfig) -> StoreConfig:
        """See Change."""
        return with_light_queues(disk, config)

    def plan(self, run: ChangeRun, files: StoreFiles) -> ReindexPlan:
        """See Change. Where the store may not be written to, it is reported last that nothing would be swapped in."""
        disk = run.disk
        if run.locked:
            with run.caller.progress("reading") as tick:
                into, files = swap.begin(disk, files, self.scope, jobs=self.jobs, progress=tick)
        else:
            into = tempfile.mkdtemp(prefix="rstore-reindex-")
            disk.admit(into)
        try:
            with run.caller.progress("rebuilding") as tick:
                plan = build(disk, files, into, self.scope, jobs=self.jobs, progress=tick)
            if not run.locked:
                plan.refusal = swap.refusal(disk, plan.files, jobs=self.jobs)
        except BaseException:
            _give_back(disk, files.root, into)
            raise
        return plan

    def refusal(self, plan: ReindexPlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: ReindexPlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: ReindexPlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return ((os.path.join(plan.files.root, place), Touch.NAME) for place in swap.places(disk, plan))

    def apply(self, run: ChangeRun, plan: ReindexPlan) -> str | None:
        """See Change."""
        return swap.swap(run.disk, plan)

    def unchanged(self, disk: Disk, files: StoreFiles) -> None:
        """See Change."""
        swap.unchanged(disk, files.config)

    def if_interrupted(self, plan: ReindexPlan) -> str:
        """See Change."""
        return "the swap is not finished, nothing is lost; run rstore reindex again"

    def following(self, plan: ReindexPlan) -> NextStep | None:
        """See Change."""
        return next_step.read(plan.files.config) if plan.changed else None

    def discard(self, disk: Disk, plan: ReindexPlan) -> None:
        """See Change."""
        _give_back(disk, plan.files.root, plan.built)


def _give_back(disk: Disk, root: str, built: str) -> None:
    """Remove what was built; in the store a killed swap is finished first."""
    if built == swap.build_directory(root):
        swap.clear(disk, root)
    else:
        remove_tree(disk, built)
