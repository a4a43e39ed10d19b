"""`rstore console` and `rstore serve --console`: processes that tell where to log in, and end with who began them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rstore_cli.conftest import Cli
from tests.support import stores
from tests.support.consoles import WAIT_S, Browser

Store = Callable[[str], Path]


@contextmanager
def rstore(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "rstore_cli.app", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], key: str) -> str:
    """The value of the line of JSON that has the key."""
    assert process.stdout is not None
    while True:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        document = json.loads(line)
        if key in document:
            value: str = document[key]
            return value


def logged_in(address: str) -> Browser:
    place = urlsplit(address)
    browser = Browser(f"{place.scheme}://{place.netloc}")
    assert browser.get(f"{place.path}?{place.query}").status == 303
    return browser


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_healthy(browser: Browser) -> bool:
    """Whether the page of the store shows a healthy daemon: one that answers within its two seconds."""
    daemon = browser.json("/store")["daemon"]
    return daemon is not None and bool(daemon["health"]["healthy"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_console_of_a_store(number: int, fixture_store: Store) -> None:
    root = fixture_store("crashed-small")
    before = stores.snapshot(root)
    with rstore("--store", root, "--json", "console", "--port", "0") as process:
        first = told(process, "logIn")
        browser = logged_in(first)
        assert told(process, "logIn") != first, "the next token is told"
        assert browser.json("/store")["state"] == "crashed"
        assert browser.get("/cluster").status == 404
        process.send_signal(number)
        process.wait(WAIT_S)
    assert stores.snapshot(root) == before


def test_what_it_needs(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    ran = cli("console")
    assert ran.code == 2
    assert "--store" in ran.err
    assert cli("serve", "--console-write").code == 2
    assert cli("serve", "--console-port", "1").code == 2
    assert cli("console", "--namesrv", "nowhere").code == 2


def test_a_port_that_is_taken_is_said(cli: Cli, fixture_store: Store) -> None:
    root = fixture_store("clean-small")
    with rstore("--store", root, "--json", "console", "--port", "0") as process:
        port = urlsplit(told(process, "logIn")).port
        ran = cli("--store", root, "console", "--port", str(port))
        assert ran.code == 5
        assert str(port) in ran.err


@contextmanager
def daemon_with_console(root: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    words = ("--store", root, "--json", "serve", "--port", "0", "--names-port", "0", "--console", "--console-port", "0")
    with rstore(*words, "--console-write") as process:
        address = told(process, "logIn")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        every = {*children, *_of_threads(process.pid)}
        (console,) = [int(pid) for pid in every if b"console" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        yield process, address, console


def _of_threads(pid: int) -> list[str]:
    """Children that threads of a process have begun."""
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_beside_the_daemon_it_shows_both_and_ends_with_it(new_store: Path) -> None:
    with daemon_with_console(new_store) as (process, address, console):
        browser = logged_in(address)
        until(lambda: is_healthy(browser))
        (broker,) = browser.json("/cluster")["rows"]
        assert broker["problem"] is None
        _, done = browser.change("topic-set", topic="made", queues="2")
        assert done is not None
        assert done.status == 200
        assert os.getpriority(os.PRIO_PROCESS, console) > 0, "sends come first"
        process.terminate()
        process.wait(WAIT_S)
        until(lambda: ended(console))


@pytest.mark.leaves
def test_a_daemon_that_is_killed_leaves_no_console(new_store: Path) -> None:
    with daemon_with_console(new_store) as (process, _, console):
        process.kill()
        process.wait(WAIT_S)
        until(lambda: ended(console))


def test_a_console_that_dies_is_started_again_and_the_daemon_goes_on(new_store: Path) -> None:
    with daemon_with_console(new_store) as (process, address, console):
        os.kill(console, signal.SIGKILL)
        again = told(process, "logIn")
        assert again != address
        browser = logged_in(again)
        until(lambda: is_healthy(browser))
        process.terminate()
        process.wait(WAIT_S)
