"""`rstore pipeline reindex`: consume queues and index of one or many stores, rebuilt on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import settings_of
from rstore_cli._spark import (
    Conf,
    Master,
    Parquet,
    Plot,
    SparkOptions,
    SplitBytes,
    Stores,
    check_plot,
    show,
    the_stores,
    write_beside,
)

if TYPE_CHECKING:
    from engine.pipeline.jobs.reindex import Rebuilt
    from engine.pipeline.result import JobResult


def reindex(
    context: typer.Context,
    stores: Stores = None,
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
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Write them into this directory; of several stores each into a directory of its own.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the differences and change nothing: exit code 0 if there are none, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Rebuild consume queues and index of many stores from their logs, as rstore reindex does.

    The new files are built apart and compared with the old ones; at the end only files that differ are replaced, and
    the old ones are saved to salvage/ in each store.
    """
    settings = settings_of(context)
    if topic is not None and index:
        raise InvalidArgument("--topic and --index exclude each other: all topics share the index")
    check_plot(plot)
    given = SparkOptions.of(master, conf, split_bytes)
    refs = the_stores(settings, stores)

    from engine.pipeline.jobs.reindex import ReindexOptions
    from engine.pipeline.splits import SPLIT_BYTES
    from rstore_cli.rebuild_spark import rebuild

    both = not consumequeue and not index
    place = None if output_dir is None else str(output_dir.absolute())
    options = ReindexOptions(
        queues=consumequeue or both,
        index=index or both,
        topic=topic,
        start=start,
        output=place,
        split_bytes=given.split_or(SPLIT_BYTES),
    )
    output = settings.output()
    results: list[JobResult] = []

    def text(rebuilt: Rebuilt, done: bool) -> None:
        results.append(rebuilt.result())
        if not done or place is not None:
            show(output, results[-1])
        output.text()
        if done and place is not None:
            output.text(f"Done. The files are in {place}; no store was changed.")
        elif done:
            output.text("Done. Replaced files are in " + ", ".join(filter(None, rebuilt.salvage)))
        elif not rebuilt.changed:
            output.text("Nothing to do: queues and index already match the logs, byte for byte.")

    def json(rebuilt: Rebuilt) -> dict[str, Any]:
        results.append(rebuilt.result())
        return results[-1].to_json()

    code = rebuild(settings, given, refs, options, dry_run=dry_run, yes=yes, text=text, json=json)
    write_beside(results[-1], parquet, plot)
    raise typer.Exit(code)
