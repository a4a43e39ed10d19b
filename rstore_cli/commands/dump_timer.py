"""`rstore dump timerlog`, `timerwheel` and `epoch`: what RocketMQ 5 keeps beside the log, as it lies on disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, parse_size, settings_of

if TYPE_CHECKING:
    from engine.format.timer_check import TimerCheck
    from engine.inspect.dump.timer_due import DueRow
    from engine.inspect.store.survey import StoreFiles
    from engine.inspect.store.timer_log import TimerRow
    from rstore_cli.render import Output

TimerFrom = Annotated[str | None, typer.Option("--from", metavar="OFFSET", help="First offset in the timer log.")]
TimerTo = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this offset of it.")]
Limit = Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="Maximum rows.")]


def timerlog(
    context: typer.Context,
    start: TimerFrom = None,
    end: TimerTo = None,
    due: Annotated[
        bool, typer.Option("--due", help="Show what is yet to be delivered, by due time, with its topic.")
    ] = False,
    limit: Limit = None,
) -> None:
    """Show the timer log of a RocketMQ 5 store, or the messages that wait in it. Exit code 1 when there is damage."""
    settings = settings_of(context)
    output = settings.output()
    low, high = (None if text is None else parse_size(text, what) for text, what in ((start, "--from"), (end, "--to")))
    if due and (start is not None or end is not None):
        raise InvalidArgument("--due takes no --from and no --to: messages are shown by due time")
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import DAMAGE
    from engine.inspect.dump.timer_due import DueRow, dump_due
    from engine.inspect.store.survey import survey
    from engine.inspect.store.timer_log import dump_timer_log, timer_files
    from rstore_cli.timer_rows import DueLines, TimerColumns, show_due, show_timer, timer_line

    files = survey(Disk(), config)
    timer = timer_files(Disk(), files)
    damaged = bool(timer.odd)
    for path, why in timer.odd:
        output.warn(f"! {path} was not read: {why}")
    rows: Iterator[DueRow | TimerRow] = dump_timer_log(Disk(), files, timer, start=low, end=high)
    if due:
        check, unsure = _timer_check(output, files)
        damaged |= unsure
        rows = dump_due(Disk(), files, timer, check)
    some = False
    columns, lines = TimerColumns(output), DueLines(output)
    for row in islice(rows, limit):
        some = True
        damaged |= row.kind == DAMAGE
        if output.json:
            if isinstance(row, DueRow):
                sys.stdout.write(lines.line(row))
            else:
                output.line(timer_line(row))
        elif isinstance(row, DueRow):
            show_due(output, columns, row)
        else:
            show_timer(output, columns, row)
    if not some and limit != 0 and not damaged:
        output.note("no message waits" if due else "no units: a RocketMQ 5 broker keeps them in timerlog/")
    if damaged:
        raise typer.Exit(FOUND)


def _timer_check(output: Output, files: StoreFiles) -> tuple[TimerCheck | None, bool]:
    """How far the timer is, and whether that is not known though there is a timer."""
    from engine.errors import FormatError
    from engine.files.disk import Disk
    from engine.inspect.store.newer import TIMER
    from engine.inspect.store.timer_wheel import read_timer_check

    try:
        check = read_timer_check(Disk(), files)
    except FormatError as error:
        output.warn(f"! {error}: messages that were delivered are among these")
        return None, True
    unsure = check is None and files.newer.has(TIMER)
    if unsure:
        output.warn("! config/timercheck is missing: messages that were delivered are among these")
    return check, unsure


def timerwheel(context: typer.Context, limit: Limit = None) -> None:
    """Show the slots of a RocketMQ 5 store's timer wheel that are in use. Exit code 1 when one is damaged."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.store.survey import survey
    from engine.inspect.store.timer_wheel import SlotRow, dump_timer_wheel
    from rstore_cli.timer_rows import TimerColumns, show_slot, slot_line

    damaged = False
    shown = 0
    columns = TimerColumns(output)
    for row in dump_timer_wheel(Disk(), survey(Disk(), config)):
        if not isinstance(row, SlotRow):
            damaged = True
            output.warn(f"! {row}")
            continue
        if shown == limit:
            break
        shown += 1
        damaged |= row.reason is not None
        if output.json:
            output.line(slot_line(row))
        else:
            show_slot(output, columns, row)
    if not shown and limit != 0 and not damaged:
        output.note("no slot is in use: a RocketMQ 5 broker keeps them in timerwheel")
    if damaged:
        raise typer.Exit(FOUND)


def epoch(context: typer.Context, limit: Limit = None) -> None:
    """Show the epochs of a RocketMQ 5 broker under a controller. A broken file is read from its .bak (exit code 1)."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.store.epochs import dump_epochs
    from engine.inspect.store.survey import survey
    from rstore_cli.timer_rows import TimerColumns

    epochs = dump_epochs(Disk(), survey(Disk(), config))
    rows = list(islice(epochs.rows(), limit))
    for problem in epochs.problems:
        output.warn(f"! {problem}")
    if output.json:
        for row in rows:
            output.line(row)
    else:
        columns = TimerColumns(output)
        for row in rows:
            columns.row({name: "-" if value is None else value for name, value in row.items()})
    if epochs.source is None and not epochs.problems:
        output.note("no epochs: a RocketMQ 5 broker under a controller keeps them in epochFileCheckpoint")
    if epochs.problems:
        raise typer.Exit(FOUND)
