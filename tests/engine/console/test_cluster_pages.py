"""Pages of a cluster, the daemon's: figures of the commands, changes, and names that somebody chose to do harm with."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from engine.client.calls import BrokerCalls
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.client.producer import ProducerSettings
from engine.client.topic_reader import ReadFrom, TopicReader
from engine.config import of_store
from engine.console.options import ConsoleOptions
from engine.console.serve import pages
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.rstore_cli.daemons import DaemonThread, daemons
from tests.support.consoles import WAIT_S, Browser, ConsoleThread, console

EVIL = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>{{1234567*7}}"
SENT = 40


@dataclass(frozen=True, slots=True)
class Shown:
    browser: Browser
    names: str
    root: Path
    thread: DaemonThread


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with daemons(tmp_path_factory.mktemp("cluster")) as thread:
        names = thread.names_of("a")
        thread._do(_fill(names))
        guest = thread._do(_enter(names))
        root = thread.store("a")
        options = ConsoleOptions(store=of_store(root, None), name_servers=(names,), write=True)
        with console(options) as browser:
            yield Shown(browser, names, root, thread)
        thread._do(guest.aclose())


async def _enter(names: str) -> AsyncExitStack:
    """A consumer whose name does harm, for as long as the stack is open."""

    async def take(messages: object) -> None:
        pass

    stack = AsyncExitStack()
    client = await stack.enter_async_context(ClusterClient(ClientConfig((names,), instance=EVIL)))
    consumer = await stack.enter_async_context(client.push_consumer("guests", take))  # type: ignore[arg-type]
    await consumer.subscribe("orders")
    other = await stack.enter_async_context(ClusterClient(ClientConfig((names,), instance="other")))
    second = await stack.enter_async_context(other.push_consumer("guests", take))  # type: ignore[arg-type]
    await second.subscribe("orders", "unpaid")
    return stack


async def _fill(names: str) -> None:
    async with ClusterClient(ClientConfig((names,))) as client:
        producer = client.producer("PG", ProducerSettings(timeout_s=WAIT_S))
        for i in range(SENT):
            await producer.send(OutgoingMessage("orders", f'{{"n": {i}}}'.encode(), "paid", (f"k{i}",)))
        await producer.send(
            OutgoingMessage(
                "orders",
                EVIL.encode(),
                EVIL,
                (EVIL.replace(" ", "/"),),
                {"customer": EVIL, "\u202eevil": "\u202edrawkcab"},
            )
        )

        async def take(messages: object) -> None:
            taken.append(messages)

        taken: list[object] = []
        async with client.push_consumer("readers", take) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe("orders")
            while len(taken) < SENT:
                await asyncio.sleep(0.01)
            calls = BrokerCalls(client)
            failed = [one async for one in TopicReader(client, "orders").messages(ReadFrom(first=True))]
            for message in failed[:2]:
                await calls.send_back("readers", message, -1, 16)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_every_page_answers(shown: Shown) -> None:
    browser = shown.browser
    todo = [page.path for page in pages() if page.menu]
    todo += ["/messages?topic=orders", "/trace?topic=orders&key=k3", "/messages?topic=orders&key=k1"]
    seen: set[str] = set()
    while todo:
        path = todo.pop(0)
        kind = re.sub(r"=[^&]*", "=", path)
        if path in seen or kind in seen or path == "/" or path.startswith(("/static", "/store", "/log-in")):
            continue
        seen |= {path, kind}
        answer = browser.get(path)
        assert answer.status == 200, (path, answer.words)
        if answer.headers["Content-Type"].startswith("text/html"):
            todo += answer.links
    assert {"/topics/orders", "/groups/readers"} <= seen


def test_figures_are_those_of_the_commands(shown: Shown, cli: Cli) -> None:
    browser, named = shown.browser, ("--namesrv", shown.names, "--json")
    rates = {"inRate", "outRate", "inToday", "outToday", "rate", "lastMs", "diskUsed", "waitsMs", "outDay", "inDay"}

    def same(ours: Mapping[str, object], theirs: Mapping[str, object]) -> None:
        assert {name: value for name, value in ours.items() if name not in rates} == {
            name: value for name, value in theirs.items() if name not in rates
        }

    (line,) = cli("admin", "cluster", "list", *named).lines
    same(browser.json("/cluster")["rows"][0], line)
    topics = [one["topic"] for one in cli("admin", "topic", "list", *named).lines]
    assert [one["topic"] for one in browser.json("/topics?kind=all")["rows"]] == topics
    page = browser.json("/topics/orders")
    assert page["queues"] == cli("admin", "topic", "status", "orders", *named).lines
    assert page["route"] == cli("admin", "topic", "route", "orders", *named).json
    groups: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []

    def asked_at_once() -> bool:
        """Live members commit when they like: between the two questions, too."""
        printed = sorted(cli("admin", "group", "list", *named).lines, key=lambda one: one["group"])
        groups[:] = zip(browser.json("/groups")["rows"], printed, strict=True)
        return all(ours["lag"] == theirs["lag"] for ours, theirs in groups)

    until(asked_at_once)
    for ours, theirs in groups:
        same(ours, theirs)
    group = browser.json("/groups/readers")
    same(group["progress"], cli("admin", "consumer", "progress", "readers", "--clients", *named).json)
    assert group["config"] == cli("admin", "group", "config", "readers", *named).lines
    (by_key,) = browser.json("/messages?topic=orders&key=k7")["rows"]
    (printed,) = cli("admin", "message", "key", "orders", "k7", *named).lines
    assert {name: by_key[name] for name in printed} == printed
    whole = browser.json(f"/messages/view?topic=orders&id={by_key['msgId']}")
    told = cli("admin", "message", "id", by_key["msgId"], *named).json
    assert {name: whole[name] for name in told} == told
    assert whole["pretty"] == '{\n  "n": 7\n}'
    body = browser.get(f"/messages/body?topic=orders&id={by_key['msgId']}")
    assert body.body == b'{"n": 7}'
    assert body.headers["Content-Disposition"].startswith("attachment")
    address = line["address"]
    (status,) = cli("admin", "broker", "status", "--broker", address, *named).lines
    assert browser.json(f"/cluster/{address}")["status"]["values"].keys() == status["values"].keys()
    (settings,) = cli("admin", "broker", "config", "--broker", address, *named).lines
    assert browser.json(f"/cluster/{address}")["settings"] == settings["values"]
    (life,) = browser.json("/trace?topic=orders&key=k7")["lives"]
    lines = cli("trace", "orders", "k7", *named).lines
    assert [{"id": life["id"], **one} for one in (*life["events"], *life["groups"])] == lines


def test_names_that_do_harm_are_text(shown: Shown) -> None:
    browser = shown.browser
    (evil,) = [one for one in browser.json("/messages?topic=orders")["rows"] if one.get("body") == EVIL]
    guest = next(one for one in browser.json("/groups/guests")["online"]["clients"] if EVIL in one["clientId"])
    paths = [
        "/groups/guests",
        f"/clients/guests/{quote(guest['clientId'], safe='')}?stack=1",
        "/clients",
        "/messages?topic=orders",
        f"/messages/view?topic=orders&id={evil['msgId']}",
        f"/store/messages?place={evil['physicalOffset']}",
        f"/store/log/records?from={evil['physicalOffset']}",
        f"/store/log/bytes?at={evil['physicalOffset']}",
        "/trace?topic=orders&key=%3Cimg",
        f"/topics?q={'%3Cscript%3E'}",
        "/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/messages?topic=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/clients/readers/%22%3E%3Cscript%3E",
        "/store/queues?q=%22%3E%3Cscript%3E",
        "/dead-letters/%3Cscript%3E",
        "/nosuch/%3Cscript%3E",
    ]
    shown_somewhere = 0
    for path in paths:
        text = browser.get(path).text
        shown_somewhere += "&lt;img src=x" in text
        assert "<img" not in text, path
        assert not re.search(r"<script(?!\ssrc=\"/static/)", text), path
        assert not re.search(r"<[^>]*\son\w+\s*=", text), path
        assert "\u202e" not in text, path
        assert str(1234567 * 7) not in text, path  # no template takes it for one
    assert shown_somewhere >= 6


def test_topics_and_groups_are_made_changed_and_deleted(shown: Shown, cli: Cli) -> None:
    browser = shown.browser
    plan, done = browser.change("topic-set", topic="made", queues="3", perm="6")
    assert done is not None
    assert "is made" in plan.words
    assert browser.json("/topics/made")["route"]["queues"][0]["writeQueues"] == 3
    _, done = browser.change("topic-perm", topic="made", perm="4")
    assert done is not None
    assert browser.json("/topics/made")["route"]["queues"][0]["perm"] == 4
    _, done = browser.change("topic-delete", topic="made")
    assert done is not None
    assert browser.get("/topics/made").status == 400
    _, done = browser.change("group-set", group="made", retries="3")
    assert done is not None
    assert browser.json("/groups/made")["config"][0]["values"]["retryMaxTimes"] == 3
    _, done = browser.change("group-delete", group="made", offsets="1")
    assert done is not None
    assert browser.send("/change/topic-set", topic="bad name!").status == 400
    assert browser.send("/change/topic-set").status == 400


def test_a_reset_shows_its_effect_before(shown: Shown) -> None:
    browser = shown.browser
    assert browser.json("/groups/readers")["progress"]["lag"] <= 1
    plan, done = browser.change("offset-reset", group="readers", topic="orders", to="first")
    assert done is not None
    assert "becomes" in plan.words or "to 0" in plan.words, plan.words
    assert browser.json("/groups/readers")["progress"]["lag"] >= SENT
    plan, done = browser.change("offset-reset", group="readers", topic="orders", to="end")
    assert done is not None
    assert browser.json("/groups/readers")["progress"]["lag"] == 0
    assert browser.send("/change/offset-reset", group="readers", topic="orders", to="whenever").status == 400


def test_a_copy_of_a_message_is_sent(shown: Shown) -> None:
    browser = shown.browser
    before = browser.json("/topics/orders")["messages"]
    (one,) = browser.json("/messages?topic=orders&key=k9")["rows"]
    plan, done = browser.change("message-resend", topic="orders", id=one["msgId"])
    assert done is not None, plan.words
    until(lambda: browser.json("/topics/orders")["messages"] == before + 1)  # once it is dispatched
    until(lambda: len(browser.json("/messages?topic=orders&key=k9")["rows"]) == 2)
    two = browser.json("/messages?topic=orders&key=k9")["rows"]
    assert [one["body"] for one in two] == ['{"n": 9}'] * 2
    assert two[0]["properties"]["UNIQ_KEY"] != two[1]["properties"]["UNIQ_KEY"]


def test_consumers_that_disagree_are_shown(shown: Shown) -> None:
    browser = shown.browser
    until(lambda: len(browser.json("/groups/guests")["online"]["clients"]) == 2)
    until(lambda: bool(browser.json("/groups/guests")["disagree"]))
    (topic,) = browser.json("/groups/guests")["disagree"]
    assert topic["topic"] == "orders"
    assert {one["expression"] for one in topic["clients"]} == {"*", "unpaid"}
    assert "subscribe to different things" in browser.get("/groups/guests").words
    assert browser.json("/groups/readers")["disagree"] == []


def test_chosen_dead_letters_are_given_again(shown: Shown, cli: Cli) -> None:
    browser, named = shown.browser, ("--namesrv", shown.names, "--json")
    until(lambda: [one["messages"] for one in browser.json("/dead-letters")["rows"]] == [2])
    rows = browser.json("/dead-letters/readers")["rows"]
    printed = cli("admin", "dlq", "list", "readers", *named).lines
    assert [{name: ours[name] for name in theirs} for ours, theirs in zip(rows, printed, strict=True)] == printed
    plan, done = browser.change("dead-letters-resend", group="readers", ids=rows[1]["msgId"])
    assert done is not None, plan.words
    assert plan.words.count("is given to group readers again") == 2  # the step, and the plan as JSON
    assert "Done" in done.words
    until(lambda: browser.json("/topics/%25RETRY%25readers")["messages"] >= 1)
    assert browser.send("/change/dead-letters-resend", group="readers").status == 400
    assert browser.send("/change/dead-letters-resend", group="readers", ids="nosuch").status == 400


def test_settings_offsets_and_cleaning_are_planned_and_done(shown: Shown) -> None:
    browser = shown.browser
    address = browser.json("/cluster")["rows"][0]["address"]
    _, done = browser.change("broker-setting", broker=address, key="fileReservedTime", value="96")
    assert done is not None
    until(lambda: browser.json(f"/cluster/{address}")["settings"]["fileReservedTime"] == "96")
    for what in ("log", "queues", "topics"):
        plan, done = browser.change("clean", broker=address, what=what)
        assert done is not None, plan.words
    assert browser.send("/change/clean", broker=address, what="all").status == 400
    _, done = browser.change("group-set", group="twin")
    assert done is not None
    _, done = browser.change("offset-clone", source="readers", group="twin", topic="orders")
    assert done is not None
    assert "Done" in done.words
    mine = {one["queueId"]: one["consumerOffset"] for one in browser.json("/groups/twin")["progress"]["queues"]}
    assert mine


def test_redaction_leaves_what_is_no_body(shown: Shown) -> None:
    with console(ConsoleOptions(name_servers=(shown.names,), redact=True)) as browser:
        rows = browser.json("/messages?topic=orders")["rows"]
        assert len(rows) > SENT
        (life,) = browser.json("/trace?topic=orders&key=k7")["lives"]
        for path in (
            "/messages?topic=orders",
            f"/messages/view?topic=orders&id={rows[0]['msgId']}",
            "/messages?topic=orders&key=k7",
            "/dead-letters/readers",
        ):
            answer = browser.get(path)
            assert answer.status == 200, answer.words
            assert '"n":' not in answer.words, path
            assert '{"n' not in browser.get(path, Accept="application/json").text.replace("\\", "")
        assert browser.get(f"/messages/body?topic=orders&id={rows[0]['msgId']}").status == 403
        assert life["events"]
        assert browser.get("/messages?key=k7").status == 400


def test_streams_tell_what_moves(shown: Shown) -> None:
    import http.client
    import json
    from urllib.parse import urlsplit

    browser = shown.browser
    place = urlsplit(browser.address)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for path, field in (("/live/brokers", "in"), ("/live/lag/readers", "queues")):
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": cookies})
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream"
        sample = json.loads(answer.readline().removeprefix(b"data: "))
        assert sample[field]
        connection.close()


def test_a_cluster_that_is_not_there_is_one_word(shown: Shown) -> None:
    with console(ConsoleOptions(name_servers=("127.0.0.1:1",))) as browser:
        answer = browser.get("/cluster")
        assert answer.status == 502
        assert "127.0.0.1:1" in answer.words
        assert browser.get("/store").status == 404


def test_brokers_with_an_acl_judge_who_asks(tmp_path: Path) -> None:
    """Without a file of its own the console asks them whether they know an account, and each page with the account."""
    acl = tmp_path / "home" / "plain_acl.yml"
    acl.parent.mkdir()
    acl.write_text(
        "accounts:\n"
        "  - {accessKey: administrator, secretKey: 12345678secret, admin: true}\n"
        "  - {accessKey: reader-account, secretKey: 12345678reader, defaultTopicPerm: SUB}\n",
        encoding="utf-8",
    )
    with daemons(tmp_path / "cluster") as thread:
        names = thread.names_of("a", {"aclEnable": "true", "rocketmq.acl.plain.file": str(acl)})
        options = ConsoleOptions(name_servers=(names,), write=True)
        with ConsoleThread(options) as running:
            by_token, admin, reader, stranger = (running.browser(), *(running.visitor() for _ in range(3)))
            assert by_token.get("/topics").status == 409  # nobody has signed
            assert admin.post("/log-in", {"access": "administrator", "secret": "12345678secret"}).status == 303
            assert reader.post("/log-in", {"access": "reader-account", "secret": "12345678reader"}).status == 303
            assert stranger.post("/log-in", {"access": "administrator", "secret": "12345678wrong"}).status == 401
            assert admin.get("/topics").status == 200
            _, done = admin.change("topic-set", topic="made", queues="2")
            assert done is not None
            assert "Done" in done.words
            assert reader.get("/topics").status == 200
            _, refused = reader.change("topic-set", topic="other", queues="2")
            assert refused is None or "Not all of it was done" in refused.words or refused.status == 409
            assert "other" not in [one["topic"] for one in admin.json("/topics")["rows"]]
            (file,) = admin.json("/acl")["rows"]
            assert file["file"] == str(acl)
            new = {"account": "third-account", "secret": "12345678third", "default_topic": "SUB"}
            plan, done = admin.change("acl-account", **new)
            assert done is not None
            assert "Done" in done.words
            assert "12345678third" not in plan.text + done.text + admin.get("/operations").text
            until(lambda: "third-account" in acl.read_text(encoding="utf-8"))
            third = running.visitor()
            until(lambda: third.post("/log-in", {"access": "third-account", "secret": "12345678third"}).status == 303)
            _, done = admin.change("acl-delete", account="third-account")
            assert done is not None
            until(lambda: "third-account" not in acl.read_text(encoding="utf-8"))
            _, done = admin.change("acl-white", addresses="10.0.0.1, 10.0.0.2")
            assert done is not None
            until(lambda: "10.0.0.2" in acl.read_text(encoding="utf-8"))
        own = ConsoleOptions(name_servers=(names,), write=True, acl=acl)
        with console(own) as browser:
            assert browser.get("/topics").status == 200  # the token asks with an admin of the file
