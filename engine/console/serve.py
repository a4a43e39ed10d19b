"""A console that runs: it listens, tells where, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from engine.console.changes import accounts
from engine.console.changes import cluster as cluster_changes
from engine.console.changes import store as store_changes
from engine.console.pages import (
    cluster_brokers,
    cluster_groups,
    cluster_messages,
    cluster_topics,
    operations,
    store_log,
    store_messages,
    store_queues,
    store_repair,
    store_state,
)
from engine.console.pages.live import look_of
from engine.console.pages.store_repair import run_of
from engine.console.web.app import ConsoleApp
from engine.console.web.context import Console
from engine.errors import StorageError

if TYPE_CHECKING:
    from engine.console.changes.change import ConsoleChange
    from engine.console.options import ConsoleOptions
    from engine.console.web.page import Page

_STOP_S = 1.0


def pages() -> tuple[Page, ...]:
    """All pages, in the order of the menu."""
    return (
        *cluster_brokers.PAGES,
        *cluster_topics.PAGES,
        *cluster_groups.PAGES,
        *cluster_messages.PAGES,
        *cluster_groups.DEAD_LETTER_PAGES,
        *cluster_brokers.LAST_PAGES,
        *store_state.PAGES[:1],
        *store_log.PAGES,
        *store_queues.PAGES,
        *store_messages.PAGES,
        *store_repair.PAGES,
        *store_state.PAGES[1:],
        *operations.PAGES,
    )


def changes() -> dict[str, ConsoleChange]:
    """All changes, by name."""
    return {**cluster_changes.CHANGES, **accounts.CHANGES, **store_changes.CHANGES}


class RunningConsole:
    """A console that listens. An async context manager.

    Attributes:
        console: its parts.
        address: `http://host:port`.
    """

    def __init__(self, options: ConsoleOptions, tell: Callable[[str], None] = lambda _: None) -> None:
        self._options = options
        self._tell = tell
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def __aenter__(self) -> RunningConsole:
        """Listen. Raises StorageError: the port is taken."""
        options = self._options
        self.console = Console(options, self._say)
        made = ConsoleApp(self.console, pages(), changes(), look_of, run_of)
        self._runner = web.AppRunner(made.app, handle_signals=False, access_log=None, shutdown_timeout=_STOP_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, options.host, options.port).start()
        except OSError as error:
            await self._runner.cleanup()
            await self.console.close()
            where = f"{options.host}:{options.port}"
            raise StorageError(
                f"cannot listen on {where}: {error.strerror or error}", hint="choose another port"
            ) from None
        port = int(self._runner.addresses[0][1])
        made.listens(options.host, port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"
        self._say(self.console.sessions.token)
        self._first = asyncio.get_running_loop().create_task(store_state.prefetch(self.console))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._first.cancel()
        await asyncio.gather(self._first, return_exceptions=True)
        await self.console.samplers.close()
        await self._runner.cleanup()
        await self.console.close()

    def _say(self, token: str) -> None:
        if self.address:
            self._tell(f"{self.address}/log-in?token={token}")


def serve(
    options: ConsoleOptions, tell: Callable[[str], None], ready: Callable[[str], None], *, follows_stdin: bool = False
) -> None:
    """Run a console until SIGTERM, SIGINT or SIGHUP.

    Args:
        options: what it shows.
        tell: told each new log-in address.
        ready: told its address, once it listens.
        follows_stdin: it ends when its standard input does: whoever started it has gone.

    Raises:
        StorageError: the port is taken.
    """
    asyncio.run(_serve(options, tell, ready, follows_stdin=follows_stdin))


async def _serve(
    options: ConsoleOptions, tell: Callable[[str], None], ready: Callable[[str], None], *, follows_stdin: bool
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with RunningConsole(options, tell) as running:
        if follows_stdin:
            loop.add_reader(sys.stdin.fileno(), _ended, loop, stop)
        ready(running.address)
        await stop.wait()


def _ended(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        if os.read(sys.stdin.fileno(), 1):
            return
    loop.remove_reader(sys.stdin.fileno())
    stop.set()
