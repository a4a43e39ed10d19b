"""`rstore expire`: one round of retention, with its plan first; in a store's daemon where there is one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import StorageError
from engine.format.quantities import moment
from rstore_cli._common import Settings, settings_of
from rstore_cli.change import Change, Verbose
from rstore_cli.daemon import WORK_S, DaemonConnection
from rstore_cli.render import count, printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.repair.expire.expire import ExpirePlan, ExpireRules


app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 20


@app.command()
def expire(
    context: typer.Context,
    reserved_hours: Annotated[
        float | None,
        typer.Option("--reserved-hours", metavar="H", min=0, help="Delete files older than this (fileReservedTime)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Delete at any hour, not only at deleteWhen.")] = False,
    disk_ratio: Annotated[
        int | None,
        typer.Option(
            "--disk-ratio",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Delete when disk usage is above this (diskMaxUsedSpaceRatio).",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and delete nothing: exit code 0 if nothing would be deleted, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    verbose: Verbose = False,
) -> None:
    """Delete the oldest files of a store, as a broker does: one round of Apache's retention.

    If `rstore serve` runs on the store, the daemon deletes the files of the plan; a store that is locked by any other
    process is refused (exit code 3).

    A round deletes at deleteWhen o'clock, when disk usage is above the ratio, or with --force. It deletes segments
    older than the reserved hours, and younger ones when disk usage is above 85 %: oldest first, never the last segment,
    at most 10 a round; then queue and index files. Nothing is saved, so the plan lists the unread, delayed and half
    messages that would be deleted.
    """
    from engine.repair.expire.expire import ExpireRules

    settings = settings_of(context)
    run = _Expire(settings, ExpireRules(force, reserved_hours, disk_ratio))
    run.verbose = verbose
    raise typer.Exit(run.run(settings.load(), dry_run=dry_run, yes=yes))


class _Expire(Change["ExpirePlan"]):
    name = "expire"

    def __init__(self, settings: Settings, rules: ExpireRules) -> None:
        super().__init__(settings)
        self._rules = rules
        self._in_use: int | None = None

    def run(self, config: StoreConfig, *, dry_run: bool, yes: bool) -> int:
        """The exit code."""
        self._daemon = DaemonConnection(config.store_path_root_dir)
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
        from engine.repair.expire.expire import plan_expire

        with self.output.progress("reading files to delete") as tick:
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
            output.text(f"Done. Log start: {plan.log_min}.")
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
                    plan.why or f"none: {plan.no_reason}; --force deletes at any hour",
                ),
                (
                    "disk",
                    f"{plan.disk_used * 100:.0f} % used"
                    + (", files are deleted whatever their age" if plan.at_once else ""),
                ),
                ("commit log", _deleted(len(plan.segments), f" with {count(plan.records, 'record')}")),
                ("space freed", size(room)),
                ("log start afterwards", str(plan.log_min)),
                ("stops there", plan.pinned),
                ("queues", _deleted(queue_files)),
                ("index", _deleted(len(plan.index_removed))),
            ]
        )
        if plan.halves:
            output.text()
            output.text("Half messages neither committed nor rolled back:")
        for half in plan.halves[:_SHOWN]:
            place = f"{printable(str(half.queue))} at {half.physical_offset}"
            output.text(f"  - {place}, stored {moment(half.store_timestamp)}")
        if len(plan.halves) > _SHOWN:
            output.text(f"  … and {len(plan.halves) - _SHOWN} more (--json lists all)")
        for problem in [one for one in plan.problems if one != plan.no_reason][:_SHOWN]:
            output.text(f"  - {printable(problem)}")
        output.text()
        output.text("Deleted files are not saved." if plan.changed else "Nothing to do.")

    def apply(self, plan: ExpirePlan) -> str | None:
        from engine.repair.expire.expire import apply_expire

        if self.beside:
            self.settings.on_interrupt = "the daemon continues"
            done = self._daemon.ask("POST", "/expire", {"before": plan.log_min}, wait_s=WORK_S)
            if done is None:
                raise StorageError("the daemon has gone", path=plan.files.root, hint="run rstore expire again")
            if done["minOffset"] < plan.log_min:
                self.output.warn(f"Log start: {done['minOffset']}; files still being read are deleted later.")
            return None
        self.settings.on_interrupt = "some files are deleted, the store is sound; run rstore expire again for the rest"
        apply_expire(self.disk, plan)
        self.settings.on_interrupt = "the files are deleted"
        return None


def _deleted(files: int, what: str = "") -> str:
    return f"{count(files, 'file')}{what if files else ''} will be deleted"
