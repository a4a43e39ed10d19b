"""`rstore truncate`: end the log at an offset or a time; queues, extension, index and checkpoint follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import parse_time, settings_of
from rstore_cli.change import ChangeCommand, SalvageDir, Verbose, absolute

if TYPE_CHECKING:
    from engine.repair.truncate.change import TruncateChange
    from engine.repair.truncate.truncate import TruncatePlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def truncate(
    context: typer.Context,
    to_offset: Annotated[
        int | None,
        typer.Option(
            "--to-offset", metavar="N", min=0, help="New log end: a physical offset at which a record starts."
        ),
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="Cut messages with a later store time.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Read the whole log; damage before the new log end is then refused."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Don't ask for confirmation; cut unread messages, too.")
    ] = False,
    no_salvage: Annotated[
        bool, typer.Option("--no-salvage", help="Don't save removed data; it can't be restored. Requires --yes.")
    ] = False,
    salvage_dir: SalvageDir = None,
    verbose: Verbose = False,
) -> None:
    """Cut log, queues and index at one offset of the log.

    Removed data is saved to salvage/ in the store first, and the rest of the segment is zeroed, so that no old message
    reappears. Unread messages are cut only with --yes. Times are ISO 8601 (local), epoch milliseconds, or "2 hours
    ago". The plan lists which segments were read; --whole reads all up to the new log end.
    """
    settings = settings_of(context)
    if (to_offset is None) == (to_time is None):
        raise InvalidArgument("truncate requires either --to-offset or --to-time")
    if no_salvage and not (yes or dry_run):
        raise InvalidArgument("--no-salvage requires --yes: cut data is lost", hint="add --yes")
    when = None if to_time is None else parse_time(to_time, "--to-time")
    from engine.repair.truncate.change import TruncateChange

    change = TruncateChange(
        to_offset, when, whole=whole, agreed=yes, keep=not no_salvage, salvage_dir=absolute(salvage_dir)
    )
    raise typer.Exit(_Truncate(settings, change, verbose=verbose).run(settings.load(), dry_run=dry_run, yes=yes))


class _Truncate(ChangeCommand["TruncatePlan"]):
    change: TruncateChange

    def json(self, plan: TruncatePlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return {**plan.to_json(salvage=salvage), "changed": plan.repair.would_change}

    def text(self, plan: TruncatePlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.plan_text import show_plan, show_unread

        if not done:
            show_unread(self.output, plan.unread)
        show_plan(
            self.output,
            plan.repair,
            changes=plan.repair.would_change,
            done=done,
            salvage=salvage,
            keep=self.change.keep,
            ledger=plan.ledger,
            refused=self.change.refusal(plan) is not None,
            salvage_dir=self.change.salvage_dir,
        )
