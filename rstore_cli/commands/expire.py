"""`rstore expire`: one round of retention, with its plan first; in a store's daemon where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.daemon import daemon_of
from engine.format.quantities import moment
from rstore_cli._common import settings_of
from rstore_cli.change import ChangeCommand, Verbose
from rstore_cli.render import count, printable, size
from rstore_cli.repository import Archive, ArchiveName, ArchiveOptions, KeyCommand, KeyFile, open_repo

if TYPE_CHECKING:
    from pathlib import Path

    from engine.backup.archive.keeping import ArchiveKeeper
    from engine.repair.expire.expire import ExpirePlan


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
    archive: Archive = None,
    archive_name: ArchiveName = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
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

    With --archive a segment is only deleted when a snapshot in that repository has all its bytes, which are read back
    and compared; it is kept there, whatever backup forget removes, and get and query --archive read it.
    """
    from engine.repair.expire.change import ExpireChange
    from engine.repair.expire.expire import ExpireRules

    settings = settings_of(context)
    ArchiveOptions(archive, archive_name, key_file, key_command).demand_archive()
    config = settings.load()
    daemon = daemon_of(config.store_path_root_dir)
    keeper = None if not archive else _keeper(archive, archive_name, key_file, key_command)
    change = ExpireChange(ExpireRules(force, reserved_hours, disk_ratio), daemon, keeper)
    raise typer.Exit(_Expire(settings, change, verbose=verbose).run(config, dry_run=dry_run, yes=yes))


def _keeper(location: str, name: str | None, key_file: Path | None, key_command: str | None) -> ArchiveKeeper:
    from engine.backup.archive.keeping import ArchiveKeeper

    return ArchiveKeeper(open_repo(location, key_file, key_command), name)


class _Expire(ChangeCommand["ExpirePlan"]):
    def json(self, plan: ExpirePlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
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
                *([] if plan.held is None else [("archive", f"{count(len(plan.held), 'segment')} read back")]),
                ("remaining files", plan.pinned),
                ("queues", _deleted(queue_files)),
                ("index", _deleted(len(plan.index_removed))),
            ]
        )
        if plan.half_messages:
            output.text()
            output.text("Half messages neither committed nor rolled back:")
        for half in plan.half_messages[:_SHOWN]:
            place = f"{printable(str(half.queue))} at {half.physical_offset}"
            output.text(f"  - {place}, stored {moment(half.store_timestamp)}")
        if len(plan.half_messages) > _SHOWN:
            output.text(f"  … and {len(plan.half_messages) - _SHOWN} more (--json lists all)")
        for problem in [one for one in plan.problems if one != plan.no_reason][:_SHOWN]:
            output.text(f"  - {printable(problem)}")
        output.text()
        output.text(_last(plan))


def _deleted(files: int, what: str = "") -> str:
    return f"{count(files, 'file')}{what} will be deleted" if files else "no files will be deleted"


def _last(plan: ExpirePlan) -> str:
    if not plan.changed:
        return "Nothing to do."
    return "Deleted files are not saved." if not plan.held else "Deleted segments stay in the archive."
