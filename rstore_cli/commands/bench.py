"""`rstore bench`: measures this machine, ours against Apache's own store."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, Settings, parse_size, settings_of
from rstore_cli.render import Output
from rstore_cli.screen import is_terminal

if TYPE_CHECKING:
    from engine.bench.results import Results
    from engine.bench.run import Progress

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_PROGRAM = (sys.executable, "-m", "rstore_cli.app")


@app.command()
def bench(
    context: typer.Context,
    workload: Annotated[
        list[str] | None, typer.Option("--workload", metavar="NAME", help="Only this workload (repeatable).")
    ] = None,
    job: Annotated[list[str] | None, typer.Option("--job", metavar="NAME", help="Only this job (repeatable).")] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="SIZE", help="Size of each log, 1M to 1G (default: 1G).")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, metavar="N", help="Measurements of each side (default: 3).")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="SECONDS", help="Time limit of one measurement.")
    ] = 300,
    cold: Annotated[bool, typer.Option("--cold", help="With a cold page cache.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="With a warm page cache (default; with --cold: both).")] = False,
    no_apache: Annotated[
        bool, typer.Option("--no-apache", help="Measure only rstore and the machine's limits.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Logs of 128 MiB and one round, as a test.")] = False,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Also recovery and verification of logs of 1, 4 and 16 segments; takes long."),
    ] = False,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Also the pipeline on Spark (it alone: --job spark)."),
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Also the daemon under load, against Apache's broker (it alone: --job serve)."),
    ] = False,
    client: Annotated[
        bool,
        typer.Option("--client", help="Also rstore's client beside Java's, on one broker (it alone: --job client)."),
    ] = False,
    replication: Annotated[
        bool,
        typer.Option("--replication", help="Also slaves and masters, against Apache's (it alone: --job replication)."),
    ] = False,
    backup: Annotated[
        bool,
        typer.Option("--backup", help="Also backups and restores, beside restic and borg (it alone: --job backup)."),
    ] = False,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Directory in which logs are created and kept for the next run (default: none are kept).",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Directory of the report.")] = Path(
        "rstore-bench"
    ),
) -> None:
    """Benchmark recovery, verification, puts and gets on this machine: rstore against Apache RocketMQ 4.9.8.

    Creates its own logs and writes report.md, report.json and ratios.svg; it touches none of your stores. Each
    measurement is a process of its own, rstore's and Apache's in turn. Apache's store needs Java 17 and Maven; without
    them only rstore is measured. A full run takes about an hour and 8 GiB of disk. A measurement that reaches its time
    limit is listed and not repeated. Exit code 1 when one failed, or one of rstore's reached the limit.
    """
    settings = settings_of(context)

    from engine.bench.options import QUICK_ROUNDS, QUICK_SIZE, ROUNDS, BenchOptions
    from engine.bench.results import Cache
    from engine.bench.run import run
    from engine.bench.workload import GIB

    if quick and (size is not None or rounds is not None):
        raise InvalidArgument("--quick sets size and rounds itself: it excludes --size and --rounds")
    caches = [Cache.WARM] if warm or not cold else []
    caches += [Cache.COLD] if cold else []
    wanted = BenchOptions(
        _PROGRAM,
        output,
        QUICK_SIZE if quick else GIB if size is None else parse_size(size, "--size"),
        tuple(workload or ()),
        tuple(job or ()),
        QUICK_ROUNDS if quick else rounds or ROUNDS,
        tuple(caches),
        not no_apache,
        growth,
        work,
        limit,
        spark,
        serve,
        replication,
        quick,
        client,
        backup,
    ).checked()
    settings.on_interrupt = "the measurements so far are lost; none of your stores was touched"
    with _progress(settings) as progress:
        results = run(wanted, progress)
    answer = settings.output()
    if answer.json:
        answer.document(results.to_json())
    else:
        _show(answer, results, output)
    if results.failures:
        raise typer.Exit(FOUND)


@contextlib.contextmanager
def _progress(settings: Settings) -> Iterator[Progress | None]:
    """A bar on stderr, where somebody looks: which job is measured, and how many are left."""
    if settings.quiet or settings.json or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, label: bar.update(task, completed=done, total=total, description=label)


def _show(output: Output, results: Results, directory: Path) -> None:
    from engine.bench.report import REPORT, against_text, floor_text
    from engine.bench.report_table import ratios

    output.text(f"Peer: {results.apache}.")
    rows = [[name, f"{ratio:.2f}"] for _, name, ratio in ratios(results)]
    if rows:
        output.text()
        output.table(["job", "times as fast as Apache"], rows, numbers=(1,))
    verdicts = results.verdicts()
    if verdicts:
        output.text()
        output.table(
            ["job", "workload", "compared with", "required", "measured", ""],
            [[v.floor.job, v.floor.workload, against_text(v), *floor_text(v)] for v in verdicts],
            numbers=(3, 4),
        )
    if results.served.ones:
        from engine.bench.report_served import verdict_rows

        output.text()
        output.table(
            ["load of rstore serve", "required", "measured", ""], list(verdict_rows(results.served)), numbers=(1, 2)
        )
    if results.replicated.copies:
        from engine.bench import report_replicated as report

        output.text()
        output.table(report.COPY_HEADS, list(report.copy_rows(results.replicated)), numbers=report.COPY_NUMBERS)
        output.text()
        output.table(report.SEND_HEADS, list(report.send_rows(results.replicated)), numbers=report.SEND_NUMBERS)
    for ended in results.ended:
        output.warn(f"! {ended}")
    for failure in results.failures:
        output.warn(f"! {failure}")
    output.text()
    output.text(f"The report is {directory / REPORT}")
