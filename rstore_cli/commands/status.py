"""`rstore status`: what state the store is in, and why, on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.errors import StorageError
from rstore_cli._common import settings_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_YEAR = 24 * 366


@app.command()
def status(
    context: typer.Context,
    hours: Annotated[
        int, typer.Option("--hours", min=1, max=_YEAR, help="Show the log's last so many hours one by one.")
    ] = 24,
    rate_hours: Annotated[
        int, typer.Option("--rate-hours", min=1, max=_YEAR, help="Forecast with the rate of the last so many hours.")
    ] = 24,
    full: Annotated[
        bool, typer.Option("--full", help="Read every queue unit, no samples; all hours in --json. Takes longer.")
    ] = False,
) -> None:
    """What state the store is in, and why: offsets, space by topic and hour, when the disk is full, what is unread.

    Reads only, and runs beside a live broker. It never reads the whole log: hours are found by looking for where they
    begin, topics are told by the queues' units. Of very long queues it reads samples (~), unless --full is given.
    A running `rstore serve` is asked what it is like now: connections, rates, held pulls, whether it is well.
    """
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.repair.status import status as look

    with output.progress("queues", is_bytes=False) as tick:
        found = look(Disk(), config, hours=hours, rate_hours=rate_hours, full=full, progress=tick)
    from rstore_cli.daemon import Daemon

    live = None
    try:
        live = Daemon(config.store_path_root_dir).ask("GET", "/status")
    except StorageError as error:  # another user's, or it hangs: the files say enough
        output.warn(f"The daemon could not be asked: {error}")
    if output.json:
        output.document({**found.to_json(), "daemon": live})
    else:
        from rstore_cli.status_text import show, show_daemon

        if live is not None:
            show_daemon(output, live)
        show(output, found, hours)
