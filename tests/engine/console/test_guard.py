"""Who gets in, and what a page of somebody else can do: nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine.config import of_store
from engine.console.options import ConsoleOptions
from engine.console.web.guard import LARGEST_FORM
from engine.console.web.sessions import IDLE_S, LONGEST_S, MOST_FAILURES, WINDOW_S, NotLoggedIn, Sessions
from tests.support.consoles import ConsoleThread, console

Store = Callable[[str], Path]
ACL = """\
accounts:
  - accessKey: administrator
    secretKey: 12345678secret
    admin: true
  - accessKey: reader-account
    secretKey: 12345678reader
    admin: false
    defaultTopicPerm: DENY
    topicPerms:
      - Hot=SUB
"""


@pytest.fixture(scope="module")
def thread(fixture_store: Store) -> Iterator[ConsoleThread]:
    with ConsoleThread(ConsoleOptions(store=of_store(fixture_store("clean-small"), None), write=True)) as running:
        yield running


def test_a_token_opens_one_session_and_the_next_is_told(thread: ConsoleThread) -> None:
    used = urlsplit(thread.log_ins[-1])
    thread.browser()
    again = thread.visitor()
    answer = again.get(f"{used.path}?{used.query}")
    assert answer.status == 401
    assert again.get("/store").status == 303
    assert urlsplit(thread.log_ins[-1]).query != used.query
    assert thread.browser().get("/store").status == 200


def test_nothing_is_shown_before_the_log_in(thread: ConsoleThread) -> None:
    visitor = thread.visitor()
    for path in ("/store", "/store/log/bytes?at=0", "/operations", "/live/daemon"):
        assert visitor.get(path).status == 303
        assert visitor.get(path, Accept="application/json").status == 401
    for path in ("/change/undo", "/apply", "/run/check", "/log-out"):
        assert visitor.post(path, {}).status == 401


def test_the_cookie_is_no_scripts_and_no_other_sites(thread: ConsoleThread) -> None:
    visitor = thread.visitor()
    place = urlsplit(thread.log_ins[-1])
    line = visitor.get(f"{place.path}?{place.query}").headers["Set-Cookie"]
    assert "HttpOnly" in line
    assert "SameSite=Strict" in line
    assert line.startswith(f"rstore_console_{urlsplit(thread.address).port}=")


def test_every_answer_has_its_headers(thread: ConsoleThread) -> None:
    browser = thread.browser()
    for path in ("/store", "/store?format=json", "/nosuch", "/static/console.css", "/static/nosuch.css"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] in ("no-store", "no-cache")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", "[::1"])
def test_another_host_name_gets_nothing(thread: ConsoleThread, host: str) -> None:
    browser = thread.browser()
    answer = browser.get("/store", Host=host or "x")
    assert answer.status == 421
    assert "clean-small" not in answer.text


def test_a_form_of_another_site_changes_nothing(thread: ConsoleThread) -> None:
    browser = thread.browser()
    csrf = browser.csrf
    own = thread.address
    forged = [
        ({}, {}),
        ({"csrf": "x"}, {}),
        ({"csrf": csrf[:-1]}, {}),
        ({"csrf": thread.browser().csrf}, {}),
        ({"csrf": csrf}, {"Origin": "http://evil.example"}),
        ({"csrf": csrf}, {"Origin": "null"}),
        ({"csrf": csrf}, {"Sec-Fetch-Site": "cross-site"}),
        ({"csrf": csrf}, {"Sec-Fetch-Site": "same-site"}),
    ]
    for path in ("/change/recover", "/apply", "/run/verify-crc", "/log-out"):
        for fields, headers in forged:
            assert browser.post(path, fields, headers=headers).status == 403, (path, fields, headers)
    assert browser.json("/store/check")["runs"]["verify-crc"] is None
    answer = browser.post("/run/verify-crc", {"csrf": csrf}, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})
    assert answer.status == 303


@pytest.mark.parametrize(
    "back", ["//evil.example", "http://evil.example", "/\\evil.example", "/\r\nX: y", "javascript:1"]
)
def test_no_form_leads_elsewhere(thread: ConsoleThread, back: str) -> None:
    browser = thread.browser()
    answer = browser.post("/look", {"theme": "dark", "back": back})
    assert answer.status == 303
    assert answer.headers["Location"] == "/"
    assert "X" not in answer.headers


def test_a_form_is_bounded(thread: ConsoleThread) -> None:
    browser = thread.browser()
    assert browser.post("/change/recover", {"csrf": "x" * (LARGEST_FORM + 10)}).status == 413


def test_log_out_ends_the_session_and_its_streams(thread: ConsoleThread) -> None:
    browser = thread.browser()
    assert browser.send("/log-out").status == 303
    assert browser.get("/store", Accept="application/json").status == 401


def test_a_reader_that_does_not_read_keeps_nobody_waiting(thread: ConsoleThread) -> None:
    browser = thread.browser()
    place = urlsplit(thread.address)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    idle = []
    try:
        for path in ["/live/daemon"] * 5 + ["/store"] * 20:
            one = socket.create_connection((place.hostname, place.port))
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nCookie: {cookies}\r\n\r\n".encode())
            idle.append(one)
        assert browser.get("/store").status == 200
    finally:
        for one in idle:
            one.close()


def test_accounts_have_their_rights(fixture_store: Store, tmp_path: Path) -> None:
    acl = tmp_path / "plain_acl.yml"
    acl.write_text(ACL, encoding="utf-8")
    options = ConsoleOptions(store=of_store(fixture_store("clean-small"), None), write=True, acl=acl)
    with ConsoleThread(options) as thread:
        admin, reader, stranger = thread.visitor(), thread.visitor(), thread.visitor()
        assert admin.post("/log-in", {"access": "administrator", "secret": "12345678secret"}).status == 303
        assert reader.post("/log-in", {"access": "reader-account", "secret": "12345678reader"}).status == 303
        assert stranger.post("/log-in", {"access": "administrator", "secret": "12345678"}).status == 401
        assert stranger.post("/log-in", {"access": "", "secret": ""}).status == 401
        assert stranger.get("/store").status == 303
        assert admin.get("/store").status == 200
        assert admin.send("/change/undo").status != 403
        assert reader.get("/store").status == 403
        assert reader.get("/operations").status == 200
        assert reader.send("/change/undo").status == 403
        assert reader.send("/run/check").status == 403
        assert "12345678secret" not in admin.get("/store/config").text


def test_redaction_hides_bodies_from_everybody(fixture_store: Store) -> None:
    root = fixture_store("clean-small")
    with console(ConsoleOptions(store=of_store(root, None))) as browser:
        open_row = next(one for one in browser.json("/store/messages?topic=Hot&queue=0")["rows"] if one.get("body"))
    at = open_row["physicalOffset"]
    with console(ConsoleOptions(store=of_store(root, None), redact=True)) as browser:
        for row in browser.json("/store/messages?topic=Hot&queue=0")["rows"]:
            assert "body" not in row
            assert "bodyBase64" not in row
            assert set(row["properties"].values()) <= {"(redacted)"}
        records = browser.json("/store/log/records")["rows"]
        assert {one["keys"] for one in records if "keys" in one} == {"(redacted)"}
        shown = browser.json(f"/store/log/bytes?at={at}")
        assert shown["pieces"] == []
        page = browser.get(f"/store/log/bytes?at={at}").words
        assert open_row["body"][:12] not in page
        body = open_row["body"].encode()[:4].hex(" ")
        assert body not in page


def test_sessions_end() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    one = sessions.open("a", frozenset())
    now[0] += IDLE_S - 1
    assert sessions.of(one.key) is one
    now[0] += IDLE_S + 1
    with pytest.raises(NotLoggedIn):
        sessions.of(one.key)
    two = sessions.open("b", frozenset())
    began = now[0]
    while now[0] - began <= LONGEST_S:
        sessions.of(two.key)
        now[0] += IDLE_S / 2
    with pytest.raises(NotLoggedIn):
        sessions.of(two.key)


def test_log_ins_that_fail_are_not_tried_for_ever(fixture_store: Store) -> None:
    with ConsoleThread(ConsoleOptions(store=of_store(fixture_store("clean-small"), None))) as thread:
        visitor = thread.visitor()
        for _ in range(MOST_FAILURES):
            assert visitor.post("/log-in", {"token": "wrong"}).status == 401
        assert visitor.post("/log-in", {"token": "wrong"}).status == 429
        place = urlsplit(thread.log_ins[-1])
        assert visitor.get(f"{place.path}?{place.query}").status == 429
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    for _ in range(MOST_FAILURES):
        sessions.failed("no")
    now[0] += WINDOW_S + 1
    sessions.take_token(sessions.token)


def test_a_link_on_another_site_does_not_use_the_token_up(thread: ConsoleThread) -> None:
    place = urlsplit(thread.log_ins[-1])
    visitor = thread.visitor()
    answer = visitor.ask("GET", f"{place.path}?{place.query}", None, {"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 200
    assert thread.browser().get("/store").status == 200
