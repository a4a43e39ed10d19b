"""A recovery as a change: with what becomes of consumers' offsets, and what a broker then makes of config/."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.format import names
from engine.inspect.check.config_start import config_start
from engine.inspect.store.change_gate import ChangeKind
from engine.inspect.store.settled import with_light_queues
from engine.repair.change import Change, ChangeRun
from engine.repair.recover.apply import apply
from engine.repair.recover.following import after
from engine.repair.recover.ledger import Ledger, ledger_of
from engine.repair.recover.log_end import Mode
from engine.repair.recover.memory import forget
from engine.repair.recover.pieces import touched
from engine.repair.recover.recover import plan_recover

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.errors import NextStep
    from engine.files.disk import Disk
    from engine.files.operations import Touch
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan


@dataclass(frozen=True, slots=True)
class Recovery:
    """The plan of a recovery.

    Attributes:
        repair: what is changed.
        ledger: by queue, and the groups that then stand above a queue's maximum.
        surveyed: the store as it lay when it was planned.
    """

    repair: RecoverPlan
    ledger: Ledger
    surveyed: StoreFiles

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The JSON of `rstore recover`."""
        plan = self.repair.to_json(salvage=salvage)
        problems = [*plan["problems"], *self.ledger.problems]
        return {**plan, **self.ledger.to_json(), "problems": problems, "changed": self.repair.would_change}


@dataclass(frozen=True)
class RecoverChange(Change[Recovery]):
    """Bring a store that was not closed back to a sound state.

    Attributes:
        mode, cut, bridge, whole, log_is_gone, time_box_ms, jobs: as `plan_recover` has them.
        keep: save what goes; without it, it is lost.
        salvage_dir: save it below this directory instead of the store's salvage/.
    """

    name = "recover"
    kind = ChangeKind.LOG
    done = "the store is recovered"

    mode: Mode | None = None
    cut: bool = False
    bridge: bool = False
    whole: bool = False
    log_is_gone: bool = False
    time_box_ms: int | None = None
    jobs: int | None = None
    keep: bool = True
    salvage_dir: str | None = None

    def settings(self, disk: Disk, config: StoreConfig) -> StoreConfig:
        """See Change."""
        return with_light_queues(disk, config)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.salvage_dir is None else (self.salvage_dir,)

    def plan(self, run: ChangeRun, files: StoreFiles) -> Recovery:
        """See Change."""
        return self._planned(run, files, "reading the log")

    def bridged(self, run: ChangeRun, refused: Recovery) -> Recovery | None:
        """The plan with --bridge, where the refusal of this one names it and it would be carried out."""
        refusal = refused.repair.refusal
        following = None if refusal is None else refusal.next
        if self.bridge or following is None or "--bridge" not in (following.command or "").split():
            return None
        change = replace(self, bridge=True, cut=False)
        try:
            plan = change._planned(run, refused.surveyed, "reading the log for --bridge")
        except RStoreError:  # what was found before is reported
            return None
        return None if plan.repair.refusal is not None else plan

    def _planned(self, run: ChangeRun, files: StoreFiles, what: str) -> Recovery:
        with run.caller.progress(what) as tick:
            repair = plan_recover(
                run.disk,
                files,
                mode=self.mode,
                cut=self.cut,
                bridge=self.bridge,
                whole=self.whole,
                log_is_gone=self.log_is_gone,
                locked=run.locked,
                time_box_ms=self.time_box_ms,
                jobs=self.jobs,
                progress=tick,
            )
        return Recovery(with_config(run.disk, repair), ledger_of(run.disk, repair), files)

    def refusal(self, plan: Recovery) -> RStoreError | None:
        """See Change."""
        return plan.repair.refusal

    def changes(self, plan: Recovery) -> bool:
        """See Change."""
        return plan.repair.would_change

    def touched(self, disk: Disk, plan: Recovery) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return touched(disk, plan.repair)

    def apply(self, run: ChangeRun, plan: Recovery) -> str | None:
        """See Change."""
        applied = apply(run.disk, plan.repair, keep=self.keep, salvage_dir=self.salvage_dir, again=self.words())
        return applied.salvage

    def words(self) -> list[str]:
        """The command with the options that decide what it does."""
        named = {
            "--normal": self.mode is Mode.NORMAL,
            "--abnormal": self.mode is Mode.ABNORMAL,
            "--bridge": self.bridge,
            "--cut": self.cut,
            "--whole": self.whole,
            "--yes-the-log-is-gone": self.log_is_gone,
        }
        return ["recover", *(name for name, is_given in named.items() if is_given)]

    def unchanged(self, disk: Disk, files: StoreFiles) -> None:
        """See Change. A plan that changes nothing has found no killed repair; what was read before is done with."""
        forget(disk, files.root)

    def if_interrupted(self, plan: Recovery) -> str:
        """See Change."""
        return (
            f"the recovery is not finished, nothing is lost; run rstore recover again. "
            f"What it removed is in {os.path.join(plan.repair.files.root, names.SALVAGE)}"
        )

    def following(self, plan: Recovery) -> NextStep | None:
        """See Change."""
        return after(plan.repair)


def with_config(disk: Disk, plan: RecoverPlan) -> RecoverPlan:
    """A recovery's plan that names what is wrong with config/, which the recovery leaves as it is."""
    start = config_start(disk, plan.files.config, plan.files.root)
    left = tuple(f"{problem}; recovery leaves it as it is" for problem in start.problems)
    return replace(plan, problems=(*plan.problems, *left), config_broken=bool(left))
