"""A console in a thread of this process, and a browser without a screen: cookies, forms, JSON."""

from __future__ import annotations

import asyncio
import contextlib
import html
import http.client
import json
import re
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from engine.console.options import ConsoleOptions
from engine.console.serve import RunningConsole, pages

WAIT_S = 120.0


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def words(self) -> str:
        """What a reader sees."""
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", self.text)))

    @property
    def links(self) -> list[str]:
        return [html.unescape(one) for one in re.findall(r'href="(/[^"]*)"', self.text)]


@dataclass
class Browser:
    address: str
    cookies: dict[str, str] = field(default_factory=dict)
    language: str = "en"

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        place = urlsplit(self.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=WAIT_S)
        try:
            cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            own = {"Cookie": cookies, "Accept-Language": self.language, **(headers or {})}
            connection.request(method, path, body, {name: value for name, value in own.items() if value})
            got = connection.getresponse()
            answer = Answer(got.status, dict(got.headers.items()), got.read())
            for line in got.headers.get_all("Set-Cookie") or ():
                name, _, value = line.partition(";")[0].partition("=")
                self.cookies[name] = value
            return answer
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def json(self, path: str) -> Any:
        answer = self.ask("GET", path, None, {"Accept": "application/json"})
        assert answer.status == 200, (path, answer.body)
        return answer.json

    @property
    def csrf(self) -> str:
        return re.findall(r'name="csrf" value="([^"]+)"', self.get("/operations").text)[0]

    def post(self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str] | None = None) -> Answer:
        form = urlencode(fields).encode()
        return self.ask("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})})

    def send(self, path: str, **fields: str) -> Answer:
        """A form of the console's own."""
        return self.post(path, {"csrf": self.csrf, **fields})

    def change(self, name: str, **fields: str) -> tuple[Answer, Answer | None]:
        """A change planned, and carried out where its plan can be: both answers."""
        plan = self.send(f"/change/{name}", **fields)
        number = re.findall(r'name="number" value="([^"]+)"', plan.text)
        return plan, self.send("/apply", number=number[0]) if number else None

    def run(self, name: str, **fields: str) -> dict[str, Any]:
        """A run, started, and its answer once it has ended."""
        answer = self.send(f"/run/{name.replace(' ', '%20')}", **fields)
        assert answer.status == 303, answer.words
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            for page in ("/store/drills",) if name == "drill" else ("/store/check", "/store/repair"):
                shown = self.json(page)
                run = shown["run"] if name == "drill" else shown["runs"].get(name)
                if run is not None and run["ended"]:
                    return run
            time.sleep(0.05)
        raise AssertionError(f"{name} did not end")


class ConsoleThread:
    """See the module. A context manager."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console")
        self.log_ins: list[str] = []
        self.running = RunningConsole(replace(options, port=0), self.log_ins.append)

    def __enter__(self) -> ConsoleThread:
        self._thread.start()
        self.do(self.running.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.do(self.running.__aexit__())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    @property
    def address(self) -> str:
        return self.running.address

    def visitor(self) -> Browser:
        """Somebody who is not logged in."""
        return Browser(self.address)

    def browser(self) -> Browser:
        """Somebody who has logged in with the token."""
        browser = self.visitor()
        place = urlsplit(self.log_ins[-1])
        answer = browser.get(f"{place.path}?{place.query}")
        assert answer.status == 303, answer.words
        return browser


@contextlib.contextmanager
def console(options: ConsoleOptions) -> Iterator[Browser]:
    """A console, and somebody who has logged in with its token."""
    with ConsoleThread(options) as thread:
        yield thread.browser()


def store_pages(browser: Browser) -> dict[str, Answer]:
    """All kinds of pages about a store, by address: those of the menu, and the first few that each links to."""
    menu = [page.path for page in pages() if page.menu and page.part.value != "cluster"]
    kinds: set[str] = set()
    todo = list(menu)
    answers: dict[str, Answer] = {}
    while todo:
        path = todo.pop(0)
        answers[path] = browser.get(path)
        for link in answers[path].links:
            kind = re.sub(r"=[^&]*", "=", re.sub(r"/[^/?]*(?=\?|$)", "/…", link) if link.count("/") > 2 else link)
            if link.startswith("/store") and kind not in kinds and link not in menu and len(kinds) < 60:
                kinds.add(kind)
                todo.append(link)
    return answers
