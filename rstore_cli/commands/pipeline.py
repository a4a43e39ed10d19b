"""`rstore pipeline`: jobs over one or many stores, on Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from rstore_cli._common import parse_size, settings_of
from rstore_cli._spark import Conf, Master, Parquet, Plot, SparkOptions, SplitBytes, Stores, run_job, the_stores

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="Jobs over one or many stores, on Spark. They need Java 17 and pip install 'rstore[spark]'.",
)


From = Annotated[
    str | None, typer.Option("--from", metavar="OFFSET", help="First physical offset (default: each log's start).")
]
To = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")]


@app.command()
def verify(
    context: typer.Context,
    stores: Stores = None,
    start: From = None,
    end: To = None,
    master: Master = None,
    conf: Conf = None,
    split_bytes: SplitBytes = None,
    parquet: Parquet = None,
    plot: Plot = None,
) -> None:
    """Check every record: CRC, lengths, position. As rstore verify-crc does, over many stores.

    Reads only. Exit code 1 when something is bad. Damage does not stop it.
    """
    settings = settings_of(context)
    given = SparkOptions.of(master, conf, split_bytes)
    found = the_stores(settings, stores)

    from engine.pipeline.jobs.verify import VerifyOptions, run

    options = VerifyOptions(start=_offset(start, "--from"), end=_offset(end, "--to"), **given.split())
    raise typer.Exit(
        run_job(settings, "verify", lambda spark: run(spark, found, options), given, parquet=parquet, plot=plot)
    )


def _offset(text: str | None, what: str) -> int | None:
    return None if text is None else parse_size(text, what)
