"""`rstore pipeline reindex`: consume queues and index of one or many stores, rebuilt on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
        typer.Option("--from", metavar="N", min=0, help="From this offset of the log on; what is before stays."),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="DIR", help="Write them below this directory, of several stores each in its own."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what differs: exit 0 if nothing would change, else 1.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Rebuild consume queues and index from the log, to the byte as dispatch writes them. As rstore reindex does.

    They are built aside, compared with what is there, and only what differs is swapped in at the end; the old files go
    to salvage/ in each store.
    """
    settings = settings_of(context)
    if topic is not None and index:
        raise InvalidArgument("the index is shared by all topics: --topic goes with consume queues only")
    check_plot(plot)
    given = SparkOptions.of(master, conf, split_bytes)
    found = the_stores(settings, stores)

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

    def text(rebuilt: Rebuilt, done: bool) -> None:
        result = rebuilt.result()
        show(output, result)
        output.text()
        if not rebuilt.changed and place is None:
            output.text("Nothing to do: what the logs give is there already, to the byte.")
        elif done:
            output.text("Done." if place is None else f"Done. They are in {place}; no store was changed.")
        if done:
            write_beside(result, parquet, plot)

    code = rebuild(
        settings, given, found, options, dry_run=dry_run, yes=yes, text=text, json=lambda one: one.result().to_json()
    )
    raise typer.Exit(code)
