"""`rstore top`: a broker at work, on a screen that is drawn again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import StorageError
from rstore_cli._common import OK, Settings, settings_of
from rstore_cli.top_frame import Frame, Look, Sort

if TYPE_CHECKING:
    from engine.client.connection import RemotingClient
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)
ROWS = 20


@app.command()
def top(
    context: typer.Context,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="HOST:PORT", help="Any RocketMQ broker instead of the daemon of --store."),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=3600, metavar="SECONDS", help="Time between two frames.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, of one interval, and exit.")] = False,
    sort: Annotated[Sort, typer.Option("--sort", help="Sort by this column, highest first.")] = Sort.LAG,
    rows: Annotated[int, typer.Option("--rows", min=1, metavar="N", help="Maximum rows of each table.")] = ROWS,
) -> None:
    """Watch a broker: topics with rates, consumer groups with lag, flush and dispatch lag, disk, clients.

    Asks the running `rstore serve` of --store, or with --broker any broker, also Apache's, by admin requests: rates are
    then computed from offsets, and bytes are the broker's own figure for its last minute. On a terminal p, g, l and n
    sort by puts, gets, lag and name, the arrow and page keys scroll a table, Tab selects the other table, and q quits.
    --json prints one object per interval.
    """
    settings = settings_of(context)
    with _looking(settings, broker) as look:
        _watch(settings.output(), look, interval, once=once, sort=sort, rows=rows)
    raise typer.Exit(OK)


class _looking:  # noqa: N801 - a context manager that reads as a function
    """How to look at the broker. A connection that was lost is made again at the next look."""

    def __init__(self, settings: Settings, broker: str | None) -> None:
        self._settings = settings
        self._broker = broker
        self._runner: asyncio.Runner | None = None
        self._client: RemotingClient | None = None

    def __enter__(self) -> Callable[[], Look]:
        address = self._broker
        if address is None:
            return self._daemon()
        from engine.broker.watch.remote_live import RemoteLive
        from engine.client.connection import RemotingClient

        runner = self._runner = asyncio.Runner()
        live: RemoteLive | None = None

        async def look() -> Look:
            nonlocal live
            if live is None or self._client is None or not self._client.is_open:
                self._client = await RemotingClient.connect(address)
                live = RemoteLive(self._client)
            return await live.look()

        return lambda: runner.run(look())

    def __exit__(self, *_: object) -> None:
        if self._runner is not None:
            if self._client is not None:
                self._runner.run(self._client.close())
            self._runner.close()

    def _daemon(self) -> Callable[[], Look]:
        from engine.daemon import DaemonConnection

        root = self._settings.load().store_path_root_dir
        daemon = DaemonConnection(root)

        def look() -> Look:
            seen: Look | None = daemon.ask("GET", "/status")
            if seen is None:
                raise StorageError(
                    "no daemon runs on this store",
                    path=root,
                    hint="name a running broker with --broker HOST:PORT, or start one on a store of 4.9: rstore serve",
                )
            return seen

        return look


def _watch(output: Output, look: Callable[[], Look], interval: float, *, once: bool, sort: Sort, rows: int) -> None:
    import sys

    from rstore_cli.screen import is_dumb, is_terminal

    before = look()
    if is_terminal(sys.stdout) and is_terminal(sys.stdin) and not (once or output.json or is_dumb()):
        from rstore_cli.top_screen import show

        show(look, before, interval, sort)
        return
    import time

    try:
        while True:
            time.sleep(interval)
            now = look()
            _print(output, Frame.of(before, now, sort), rows)
            if once:
                return
            before = now
    except KeyboardInterrupt:  # the way to leave
        return


def _print(output: Output, frame: Frame, rows: int) -> None:
    import sys

    from rstore_cli.render import short

    if output.json:
        output.line(frame.to_json())
    else:
        output.facts(frame.facts())
        for (heads, body), numbers in (
            (frame.topic_table(), (1, 2, 3, 4, 5)),
            (frame.group_table(), (2, 3, 4)),
        ):
            output.text()
            shown = [[short(cell) for cell in row] for row in body[:rows]]
            output.table(heads, shown, numbers=numbers)
            if len(body) > rows:
                output.text(f"… {len(body) - rows} more (--rows)")
        output.text()
    sys.stdout.flush()
