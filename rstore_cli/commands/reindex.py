"""`rstore reindex`: rebuild consume queues and index from the log, in place or into a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import OK, Jobs, Settings, settings_of
from rstore_cli._spark import Conf, Master, SparkOptions, SplitBytes, UseSpark, the_stores
from rstore_cli.change import ChangeCommand, Verbose
from rstore_cli.render import Output, count, messages_in, printable, short

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.repair.reindex.reindex import ReindexPlan, Scope

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 20


@app.command()
def reindex(
    context: typer.Context,
    consumequeue: Annotated[bool, typer.Option("--consumequeue", help="Only the consume queues.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Only the index.")] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only the consume queues of this topic.")
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="N", min=0, help="Start at this physical offset; units and entries before it are kept."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Write them into this directory; the store is not changed."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the differences and change nothing: exit code 0 if there are none, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    verbose: Verbose = False,
    jobs: Jobs = None,
    spark: UseSpark = False,
    master: Master = None,
    conf: Conf = None,
    split_bytes: SplitBytes = None,
) -> None:
    """Rebuild consume queues and index from the log, byte for byte as dispatch writes them.

    The new files are built apart and compared with the old ones; at the end only files that differ are replaced, and
    the old ones are saved to salvage/ in the store. A queue with no message in the log keeps its files. A dry run
    builds in the system's directory for temporary files.
    """
    settings = settings_of(context)
    if topic is not None and index:
        raise InvalidArgument("--topic and --index exclude each other: all topics share the index")
    given = SparkOptions.of(master, conf, split_bytes, used=spark, jobs=jobs)
    both = not consumequeue and not index
    if spark:
        what = (consumequeue or both, index or (both and topic is None), topic, start)
        raise typer.Exit(_on_spark(settings, given, what, output, dry_run=dry_run, yes=yes))
    from engine.repair.reindex.change import ReindexChange
    from engine.repair.reindex.reindex import Scope

    scope = Scope(consumequeue or both, index or (both and topic is None), topic, start)
    config = settings.load(numpy=True)
    if output is not None and not dry_run:
        raise typer.Exit(_write(settings, config, scope, output, jobs))
    run = _Reindex(settings, ReindexChange(scope, jobs), verbose=verbose)
    raise typer.Exit(run.run(config, dry_run=dry_run, yes=yes))


def _on_spark(
    settings: Settings,
    given: SparkOptions,
    what: tuple[bool, bool, str | None, int | None],
    directory: Path | None,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """The same, by executors."""
    from engine.pipeline.jobs.reindex import Rebuilt, ReindexOptions
    from engine.pipeline.splits import SPLIT_BYTES
    from rstore_cli.rebuild_spark import rebuild

    queues, index, topic, start = what
    place = None if directory is None else os.fspath(directory.absolute())
    options = ReindexOptions(
        queues=queues, index=index, topic=topic, start=start, output=place, split_bytes=given.split_or(SPLIT_BYTES)
    )
    output = settings.output()

    def text(rebuilt: Rebuilt, done: bool) -> None:
        (plan,), (salvage,) = rebuilt.plans, rebuilt.salvage
        if not done or place is not None:
            _show(output, plan)
            output.text()
        if place is not None and done:
            output.text(f"Done. The files are in {place}; the store was not changed.")
        elif done:
            output.text(f"\nDone. Replaced files are in {salvage}")
        else:
            output.text(_outlook(plan))

    def json(rebuilt: Rebuilt) -> dict[str, Any]:
        (plan,), (salvage,) = rebuilt.plans, rebuilt.salvage
        return {**plan.to_json(salvage=salvage), **({} if place is None or dry_run else {"output": place})}

    stores = the_stores(settings, None)
    return rebuild(settings, given, stores, options, dry_run=dry_run, yes=yes, text=text, json=json)


def _write(settings: Settings, config: StoreConfig, scope: Scope, directory: Path, jobs: int | None) -> int:
    """Build below `directory`, which must be empty, and leave it there."""
    from engine.files.disk import Disk
    from engine.repair.reach import building
    from engine.repair.reindex.reindex import build

    output = settings.output()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidArgument("--output requires an empty directory", path=directory)
    disk = building(Disk(), config, os.fspath(directory))
    disk.mkdirs(os.fspath(directory))
    settings.on_interrupt = f"the store was not changed; {directory} is not complete"
    with output.progress("rebuilding") as tick:
        plan = build(disk, config, os.fspath(directory), scope, jobs=jobs, progress=tick)
    if output.json:
        output.document({**plan.to_json(), "output": os.fspath(directory)})
    else:
        _show(output, plan)
        output.text()
        output.text(f"Done. The files are in {directory}; the store was not changed.")
    return OK


class _Reindex(ChangeCommand["ReindexPlan"]):
    def json(self, plan: ReindexPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage=salvage)

    def text(self, plan: ReindexPlan, *, done: bool, salvage: str | None) -> None:
        if done:
            self.output.text()
            self.output.text(f"Done. Replaced files are in {salvage}")
            return
        _show(self.output, plan)
        self.output.text()
        self.output.text(_outlook(plan))


def _outlook(plan: ReindexPlan) -> str:
    if not plan.changed:
        return "Nothing to do: queues and index already match the log, byte for byte."
    return f"Replaced files are moved to {os.path.join(plan.files.root, 'salvage')}."


def _show(output: Output, plan: ReindexPlan) -> None:
    changed = [queue for queue in plan.queues if queue.queue in plan.queues_changed]
    kept = f"; {len(plan.kept)} without a message in the log are kept" if plan.kept else ""
    index = "not rebuilt"
    if plan.index_built:
        index = f"{count(plan.keys, 'key')} in {count(plan.index_files, 'file')}"
        index += ", which differ" if plan.index_changed else ", unchanged"
    output.facts(
        [
            ("store", plan.files.root),
            ("commit log", f"{messages_in(plan.messages, plan.records)} read, up to offset {plan.log_end}"),
            ("queues", f"{count(len(plan.queues), 'queue')} rebuilt, {len(changed)} differ{kept}"),
            ("index", index),
        ]
    )
    if changed:
        output.text()
        output.table(
            ["topic", "queue", "offsets", "units rebuilt"],
            [
                [short(q.queue.topic), str(q.queue.queue_id), f"{q.min_offset} to {q.max_offset}", f"{q.units:,}"]
                for q in changed[:_SHOWN]
            ],
            numbers=(1, 2, 3),
        )
        if len(changed) > _SHOWN:
            output.text(f"… and {count(len(changed) - _SHOWN, 'more queue')} (--json lists all)")
    for problem in plan.problems[:_SHOWN]:
        output.text(f"  - {printable(problem)}")
