"""`rstore recover`: look, say what would change, ask, do it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import Jobs, Settings, parse_duration, settings_of
from rstore_cli.change import Change, SalvageDir, Verbose, absolute

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
    from engine.repair.recover.ledger import Ledger
    from engine.repair.recover.plan import RecoverPlan

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
        raise InvalidArgument("--bridge and --cut exclude each other", hint="--bridge loses nothing that is sound")
    if time_box is not None and dry_run:
        raise InvalidArgument(
            "--time-box and --dry-run exclude each other",
            hint="a dry run writes nothing, so it saves no progress to resume",
        )
    if no_salvage and not (yes or dry_run):
        raise InvalidArgument("--no-salvage loses what recovery removes, for good", hint="give --yes, too, to do that")
    config = settings.load()

    from engine.repair.recover.log_end import Mode

    run = Recover(
        settings,
        mode=Mode.NORMAL if normal else Mode.ABNORMAL if abnormal else None,
        cut=cut,
        bridge=bridge,
        whole=whole,
        log_is_gone=log_is_gone,
        keep=not no_salvage,
        salvage_dir=absolute(salvage_dir),
        time_box_ms=None if time_box is None else parse_duration(time_box, "--time-box"),
        jobs=jobs,
    )
    run.verbose = verbose
    raise typer.Exit(run.run(config, dry_run=dry_run, yes=yes))


class Recover(Change["RecoverPlan"]):
    """One run of the command."""

    name = "recover"
    _ledger: Ledger
    _config: StoreConfig

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(settings)
        self._keep: bool = options.pop("keep")
        self._salvage_dir: str | None = options.pop("salvage_dir")
        self._options = options

    def plan(self, config: StoreConfig) -> RecoverPlan:
        """See the base."""
        from engine.inspect.store.settled import with_light_queues
        from engine.repair.recover.ledger import ledger_of
        from engine.repair.recover.recover import plan_recover
        from engine.repair.start.config_start import with_config

        self._config = config = with_light_queues(self.disk, config)
        with self.output.progress("reading the log") as tick:
            plan = plan_recover(self.disk, config, locked=self.locked, progress=tick, **self._options)
        self._ledger = ledger_of(self.disk, plan)
        return with_config(self.disk, plan)

    def refusal(self, plan: RecoverPlan) -> RStoreError | None:
        """See the base."""
        return plan.refusal

    def changes(self, plan: RecoverPlan) -> bool:
        """See the base."""
        return would_change(plan)

    def json(self, plan: RecoverPlan, salvage: str | None) -> dict[str, Any]:
        """See the base."""
        said = plan.to_json(salvage=salvage)
        problems = [*said["problems"], *self._ledger.problems]
        return {**said, **self._ledger.to_json(), "problems": problems, "changed": would_change(plan)}

    def following(self, plan: RecoverPlan) -> NextStep | None:
        """See the base."""
        from engine.repair.recover.following import after

        return after(plan)

    def unchanged(self, config: StoreConfig) -> None:
        """See the base. A plan that changes nothing has found no killed repair; what was read before is done with."""
        from engine.repair.recover.memory import forget

        forget(self.disk, os.fspath(config.store_path_root_dir))

    def text(self, plan: RecoverPlan, *, done: bool, salvage: str | None) -> None:
        """See the base."""
        from rstore_cli.plan_text import show_plan

        changes, ledger = would_change(plan), self._ledger
        show_plan(
            self.output,
            plan,
            changes=changes,
            done=done,
            salvage=salvage,
            keep=self._keep,
            ledger=ledger,
            salvage_dir=self._salvage_dir,
        )

    def refused(self, plan: RecoverPlan) -> None:
        """See the base. What --bridge would do comes first, where that is what the refusal names."""
        from engine.repair.recover.ledger import ledger_of
        from rstore_cli.refusal_text import show_bridge_first

        bridged = self._bridged(plan)
        if bridged is None:
            super().refused(plan)
            return
        show_bridge_first(
            self.output,
            bridged,
            ledger_of(self.disk, bridged),
            plan,
            self._ledger,
            keep=self._keep,
            salvage_dir=self._salvage_dir,
            verbose=self.verbose,
        )

    def _bridged(self, plan: RecoverPlan) -> RecoverPlan | None:
        """The plan with --bridge, where the refusal names it and it would be carried out."""
        from engine.errors import RStoreError
        from engine.repair.recover.recover import plan_recover
        from engine.repair.start.config_start import with_config

        following = None if plan.refusal is None else plan.refusal.next
        if self._options["bridge"] or following is None or "--bridge" not in (following.command or "").split():
            return None
        options = {**self._options, "bridge": True, "cut": False}
        try:
            with self.output.progress("reading the log for --bridge") as tick:
                found = plan_recover(self.disk, self._config, locked=self.locked, progress=tick, **options)
        except RStoreError:  # what was found before is told
            return None
        return None if found.refusal is not None else with_config(self.disk, found)

    def apply(self, plan: RecoverPlan) -> str | None:
        """See the base."""
        from engine.repair.recover.apply import apply

        self.settings.on_interrupt = (
            f"the repair is not finished, nothing is lost; run rstore recover again. "
            f"What it removed is in {os.path.join(plan.files.root, 'salvage')}"
        )
        again = self._words()
        applied = apply(self.disk, plan, keep=self._keep, salvage_dir=self._salvage_dir, again=again)
        self.settings.on_interrupt = "the store is recovered"
        return applied.salvage

    def _words(self) -> list[str]:
        """The command with the options that decide what it does."""
        from engine.repair.recover.log_end import Mode

        mode, chosen = self._options["mode"], self._options
        named = {
            "--normal": mode is Mode.NORMAL,
            "--abnormal": mode is Mode.ABNORMAL,
            "--bridge": chosen["bridge"],
            "--cut": chosen["cut"],
            "--whole": chosen["whole"],
            "--yes-the-log-is-gone": chosen["log_is_gone"],
        }
        return ["recover", *(name for name, is_given in named.items() if is_given)]


def would_change(plan: RecoverPlan) -> bool:
    """Whether applying the plan changes a byte: also when it only takes the abort file away."""
    return plan.changed or plan.marks
