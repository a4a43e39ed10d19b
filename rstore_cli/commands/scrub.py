"""`rstore scrub`: the log is read again and compared with its seals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK, parse_duration, settings_of
from rstore_cli.commands.seal import Seals, disk_of, parse_rate
from rstore_cli.render import count, printable, size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.seals.scrub_result import Scrubbed, ScrubOptions, Wrong
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 50
_WEEK = "7d"
_NOT_HEALED = ("unsteady", "seal damaged")
_WHAT = {
    "changed": "changed since it was sealed",
    "unreadable": "the disk can't read it",
    "missing": "the file ends before it",
    "unsteady": "other bytes when it was read first",
    "not sound": "not sealed, and not sound",
    "no file": "the segment has no file",
    "seal damaged": "the seal can't be read",
}


@app.command()
def scrub(
    context: typer.Context,
    seals: Seals = None,
    once: Annotated[bool, typer.Option("--once", help="Read everything once, now, and end.")] = False,
    pace: Annotated[
        str | None,
        typer.Option(
            "--pace", metavar="DURATION", help="Time in which everything is read once (default: 7d; with --once: none)."
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="SIZE", help="Limit of bytes read a second, such as 50M.")
    ] = None,
) -> None:
    """Read the log again and compare it with its seals: each changed byte is found, located to its page of 4 KiB.

    Without --once it runs until it is interrupted: it reads everything once in each period, at the lowest priority.
    After an interruption it continues where it was. A segment that is not sealed is checked as rstore verify-crc does.
    Nothing in the store is written but seals/scrub.json. Exit code 1 when something has changed.
    """
    settings = settings_of(context)
    output = settings.output()
    limit = parse_rate(rate)
    period_ms = parse_duration(pace or _WEEK, "--pace")
    config = settings.load()
    directory = None if seals is None else str(seals.absolute())
    settings.on_interrupt = "the next rstore scrub continues here"

    from engine.files.low_priority import give_way
    from engine.seals.scrub import scrub as run
    from engine.seals.scrub_result import ScrubOptions

    give_way()
    disk = disk_of(config, directory)
    if not once:
        _until_interrupted(output, disk, config, ScrubOptions(directory, limit, period_ms))
    with output.progress("scrub") as tick:
        result = run(disk, config, ScrubOptions(directory, limit, None if pace is None else period_ms), tick)
    _show(output, config, result, () if directory is None else ("--seals", directory))
    raise typer.Exit(FOUND if result.wrong else OK)


def _until_interrupted(output: Output, disk: Disk, config: StoreConfig, options: ScrubOptions) -> NoReturn:
    import threading

    from engine.seals.keeping import Heard, keep_scrubbing
    from rstore_cli.status_text import duration

    class Printed(Heard):
        def wrong(self, one: Wrong) -> None:
            if output.json:
                output.line(one.to_json())
            else:
                output.text(f"segment {one.segment}, offset {one.offset}, {count(one.length, 'byte')}: {_words(one)}")
            sys.stdout.flush()

        def scrubbed(self, result: Scrubbed) -> None:
            if not output.json:
                _show_sums(output, result)
                sys.stdout.flush()

        def failed(self, error: RStoreError) -> None:
            output.warn(f"not read, and tried again: {error}")

    span = duration(options.period_ms or 0)
    output.note(f"note: everything is read once in {span}, until it is interrupted; --once reads it now, and ends")
    with output.progress("scrub") as tick:
        keep_scrubbing(disk, config, options, threading.Event(), Printed(), progress=tick)
    raise typer.Exit(OK)


def _show(output: Output, config: StoreConfig, result: Scrubbed, where: tuple[str, ...]) -> None:
    if output.json:
        output.document(result.to_json())
        return
    _show_sums(output, result)
    if not result.kept:
        output.warn("how far the scrub is could not be noted beside the seals: the next one begins anew")
    if result.unsealed > 1:
        seals = "; run rstore seal to seal them" if result.can_seal else ""
        output.note(f"note: segments without a seal are checked by their records alone{seals}")
    if not result.wrong:
        return
    output.text()
    rows = [
        [str(one.segment), str(one.offset), str(one.length), _record(one), one.explained.field or "", _words(one)]
        for one in result.wrong[:_SHOWN]
    ]
    output.table(("segment", "offset", "bytes", "record", "field", "what"), rows, numbers=(0, 1, 2))
    if len(result.wrong) > _SHOWN:
        output.text(f"… and {len(result.wrong) - _SHOWN} more (--json lists all)")
    from engine.inspect.next_step import command_line, read

    output.text()
    if result.can_heal and any(one.kind not in _NOT_HEALED for one in result.wrong):
        heals = command_line(config, "heal", "--from", "SOURCE", *where)
        output.text(f"Next: {heals} (takes what has changed from a backup, another store or a running broker)")
    else:
        output.text(f"Next: {read(config)}")


def _show_sums(output: Output, result: Scrubbed) -> None:
    rate = f", {size(int(result.read / result.seconds))}/s" if result.seconds >= 0.1 else ""
    output.text(
        f"{count(result.sealed, 'sealed segment')} compared, {count(result.unsealed, 'segment')} without a seal "
        f"checked; {size(result.read)} read in {result.seconds:.1f} s{rate}"
    )
    if not result.wrong:
        output.text("Nothing has changed.")
    else:
        output.text(f"{count(len(result.wrong), 'range')} not as sealed, or not sound.", style="red")


def _record(one: Wrong) -> str:
    first = one.explained.first
    if first is None:
        return ""
    more = one.explained.records - 1
    return str(first) + (f" and {more} more" if more > 0 else "")


def _words(one: Wrong) -> str:
    words = _WHAT[one.kind]
    if one.explained.reason:
        words += f" ({printable(one.explained.reason)})"
    if one.written_ms is not None:
        words += f"; the file was written at {moment(one.written_ms)}"
    return words
