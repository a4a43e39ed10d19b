"""HTTP, for those who watch and those who operate: a port (`WATCHED`), and the control socket.

On the port there is nothing to change and nothing to read but numbers. Commands of `rstore` ask at a Unix socket in the
store's directory, where only the store's owner may:

| request | answer |
|---|---|
| `GET /status` | what the daemon is like now (engine.broker.watch.live), and its health |
| `POST /flush` | when log, queues, checkpoint and tables are durable: up to where |
| `GET /in-use` | from where on the log's files are needed: what a plan of retention has to leave; the archive, if any |
| `GET /where` | the broker's address, and the name servers where clients find it |
| `POST /backup` | `{"maxOffset": offset, "lagMs": ms}`: how far a follower's backup is, for the metrics |
| `POST /expire` | `{"before": offset, "archived": bool}`: the log files before it are deleted, and what follows them |

What goes wrong is answered with 500 and the error's fields.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from engine.broker.watch.health import Health
from engine.broker.watch.live import Live
from engine.broker.watch.metrics import expose, gather
from engine.errors import InvalidArgument, RStoreError
from engine.files import local_socket
from engine.format import names
from engine.repair.expire.change import only_archived

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.typedefs import Handler

    from engine.broker.tables.config_file import KeptTable

WATCHED = {
    "/": "this list",
    "/metrics": "metrics for Prometheus (text format, OpenMetrics)",
    "/health": "200 while healthy, else 503 and the reasons (JSON)",
    "/ready": "200 while it serves clients, else 503 (JSON)",
}
"""What the port serves."""
FLUSH_S = 60.0
"""How long dispatch is waited for when all is to be flushed."""
_STOP_S = 1.0


class Operations:
    """See the module. For the loop's thread alone.

    Args:
        live, health: what is told.
        tables: that are written with a flush.
        name_servers: where clients find the broker, `host:port` each.
    """

    def __init__(
        self,
        live: Live,
        health: Health,
        tables: list[KeptTable],
        log: logging.Logger,
        name_servers: Sequence[str] = (),
    ) -> None:
        self._name_servers = list(name_servers)
        self._live = live
        self._health = health
        self._tables = tables
        self._log = log
        self._runners: list[web.AppRunner] = []
        self._one = asyncio.Lock()
        self._socket = str(live.watched.store.config.store_path_root_dir / names.SOCKET)

    async def start(self, host: str, port: int | None) -> int | None:
        """Listen; `port` None: at the socket only. The port. Raises OSError: it is taken; StorageError: no socket."""
        control = [
            web.get("/status", self._status),
            web.post("/flush", self._flush),
            web.get("/in-use", self._in_use),
            web.get("/where", self._where),
            web.post("/expire", self._expire),
            web.post("/backup", self._backup),
        ]
        runner = await self._runner(control)
        await web.SockSite(runner, local_socket.listen_at(self._socket)).start()
        if port is None:
            return None
        watched = [
            web.get("/", _index),
            web.get("/metrics", self._metrics),
            web.get("/health", self._healthy),
            web.get("/ready", self._ready),
        ]
        runner = await self._runner(watched)
        site = web.TCPSite(runner, host, port)
        await site.start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; the socket goes."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
        local_socket.remove(self._socket)

    async def _runner(self, routes: list[web.RouteDef]) -> web.AppRunner:
        app = web.Application(middlewares=[self._errors_as_json])
        app.add_routes(routes)
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_STOP_S)
        await runner.setup()
        self._runners.append(runner)
        return runner

    @web.middleware
    async def _errors_as_json(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Our errors as JSON."""
        try:
            return await handler(request)
        except RStoreError as error:
            answer = {
                "code": error.code,
                "message": error.message,
                "path": error.path,
                "offset": error.offset,
                "hint": error.hint,
                "exit": error.exit_code,
            }
            return _json({"error": answer}, 500)

    # --- for who watches --------------------------------------------------------------------------------------------

    async def _metrics(self, request: web.Request) -> web.Response:
        gathered = await gather(self._live, self._health)
        text, kind = await self._in_thread(lambda: expose(gathered, request.headers.get("Accept", "")))
        return web.Response(body=text, headers={"Content-Type": kind})

    async def _healthy(self, _: web.Request) -> web.Response:
        await self._in_thread(self._health.look_at_disks)
        reasons = self._reasons()
        return _json({"healthy": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _ready(self, _: web.Request) -> web.Response:
        return _json({"ready": self._health.ready}, 200 if self._health.ready else 503)

    def _reasons(self) -> list[dict[str, str]]:
        return [reason._asdict() for reason in self._health.reasons]

    # --- for commands -----------------------------------------------------------------------------------------------

    async def _status(self, _: web.Request) -> web.Response:
        await self._live.refresh()
        await self._in_thread(self._health.look_at_disks)
        reasons = self._reasons()
        return _json({**self._live.look(), "health": {"healthy": not reasons, "reasons": reasons}})

    async def _in_use(self, _: web.Request) -> web.Response:
        archive = self._live.watched.archiving.location
        known = {} if archive is None else {"archive": archive}
        return _json({"inUse": self._live.watched.store.clean.in_use, **known})

    async def _where(self, _: web.Request) -> web.Response:
        return _json({"broker": self._live.watched.address, "nameServers": self._name_servers})

    async def _flush(self, _: web.Request) -> web.Response:
        store = self._live.watched.store
        async with self._one:
            changes = [(table, table.changes()) for table in self._tables]

            def work() -> bool:
                done = store.flush_all(FLUSH_S * 1000)
                for table, changed in changes:
                    if changed is not None:
                        table.write(changed)
                return done

            dispatched = await self._in_thread(work)
        self._log.info("flushed on request", extra={"flushed": store.log.flushed_where})
        return _json(
            {"flushed": store.log.flushed_where, "dispatched": store.dispatch.position, "complete": dispatched}
        )

    async def _expire(self, request: web.Request) -> web.Response:
        try:
            asked = orjson.loads(await request.read())
            before, is_archived = asked["before"], asked.get("archived") is True
        except (orjson.JSONDecodeError, KeyError, TypeError):
            before, is_archived = None, False
        if not isinstance(before, int) or isinstance(before, bool) or before < 0:
            raise InvalidArgument('expected {"before": OFFSET}')
        archive = self._live.watched.archiving.location
        if archive is not None and not is_archived:
            raise only_archived(archive)
        store = self._live.watched.store
        async with self._one:
            removed = await self._in_thread(lambda: store.clean.expire_before(before))
        self._log.info("expired files deleted on request", extra={"files": removed, "min_offset": store.log.min_offset})
        return _json({"logFilesRemoved": removed, "minOffset": store.log.min_offset})

    async def _backup(self, request: web.Request) -> web.Response:
        try:
            told = orjson.loads(await request.read())
            end, lag_ms = told["maxOffset"], told["lagMs"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            end = lag_ms = None
        if not all(type(one) is int and one >= 0 for one in (end, lag_ms)):
            raise InvalidArgument('expected {"maxOffset": OFFSET, "lagMs": MS}')
        self._live.backed_up(end, lag_ms)
        return _json({})

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(None, work)


async def _index(_: web.Request) -> web.Response:
    """For who opens the address that serve prints."""
    return web.Response(text="".join(f"{path:<10}{what}\n" for path, what in WATCHED.items()))


def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
