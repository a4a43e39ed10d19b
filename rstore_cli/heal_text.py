"""A heal's plan in words: what comes back from where, what stays, who has read past it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format.quantities import counted
from engine.heal.plan import Proof
from rstore_cli.plan_text import show_ledger
from rstore_cli.render import Output, count, printable, short, size

if TYPE_CHECKING:
    from engine.heal.plan import HealedPart, HealPlan

_SHOWN = 20


def show_heal(
    output: Output, plan: HealPlan, *, done: bool, salvage: str | None, salvage_dir: str | None = None
) -> None:
    """Print the plan, or what was done (`done`, with the salvage directory)."""
    if done:
        output.text()
        output.text(f"Done. {_sum(plan)}.")
        if salvage is not None:
            output.text(f"Overwritten data is in {salvage}")
    else:
        _show_plan(output, plan)
    if plan.left:
        what = counted(len(plan.left), "damaged range stays", "damaged ranges stay")
        output.text(f"{what} in the log: no copy could be proved.", style="yellow")
    if plan.ledger is not None:
        show_ledger(output, plan.ledger, done=done)
    if not done:
        _show_passed(output, plan)
        output.text()
        if plan.would_change:
            place = salvage_dir or os.path.join(plan.files.root, "salvage")
            output.text(f"Overwritten data is saved to {place} first.")
        elif not plan.left:
            output.text("Nothing to do: no damage found in the log.")


def _show_plan(output: Output, plan: HealPlan) -> None:
    files = plan.files
    output.facts(
        [
            ("store", files.root),
            ("damage", count(len(plan.damage.parts), "range") if plan.damage.parts else "none"),
            ("comes back", _sum(plan) if plan.healed else "nothing"),
            *([("proof", "\n".join(_proofs(plan)))] if plan.healed else []),
            *([("not touched", "queues and index: damage stays in the log")] if plan.log_only else []),
        ]
    )
    if plan.healed:
        output.text()
        output.table(
            ["offset", "bytes", "was", "messages", "from"],
            [_row(one) for one in plan.healed[:_SHOWN]],
            numbers=(0, 1, 3),
        )
        if len(plan.healed) > _SHOWN:
            output.text(f"… and {count(len(plan.healed) - _SHOWN, 'more range')} (--json lists all)")
    if plan.left:
        output.text()
        output.text("Not healed:")
        for one in plan.left[:_SHOWN]:
            why = "; ".join(one.why)
            output.text(f"  - {one.part.start}, {counted(one.part.length, 'byte')} ({one.part.why}): {printable(why)}")
        if len(plan.left) > _SHOWN:
            output.text(f"  … and {len(plan.left) - _SHOWN} more (--json lists all)")
    if plan.problems:
        output.text()
        output.text("Found:")
        for problem in plan.problems:
            output.text(f"  - {printable(problem)}")


def _row(one: HealedPart) -> list[str]:
    more = f" and {len(one.copies) - 1} more" if len(one.copies) > 1 else ""
    return [str(one.part.start), str(one.part.length), one.part.lost.value, f"{one.messages:,}", one.copies[0] + more]


def _sum(plan: HealPlan) -> str:
    ranges, messages = counted(len(plan.healed), "range"), counted(plan.messages, "message")
    return f"{messages} in {ranges} of the log ({size(plan.length)})"


def _proofs(plan: HealPlan) -> list[str]:
    lines = []
    for proof in Proof:
        many = sum(one.proof is proof for one in plan.healed)
        if many:
            lines.append(f"{counted(many, 'range')} {proof.words}")
    return lines


def _show_passed(output: Output, plan: HealPlan) -> None:
    if not plan.passed:
        return
    output.text()
    output.text("Groups whose offset is already after messages that come back, and what shows these messages:")
    for one in plan.passed[:_SHOWN]:
        output.text(
            f"  - {short(one.group)} at {one.offset} in {one.queue}: {counted(one.messages, 'message')}: {one.command}"
        )
    if len(plan.passed) > _SHOWN:
        output.text(f"  … and {len(plan.passed) - _SHOWN} more (--json lists all)")
    if plan.unread:
        output.text(f"No group will read {counted(plan.unread, 'of these messages', 'of these messages')} by itself.")
