"""Taking the last repair back, and removing what repairs saved, as changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.next_step import look
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.salvage.prune import PrunePlan, plan_prune, prune
from engine.repair.salvage.undo import UndoPlan, plan_undo, undo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.errors import NextStep
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class UndoChange(Change[UndoPlan]):
    """Take the last repair back, byte for byte."""

    name = "undo"
    kind = ChangeKind.UNDO
    done = "the repair is undone"

    def plan(self, run: ChangeRun, files: StoreFiles) -> UndoPlan:
        """See Change."""
        return plan_undo(run.disk, files)

    def changes(self, plan: UndoPlan) -> bool:
        """See Change."""
        return True

    def rewritten(self, disk: Disk, plan: UndoPlan) -> Iterable[str]:
        """See Change."""
        del disk
        ways = ("path", "target", "via", "source")
        named = {piece[way] for one in plan.repairs for piece in one.pieces for way in ways if piece.get(way)}
        return (os.path.join(plan.root, path) for path in (*sorted(named), *plan.created))

    def apply(self, run: ChangeRun, plan: UndoPlan) -> str | None:
        """See Change. What is taken back is not saved: the repair can be made again."""
        undo(run.disk, plan)
        return None

    def if_interrupted(self, plan: UndoPlan) -> str:
        """See Change."""
        return "the undo is not finished; run rstore undo again before anything else"

    def following(self, plan: UndoPlan) -> NextStep | None:
        """See Change."""
        return look(plan.config)


@dataclass(frozen=True)
class PruneChange(Change[PrunePlan]):
    """Remove what repairs saved: `ids`, `keep` and `before_ms` as `plan_prune` has them."""

    name = "salvage prune"
    kind = ChangeKind.PRUNE
    done = "it is removed"

    ids: tuple[str, ...] = ()
    keep: int | None = None
    before_ms: int | None = None

    def plan(self, run: ChangeRun, files: StoreFiles) -> PrunePlan:
        """See Change."""
        with run.caller.progress("reading what was saved", is_bytes=False) as tick:
            return plan_prune(run.disk, files, ids=self.ids, keep=self.keep, before_ms=self.before_ms, progress=tick)

    def changes(self, plan: PrunePlan) -> bool:
        """See Change."""
        return plan.changed

    def apply(self, run: ChangeRun, plan: PrunePlan) -> str | None:
        """See Change. Nothing is saved."""
        prune(run.disk, plan)
        return None

    def if_interrupted(self, plan: PrunePlan) -> str:
        """See Change."""
        return "some of it is removed; run it again for the rest"
