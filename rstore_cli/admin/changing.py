"""A command that changes a running cluster: it shows the plan, asks, sends the requests, says what became of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from engine.format.quantities import counted
from rstore_cli._common import FOUND, OK, settings_of
from rstore_cli.admin.asking import Work, config_of, connected
from rstore_cli.change import agreed
from rstore_cli.render import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.admin.plan import AdminPlan, StepOutcome
    from rstore_cli.render import Output

_SHOWN = 20
"""Steps of a plan that are shown."""


def change(context: typer.Context, work: Work[AdminPlan]) -> None:
    """Make the plan, and carry it out. `context`: of a command of a Noun that changes.

    Raises:
        typer.Exit: with the exit code. InvalidArgument: nobody can answer. What `work` raises; and the first refusal,
        after what became of each step was shown.
    """
    settings = settings_of(context)
    output = settings.output()
    config = config_of(context)
    plan = asyncio.run(connected(config, work))
    if context.params["dry_run"] or not plan.changed:
        if output.json:
            output.document({**plan.to_json(), "done": False})
        else:
            _show(output, plan)
            if plan.changed:
                output.text(f"Next: {settings.again()} (applies this plan)")
        raise typer.Exit(FOUND if plan.changed else OK)
    if not output.json:
        _show(output, plan)
    if not context.params["yes"] and not agreed(output, context.command_path.removeprefix("rstore ")):
        output.warn("Nothing was changed.")
        raise typer.Exit(FOUND)
    settings.on_interrupt = "requests of the plan may have been sent"

    from engine.client.admin.plan import carry_out_plan

    outcomes = asyncio.run(connected(config, lambda _, admin: carry_out_plan(admin, plan)))
    problem = next((one.problem for one in outcomes if one.problem is not None), None)
    document = {**plan.to_json(), "done": problem is None, "outcomes": [one.to_json() for one in outcomes]}
    if problem is not None:
        settings.refused_plan = document
    elif output.json:
        output.document(document)
    if not output.json and (problem is None or len(outcomes) > 1):
        _tell(output, outcomes)
    if problem is not None:
        raise problem


def _show(output: Output, plan: AdminPlan) -> None:
    rows = [[printable(one.where), printable(one.what)] for one in plan.steps]
    if not rows:
        output.text(f"Nothing to do for {printable(plan.change)}.")
        return
    output.text(f"Plan: {printable(plan.change)}")
    output.table(["where", "what"], rows[:_SHOWN])
    if len(rows) > _SHOWN:
        output.text(f"… and {counted(len(rows) - _SHOWN, 'more request')}")
    for note in plan.notes:
        output.text(f"Note: {printable(note)}")


def _tell(output: Output, outcomes: Sequence[StepOutcome]) -> None:
    notable = [one for one in outcomes if one.words != "done"]
    if not notable and len(outcomes) > _SHOWN:
        output.text(f"Done: {counted(len(outcomes), 'request')}.")
        return
    shown = outcomes if len(outcomes) <= _SHOWN else notable
    output.text()
    for one in shown:
        output.text(f"{'Done' if one.is_done else 'Failed'}: {printable(one.step.where)}{_more(one)}")
    if len(shown) < len(outcomes):
        output.text(f"Done: the other {counted(len(outcomes) - len(shown), 'request')}.")


def _more(outcome: StepOutcome) -> str:
    return "" if outcome.words == "done" else f": {printable(outcome.words)}"
