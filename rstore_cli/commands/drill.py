"""`rstore drill`: scripted failures on scratch stores, and whether everything held."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import ENVIRONMENT, FOUND, Settings, settings_of
from rstore_cli.interrupt import ended_by_a_signal
from rstore_cli.render import Output, count, printable
from rstore_cli.screen import is_terminal

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.drill.apart import RunOptions
    from engine.drill.result import DrillReport
    from engine.drill.script import Drill

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SUFFIXES = (".md", ".json")


@app.command()
def drill(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="NAME|FILE…", help="Drills; or: list, show NAME, run all, run NAME|FILE…"),
    ],
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, metavar="N", help="Interrupt each step N times (default: as in its script)."),
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Interrupt each step at every file operation.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="Drills to run in parallel (default: one per processor)."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="Directory for the copies (default: the system's directory for temporary files).",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the copies and print their paths.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write the report: FILE.md or FILE.json.")
    ] = None,
) -> None:
    """Rehearse failures on scratch stores: crashes, power cuts, full disks, bit rot, missing files, at every step.

    A drill creates its own store. With --store (or -c) it starts with a copy of that store, which is never written to:
    its bytes and times are compared before and after. "drill run all" runs every drill that is part of rstore. Exit
    code 1 when a check failed, 5 when a drill could not run here.
    """
    settings = settings_of(context)
    output = settings.output()
    if thorough and sample is not None:
        raise InvalidArgument("--sample and --thorough exclude each other")
    if report is not None and report.suffix not in _SUFFIXES:
        raise InvalidArgument("--report requires a name ending in .md or .json", path=report)
    head, *rest = words
    if head == "list":
        _no_more(rest, "list")
        _list(output)
        return
    if head == "show":
        if not rest:
            raise InvalidArgument("the name of a drill is required", hint="rstore drill show NAME")
        _show(output, rest)
        return
    if head == "run" and not rest:
        raise InvalidArgument("the names of drills are required", hint="rstore drill run all, or run NAME…")
    drills = _found(rest if head == "run" else words)

    from engine.drill.apart import RunOptions

    wanted = RunOptions(sample, thorough, jobs, keep, None if scratch is None else str(scratch))
    raise typer.Exit(_run(settings, drills, wanted, report))


def _no_more(rest: Sequence[str], word: str) -> None:
    if rest:
        raise InvalidArgument(f"{word} takes no more arguments: {rest[0]}", hint="rstore drill list")


def _found(words: Sequence[str]) -> list[Drill]:
    from engine.drill import library

    if "all" in words:
        _no_more([word for word in words if word != "all"], "all")
        return [library.shipped(name) for name in library.names()]
    return [library.find(word) for word in dict.fromkeys(words)]


def _list(output: Output) -> None:
    drills = _found(["all"])
    if output.json:
        output.document({"drills": [{"name": one.name, "purpose": one.purpose} for one in drills]})
    else:
        output.table(["drill", "proves that"], [[one.name, one.purpose] for one in drills])


def _show(output: Output, words: Sequence[str]) -> None:
    drills = _found(words)
    if output.json:
        import tomllib

        output.document({"drills": [{"source": one.source, **tomllib.loads(one.text)} for one in drills]})
        return
    for one in drills:
        output.raw(one.text.rstrip("\n"))


# --- running ----------------------------------------------------------------------------------------------------------


def _run(settings: Settings, drills: list[Drill], wanted: RunOptions, report: Path | None) -> int:
    from engine.drill.apart import run_drills

    output = settings.output()
    source: StoreConfig | None = None
    if settings.store is not None or settings.config is not None:
        source = settings.load()
        if report is not None and report.resolve().is_relative_to(source.store_path_root_dir.resolve()):
            raise InvalidArgument("--report is inside the store", path=report)
    settings.on_interrupt = "the scratch stores are deleted, no store was changed"
    with ended_by_a_signal(), _bars(output, [one.name for one in drills]) as tell:
        drilled = run_drills(drills, source=source, wanted=wanted, progress=tell)
    if report is not None:
        _write(report, drilled)
    if output.json:
        output.document(drilled.to_json())
    else:
        _show_report(output, drilled)
    return FOUND if drilled.failed else ENVIRONMENT if drilled.incomplete else 0


def _write(path: Path, drilled: DrillReport) -> None:
    import json

    from engine.files.disk import Disk
    from rstore_cli.drill_report import markdown

    text = (
        markdown(drilled)
        if path.suffix == ".md"
        else json.dumps(drilled.to_json(), indent=2, ensure_ascii=False) + "\n"
    )
    Disk().write_file_atomically(str(path), text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def _bars(output: Output, names: Sequence[str]) -> Iterator[Callable[[str, int, int], None]]:
    """A bar a drill that is under way, on a terminal."""
    import sys

    if output.quiet or output.json or not is_terminal(sys.stderr):
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        whole = progress.add_task("drills", total=len(names))
        tasks = {name: progress.add_task(name, visible=False, start=False) for name in names}
        over: set[str] = set()

        def tell(name: str, done: int, total: int) -> None:
            if not progress.tasks[tasks[name]].started:
                progress.start_task(tasks[name])
            progress.update(tasks[name], completed=done, total=total, visible=done < total)
            if done >= total and name not in over:
                over.add(name)
                progress.update(whole, completed=len(over))

        yield tell


def _show_report(output: Output, drilled: DrillReport) -> None:
    rows = [
        [one.name, one.verdict, f"{one.tried} of {one.of}" if one.of else "-", str(one.judged), f"{one.seconds:.1f}"]
        for one in drilled.drills
    ]
    output.table(["drill", "verdict", "interrupted", "judged", "seconds"], rows, numbers=(2, 3, 4))
    if len(drilled.drills) == 1:
        output.text()
        for step in drilled.drills[0].steps:
            tried = f" ({step.tried} of {step.of})" if step.of else ""
            output.text(f"  {step.number}. {printable(drilled.drills[0].text_of(step))}{tried}")
    for one in drilled.drills:
        if one.why is not None:
            output.text()
            output.text(f"{one.name} was not run: {printable(one.why)}")
        for failure in one.failures:
            output.text()
            output.text(f"{one.name}, {printable(failure.text)}")
            output.text(f"  found: {printable(failure.actual)}")
            if failure.branch:
                output.text(f"  after: {printable(failure.branch)}")
        if one.failed > len(one.failures):
            output.text(f"  and {one.failed - len(one.failures)} more")
        if one.scratch is not None:
            output.text(f"{one.name}: the stores are in {printable(one.scratch)}")
    output.text()
    original = drilled.original
    if original is not None:
        state = (
            "unchanged: every byte and time is the same as before" if original.untouched else "CHANGED while drills ran"
        )
        output.text(f"The store {printable(original.path)} is {state} (SHA-256 {original.after}).")
    output.text(_summary(drilled))


def _summary(drilled: DrillReport) -> str:
    document = drilled.to_json()
    parts = [f"{document['passed']} of {count(len(drilled.drills), 'drill')} passed"]
    parts += [f"{document[key]} {word}" for key, word in (("failed", "failed"), ("notRun", "not run")) if document[key]]
    tried = document["interruptions"]
    return f"{', '.join(parts)}; {tried['tried']} of {tried['of']} interruptions were tried; {drilled.seconds:.0f} s."
