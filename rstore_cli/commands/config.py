"""`rstore config`: the states of config/ that a daemon kept, and bringing one back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.format.quantities import moment
from rstore_cli._common import parse_time, settings_of
from rstore_cli.change import ChangeCommand
from rstore_cli.render import printable, size

if TYPE_CHECKING:
    from engine.repair.config.restore import RestorePlan

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="List or restore the config history, which rstore serve keeps in config.history/ of the store.",
)
_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z")


@app.command("history")
def history_(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Only this file, for example topics.json.")
    ] = None,
) -> None:
    """List the kept states, newest first: time, file, and what changed."""
    settings = settings_of(context)
    output = settings.output()

    from engine.files.disk import Disk
    from engine.repair.config.restore import history

    states = history(Disk(), settings.load(), file)
    if output.json:
        for line in states:
            output.line(line.to_json())
    elif not states:
        output.text("The config history is empty: rstore serve keeps it while it runs, on stores of RocketMQ 4.9.")
    else:
        rows = [
            [moment(one.state.time_ms), one.state.name, size(one.state.size), one.state.id, printable(one.change)]
            for one in states
        ]
        output.table(["time", "file", "size", "id", "change"], rows, numbers=(2,), whole=(1, 3))


@app.command()
def restore(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="For example topics.json.")],
    at: Annotated[
        str, typer.Option("--at", metavar="TIME|ID", help="The id of a state, or a time: the newest state up to it.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Restore one state of a file of config/ in a closed store. rstore undo undoes it."""
    settings = settings_of(context)
    place = at if _ID.fullmatch(at) else parse_time(at, "--at")
    from engine.repair.config.change import RestoreChange

    change = RestoreChange(file, place)
    raise typer.Exit(_Restore(settings, change).run(settings.load(), dry_run=dry_run, yes=yes))


class _Restore(ChangeCommand["RestorePlan"]):
    def json(self, plan: RestorePlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage)

    def text(self, plan: RestorePlan, *, done: bool, salvage: str | None) -> None:
        if done:
            self.output.text(
                f"Done: config/{plan.state.name} is restored to its state of {moment(plan.state.time_ms)}."
            )
            if salvage is not None:
                self.output.text(f"The old file is in {salvage}; rstore undo restores it.")
            return
        self.output.facts(
            [
                ("file", plan.path),
                ("state", f"{plan.state.id} ({moment(plan.state.time_ms)}, {size(plan.state.size)})"),
                ("changes", printable(plan.change)),
            ]
        )
        if not plan.changed:
            self.output.text("Nothing to do: the file already has that state.")
