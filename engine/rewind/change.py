"""A rewind as a change of a closed store: the cut, then the offsets. Killed anywhere, it is run again."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NextStep
from engine.format import names
from engine.inspect.next_step import command_line
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.config.apply import touched as touched_tables
from engine.repair.config.apply import write_files
from engine.repair.recover.apply import apply
from engine.repair.recover.pieces import touched
from engine.rewind.master import PatientLog, settle_s
from engine.rewind.rewind import RewindPlan, plan_rewind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.client.remote_broker import RemoteBroker
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.files.operations import Touch
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class RewindChange(Change[RewindPlan]):
    """Go back to where the log and a new master's diverged.

    Attributes:
        master: where it is.
        verify_all: compare all that both have.
        salvage_dir: save what goes below this directory instead of the store's salvage/.
    """

    name = "rewind"
    kind = ChangeKind.ROLE
    done = "the log is cut"

    master: RemoteBroker
    verify_all: bool = False
    salvage_dir: str | None = None

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.salvage_dir is None else (self.salvage_dir,)

    def plan(self, run: ChangeRun, files: StoreFiles) -> RewindPlan:
        """See Change."""
        facts = self.master.facts()
        wait_s = settle_s(facts)
        if wait_s:
            run.caller.note(f"waiting {wait_s:.0f} s: {facts.address} may be a SYNC_MASTER, whose puts wait for slaves")
            time.sleep(wait_s)
        with (
            self.master.reader(facts) as other,
            run.caller.progress("comparing with the master") as comparing,
            run.caller.progress("reading the log") as reading,
        ):
            return plan_rewind(
                run.disk,
                files,
                facts,
                PatientLog(other),
                verify_all=self.verify_all,
                comparing=comparing,
                reading=reading,
            )

    def refusal(self, plan: RewindPlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: RewindPlan) -> bool:
        """See Change."""
        return plan.changes

    def touched(self, disk: Disk, plan: RewindPlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        if plan.cut is not None and plan.cut.repair.would_change:
            yield from touched(disk, plan.cut.repair)
        yield from touched_tables(disk, (write.path for write in plan.offsets.writes))

    def apply(self, run: ChangeRun, plan: RewindPlan) -> str | None:
        """See Change. What went of the log is in the directory that is returned; the tables have one of their own."""
        salvage = None
        if plan.cut is not None and plan.cut.repair.would_change:
            repair = plan.cut.repair
            applied = apply(
                run.disk, repair, command=self.name, salvage_dir=self.salvage_dir, again=("rewind", *self._words())
            )
            salvage = applied.salvage
        if plan.offsets.writes:
            run.disk.step("rewind.log-done")
            of_tables = write_files(
                run.disk, plan.files.config, plan.files.root, f"offsets-{self.name}", plan.offsets.writes
            )
            salvage = salvage or of_tables
        return salvage

    def if_interrupted(self, plan: RewindPlan) -> str:
        """See Change."""
        return (
            f"the rewind is not finished, nothing is lost; run rstore {' '.join(('rewind', *self._words()))} again. "
            f"What it removed is in {os.path.join(plan.files.root, names.SALVAGE)}"
        )

    def following(self, plan: RewindPlan) -> NextStep | None:
        """See Change."""
        return NextStep(
            command_line(plan.files.config, "replicate", "--from", self.master.address),
            "follows the new master; or set brokerRole=SLAVE in the broker's configuration and start the broker",
        )

    def _words(self) -> tuple[str, ...]:
        return ("--to", self.master.address)
