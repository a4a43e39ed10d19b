"""A promotion as a change of a closed store: its recovery, offsets, then the broker's configuration, last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NextStep
from engine.files.operations import Touch
from engine.inspect.next_step import command_line
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.config.apply import touched as touched_tables
from engine.repair.config.apply import write_files
from engine.repair.recover.apply import apply
from engine.repair.recover.following import after
from engine.repair.recover.pieces import touched
from engine.rewind.conf_edit import plan_edit, write_edit
from engine.rewind.old_master import look_for
from engine.rewind.promote import MASTER_KEYS, PromotePlan, plan_promote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.client.remote_broker import RemoteBroker
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True)
class PromoteChange(Change[PromotePlan]):
    """Make a slave's store a master's.

    Attributes:
        master: the old master's broker; None: it is not known.
        service: its replication service (`haMasterAddress`), where that is known.
        conf: the broker's configuration file, changed too; an absolute path; a link in the store is refused.
        force: promote while the old master answers.
    """

    name = "promote"
    kind = ChangeKind.ROLE
    done = "the store is a master's"

    master: RemoteBroker | None = None
    service: str = ""
    conf: str | None = None
    force: bool = False

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.conf is None else (os.path.dirname(self.conf),)

    def plan(self, run: ChangeRun, files: StoreFiles) -> PromotePlan:
        """See Change."""
        edit = None if self.conf is None else plan_edit(run.disk, self.conf, MASTER_KEYS)
        old = look_for(self.master, self.service)
        with run.caller.progress("reading the log") as tick:
            return plan_promote(run.disk, files, old, conf=edit, force=self.force, locked=run.locked, progress=tick)

    def refusal(self, plan: PromotePlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: PromotePlan) -> bool:
        """See Change."""
        return plan.changes

    def touched(self, disk: Disk, plan: PromotePlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        if plan.repair.would_change:
            yield from touched(disk, plan.repair)
        yield from touched_tables(disk, (write.path for write in plan.offsets.writes))
        if plan.conf is not None and plan.conf.changes:
            yield plan.conf.path, Touch.CONTENT
            yield plan.conf.kept, Touch.CONTENT

    def apply(self, run: ChangeRun, plan: PromotePlan) -> str | None:
        """See Change."""
        salvage = None
        if plan.repair.would_change:
            salvage = apply(run.disk, plan.repair, command=self.name, again=(self.name,)).salvage
        if plan.offsets.writes:
            root, command = plan.files.root, f"offsets-{self.name}"
            of_tables = write_files(run.disk, plan.files.config, root, command, plan.offsets.writes)
            salvage = salvage or of_tables
        if plan.conf is not None:
            write_edit(run.disk, plan.conf)
        return salvage

    def if_interrupted(self, plan: PromotePlan) -> str:
        """See Change."""
        return "the promotion is not finished, nothing is lost; run rstore promote again"

    def following(self, plan: PromotePlan) -> NextStep | None:
        """See Change. What a recovery leaves to do comes before the start of a broker."""
        if plan.repair.trap is not None or plan.repair.config_broken:
            return after(plan.repair)
        if plan.conf is None:
            keys = " and ".join(f"{key}={value}" for key, value in MASTER_KEYS.items())
            return NextStep(None, f"set {keys} in the broker's configuration, then start the broker")
        return NextStep(
            command_line(plan.files.config, "serve", "-c", plan.conf.path),
            "starts it as the master; or start Apache's broker with that file",
        )
