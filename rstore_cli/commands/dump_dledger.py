"""`rstore dump dledger`: the entries that the log of a DLedger store lies in."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rstore_cli._common import FOUND, parse_size, settings_of
from rstore_cli.commands.dump_timer import Limit

if TYPE_CHECKING:
    from engine.inspect.dump.dledger import EntryRow

From = Annotated[str | None, typer.Option("--from", metavar="OFFSET", help="First physical offset.")]
To = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")]


def dledger(context: typer.Context, start: From = None, end: To = None, limit: Limit = None) -> None:
    """Show the entries of a DLedger store, with index, term and record. Exit code 1 when there is damage, or an entry
    does not follow the one before it."""
    settings = settings_of(context)
    output = settings.output()
    low, high = (None if text is None else parse_size(text, what) for text, what in ((start, "--from"), (end, "--to")))
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.dledger import dump_entries
    from engine.inspect.store.survey import survey
    from rstore_cli.timer_rows import TimerColumns

    wrong = some = False
    columns = TimerColumns(output)
    for row in islice(dump_entries(Disk(), survey(Disk(), config), start=low, end=high), limit):
        some = True
        wrong |= row.wrong
        if output.json:
            output.line(row.to_json())
        else:
            columns.row(_cells(row))
            if row.breaks is not None:
                output.text(f"  ! {row.breaks}")
    if not some and limit != 0:
        output.note("no entries: a broker with enableDLegerCommitLog keeps its log in them, in dledger-ID/data/")
    if wrong:
        raise typer.Exit(FOUND)


def _cells(row: EntryRow) -> dict[str, Any]:
    """One row as text."""
    from rstore_cli.log_rows import file_name
    from rstore_cli.render import printable

    cells: dict[str, Any] = {"kind": row.kind, "offset": row.offset, "length": row.length}
    if row.reason is not None:
        return cells | {"file": file_name(row.path), "reason": row.reason}
    entry, record = row.entry, row.message
    if record is None:
        return cells
    cells |= {"index": "-" if entry is None else entry.index, "term": "-" if entry is None else entry.term}
    return cells | {"topic/queue": f"{printable(record.topic)}/{record.queue_id}", "queueOffset": record.queue_offset}
