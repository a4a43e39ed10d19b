"""What follows a recovery: which command, by its plan (engine.inspect.next_step has those that follow a look)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.errors import NextStep, RStoreError
from engine.inspect.finding import Finding
from engine.inspect.finding_codes import Fix, Severity
from engine.inspect.next_step import command_line, read, step
from engine.repair.recover.recover import plan_recover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.inspect.check.check import Mended
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan


def left_by(plan: RecoverPlan, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings; what a recovery of everything should repair is left by it where its `plan` changes nothing."""
    if plan.refusal is not None or plan.changed or plan.marks:
        return tuple(findings)
    shown = command_line(plan.files.config, "dump", "commitlog", "--from", "OFFSET", "--limit", "1")
    hint = (
        "nothing in the store tells which side is right, as no checksum covers the field: a recovery leaves both, and "
        f"the message can be read. {shown} shows the record; nothing else is to be done"
    )
    return tuple(
        replace(one, fix=Fix.ADVISE, hint=hint) if one.fix is Fix.REBUILD and one.severity is not Severity.INFO else one
        for one in findings
    )


def codes_of(plan: RecoverPlan) -> frozenset[str]:
    """What a plan that cuts found wrong, by the codes of check."""
    log, codes = plan.log, set()
    if log.end.damage or plan.accepted or plan.trap is not None:
        codes.add("log-damage")
    if log.tail or log.removed:
        codes.add("log-tail")
    if log.mends:
        codes.add("record-displaced")
    if log.requeued:
        codes.add("unit-foreign")
    if any(queue.changed for queue in plan.every_queue) or plan.index.changed:
        codes.add("unit-missing")
    if any(one.offset + one.size != other.offset for q in plan.files.queues for one, other in pairwise(q.files)):
        codes.add("queue-gap")
    return frozenset(codes)


def after(plan: RecoverPlan) -> NextStep | None:
    """What follows a recovery that was carried out, or that had nothing to do."""
    config = plan.files.config
    if plan.trap is not None:
        return step(config, Fix.BRIDGE)
    if plan.config_broken:
        return step(config, Fix.CONFIG)
    return read(config) if plan.unread or plan.changed or plan.marks else None


def mended_by_recovery(disk: Disk, *, jobs: int | None = None) -> Mended:
    """For `check`: tells findings that a whole recovery leaves from those that it mends, by planning it."""

    def told(files: StoreFiles, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        try:
            plan = plan_recover(disk, files, whole=True, jobs=jobs)
        except RStoreError:  # recovery says itself what keeps it from planning
            return findings
        return left_by(plan, findings)

    return told
