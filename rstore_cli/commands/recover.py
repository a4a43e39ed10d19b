"""`rstore recover`: look, say what would change, ask, do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import Jobs, parse_duration, settings_of
from rstore_cli.change import ChangeCommand, SalvageDir, Verbose, absolute

if TYPE_CHECKING:
    from engine.repair.change import ChangeRun
    from engine.repair.recover.change import RecoverChange, Recovery

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def recover(
    context: typer.Context,
    normal: Annotated[bool, typer.Option("--normal", help="Normal recovery, even if the abort file exists.")] = False,
    abnormal: Annotated[
        bool, typer.Option("--abnormal", help="Abnormal recovery, even if the abort file is missing.")
    ] = False,
    cut: Annotated[
        bool,
        typer.Option(
            "--cut", help="End the log at damage in the middle; sound records after it are saved to salvage/."
        ),
    ] = False,
    bridge: Annotated[
        bool,
        typer.Option(
            "--bridge", help="Write inert records over damage in the middle; all sound records after it are kept."
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Read the whole log and all index files, not only the last ones."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    verbose: Verbose = False,
    no_salvage: Annotated[
        bool, typer.Option("--no-salvage", help="Don't save removed data; it can't be restored. Requires --yes.")
    ] = False,
    salvage_dir: SalvageDir = None,
    log_is_gone: Annotated[
        bool,
        typer.Option("--yes-the-log-is-gone", help="Confirm that the commit log is lost: delete the queues, too."),
    ] = False,
    time_box: Annotated[
        str | None,
        typer.Option("--time-box", metavar="TIME", help="Time limit for reading (30m, 2h); the next run resumes."),
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Recover a store after a crash: find the log end, and bring queues and index up to date with the log.

    Shows the plan and asks. Removed data is saved to salvage/ in the store first. Damage in the middle of the log is
    refused (exit code 4): --bridge keeps all sound records after it, --cut ends the log there. Only the last segments
    are read where the queues account for the others (the plan lists them); --whole reads the whole log. The progress of
    a long recovery is saved: after a kill, or at its time limit (exit code 1), the next run resumes.
    """
    settings = settings_of(context)
    if normal and abnormal:
        raise InvalidArgument("--normal and --abnormal exclude each other")
    if bridge and cut:
        raise InvalidArgument("--bridge and --cut exclude each other", hint="--bridge keeps all sound records")
    if time_box is not None and dry_run:
        raise InvalidArgument(
            "--time-box and --dry-run exclude each other",
            hint="a dry run writes nothing, so it saves no progress to resume",
        )
    if no_salvage and not (yes or dry_run):
        raise InvalidArgument("--no-salvage requires --yes: removed data is lost", hint="add --yes")
    config = settings.load(numpy=True)

    from engine.repair.recover.change import RecoverChange
    from engine.repair.recover.log_end import Mode

    change = RecoverChange(
        mode=Mode.NORMAL if normal else Mode.ABNORMAL if abnormal else None,
        cut=cut,
        bridge=bridge,
        whole=whole,
        log_is_gone=log_is_gone,
        time_box_ms=None if time_box is None else parse_duration(time_box, "--time-box"),
        jobs=jobs,
        keep=not no_salvage,
        salvage_dir=absolute(salvage_dir),
    )
    raise typer.Exit(_Recover(settings, change, verbose=verbose).run(config, dry_run=dry_run, yes=yes))


class _Recover(ChangeCommand["Recovery"]):
    change: RecoverChange

    def json(self, plan: Recovery, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage=salvage)

    def text(self, plan: Recovery, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.plan_text import show_plan

        show_plan(
            self.output,
            plan.repair,
            changes=plan.repair.would_change,
            done=done,
            salvage=salvage,
            keep=self.change.keep,
            ledger=plan.ledger,
            salvage_dir=self.change.salvage_dir,
        )

    def show_refused(self, run: ChangeRun, plan: Recovery) -> None:
        """What --bridge would do comes first, where that is what the refusal names."""
        from rstore_cli.refusal_text import show_bridge_first

        bridged = self.change.bridged(run, plan)
        if bridged is None:
            super().show_refused(run, plan)
            return
        show_bridge_first(
            self.output,
            bridged.repair,
            bridged.ledger,
            plan.repair,
            plan.ledger,
            keep=self.change.keep,
            salvage_dir=self.change.salvage_dir,
            verbose=self.verbose,
        )
