"""A cut of the log as a change: consumers may lose what they have not read only where somebody has agreed to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.recover.apply import apply
from engine.repair.recover.following import after
from engine.repair.recover.pieces import touched
from engine.repair.truncate.truncate import TruncatePlan, plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.errors import NextStep, RStoreError
    from engine.files.disk import Disk
    from engine.files.operations import Touch
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class TruncateChange(Change[TruncatePlan]):
    """End the log at a place that is given.

    Attributes:
        to_offset, to_time, whole: as `truncate.plan` has them.
        agreed: what consumers have not read may go.
        keep: save what goes; without it, it is lost.
        salvage_dir: save it below this directory instead of the store's salvage/.
    """

    name = "truncate"
    kind = ChangeKind.LOG
    done = "the log is cut"

    to_offset: int | None = None
    to_time: int | None = None
    whole: bool = False
    agreed: bool = False
    keep: bool = True
    salvage_dir: str | None = None

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.salvage_dir is None else (self.salvage_dir,)

    def plan(self, run: ChangeRun, files: StoreFiles) -> TruncatePlan:
        """See Change."""
        with run.caller.progress("reading the log") as tick:
            return plan(
                run.disk, files, to_offset=self.to_offset, to_time=self.to_time, whole=self.whole, progress=tick
            )

    def refusal(self, plan: TruncatePlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal(agreed=self.agreed)

    def changes(self, plan: TruncatePlan) -> bool:
        """See Change."""
        return plan.repair.would_change

    def touched(self, disk: Disk, plan: TruncatePlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return touched(disk, plan.repair)

    def apply(self, run: ChangeRun, plan: TruncatePlan) -> str | None:
        """See Change."""
        again = [*_words(plan), *(["--whole"] if self.whole else [])]
        applied = apply(
            run.disk, plan.repair, command="truncate", keep=self.keep, salvage_dir=self.salvage_dir, again=again
        )
        return applied.salvage

    def if_interrupted(self, plan: TruncatePlan) -> str:
        """See Change."""
        return (
            f"the cut is not finished, nothing is lost; run rstore {' '.join(_words(plan))} again. "
            f"What it removed is in {os.path.join(plan.repair.files.root, names.SALVAGE)}"
        )

    def following(self, plan: TruncatePlan) -> NextStep | None:
        """See Change."""
        return after(plan.repair)


def _words(plan: TruncatePlan) -> list[str]:
    """The command that makes the same cut."""
    return ["truncate", "--to-offset", str(plan.repair.log.end.end)]
