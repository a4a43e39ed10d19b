"""The application: pages to routes, log-in, forms of changes, streams, static files.

A page answers a browser with HTML, and who asks for `application/json` (or `?format=json`) with the JSON that the page
was drawn from: the fields that the command prints with --json.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from engine.console.web.asked import Asked
from engine.console.web.guard import HEADERS, LARGEST_FORM, WrongHost, demand_own_form, guarding, known_hosts, status_of
from engine.console.web.login import log_in_account, token_session
from engine.console.web.page import Part
from engine.console.web.render import STATIC, filled, quoted
from engine.console.web.sessions import ConsoleRight, NotLoggedIn
from engine.console.web.words import LANGUAGES, preferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp.typedefs import Handler
    from multidict import MultiMapping

    from engine.console.changes.change import ConsoleChange
    from engine.console.changes.plans import ShownPlan
    from engine.console.web.context import Console
    from engine.console.web.page import Page
    from engine.console.web.runs import Work
    from engine.console.web.sessions import Session
    from engine.console.web.streams import Look
    from engine.errors import RStoreError

THEMES = ("auto", "light", "dark")
_STREAM_WRITE_S = 15.0
_YEAR_S = 365 * 24 * 3600
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class ConsoleApp:
    """See the module. For one loop.

    Args:
        console: what pages are given.
        pages: all of them.
        changes: by name.
        looks: makes what a stream looks at, of its path: (key, look, seconds between two looks).
        works: what the run of a name does.
    """

    def __init__(
        self,
        console: Console,
        pages: Sequence[Page],
        changes: Mapping[str, ConsoleChange],
        looks: Callable[[Asked, str], tuple[str, Look, float]],
        works: Callable[[Asked, str], Work],
    ) -> None:
        self._console = console
        self._changes = changes
        self._looks = looks
        self._works = works
        options = console.options
        has = {Part.STORE: options.store is not None, Part.CLUSTER: bool(options.name_servers), Part.BOTH: True}
        self._pages = [page for page in pages if has[page.part]]
        self._menu = [page for page in self._pages if page.menu]
        self._known: frozenset[str] = frozenset()
        self._files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
        self.cookie = "rstore_console"
        self.app = web.Application(
            middlewares=[guarding(lambda: self._known, self._failed)], client_max_size=LARGEST_FORM
        )
        self.app.add_routes([web.get(page.path, self._handler(page)) for page in self._pages])
        self.app.add_routes(
            [
                web.get("/", self._home),
                web.get("/log-in", self._log_in_page),
                web.post("/log-in", self._log_in),
                web.post("/log-out", self._log_out),
                web.post("/look", self._set_look),
                web.get("/live/{what:.+}", self._stream),
                web.post("/run/{name}", self._run),
                web.post("/change/{name}", self._plan),
                web.post("/apply", self._apply),
                web.get("/static/{path:.+}", self._static),
            ]
        )

    def listens(self, host: str, port: int) -> None:
        """Where it listens: what browsers may call it, and the cookie's name: ports of a host share cookies."""
        self._known = known_hosts(host, port, self._console.options.names)
        self.cookie = f"rstore_console_{port}"

    # --- pages ------------------------------------------------------------------------------------------------------

    def _handler(self, page: Page) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = self._session(request)
            session.demand(page.right)
            asked = Asked(self._console, session, _fields(request))
            document = await page.answer(asked)
            if _wants_json(request):
                return web.Response(body=orjson.dumps(document), content_type="application/json")
            if page.download:
                return _file(document)
            return self._page(request, page.template, session, doc=document, page=page, fields=asked.fields)

        return handle

    def _page(
        self, request: web.Request, template: str, session: Session | None, status: int = 200, **values: Any
    ) -> web.Response:
        options = self._console.options
        page = values.get("page")
        text = filled(
            template,
            self._language(request),
            session=session,
            menu=self._menu,
            here="" if page is None else page.under or page.path,
            path=request.rel_url.raw_path_qs,
            theme=_chosen(request, "rstore_theme", THEMES) or "auto",
            store=None if options.store is None else str(options.store.store_path_root_dir),
            servers="; ".join(options.name_servers),
            may_change=options.write and session is not None and session.may(ConsoleRight.CHANGE),
            redact=session is not None and not session.may(ConsoleRight.BODIES),
            **{"page": None, "fields": {}, "doc": {}, "title": "", **values},
        )
        return web.Response(text=text, content_type="text/html", status=status)

    def _failed(self, request: web.Request, error: RStoreError) -> web.StreamResponse:
        status = status_of(error)
        document = {**error.to_json(), "exit": error.exit_code}
        if _wants_json(request):
            return web.Response(body=orjson.dumps({"error": document}), status=status, content_type="application/json")
        if isinstance(error, WrongHost):  # whoever asks so is told nothing of what is here
            return web.Response(text=f"{error}\n", status=status)
        session = self._session_or_none(request)
        if isinstance(error, NotLoggedIn) and request.method == "GET" and request.path != "/log-in":
            return _see_other("/log-in")
        if session is None:
            return self._page(request, "log_in.html", None, status, problem=document, page=None)
        template = "part_error.html" if "HX-Request" in request.headers else "error.html"
        return self._page(request, template, session, status, doc=document)

    async def _home(self, request: web.Request) -> web.StreamResponse:
        session = self._session(request)
        first = next((page for page in self._menu if session.may(page.right)), None)
        return _see_other("/log-in" if first is None else first.path)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        path = self._files.get(request.match_info["path"])
        if path is None or path.suffix not in _KINDS:
            raise web.HTTPNotFound
        kind = f"{_KINDS[path.suffix]}; charset=utf-8"
        return web.FileResponse(path, headers={"Cache-Control": "no-cache", "Content-Type": kind})

    # --- who --------------------------------------------------------------------------------------------------------

    def _session(self, request: web.Request) -> Session:
        return self._console.sessions.of(request.cookies.get(self.cookie))

    def _session_or_none(self, request: web.Request) -> Session | None:
        with contextlib.suppress(NotLoggedIn):
            return self._session(request)
        return None

    async def _log_in_page(self, request: web.Request) -> web.StreamResponse:
        token = request.query.get("token", "")
        if token and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            token = ""  # a link on another site can't use it up unseen: it is asked for in the form
        if token:
            self._console.sessions.take_token(token)
            return self._entered(await token_session(self._console))
        return self._page(request, "log_in.html", None, problem=None)

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        demand_own_form(request, None, "")
        form = _texts(await request.post())
        token = form.get("token", "").strip()
        if token:
            self._console.sessions.take_token(token)
            session = await token_session(self._console)
        else:
            access, secret = form.get("access", "").strip(), form.get("secret", "").strip()
            session = await log_in_account(self._console, access, secret)
        return self._entered(session)

    def _entered(self, session: Session) -> web.StreamResponse:
        answer = _see_other("/")
        answer.set_cookie(self.cookie, session.key, httponly=True, samesite="Strict", path="/")
        return answer

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        session = self._session(request)
        demand_own_form(request, session, _texts(await request.post()).get("csrf", ""))
        self._console.sessions.close(session)
        answer = _see_other("/log-in")
        answer.del_cookie(self.cookie, path="/")
        return answer

    async def _set_look(self, request: web.Request) -> web.StreamResponse:
        """Theme and language: of the browser, logged in or not."""
        demand_own_form(request, None, "")
        form = _texts(await request.post())
        answer = _see_other(_own_path(form.get("back", "")))
        for field, cookie, known in (("theme", "rstore_theme", THEMES), ("language", "rstore_language", LANGUAGES)):
            if form.get(field) in known:
                answer.set_cookie(cookie, form[field], max_age=_YEAR_S, httponly=True, samesite="Strict", path="/")
        return answer

    def _language(self, request: web.Request) -> str:
        chosen = _chosen(request, "rstore_language", LANGUAGES)
        return chosen or preferred(request.headers.get("Accept-Language", "")[:200])

    # --- runs and changes -------------------------------------------------------------------------------------------

    async def _run(self, request: web.Request) -> web.StreamResponse:
        """Start what takes longer than a page may."""
        session = self._session(request)
        form = _texts(await request.post())
        demand_own_form(request, session, form.get("csrf", ""))
        name = request.match_info["name"]
        work = self._works(Asked(self._console, session, form), name)
        run = self._console.runs.start(name, work)
        if _wants_json(request):
            return web.Response(body=orjson.dumps(run.to_json()), content_type="application/json")
        return _see_other(_own_path(form.get("back", "")))

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        """Plan a change, and show it."""
        session = self._session(request)
        form = _texts(await request.post())
        demand_own_form(request, session, form.get("csrf", ""))
        change = self._changes.get(request.match_info["name"])
        if change is None:
            raise web.HTTPNotFound
        session.demand(ConsoleRight.CHANGE)
        plan = await change.plan(Asked(self._console, session, form))
        number = self._console.plans.keep(session.key, plan) if plan.changed and plan.refusal is None else None
        if _wants_json(request):
            return web.Response(body=orjson.dumps({**plan.plan, "number": number}), content_type="application/json")
        return self._page(request, "plan.html", session, doc=plan, number=number)

    async def _apply(self, request: web.Request) -> web.StreamResponse:
        """Carry a plan out that was shown."""
        session = self._session(request)
        form = _texts(await request.post())
        demand_own_form(request, session, form.get("csrf", ""))
        session.demand(ConsoleRight.CHANGE)
        plan = self._console.plans.take(session.key, form.get("number", ""))
        work = asyncio.get_running_loop().create_task(self._carry_out(plan, Asked(self._console, session, form)))
        try:
            outcome = await asyncio.shield(work)
        except asyncio.CancelledError:  # who asked may leave: what has begun is ended
            await work
            raise
        if _wants_json(request):
            return web.Response(body=orjson.dumps(outcome), content_type="application/json")
        return self._page(request, "done.html", session, doc=outcome, plan=plan)

    async def _carry_out(self, plan: ShownPlan, asked: Asked) -> dict[str, Any]:
        """Carry a plan out, noted before and after. Raises as its `apply`; StorageError: it can't be noted."""
        log = self._console.operations
        number = await asyncio.to_thread(log.begin, asked.session.name, plan.what, plan.plan)
        try:
            outcome = await plan.apply(asked)
        except BaseException as error:
            await asyncio.to_thread(log.end, number, done=False, outcome=str(getattr(error, "message", repr(error))))
            raise
        finally:
            self._console.changed()
        await asyncio.to_thread(log.end, number, done=bool(outcome["done"]), outcome=str(outcome["outcome"]))
        return outcome

    # --- streams ----------------------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        session = self._session(request)
        asked = Asked(self._console, session, _fields(request))
        key, look, period = self._looks(asked, request.match_info["what"])
        sampler = self._console.samplers.of(key, look, period)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        answer.headers.update(HEADERS)
        await answer.prepare(request)
        gone = (ConnectionError, NotLoggedIn, TimeoutError)  # left, logged out, or does not read
        with contextlib.suppress(*gone):
            async with contextlib.aclosing(sampler.watch()) as samples:
                async for sample in samples:
                    self._session(request)
                    async with asyncio.timeout(_STREAM_WRITE_S):
                        await answer.write(b"data: " + sample + b"\n\n")
        return answer


def _wants_json(request: web.Request) -> bool:
    return request.query.get("format") == "json" or request.headers.get("Accept", "").startswith("application/json")


def _file(document: dict[str, Any]) -> web.Response:
    """A file to be saved: no browser takes it for a page, whatever is in it."""
    return web.Response(
        body=bytes.fromhex(document["data"]),
        content_type="application/octet-stream",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quoted(document['name'])}"},
    )


def _see_other(path: str) -> web.Response:
    """The browser is sent to another page."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": path})


def _own_path(back: str) -> str:
    """The page to return to: one of this console, whatever a form says."""
    own = back.startswith("/") and not back.startswith(("//", "/\\"))
    return back if own and back.isprintable() and back.isascii() else "/"


def _texts(form: MultiMapping[Any]) -> dict[str, str]:
    """The fields of a form; one that is there several times has its values with blanks between them."""
    return {name: " ".join(one for one in form.getall(name) if isinstance(one, str)) for name in form}


def _fields(request: web.Request) -> dict[str, str]:
    return {**request.query, **request.match_info}


def _chosen(request: web.Request, cookie: str, known: tuple[str, ...]) -> str | None:
    value = request.cookies.get(cookie)
    return value if value in known else None
