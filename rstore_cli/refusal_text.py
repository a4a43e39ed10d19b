"""A refused recovery in ten lines: what --bridge would do, which loses nothing sound, before what --cut would."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rstore_cli.plan_text import show_plan
from rstore_cli.render import Output, count, messages_in, printable, short, size

if TYPE_CHECKING:
    from engine.repair.recover.ledger import Ledger
    from engine.repair.recover.plan import RecoverPlan

LINES = 10
"""What a refusal shows on a wide screen without --verbose, the error aside."""
_NAMED = 2


def show_bridge_first(
    output: Output,
    bridged: RecoverPlan,
    ledger: Ledger,
    refused: RecoverPlan,
    refused_ledger: Ledger,
    *,
    keep: bool,
    salvage_dir: str | None,
    verbose: bool,
) -> None:
    """Print it.

    Args:
        output: where to.
        bridged: the plan with --bridge, which is not refused.
        ledger: its queues' offsets.
        refused: the plan that was refused.
        refused_ledger: likewise.
        keep: whether what goes is saved.
        salvage_dir: where to, None for the store's own.
        verbose: both plans as a whole.
    """
    after = refused.log.end.records_after
    output.text("REFUSED, nothing was changed. What --bridge would do:", style="red")
    if verbose:
        output.text()
        show_plan(output, bridged, changes=True, done=False, salvage=None, keep=keep, ledger=ledger)
        output.text()
        output.text("Refused, because it would end the log at the damage:" if after else "What was refused:")
        output.text()
        show_plan(output, refused, changes=True, done=False, salvage=None, keep=keep, ledger=refused_ledger)
        return
    output.facts(_brief(bridged, ledger, keep=keep, salvage_dir=salvage_dir))
    instead = f"--cut would remove {count(after, 'sound message')} instead. " if after else ""
    output.text(f"{instead}--verbose shows {'both plans' if after else 'the whole plan'}.")


def _brief(plan: RecoverPlan, ledger: Ledger, *, keep: bool, salvage_dir: str | None) -> list[tuple[str, str]]:
    """One line each."""
    log, end = plan.log, plan.log.end
    changed = sum(queue.changed for queue in plan.every_queue)
    done = [
        (len(plan.layout.relocations) + len(plan.layout.resizes), "file", "renamed or resized"),
        (sum(shift.records for shift in log.shifts), "record", "moved to its offset"),
        (len(log.taken), "range", "restored from copies"),
        (len(log.bridges), "damaged range", "bridged"),
        (len(end.gaps), "gap", "accepted"),
    ]
    changes = [f"{count(number, what)} {does}" for number, what, does in done if number]
    if plan.set_aside:
        name = printable(os.path.relpath(plan.set_aside[0].path, plan.files.root))
        more = f" and {len(plan.set_aside) - 1} more" if len(plan.set_aside) > 1 else ""
        changes.append(f"{name}{more} moved to quarantine/")
    place = salvage_dir or os.path.join(plan.files.root, "salvage")
    return [
        ("store", plan.files.root),
        ("findings", _first_finding(plan)),
        ("changes", "; ".join(changes) or "corrects the findings"),
        ("keeps", f"{messages_in(end.messages, end.records, 'sound record')}; the log ends at {end.end}"),
        ("lost", _lost(plan, ledger)),
        ("queues", f"{count(len(plan.every_queue), 'queue')}, {changed or 'none'} of them changed"),
        ("saves", f"overwritten data, to {place}" if keep else "nothing (--no-salvage)"),
    ]


def _first_finding(plan: RecoverPlan) -> str:
    """The first finding, and how many more there are."""
    if not plan.problems:
        return "none"
    more = len(plan.problems) - 1
    return printable(plan.problems[0]) + (f"; {count(more, 'more finding')}" if more else "")


def _lost(plan: RecoverPlan, ledger: Ledger) -> str:
    """What has no sound copy: bytes of segments that are not there, and queue offsets."""
    spans = [(line.queue, start, end) for line in ledger.queues for start, end in (*line.gone, *line.repeated)]
    parts = []
    missing = sum(gap.length for gap in plan.log.end.gaps)
    if missing:
        parts.append(f"the messages of {size(missing)} of missing segments")
    number = sum(end - start for _, start, end in spans)
    shown = [
        f"{short(str(queue))} #{start}" + (f" to #{end - 1}" if end - start > 1 else "")
        for queue, start, end in spans[:_NAMED]
    ]
    if number:
        more = ", …" if len(spans) > _NAMED else ""
        parts.append(f"{count(number, 'queue offset')}: {', '.join(shown)}{more}")
    return "; ".join(parts) or "nothing"
