"""`rstore salvage`: what repairs set aside, and what lies after damage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, parse_size, parse_time, settings_of
from rstore_cli.change import ChangeCommand, Verbose
from rstore_cli.repository import Archive, ArchiveName, ArchiveOptions, KeyCommand, KeyFile

if TYPE_CHECKING:
    from engine.repair.replay.plan import ReplayPlan
    from engine.repair.salvage.prune import PrunePlan

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="List, show, export, replay or prune what repairs saved; scan the log past damage.",
)
From = Annotated[str | None, typer.Option("--from", metavar="OFFSET", help="First physical offset.")]
To = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing (exit code 1).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
Displaced = Annotated[
    bool,
    typer.Option("--displaced", help="Also displaced records: whole, but at another physical offset than their own."),
]


@app.command()
def scan(
    context: typer.Context,
    start: From = None,
    end: To = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Read this file instead of the store: a segment or a piece."),
    ] = None,
    base_offset: Annotated[
        str | None,
        typer.Option("--base-offset", metavar="OFFSET", help="Physical offset of the file's first byte."),
    ] = None,
    archive: Archive = None,
    archive_name: ArchiveName = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Read the log past damage: list the lost bytes and the sound records after them.

    Reads only; a broker may be running. Exit code 1 when something is lost. A file that is not named like a segment
    needs --base-offset, unless it is a piece in salvage/. With --archive the segments that rstore expire --archive has
    deleted are read, too.
    """
    settings = settings_of(context)
    output = settings.output()
    if file is None and base_offset is not None:
        raise InvalidArgument("--base-offset requires --file")
    if file is not None and (start, end) != (None, None):
        raise InvalidArgument("--from and --to exclude --file")
    archived = ArchiveOptions(archive, archive_name, key_file, key_command)
    archived.demand_archive()
    low, high, base = _offset(start, "--from"), _offset(end, "--to"), _offset(base_offset, "--base-offset")
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.salvage_scan import scan_file, scan_store
    from rstore_cli.salvage_text import show_scan

    with output.progress("scan") as tick:
        if file is not None:
            report = scan_file(Disk(), config, str(file), base=base, progress=tick)
        else:
            with archived.open_source(config) as through:
                report = scan_store(Disk(), config, start=low, end=high, progress=tick, through=through)
    if output.json:
        output.document(report.to_json())
    else:
        show_scan(output, report)
    raise typer.Exit(FOUND if report.lost else OK)


@app.command("list")
def list_(context: typer.Context) -> None:
    """List the repairs and what they saved, newest first, and the files in quarantine/."""
    settings = settings_of(context)
    output = settings.output()

    from engine.files.disk import Disk
    from engine.inspect.dump.salvage_list import inventory
    from rstore_cli.salvage_text import show_inventory

    config = settings.load()
    with output.progress("reading what was saved") as tick:
        saved = inventory(Disk(), config, progress=tick)
    if output.json:
        output.document(saved.to_json())
    else:
        show_inventory(output, saved)


@app.command()
def show(context: typer.Context, repair: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Show the pieces of one repair: what was saved, from where, why, and the sound records in it."""
    settings = settings_of(context)
    output = settings.output()

    from engine.files.disk import Disk
    from engine.inspect.dump.salvage_list import describe
    from rstore_cli.salvage_text import show_detail

    detail = describe(Disk(), settings.load(), repair)
    if output.json:
        output.document(detail.to_json())
    else:
        show_detail(output, detail)


@app.command()
def export(
    context: typer.Context,
    repair: Annotated[str, typer.Argument(metavar="ID")],
    target: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write messages as JSON lines to FILE; - is stdout."),
    ] = None,
    raw: Annotated[
        Path | None, typer.Option("--raw", metavar="DIR", help="Write the saved bytes as segments into a new DIR.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only messages of this topic.")] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", metavar="N", min=0, help="Only messages of this queue id.")
    ] = None,
    start: From = None,
    end: To = None,
    displaced: Displaced = False,
) -> None:
    """Export what a repair saved of the log: messages as JSON lines that put --jsonl reads, or bytes as segments that
    dump commitlog reads. Changes nothing in the store.

    Exit code 1 when some of the saved bytes are in no sound record; they are counted and listed.
    """
    settings = settings_of(context)
    if (target is None) == (raw is None):
        raise InvalidArgument("--output FILE (messages) or --raw DIR (bytes) is required")
    if raw is not None and (topic, queue, start, end, displaced) != (None, None, None, None, False):
        raise InvalidArgument("--raw exports all saved bytes of the log", hint="leave out the filters")

    from rstore_cli.salvage_export import export_files, export_messages

    if raw is not None:
        raise typer.Exit(export_files(settings, repair, raw))
    from engine.repair.salvage.export import Filter

    wanted = Filter(topic, queue, _offset(start, "--from"), _offset(end, "--to"), displaced)
    raise typer.Exit(export_messages(settings, repair, target or "-", wanted))


@app.command()
def replay(
    context: typer.Context,
    repair: Annotated[
        str | None, typer.Argument(metavar="ID", help="The repair (default: the last that saved a record of the log).")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Put them into this store, existing or new, instead of --store."),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only messages of this topic (repeatable).")
    ] = None,
    displaced: Displaced = False,
    again: Annotated[bool, typer.Option("--again", help="Also messages that were already replayed.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    verbose: Verbose = False,
) -> None:
    """Put the sound records that a repair saved back as new messages, in log order.

    They keep topic, queue id, tags, keys, properties, born time and body; store time and queue offset are new, and
    consumers get them like any new message. Messages that the log still holds are skipped. After an interruption run it
    again: no message is put twice. Delayed messages that are due are delivered at once, others at their delivery time;
    open half messages are put again, so that the broker asks their producers; settled ones are skipped.
    """
    settings = settings_of(context)
    from engine.repair.replay.plan import ReplayRequest
    from engine.replay import ReplayChange

    request = ReplayRequest(repair, into, tuple(sorted(set(topics))) if topics else None, displaced, again)
    run = _Replay(settings, ReplayChange(request), verbose=verbose)
    raise typer.Exit(run.run(settings.load(), dry_run=dry_run, yes=yes))


@app.command()
def prune(
    context: typer.Context,
    repairs: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The repairs to prune.")] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="N", help="Keep the last N repairs, prune the others.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Prune repairs older than 30d, 12h, or made before a time."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete what repairs saved, to free space; they can no longer be undone or replayed.

    An unfinished repair, undo or replay is kept (exit code 4 when it was named). Manifests that record accepted or
    bridged ranges of the log are kept, too.
    """
    settings = settings_of(context)
    if sum((bool(repairs), keep is not None, older_than is not None)) != 1:
        raise InvalidArgument("ID, --keep N or --older-than AGE is required", hint="give one of them")
    before = None if older_than is None else _age(older_than)
    from engine.repair.salvage.change import PruneChange

    change = PruneChange(tuple(repairs or ()), keep, before)
    raise typer.Exit(_Prune(settings, change).run(settings.load(), dry_run=dry_run, yes=yes))


def _offset(text: str | None, what: str) -> int | None:
    return None if text is None else parse_size(text, what)


def _age(text: str) -> int:
    """Ms since 1970 from an age ("30d") or a time."""
    try:
        return parse_time(f"{text} ago", "--older-than")
    except InvalidArgument:
        return parse_time(text, "--older-than")


class _Replay(ChangeCommand["ReplayPlan"]):
    def json(self, plan: ReplayPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(done=done)

    def text(self, plan: ReplayPlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.salvage_text import show_replay

        show_replay(self.output, plan, done=done)


class _Prune(ChangeCommand["PrunePlan"]):
    def json(self, plan: PrunePlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(done=done)

    def text(self, plan: PrunePlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.salvage_text import show_prune

        show_prune(self.output, plan, done=done)
