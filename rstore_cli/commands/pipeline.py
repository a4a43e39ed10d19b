"""`rstore pipeline`: jobs over one or many stores, on Spark. Those that look at stores; see pipeline_tables, too."""

from __future__ import annotations

from typing import Annotated

import typer

from rstore_cli._common import parse_size, parse_time, settings_of
from rstore_cli._spark import (
    Archived,
    Begin,
    Conf,
    End,
    Master,
    OnDamage,
    Parquet,
    Plot,
    RepoKeyCommand,
    RepoKeyFile,
    Repos,
    RepositoryWords,
    SparkOptions,
    SplitBytes,
    StoreNames,
    Stores,
    Topic,
    damage_word,
    run_job,
    the_stores,
)
from rstore_cli.commands import pipeline_reindex, pipeline_tables

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="Run Spark jobs over one or many stores. They need Java 17 and pip install 'rstore[spark]'.",
)
From = Annotated[
    str | None,
    typer.Option("--from", metavar="OFFSET", help="First physical offset (default: log start of each store)."),
]
To = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")]


@app.command()
def verify(
    context: typer.Context,
    stores: Stores = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    start: From = None,
    end: To = None,
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Check every record of many stores, as rstore verify-crc does: CRC, lengths, offset.

    Reads only, and continues after damage. Exit code 1 when a record is damaged.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    first = None if start is None else parse_size(start, "--from")
    last = None if end is None else parse_size(end, "--to")
    refs = the_stores(settings, stores, RepositoryWords.of(repo, name, key_file, key_command, archived=archived))

    from engine.pipeline.jobs.verify import VerifyOptions, run
    from engine.pipeline.splits import SPLIT_BYTES

    options = VerifyOptions(start=first, end=last, split_bytes=given.split_or(SPLIT_BYTES))
    code = run_job(settings, "verify", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


app.command("reindex")(pipeline_reindex.reindex)
app.command("export")(pipeline_tables.export)
app.command("import")(pipeline_tables.import_)


@app.command()
def stats(
    context: typer.Context,
    stores: Stores = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    topic: Topic = None,
    begin: Begin = None,
    end: End = None,
    top: Annotated[
        int, typer.Option("--top", min=1, metavar="N", help="Maximum rows of the tables of tags, keys and duplicates.")
    ] = 20,
    on_damage: OnDamage = "skip",
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Count messages and bytes by topic, queue, tag and hour; sizes, delays, hot keys, duplicate UNIQ_KEYs.

    Reads only. Damage is counted and listed.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    low = None if begin is None else parse_time(begin, "--begin")
    high = None if end is None else parse_time(end, "--end")
    word = damage_word(on_damage, "fail", "skip")
    refs = the_stores(settings, stores, RepositoryWords.of(repo, name, key_file, key_command, archived=archived))

    from engine.pipeline.jobs.stats import StatsOptions, run

    options = StatsOptions(topic, low, high, top, word, given.split_bytes)
    code = run_job(settings, "stats", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


app.command("diff")(pipeline_tables.diff)


@app.command()
def lag(
    context: typer.Context,
    stores: Stores = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only this consumer group.")] = None,
    topic: Topic = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Time from which ages are computed (default: now).")
    ] = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Show lag by group and queue: unread messages, their bytes and their age.

    Reads only. Exit code 1 when a consumer offset is outside of its queue.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, None)
    now = None if at is None else parse_time(at, "--at")
    refs = the_stores(settings, stores, RepositoryWords.of(repo, name, key_file, key_command, archived=archived))

    from engine.pipeline.jobs.lag import LagOptions, run

    options = LagOptions(group, topic, now)
    code = run_job(settings, "lag", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


app.command("grep")(pipeline_tables.grep)
