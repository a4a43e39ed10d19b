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
    hours: Annotated[int, typer.Option("--hours", min=1, max=_YEAR, help="Recent hours to list.")] = 24,
    rate_hours: Annotated[
        int, typer.Option("--rate-hours", min=1, max=_YEAR, help="Recent hours from which the forecast takes its rate.")
    ] = 24,
    full: Annotated[
        bool, typer.Option("--full", help="Read every queue unit instead of samples; all hours in --json. Slower.")
    ] = False,
) -> None:
    """Show the state of the store and its reasons: offsets, space by topic and hour, when the disk will be full, lag.

    Reads only; a broker may be running. It never reads the whole log: it searches for the start of each hour and counts
    topics by queue units. Very long queues are sampled (~) unless --full is given. A running `rstore serve` is asked
    for its connections, rates, held pulls and health.
    """
    settings = settings_of(context)
    output = settings.output()
    config = settings.load(numpy=True)

    from engine.files.disk import Disk
    from engine.inspect.status.status import status as look

    with output.progress("queues", is_bytes=False) as tick:
        state = look(Disk(), config, hours=hours, rate_hours=rate_hours, full=full, progress=tick)
    from engine.daemon import DaemonConnection

    live = None
    try:
        live = DaemonConnection(config.store_path_root_dir).ask("GET", "/status")
    except StorageError as error:  # another user's, or it hangs: the files say enough
        output.warn(f"The daemon did not answer: {error}")
    if output.json:
        output.document({**state.to_json(), "daemon": live})
    else:
        from rstore_cli.status_text import show, show_daemon

        if live is not None:
            show_daemon(output, live)
        show(output, state, hours)
