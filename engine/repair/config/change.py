"""The changes of files in config/: an offset that is set, a state that is brought back, files that are made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.inspect.next_step import look
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun, Plan
from engine.repair.config.apply import apply, touched
from engine.repair.config.consumer_offsets import OffsetPlan, plan_offset, set_offset
from engine.repair.config.plan import RebuildChoices, RebuildPlan, plan_rebuild
from engine.repair.config.restore import RestorePlan, plan_restore, restore
from engine.repair.salvage.finish import settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.errors import NextStep
    from engine.files.disk import Disk
    from engine.files.operations import Touch
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue


class ConfigChange(Change[Plan]):
    """A change of config/ alone: one that has nothing to do ends those that were killed."""

    kind = ChangeKind.CONFIG

    def unchanged(self, disk: Disk, files: StoreFiles) -> None:
        """See Change."""
        settle(disk, files.config)

    def if_interrupted(self, plan: Plan) -> str:
        """See Change."""
        return "not finished, nothing is lost; run it again"


@dataclass(frozen=True)
class OffsetChange(ConfigChange[OffsetPlan]):
    """Set what a group reads next in a queue: `group`, `queue` and `to` as `plan_offset` has them."""

    name = "offsets set"
    done = "the offset is set"

    group: str
    queue: TopicQueue
    to: int | str

    def plan(self, run: ChangeRun, files: StoreFiles) -> OffsetPlan:
        """See Change."""
        return plan_offset(run.disk, files, self.group, self.queue, self.to)

    def changes(self, plan: OffsetPlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: OffsetPlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return touched(disk, (plan.path,))

    def apply(self, run: ChangeRun, plan: OffsetPlan) -> str | None:
        """See Change."""
        return set_offset(run.disk, plan)


@dataclass(frozen=True)
class RestoreChange(ConfigChange[RestorePlan]):
    """Bring a state of a file back: `file` and `at` as `plan_restore` has them."""

    name = "config restore"
    done = "the state is brought back"

    file: str
    at: str | int

    def plan(self, run: ChangeRun, files: StoreFiles) -> RestorePlan:
        """See Change."""
        return plan_restore(run.disk, files, self.file, self.at)

    def changes(self, plan: RestorePlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: RestorePlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return touched(disk, (plan.path,))

    def apply(self, run: ChangeRun, plan: RestorePlan) -> str | None:
        """See Change."""
        return restore(run.disk, plan)

    def following(self, plan: RestorePlan) -> NextStep | None:
        """See Change."""
        return look(plan.files.config)


@dataclass(frozen=True)
class RebuildChange(ConfigChange[RebuildPlan]):
    """Make lost or broken files of config/ again."""

    kind = ChangeKind.TABLES
    name = "rebuild-config"
    done = "the files are written"

    choices: RebuildChoices

    def plan(self, run: ChangeRun, files: StoreFiles) -> RebuildPlan:
        """See Change."""
        with run.caller.progress("reading the log for delayed messages") as tick:
            return plan_rebuild(run.disk, files, self.choices, progress=tick)

    def changes(self, plan: RebuildPlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: RebuildPlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return touched(disk, (one.path for one in plan.changes))

    def apply(self, run: ChangeRun, plan: RebuildPlan) -> str | None:
        """See Change."""
        return apply(run.disk, plan)

    def if_interrupted(self, plan: RebuildPlan) -> str:
        """See Change."""
        return "not finished, nothing is lost; run rstore rebuild-config again"

    def following(self, plan: RebuildPlan) -> NextStep | None:
        """See Change."""
        return look(plan.files.config)
