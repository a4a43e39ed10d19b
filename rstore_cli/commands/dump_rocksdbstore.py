"""`rstore dump rocksdbstore`: what a broker of RocketMQ 5.4 and later keeps in a database of its own."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, settings_of
from rstore_cli.commands.dump_timer import Limit

if TYPE_CHECKING:
    from engine.inspect.dump.rocksdb_store import DatabaseRow

_TEXTS = ("topic", "word", "uniqKey")
"""What has any length, and so stands last."""
_SHOWN = 32
"""Bytes of a key or value that is not known, as text."""


def rocksdbstore(
    context: typer.Context,
    family: Annotated[
        str | None, typer.Option("--family", metavar="NAME", help="Only this column family.", show_default=False)
    ] = None,
    limit: Limit = None,
) -> None:
    """Show the timer messages, half messages and index entries that RocketMQ 5.4 and later keeps in RocksDB. Exit code
    1 when there is damage."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import DAMAGE
    from engine.inspect.dump.rocksdb_store import store_database
    from engine.inspect.store.survey import survey
    from rstore_cli.timer_rows import TimerColumns

    with store_database(Disk(), survey(Disk(), config)) as database:
        if database is None:
            output.note("no database: a broker of RocketMQ 5.4 and later keeps one in rocksdbstore/")
            return
        if family is not None and family not in database.families:
            raise InvalidArgument(f"no column family {family}: there are {', '.join(database.families)}")
        for problem in database.problems:
            output.warn(f"! {problem}")
        damaged, some = bool(database.problems), False
        columns = TimerColumns(output)
        for row in islice(database.rows(database.families if family is None else (family,)), limit):
            some = True
            damaged |= row.kind == DAMAGE
            if output.json:
                output.line(row.to_json())
            else:
                columns.row(_cells(row))
                if row.reason is not None:
                    output.text(f"  ! {row.reason}")
    if not some and limit != 0:
        output.note("nothing is in it: a broker writes to it with timerRocksDBEnable, transRocksDBEnable and "
                    "indexRocksDBEnable")  # fmt: skip
    if damaged:
        raise typer.Exit(FOUND)


def _cells(row: DatabaseRow) -> dict[str, Any]:
    """One row as text."""
    from engine.format.quantities import moment
    from rstore_cli.render import printable

    cells: dict[str, Any] = {"kind": row.kind, "family": printable(row.family)}
    if row.entry is None:
        return cells | {"key": _hex(row.key), "value": _hex(row.value)}
    for name, value in sorted(row.fields.items(), key=lambda field: field[0] in _TEXTS):
        is_time = name in ("hour", "dueTime", "storeTimestamp")
        cells[name] = moment(value) if is_time else printable(str(value))
    return cells


def _hex(data: bytes) -> str:
    return (data[:_SHOWN].hex() + ("…" if len(data) > _SHOWN else "")) or "-"
