"""`rstore expire`: one round of retention, after what it costs was told; in a store's daemon where there is one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import StorageError
from rstore_cli._common import Settings, settings_of
from rstore_cli.change import Change, Verbose
from rstore_cli.daemon import WORK_S, Daemon
from rstore_cli.render import count, moment, printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.repair.expire import ExpirePlan, Rules


app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 20


@app.command()
def expire(
    context: typer.Context,
    reserved_hours: Annotated[
        float | None,
        typer.Option("--reserved-hours", metavar="H", min=0, help="Hours that a file is kept (fileReservedTime)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="By hand: whatever the hour (deleteWhen).")] = False,
    disk_ratio: Annotated[
        int | None,
        typer.Option(
            "--disk-ratio",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Delete when the disk is used above this (diskMaxUsedSpaceRatio).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan: exit 0 if nothing would go, else 1.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    verbose: Verbose = False,
) -> None:
    """Delete the oldest files of a store, as a broker does: one round of Apache's rule.

    Beside a running `rstore serve` the daemon deletes what the plan names; any other live process is refused (exit 3).

    There is a reason to delete when it is deleteWhen o'clock, when the disk is used above the ratio, or with --force.
    A file goes when it is older than the reserved hours; at once when the disk is used above 85 %. Oldest first, never
    the last, at most 10 a round; queue and index files follow. What goes is gone: nothing is saved. So the plan says
    what consumers have not read, and which delayed and half messages are in there.
    """
    from engine.repair.expire import Rules

    settings = settings_of(context)
    run = _Expire(settings, Rules(force, reserved_hours, disk_ratio))
    run.verbose = verbose
    raise typer.Exit(run.run(settings.load(), dry_run=dry_run, yes=yes))


class _Expire(Change["ExpirePlan"]):
    name = "expire"

    def __init__(self, settings: Settings, rules: Rules) -> None:
        super().__init__(settings)
        self._rules = rules
        self._in_use: int | None = None

    def run(self, config: StoreConfig, *, dry_run: bool, yes: bool) -> int:
        """The exit code."""
        self._daemon = Daemon(config.store_path_root_dir)
        said = self._daemon.ask("GET", "/in-use")
        if said is not None:
            self._in_use = said["inUse"]
            self.beside = True
        return super().run(config, dry_run=dry_run, yes=yes)

    @contextlib.contextmanager
    def _holding(self, root: str) -> Iterator[None]:
        with contextlib.nullcontext() if self.beside else super()._holding(root):
            yield

    def plan(self, config: StoreConfig) -> ExpirePlan:
        from engine.repair.expire import plan_expire

        with self.output.progress("reading what goes") as tick:
            return plan_expire(self.disk, config, self._rules, progress=tick, in_use=self._in_use)

    def refusal(self, plan: ExpirePlan) -> RStoreError | None:
        return plan.refusal

    def changes(self, plan: ExpirePlan) -> bool:
        return plan.changed

    def json(self, plan: ExpirePlan, salvage: str | None) -> dict[str, Any]:
        return plan.to_json()

    def text(self, plan: ExpirePlan, *, done: bool, salvage: str | None) -> None:
        output = self.output
        if done:
            output.text()
            output.text(f"Done. The log begins at {plan.log_min}.")
            return
        from rstore_cli.plan_text import show_unread

        show_unread(output, plan.unread)
        queue_files = sum(len(queue.removed) for queue in plan.queues)
        room = sum(segment.size for segment in plan.segments)
        output.facts(
            [
                ("store", plan.files.root),
                (
                    "reason",
                    plan.why or f"none: {plan.no_reason}; --force asks by hand",
                ),
                ("disk", f"{plan.disk_used:.0%} used" + (", files go whatever their age" if plan.at_once else "")),
                ("commit log", f"{count(len(plan.segments), 'file')} with {count(plan.records, 'record')} go"),
                ("room", size(room)),
                ("begins then at", str(plan.log_min)),
                ("stops there", plan.pinned),
                ("queues", f"{count(queue_files, 'file')} go"),
                ("index", f"{count(len(plan.index_removed), 'file')} go"),
            ]
        )
        if plan.halves:
            output.text()
            output.text("Halves of transactions that nobody has committed or rolled back:")
        for half in plan.halves[:_SHOWN]:
            place = f"{printable(str(half.queue))} at {half.physical_offset}"
            output.text(f"  - {place}, stored {moment(half.store_timestamp)}")
        if len(plan.halves) > _SHOWN:
            output.text(f"  … and {len(plan.halves) - _SHOWN} more (--json lists all)")
        for problem in [one for one in plan.problems if one != plan.no_reason][:_SHOWN]:
            output.text(f"  - {printable(problem)}")
        output.text()
        output.text("What expires is deleted for good, not saved." if plan.changed else "Nothing to do.")

    def apply(self, plan: ExpirePlan) -> str | None:
        from engine.repair.expire import apply_expire

        if self.beside:
            self.settings.on_interrupt = "the daemon goes on with it"
            done = self._daemon.ask("POST", "/expire", {"before": plan.log_min}, wait_s=WORK_S)
            if done is None:
                raise StorageError("the daemon has gone", path=plan.files.root, hint="run rstore expire again")
            if done["minOffset"] < plan.log_min:
                self.output.warn(f"The log begins at {done['minOffset']}: what is still read goes later.")
            return None
        self.settings.on_interrupt = "some files are deleted, the store is sound; run rstore expire again for the rest"
        apply_expire(self.disk, plan)
        self.settings.on_interrupt = "the files are deleted"
        return None
