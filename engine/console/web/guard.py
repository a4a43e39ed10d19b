"""What stands before every page: the host it was asked as, who asks, where a form came from; and the headers of all
answers.

- Host: only names that the console goes by. A page of another site whose name was pointed here (DNS rebinding) is
  turned away before anything is looked up.
- Forms: the session's token, and where the browser says from where (Origin, Sec-Fetch-Site): from here.
- Answers: nothing but what this server serves may run, be shown or be sent to; no inline script or style; no frame; no
  referrer for others; nothing kept in caches.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from engine.console.web.sessions import NotAllowed, NotLoggedIn, TooManyFailures
from engine.errors import InvalidArgument, NotFound, PeerLost, RStoreError, Shortage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler, Middleware

    from engine.console.web.sessions import Session

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    # not no-referrer: with that a browser sends `Origin: null` with a form of our own
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
LARGEST_FORM = 1 << 20
"""Bytes of a form."""
PAGE_S = 60.0
"""How long a page may take."""
LOG = logging.getLogger("rstore.console")
_LONG = ("/live/", "/change/", "/apply")
"""Streams, and changes: a plan reads what its command reads."""
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


class WrongHost(RStoreError):
    """The console was asked under a name that is not its own."""

    code, exit_code = "wrong-host", 4


class Forged(RStoreError):
    """A form that did not come from a page of this session."""

    code, exit_code = "forged", 4


_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (NotLoggedIn, HTTPStatus.UNAUTHORIZED),
    (TooManyFailures, HTTPStatus.TOO_MANY_REQUESTS),
    (NotAllowed, HTTPStatus.FORBIDDEN),
    (Forged, HTTPStatus.FORBIDDEN),
    (WrongHost, HTTPStatus.MISDIRECTED_REQUEST),
    (InvalidArgument, HTTPStatus.BAD_REQUEST),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Shortage, HTTPStatus.SERVICE_UNAVAILABLE),
    (PeerLost, HTTPStatus.BAD_GATEWAY),
    (RStoreError, HTTPStatus.CONFLICT),
)


def status_of(error: RStoreError) -> HTTPStatus:
    """The HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def known_hosts(host: str, port: int, names: tuple[str, ...]) -> frozenset[str]:
    """What browsers may call the console: name:port each."""
    plain = f"[{host}]" if ":" in host else host
    own = [*names, *_LOCAL, *([] if host in ("0.0.0.0", "::") else [plain])]
    return frozenset(f"{one}:{port}".lower() for one in own) | frozenset(name.lower() for name in names if ":" in name)


def demand_host(request: web.Request, known: frozenset[str]) -> None:
    """Raises WrongHost."""
    given = request.headers.get("Host", "").lower()
    if given not in known:
        raise WrongHost(f"the console is not {given}", hint="open its own address, or name it with --console-name")


def demand_own_form(request: web.Request, session: Session | None, given: str) -> None:
    """Raises Forged: the form came from another site, or from no page of the session."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise Forged("the form came from another site", hint="use the console's own pages")
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise Forged("the form came from another site", hint="use the console's own pages")
    if session is not None and not hmac.compare_digest(given.encode(), session.csrf.encode()):
        raise Forged("the form lacks the session's token", hint="reload the page and try again")


def guarding(
    known: Callable[[], frozenset[str]], failed: Callable[[web.Request, RStoreError], web.StreamResponse]
) -> Middleware:
    """The middleware. `failed` makes the page of an error."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer: web.StreamResponse
        try:
            demand_host(request, known())
            async with asyncio.timeout(None if request.path.startswith(_LONG) else PAGE_S):
                answer = await handler(request)
        except RStoreError as error:
            answer = failed(request, error)
        except TimeoutError:
            answer = failed(request, Shortage(f"the page took longer than {PAGE_S:.0f} s", hint="try again"))
        except web.HTTPException as error:
            answer = failed(request, _plain(error))
            answer.set_status(error.status)
        except Exception:
            LOG.exception("a page failed", extra={"path": request.path})
            answer = failed(request, RStoreError("the console failed", hint="its log says where; report it as a bug"))
            answer.set_status(HTTPStatus.INTERNAL_SERVER_ERROR)
        if not answer.prepared:
            answer.headers.update({name: value for name, value in HEADERS.items() if name not in answer.headers})
        return answer

    return guard


def _plain(error: web.HTTPException) -> RStoreError:
    if error.status == HTTPStatus.NOT_FOUND:
        return NotFound("there is no such page", hint="the menu has all of them")
    return InvalidArgument(f"the request was not understood: {error.reason}", hint="use the console's own pages")
