"""`rstore pipeline`: the jobs between a store and a table, or another store; and grep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import parse_size, parse_time, settings_of
from rstore_cli._spark import (
    Archived,
    Begin,
    Columns,
    Conf,
    Decompress,
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
    Topics,
    column_names,
    damage_word,
    run_job,
    the_stores,
    topic_names,
)


def export(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Directory of the table: new, or that of an earlier export.")
    ],
    stores: Stores = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    topic: Topics = None,
    begin: Begin = None,
    end: End = None,
    columns: Columns = None,
    no_body: Annotated[bool, typer.Option("--no-body", help="Leave bodies out.")] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="UNIT", help="Partition by topic and day, or hour (default: as it is, or day)."),
    ] = None,
    decompress: Decompress = False,
    on_damage: OnDamage = "fail",
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write messages as Parquet, partitioned by topic and day. The next run adds new messages.

    Only reads the store. DIR must be the same path on all executors.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    low = None if begin is None else parse_time(begin, "--begin")
    high = None if end is None else parse_time(end, "--end")
    word = damage_word(on_damage, "fail", "mark", "skip")
    refs = the_stores(settings, stores, RepositoryWords.of(repo, name, key_file, key_command, archived=archived))

    from engine.pipeline.exported import local_directory
    from engine.pipeline.jobs.export import ExportOptions, run

    place = local_directory(str(output))
    names = column_names(columns)
    options = ExportOptions(
        place, topic_names(topic), low, high, names, not no_body, decompress, word, given.split_bytes, by
    )
    settings.on_interrupt = f"no store was changed; run it again to complete {output}"
    code = run_job(settings, "export", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


def import_(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The directory of an exported table.")],
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Directory of the new store: missing or empty.")
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the store in the table (default: the only one)."),
    ] = None,
    topic: Topics = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Create a store from an exported table, with the settings of the exported store or those of -c."""
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, None)

    from engine.pipeline.exported import local_directory
    from engine.pipeline.jobs.import_ import ImportOptions, run

    config = None if settings.config is None else str(settings.config.absolute())
    places = local_directory(str(table)), local_directory(str(output))
    options = ImportOptions(*places, name, config, topic_names(topic))
    settings.on_interrupt = f"{output} is not complete: delete it, then run the command again"
    code = run_job(settings, "import", lambda spark: run(spark, (), options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


def diff(
    context: typer.Context,
    stores: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STORE]...", help="Two stores or snapshots: PATH, NAME=PATH, LOCATION@ID."),
    ] = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    topic: Topic = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Maximum differences to list: the first ones.")
    ] = 20,
    on_damage: OnDamage = "skip",
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Compare the logs of two stores, as master and slave: where they diverge, and what is missing in which.

    Reads only. Exit code 1 when they differ.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    word = damage_word(on_damage, "fail", "skip")
    words = RepositoryWords.of(repo, name, key_file, key_command, archived=archived)

    from engine.pipeline.jobs.diff import DiffOptions, run
    from engine.pipeline.stores import find_two

    refs = find_two(stores or (), config=settings.config, repositories=words.repos, choice=words.choice)

    options = DiffOptions(topic, limit, word, given.split_bytes)
    code = run_job(settings, "diff", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


def grep(
    context: typer.Context,
    stores: Stores = None,
    repo: Repos = None,
    name: StoreNames = None,
    key_file: RepoKeyFile = None,
    key_command: RepoKeyCommand = None,
    archived: Archived = False,
    topic: Topic = None,
    queue: Annotated[int | None, typer.Option("--queue", metavar="N", help="Only messages of this queue id.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only messages with this tag.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only messages with this UNIQ_KEY, or this word in KEYS.")
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Only messages with this property (repeatable)."),
    ] = None,
    body: Annotated[
        str | None, typer.Option("--body", metavar="TEXT", help="Only messages with this text in the body.")
    ] = None,
    body_regex: Annotated[
        str | None,
        typer.Option(
            "--body-regex",
            metavar="REGEX",
            help="Only messages with a match of this regular expression (Python's re) in the body.",
        ),
    ] = None,
    begin: Begin = None,
    end: End = None,
    min_size: Annotated[
        str | None, typer.Option("--min-size", metavar="SIZE", help="Minimum size of the record.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="Maximum size of the record.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SQL", help="Only messages for which this SQL expression over the columns is true."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Maximum rows to show; all matches are counted.")
    ] = 100,
    columns: Columns = None,
    excerpt: Annotated[int, typer.Option("--excerpt", min=0, metavar="N", help="Characters of the body to show.")] = 80,
    decompress: Decompress = False,
    on_damage: OnDamage = "skip",
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Find messages by their content: a message must match all that is given.

    Reads only. Exit code 0 also when no message matches; the count is in the answer.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    low = None if begin is None else parse_time(begin, "--begin")
    high = None if end is None else parse_time(end, "--end")
    smallest = None if min_size is None else parse_size(min_size, "--min-size")
    largest = None if max_size is None else parse_size(max_size, "--max-size")
    word = damage_word(on_damage, "fail", "skip")
    pairs = tuple(_pair(text) for text in prop or ())
    refs = the_stores(settings, stores, RepositoryWords.of(repo, name, key_file, key_command, archived=archived))

    from engine.pipeline.jobs.grep import GrepOptions, run

    options = GrepOptions(
        topic=topic,
        queue_id=queue,
        tag=tag,
        key=key,
        properties=pairs,
        body=body,
        body_regex=body_regex,
        start_time=low,
        end_time=high,
        min_size=smallest,
        max_size=largest,
        where=where,
        limit=limit,
        columns=column_names(columns),
        excerpt=excerpt,
        decompress=decompress,
        on_damage=word,
        split_bytes=given.split_bytes,
    )
    code = run_job(settings, "grep", lambda spark: run(spark, refs, options), given, parquet=parquet, plot=plot)
    raise typer.Exit(code)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgument(f"--property {text}: not NAME=VALUE")
    return name, value
