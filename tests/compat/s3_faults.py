"""A proxy before a real S3 server that makes it fail as object stores do: errors, throttling, cuts, old lists."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

THROTTLED = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
FAILED = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"


class Fault(Enum):
    """What becomes of a request.

    CUT: the connection ends in the middle of the answer. UNSENT: it ends before the server gets the request. UNHEARD:
    the server does what it was asked for, and the answer is lost. OLD_LIST: the list of that
    prefix that `lists` has is given again.
    """

    FAILED = 500
    THROTTLED = 503
    CUT = 1
    UNSENT = 2
    UNHEARD = 3
    OLD_LIST = 4


_TEXTS = {Fault.THROTTLED: THROTTLED, Fault.FAILED: FAILED}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its number from 1 on, its method, the path, the prefix that is listed (None: no list)."""

    number: int
    method: str
    path: str
    prefix: str | None


Choose = Callable[[Asked], Fault | None]


class S3Proxy:
    """Passes requests on. `choose` says which fail, and may be set anew at any time. `asked`: all requests so far."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.choose: Choose = lambda _: None
        self.asked: list[Asked] = []
        self.lists: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self._lock = threading.Lock()
        self.port = 0

    def take(self, method: str, path: str) -> tuple[Asked, Fault | None]:
        """Note a request; what becomes of it."""
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        prefix = query.get("prefix", [""])[0] if "list-type" in query else None
        with self._lock:
            asked = Asked(len(self.asked) + 1, method, path, prefix)
            self.asked.append(asked)
        return asked, self.choose(asked)

    @contextmanager
    def running(self) -> Iterator[S3Proxy]:
        """It listens on `port`."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
            listening.daemon_threads = True
            self.port = listening.server_address[1]
            thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                listening.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: S3Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        asked, fault = self.owner.take(self.command, self.path)
        if fault is Fault.UNSENT:
            self.close_connection = True
            return
        if fault in (Fault.FAILED, Fault.THROTTLED):
            self._answer(fault.value, [("Content-Type", "application/xml")], _TEXTS[fault])
            return
        known = self.owner.lists.get(asked.prefix) if asked.prefix is not None else None
        if fault is Fault.OLD_LIST and known is not None:
            self._answer(*known)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.owner.server, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            status, headers, data = answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()
        if asked.prefix is not None:
            self.owner.lists.setdefault(asked.prefix, (status, headers, data))
        if fault is Fault.UNHEARD:
            self.close_connection = True
            return
        self._answer(status, headers, data, cut=fault is Fault.CUT)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection") and (
                is_head or name.lower() != "content-length"
            ):
                self.send_header(name, value)
        if not is_head:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if is_head:
            return
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - the names that http.server looks for
