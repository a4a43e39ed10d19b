"""What the commands that run on Spark share: options, the session with its progress, and how a job's answer looks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, NotAStore
from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK, Settings, parse_size
from rstore_cli.render import printable, short, size

if TYPE_CHECKING:
    from engine.pipeline.repositories import RepositoryChoice
    from engine.pipeline.result import JobResult, Table
    from engine.pipeline.spark import SparkSession
    from engine.pipeline.stores import StoreRef
    from rstore_cli.render import Output

Stores = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[STORE]...",
        help="Directories or globs of stores, or repositories, as NAME=PATH to rename one (default: --store).",
    ),
]
Repos = Annotated[
    list[str] | None,
    typer.Option(
        "--repo",
        metavar="LOCATION",
        help="A backup repository, or a glob: each store's latest snapshot, or LOCATION@ID (repeatable).",
    ),
]
StoreNames = Annotated[
    list[str] | None,
    typer.Option("--name", metavar="NAME", help="Of repositories, only the stores of this name (repeatable)."),
]
RepoKeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="File with the key of the repositories, on all executors."),
]
RepoKeyCommand = Annotated[
    str | None,
    typer.Option("--key-command", metavar="COMMAND", help="Program that prints that key, on all executors."),
]
Archived = Annotated[
    bool,
    typer.Option("--archived", help="Of repositories, read what stores have archived before each snapshot, too."),
]
UseSpark = Annotated[bool, typer.Option("--spark", help="Run on Spark, with --master, --conf and --split-bytes.")]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master (default: local[*], all cores of this machine)."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; overrides rstore's (repeatable)."),
]
SplitBytes = Annotated[
    str | None,
    typer.Option(
        "--split-bytes",
        metavar="SIZE",
        help="Approximate size of the log range of one task (default: depends on the job).",
    ),
]
Parquet = Annotated[
    Path | None,
    typer.Option("--parquet", metavar="DIR", help="Also write the tables as Parquet files into this directory."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Also write a chart: FILE.png, FILE.svg or FILE.html.")
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only messages of this topic.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Only messages of this topic (repeatable; several separated by commas)."
    ),
]
Begin = Annotated[str | None, typer.Option("--begin", metavar="TIME", help="Lowest store time.")]
End = Annotated[str | None, typer.Option("--end", metavar="TIME", help="Only messages with a store time before this.")]
Columns = Annotated[str | None, typer.Option("--columns", metavar="NAMES", help="Columns, separated by commas.")]
Decompress = Annotated[bool, typer.Option("--decompress", help="Decompress compressed bodies.")]
OnDamage = Annotated[
    str,
    typer.Option(
        "--on-damage", metavar="WORD", help="At damage: fail, or skip (count and list it); export also: mark."
    ),
]

_SHOWN = 20
_WIDE = 60
_PICTURES = (".png", ".svg", ".html")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where and how a job runs. `split_bytes`: None for the job's own."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    split_bytes: int | None = None

    @classmethod
    def of(
        cls,
        master: str | None,
        conf: list[str] | None,
        split_bytes: str | None,
        *,
        used: bool = True,
        jobs: int | None = None,
    ) -> SparkOptions:
        """From the command line.

        Args:
            master: --master.
            conf: --conf.
            split_bytes: --split-bytes.
            used: whether Spark is asked for.
            jobs: --jobs, which is for threads.

        Raises:
            InvalidArgument.
        """
        if not used:
            for value, name in ((master, "--master"), (conf, "--conf"), (split_bytes, "--split-bytes")):
                if value:
                    raise InvalidArgument(f"{name} requires --spark")
            return cls()
        from engine.pipeline.ready import demand_packages
        from engine.pipeline.spark import parse_conf

        demand_packages()  # before a module of a job is imported: an old pyspark lacks what they import
        if jobs is not None:
            raise InvalidArgument("--jobs sets threads; with --spark use --master 'local[N]'")
        size_given = None if split_bytes is None else parse_size(split_bytes, "--split-bytes")
        if size_given is not None and size_given < 1:
            raise InvalidArgument("--split-bytes must be ≥ 1")
        return cls(master, tuple(parse_conf(conf or []).items()), size_given)

    def split_or(self, default: int) -> int:
        """`split_bytes` where it was given."""
        return default if self.split_bytes is None else self.split_bytes


@dataclass(frozen=True, slots=True)
class RepositoryWords:
    """What a command line says of repositories: --repo, --name, --archived, --key-file, --key-command."""

    repos: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    key_file: Path | None = None
    key_command: str | None = None
    archived: bool = False

    @classmethod
    def of(
        cls,
        repos: list[str] | None,
        names: list[str] | None,
        key_file: Path | None,
        key_command: str | None,
        *,
        archived: bool,
    ) -> RepositoryWords:
        """From the options."""
        return cls(tuple(repos or ()), tuple(names or ()), key_file, key_command, archived)

    @property
    def choice(self) -> RepositoryChoice:
        """Which snapshots are meant, and what opens them."""
        from engine.backup.secret import KeySource
        from engine.pipeline.repositories import RepositoryChoice

        if self.key_file is not None and self.key_command is not None:
            raise InvalidArgument("--key-file excludes --key-command")
        file = None if self.key_file is None else str(self.key_file.absolute())
        return RepositoryChoice(None, self.names, KeySource(file, self.key_command), self.archived)


def column_names(text: str | None) -> tuple[str, ...]:
    """The names of --columns; whether there are such columns, the job says."""
    return tuple(name for word in (text or "").split(",") if (name := word.strip()))


def topic_names(words: Sequence[str] | None) -> tuple[str, ...]:
    """The names of all --topic, each once. Raises InvalidArgument: --topic without a name."""
    names = tuple(dict.fromkeys(name for word in words or () for one in word.split(",") if (name := one.strip())))
    if words and not names:
        raise InvalidArgument("--topic is empty", hint="for example --topic Orders,Payments")
    return names


def damage_word(text: str, *known: str) -> str:
    """--on-damage, one of `known`. Raises InvalidArgument."""
    if text not in known:
        raise InvalidArgument(f"--on-damage {text} is invalid: use {', '.join(known[:-1])} or {known[-1]}")
    return text


def the_stores(
    settings: Settings, places: Sequence[str] | None, repositories: RepositoryWords | None = None
) -> tuple[StoreRef, ...]:
    """The stores that are named, or that of --store. Raises as `find_stores`.

    Args:
        settings: of this run.
        places: STORE.
        repositories: where a job reads them, too.
    """
    from engine.pipeline.repositories import is_repository
    from engine.pipeline.stores import find_stores

    words = repositories or RepositoryWords()
    if places or words.repos:
        return find_stores(
            places or (),
            config=settings.config,
            follow_links=settings.follow_links,
            repositories=words.repos,
            choice=words.choice,
        )
    root = settings.load().store_path_root_dir
    if is_repository(str(root)):
        raise NotAStore("a backup repository, no store", path=root, hint="give it as STORE, or with --repo")
    named = f"{root.resolve().name}={root}"
    return find_stores([named], config=settings.config, follow_links=settings.follow_links)


@contextlib.contextmanager
def on_spark(settings: Settings, options: SparkOptions, label: str, *, bar: bool = True) -> Iterator[SparkSession]:
    """A session; what it raises comes out as the engine's own error.

    Args:
        settings: of this run.
        options: Spark's.
        label: what runs.
        bar: whether progress is shown all the time; see `watching`.
    """
    from engine.pipeline.failures import is_of_spark, translate
    from engine.pipeline.spark import session
    from rstore_cli.spark_signals import Signals

    if not logging.getLogger().handlers:  # py4j tells the root logger what it raises, too
        logging.getLogger().addHandler(logging.NullHandler())
    name = f"rstore {label}"
    with (
        Signals() as signals,
        session(master=options.master, conf=dict(options.conf), name=name, started=signals.watch) as spark,
    ):
        try:
            with watching(settings, spark, label) if bar else contextlib.nullcontext():
                yield spark
        except Exception as error:
            if is_of_spark(error):
                raise translate(error) from error
            raise


@contextlib.contextmanager
def watching(settings: Settings, spark: SparkSession, label: str) -> Iterator[None]:
    """Progress on the screen: Spark's tasks."""
    from engine.pipeline.progress import watched

    with (
        settings.output().progress(label, is_bytes=False) as tick,
        watched(spark, lambda done, total, _: tick(done, total)),
    ):
        yield


def check_plot(plot: Path | None) -> None:
    """Raises InvalidArgument: no kind of picture."""
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise InvalidArgument(f"--plot {plot}: unknown kind of chart", hint="use FILE.png, FILE.svg or FILE.html")


def run_job(
    settings: Settings,
    name: str,
    job: Callable[[SparkSession], JobResult],
    options: SparkOptions,
    *,
    parquet: Path | None = None,
    plot: Path | None = None,
) -> int:
    """Run it, show what it answers. The exit code.

    Args:
        settings: of this run.
        name: the job's.
        job: what runs it.
        options: Spark's.
        parquet: where its tables go.
        plot: where its picture goes.
    """
    check_plot(plot)
    with on_spark(settings, options, f"pipeline {name}") as spark:
        result = job(spark)
    write_beside(result, parquet, plot)
    output = settings.output()
    if output.json:
        output.document(result.to_json())
    else:
        show(output, result)
    return OK if result.ok else FOUND


def write_beside(result: JobResult, parquet: Path | None, plot: Path | None) -> None:
    """The tables as Parquet, and the picture, where they are wanted. Raises StorageError."""
    if parquet is not None:
        from engine.pipeline.parquet import write_tables

        write_tables(result, parquet)
    if plot is not None:
        from engine.pipeline.plots import draw

        draw(result, plot)


# --- how an answer looks ---------------------------------------------------------------------------------------------


def show(output: Output, result: JobResult) -> None:
    """Facts, then tables; of a long table its first rows."""
    output.facts([(_words(name), _value(name, value)) for name, value in result.facts.items()])
    for table in result.tables:
        output.text()
        output.text(f"{table.title}:" if table.rows else f"{table.title}: none")
        if table.rows:
            _show_table(output, table)
    if result.notes:
        output.text()
    for note in result.notes:
        output.text(note)


def _show_table(output: Output, table: Table) -> None:
    rows = table.rows[:_SHOWN]
    numbers = [i for i in range(len(table.columns)) if all(isinstance(row[i], int | float | None) for row in rows)]
    output.table(
        [_words(name) for name in table.columns],
        [[_value(name, value) for name, value in zip(table.columns, row, strict=True)] for row in rows],
        numbers=numbers,
    )
    if len(table.rows) > _SHOWN:
        output.text(f"… and {len(table.rows) - _SHOWN} more (--json and --parquet list all)")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    """A value as people read it: bytes and times by their column's name."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and (name == "bytes" or name.endswith("_bytes")):
        return size(value)
    if isinstance(value, int) and name.endswith("_timestamp"):
        return moment(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(printable(str(one)) for one in value) or "-"
    return short(str(value), _WIDE)
