"""`rstore recover`: look, say what would change, ask, do it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Settings, settings_of
from rstore_cli.render import is_terminal

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.plan import RecoverPlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def recover(
    context: typer.Context,
    normal: Annotated[
        bool, typer.Option("--normal", help="As after a clean shutdown, whatever the abort file says.")
    ] = False,
    abnormal: Annotated[
        bool, typer.Option("--abnormal", help="As after a crash, whatever the abort file says.")
    ] = False,
    cut: Annotated[
        bool,
        typer.Option("--cut", help="End the log at damage that has sound records behind it; they go to salvage/."),
    ] = False,
    bridge: Annotated[
        bool,
        typer.Option("--bridge", help="Write inert records over such damage: everything sound behind it stays."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan: exit 0 if nothing would change, else 1.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    no_salvage: Annotated[
        bool, typer.Option("--no-salvage", help="Don't save what is removed: it is lost then. Wants --yes.")
    ] = False,
    log_is_gone: Annotated[
        bool,
        typer.Option("--yes-the-log-is-gone", help="The commit log is really lost: remove the queues, too."),
    ] = False,
) -> None:
    """Bring a store that was not closed back to a sound state.

    Shows what would change and asks. What is removed goes to salvage/ in the store first. Damage with sound records
    behind it is refused (exit code 4) unless --bridge says to make it readable again, or --cut that the log may end
    there.
    """
    settings = settings_of(context)
    if normal and abnormal:
        raise InvalidArgument("--normal and --abnormal exclude each other")
    if bridge and cut:
        raise InvalidArgument("--bridge and --cut exclude each other", hint="--bridge loses nothing that is sound")
    if no_salvage and not (yes or dry_run):
        raise InvalidArgument("--no-salvage loses what recovery removes, for good", hint="give --yes, too, to do that")
    config = settings.load()

    from engine.repair.log_end import Mode

    run = _Run(
        settings,
        mode=Mode.NORMAL if normal else Mode.ABNORMAL if abnormal else None,
        cut=cut,
        bridge=bridge,
        log_is_gone=log_is_gone,
        keep=not no_salvage,
    )
    raise typer.Exit(run.dry(config) if dry_run else run.change(config, yes=yes))


class _Run:
    """One run of the command."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        from engine.files.disk import Disk

        self._settings = settings
        self._output = settings.output()
        self._disk: Disk = Disk()
        self._keep: bool = options.pop("keep")
        self._options = options

    def dry(self, config: StoreConfig) -> int:
        """Show the plan; write nothing, lock nothing."""
        from engine.files.lock import holder_of

        plan = self._plan(config)
        holder = holder_of(self._disk, plan.files.root)
        if holder is not None:
            who = f"process {holder.pid}" if holder.pid else "another process"
            self._output.note(f"note: {who} has the store open; this is what would be done if it were killed now")
        return self._show(plan)

    def change(self, config: StoreConfig, *, yes: bool) -> int:
        """Lock, plan, ask, apply."""
        from engine.files.lock import StoreLock
        from engine.repair.survey import survey

        root = survey(self._disk, config).root  # no store, no lock file
        with StoreLock(self._disk, root):
            plan = self._plan(config)
            if plan.refusal is not None or not would_change(plan):
                return self._show(plan)
            if not self._output.json:
                self._show_text(plan, done=False)
            if not (yes or self._agreed()):
                self._output.warn("Nothing was changed.")
                return FOUND
            return self._apply(plan)

    def _plan(self, config: StoreConfig) -> RecoverPlan:
        from engine.repair.recover import plan_recover

        with self._output.progress("reading the log") as tick:
            return plan_recover(self._disk, config, progress=tick, **self._options)

    def _show(self, plan: RecoverPlan) -> int:
        """The plan, and the exit code of a plan that isn't carried out; raises its refusal."""
        changes = would_change(plan)
        if self._output.json and plan.refusal is None:
            self._output.document(_json(plan, changes))
        elif self._output.json:
            self._settings.refused_plan = _json(plan, changes)
        else:
            self._show_text(plan, done=False)
        if plan.refusal is not None:
            raise plan.refusal
        return FOUND if changes else OK

    def _show_text(self, plan: RecoverPlan, *, done: bool, salvage: str | None = None) -> None:
        from rstore_cli.plan_text import show_plan

        show_plan(self._output, plan, changes=would_change(plan), done=done, salvage=salvage, keep=self._keep)

    def _agreed(self) -> bool:
        if self._output.json or not is_terminal(sys.stdin):
            raise InvalidArgument(
                "recover asks before it changes a store, and nobody is here to answer",
                hint="--yes does it without asking, --dry-run only shows the plan",
            )
        sys.stdout.flush()
        print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _apply(self, plan: RecoverPlan) -> int:
        from engine.repair.apply import apply

        changes = would_change(plan)
        self._settings.on_interrupt = (
            f"the repair is not finished, nothing is lost; run rstore recover again. "
            f"What it removed is in {os.path.join(plan.files.root, 'salvage')}"
        )
        applied = apply(self._disk, plan, keep=self._keep)
        self._settings.on_interrupt = "the store is recovered"
        if self._output.json:
            self._output.document(_json(plan, changes, applied.salvage))
        else:
            self._show_text(plan, done=True, salvage=applied.salvage)
        return OK


def would_change(plan: RecoverPlan) -> bool:
    """Whether applying the plan changes a byte: also when it only takes the abort file away."""
    return plan.changed or plan.files.abort != (plan.trap is not None) or not plan.files.checkpoint_ok


def _json(plan: RecoverPlan, changes: bool, salvage: str | None = None) -> dict[str, Any]:
    return {**plan.to_json(salvage=salvage), "changed": changes}
