"""`rstore restore`: a store from a snapshot, whole or up to a moment; a plain one from a DLedger store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Jobs, parse_size, parse_time, settings_of
from rstore_cli.render import count, printable, size
from rstore_cli.repository import KeyCommand, KeyFile, Repo, open_repo

if TYPE_CHECKING:
    from engine.backup.restore.dledger import DLedgerPlan, MigratedStore
    from engine.backup.restore.restore import RestoredStore
    from engine.inspect.check.check import CheckResult
    from rstore_cli._common import Settings
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def restore(
    context: typer.Context,
    snapshot: Annotated[str, typer.Argument(metavar="[SNAPSHOT]", help="Its ID, or the beginning of it.")] = "latest",
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The store whose latest snapshot is restored.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="Leave out what was stored after this moment.")
    ] = None,
    to_offset: Annotated[
        str | None, typer.Option("--to-offset", metavar="OFFSET", help="Leave out records from this physical offset.")
    ] = None,
    before_message: Annotated[
        str | None, typer.Option("--before-message", metavar="ID", help="Leave out this message and all after it.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Restore this topic alone, as a store of its own (repeatable)."),
    ] = None,
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets",
            metavar="MODE",
            help="Consumer offsets: as-were; no-repeats (to the end of each queue); no-misses (those of the last "
            "snapshot before the end of the restored log).",
        ),
    ] = "as-were",
    from_dledger: Annotated[
        Path | None,
        typer.Option("--from-dledger", metavar="DIR", help="Make a plain store of this DLedger store instead."),
    ] = None,
    from_conf: Annotated[
        Path | None, typer.Option("--from-conf", metavar="FILE", help="The broker.conf of that DLedger store.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --from-dledger: show the plan and change nothing (exit code 1)."),
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not read the restored store once more to check it.")
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Restore a snapshot into --store, an empty or a new directory, and check it.

    --topic restores some topics alone: messages keep their queue offsets and get new physical offsets. So do those of
    a DLedger store, which --from-dledger reads instead of a repository: it is not changed, its broker must be stopped.

    Without SNAPSHOT the latest one is restored. Every piece is proved before it is written; queues and index are made
    from the log. After an interruption, run the same command again. Exit code 1 when the log has the damage that it had
    when it was backed up.
    """
    settings = settings_of(context)
    output = settings.output()
    if from_dledger is not None:
        given = (name, to_time, to_offset, before_message, topic, key_file, key_command)
        if snapshot != "latest" or offsets != "as-were" or any(one is not None for one in given):
            raise InvalidArgument("--from-dledger takes all messages of a store: no snapshot, no selection")
        raise typer.Exit(_from_dledger(settings, from_dledger, from_conf, jobs, dry_run=dry_run, no_check=no_check))
    if dry_run or from_conf is not None:
        raise InvalidArgument("--dry-run and --from-conf require --from-dledger")

    from engine.backup.restore.cut import Upto
    from engine.backup.restore.offsets import Offsets
    from engine.backup.restore.restore import RestoreOptions
    from engine.backup.restore.restore import restore as make
    from engine.files.disk import Disk
    from engine.inspect.check.check import check

    try:
        mode = Offsets(offsets)
    except ValueError:
        raise InvalidArgument(f"--offsets: {offsets!r} is not one of {', '.join(Offsets)}") from None
    upto = Upto(
        None if to_time is None else parse_time(to_time, "--to-time"),
        None if to_offset is None else parse_size(to_offset, "--to-offset"),
        before_message,
    )
    options = RestoreOptions(upto, mode, jobs, frozenset(topic or ()))
    config = settings.load()
    repository = open_repo(repo, key_file, key_command)
    found_name, wanted = repository.find(snapshot, name)
    settings.on_interrupt = "the store is not restored yet; the same command continues"
    disk = Disk()
    with output.progress("restoring") as tick:
        restored = make(disk, config, repository, found_name, wanted, options, tick)
    settings.on_interrupt = "the store is restored, and was not checked: rstore check"
    checked = None
    if restored.refusal is None and not no_check:
        with output.progress("checking") as tick:
            checked = check(disk, settings.load(), jobs=jobs, progress=tick)
    if output.json:
        output.document({**restored.to_json(), "check": None if checked is None else checked.to_json()})
    else:
        _show(output, restored, checked)
    raise typer.Exit(OK if restored.refusal is None and (checked is None or checked.ok) else FOUND)


def _from_dledger(
    settings: Settings, source: Path, conf: Path | None, jobs: int | None, *, dry_run: bool, no_check: bool
) -> int:
    from engine.backup.restore.dledger import migrate, plan_migration
    from engine.config import of_store
    from engine.files.disk import Disk
    from engine.inspect.check.check import check
    from rstore_cli.access import demand_access

    output = settings.output()
    config = settings.load()
    demand_access(source, settings.words)
    disk, of_source = Disk(), of_store(source, conf)
    if dry_run:
        plan = plan_migration(disk, config, of_source)
        if output.json:
            output.document({**plan.to_json(), "done": False})
        else:
            _show_plan(output, plan)
            output.text("Nothing was changed.")
        return FOUND
    settings.on_interrupt = "the store is not complete yet; the same command makes it"
    with output.progress("reading entries") as tick:
        made = migrate(disk, config, of_source, jobs=jobs, progress=tick)
    settings.on_interrupt = "the store is complete, and was not checked: rstore check"
    checked = None
    if made.refusal is None and not no_check:
        with output.progress("checking") as tick:
            checked = check(disk, settings.load(), jobs=jobs, progress=tick)
    if output.json:
        output.document({**made.to_json(), "done": True, "check": None if checked is None else checked.to_json()})
    else:
        _show_plan(output, made.plan)
        _show_made(output, made, checked)
    return OK if not made.lost_ranges and made.refusal is None and (checked is None or checked.ok) else FOUND


def _show_plan(output: Output, plan: DLedgerPlan) -> None:
    plain = f" and {count(plan.plain_segments, 'plain segment')}" if plan.plain_segments else ""
    output.text(
        f"{count(plan.entry_files, 'file')} of DLedger's entries{plain} of {printable(plan.source)}, "
        f"offsets {plan.start} to {plan.end}, become a plain store in {printable(plan.target)}"
    )
    output.text(f"Queue offsets, times, hosts and properties stay; {count(len(plan.beside), 'file')} come along.")
    for note in plan.notes:
        output.text(f"Note: {note}.")


def _show_made(output: Output, made: MigratedStore, checked: CheckResult | None) -> None:
    output.text(
        f"Made: {count(made.messages, 'message')} in {count(made.records, 'record')}, "
        f"offsets {made.start} to {made.end}, in {made.seconds:.1f} s"
    )
    for at, length, why in made.lost:
        output.warn(f"lost: {length} bytes at {at}: {why}")
    if made.lost_ranges > len(made.lost):
        output.warn(f"lost: {count(made.lost_ranges - len(made.lost), 'more range')}")
    for problem in made.problems:
        output.warn(problem)
    if made.refusal is not None:
        output.warn(f"Queues and index are not made: {made.refusal}")
    else:
        _show_check(output, checked)


def _show_check(output: Output, checked: CheckResult | None) -> None:
    if checked is not None and checked.ok:
        output.text("Checked: nothing is wrong.")
    elif checked is None:
        output.text("Not checked. Next: rstore check")
    else:
        output.text(f"Checked: {count(len(checked.findings), 'finding')}. Next: rstore check")


def _show(output: Output, restored: RestoredStore, checked: CheckResult | None) -> None:
    rate = f", {size(int(restored.read / restored.seconds))}/s" if restored.seconds >= 0.1 else ""
    output.text(
        f"Snapshot {restored.name.short} is restored to {printable(restored.root)}: offsets {restored.start} to "
        f"{restored.end}, {size(restored.read)} in {restored.seconds:.1f} s{rate}"
    )
    if restored.topics:
        output.text(f"Topics: {', '.join(map(printable, restored.topics))}; their messages have new physical offsets.")
    if restored.kept:
        output.text(f"{size(restored.kept)} were there already.")
    if restored.cut:
        output.text(f"{size(restored.cut)} of the snapshot's log were left out.")
    for problem in restored.problems:
        output.warn(problem)
    if restored.refusal is not None:
        output.warn(
            f"The log has damage, as it had when it was backed up; queues and index are not made: {restored.refusal}"
        )
    else:
        _show_check(output, checked)
