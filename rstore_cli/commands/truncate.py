"""`rstore truncate`: end the log at an offset or a time; queues, extension, index and checkpoint follow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import Settings, parse_time, settings_of
from rstore_cli.change import Change, SalvageDir, Verbose, absolute
from rstore_cli.commands.recover import would_change

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
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
        raise InvalidArgument("--no-salvage loses what is cut, for good", hint="give --yes, too, to do that")
    when = None if to_time is None else parse_time(to_time, "--to-time")
    run = _Truncate(settings, to_offset, when, agreed=yes, keep=not no_salvage, whole=whole, salvage_dir=salvage_dir)
    run.verbose = verbose
    raise typer.Exit(run.run(settings.load(), dry_run=dry_run, yes=yes))


class _Truncate(Change["TruncatePlan"]):
    name = "truncate"

    def __init__(
        self,
        settings: Settings,
        to_offset: int | None,
        to_time: int | None,
        *,
        agreed: bool,
        keep: bool,
        whole: bool,
        salvage_dir: Path | None,
    ) -> None:
        super().__init__(settings)
        self._to_offset = to_offset
        self._salvage_dir = absolute(salvage_dir)
        self._to_time = to_time
        self._agreed_before = agreed
        self._keep = keep
        self._whole = whole

    def plan(self, config: StoreConfig) -> TruncatePlan:
        from engine.repair.truncate import truncate

        with self.output.progress("reading the log") as tick:
            return truncate.plan(
                self.disk,
                config,
                to_offset=self._to_offset,
                to_time=self._to_time,
                whole=self._whole,
                progress=tick,
            )

    def refusal(self, plan: TruncatePlan) -> RStoreError | None:
        return plan.refusal(agreed=self._agreed_before)

    def changes(self, plan: TruncatePlan) -> bool:
        return would_change(plan.repair)

    def json(self, plan: TruncatePlan, salvage: str | None) -> dict[str, Any]:
        return {**plan.to_json(salvage=salvage), "changed": would_change(plan.repair)}

    def following(self, plan: TruncatePlan) -> NextStep | None:
        from engine.repair.recover.following import after

        return after(plan.repair)

    def text(self, plan: TruncatePlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.plan_text import show_plan, show_unread

        if not done:
            show_unread(self.output, plan.unread)
        refused = self.refusal(plan) is not None
        changes = would_change(plan.repair)
        show_plan(
            self.output,
            plan.repair,
            changes=changes,
            done=done,
            salvage=salvage,
            keep=self._keep,
            ledger=plan.ledger,
            refused=refused,
            salvage_dir=self._salvage_dir,
        )

    def apply(self, plan: TruncatePlan) -> str | None:
        from engine.repair.recover.apply import apply

        words = ["truncate", "--to-offset", str(plan.repair.log.end.end)]
        self.settings.on_interrupt = (
            f"the cut is not finished, nothing is lost; run rstore {' '.join(words)} again. "
            f"What it removed is in {os.path.join(plan.repair.files.root, 'salvage')}"
        )
        again = [*words, *(["--whole"] if self._whole else [])]
        applied = apply(
            self.disk, plan.repair, command="truncate", keep=self._keep, salvage_dir=self._salvage_dir, again=again
        )
        self.settings.on_interrupt = "the log is cut"
        return applied.salvage
