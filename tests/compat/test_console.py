"""The console in a real browser, of a real cluster and a damaged store: each page in two sizes, two themes, and used
with the keyboard alone. Pictures are left in build/console/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.config import of_store
from engine.console.options import ConsoleOptions
from engine.console.serve import pages
from tests.compat import real_broker, toolchain
from tests.compat.served import SETTINGS, Admins
from tests.compat.test_served_admin import until
from tests.docs.markdown import section, tables
from tests.support import fixtures, stores
from tests.support.checking import check_clean
from tests.support.consoles import Answer, ConsoleThread, store_pages

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "console"
SIZES = ((1440, 900), (390, 844))
THEMES = ("light", "dark")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
SHOWN = {("store-log", 1440, "light"), ("store-repair", 1440, "light"), ("groups-G", 1440, "light")}
"""Pictures of the documents: made anew with RSTORE_PICTURES=1."""
WORST = {"serious", "critical"}
MESSAGES = 12
WAIT_MS = 90_000


@pytest.fixture(scope="module", autouse=True)
def requests_are_waited_for() -> None:
    """No longer than usual: Apache's broker leaves what is asked about accounts unanswered, as it has none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A console, and a tab of a browser that is logged in."""

    console: ConsoleThread
    tab: Tab
    problems: list[str]
    store: Path

    def open(self, path: str) -> None:
        """Again while the cluster is silent: the console waits for it some seconds, a busy machine may need more."""

        def answered() -> bool:
            self.problems.clear()
            answer = self.tab.goto(self.console.address + path, wait_until="load")
            return answer is None or answer.status != HTTPStatus.BAD_GATEWAY

        until(answered)

    def json(self, path: str) -> Any:
        """What the page was drawn from, as patiently."""
        browser = self.console.browser()
        answers: list[Answer] = []

        def answered() -> bool:
            answers.append(browser.get(path, Accept="application/json"))
            return answers[-1].status != HTTPStatus.BAD_GATEWAY

        until(answered)
        assert answers[-1].status == HTTPStatus.OK, answers[-1].words
        return answers[-1].json

    def press(self, *keys: str) -> None:
        for key in keys:
            self.tab.keyboard.press(key)

    def reach(self, words: str) -> None:
        """Go to what has these words by the keyboard, and say whether it is shown that it has the focus."""
        for _ in range(400):
            self.press("Tab")
            at = self.tab.evaluate(
                "() => {const e = document.activeElement; return [(e.getAttribute('aria-label') || e.innerText || "
                "e.labels?.[0]?.innerText || '').trim(), getComputedStyle(e).outlineStyle]}"
            )
            if at[0].splitlines()[:1] == [words] or (len(words) > 15 and at[0].startswith(words)):
                assert at[1] != "none", f"the focus on {words} can't be seen"
                return
        raise AssertionError(f"the keyboard does not reach {words}")

    def choose(self, words: str, url: str) -> None:
        """By the keyboard, and wait for the page that it leads to."""
        self.reach(words)
        self.press("Enter")
        self.tab.wait_for_url(url)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", self.tab.inner_text("main"))


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return toolchain.axe()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    try:
        toolchain.clients()
        apache = toolchain.apache_broker()
        program = toolchain.browser()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install -e .[dev])")
    place = tmp_path_factory.mktemp("console")
    store = stores.unpack(fixtures.archive("crashed-small"), place / "crashed")
    with real_broker.serve(place / "store", SETTINGS, apache=apache) as served:
        admin = Admins(place / "home", served.names)
        admin("updateTopic", "-b", served.broker, "-t", "T", "-r", "2", "-w", "2")
        admin("!consume", "G", "T")
        admin("!produce", "PG", "T", str(MESSAGES))
        until(lambda: admin("!seen", "G") == str(MESSAGES))
        config = replace(of_store(store, None), typed=("--store", str(store)))
        options = ConsoleOptions(store=config, name_servers=(served.names,), write=True)
        with ConsoleThread(options) as console, sync_api.sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
            tab = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
            tab.set_default_timeout(WAIT_MS)
            problems: list[str] = []
            tab.on("console", lambda told: problems.append(f"{told.type}: {told.text}") if told.type != "log" else None)
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.goto(console.log_ins[-1])
            yield Seen(console, tab, problems, store)
            chromium.close()
        admin.close()


def cluster_paths() -> list[str]:
    menu = [page.path for page in pages() if page.menu and page.part.value == "cluster"]
    return [*menu, "/topics/T", "/groups/G", "/messages?topic=T", "/trace?topic=T&key=none"]


def test_every_page_can_be_seen_and_used_by_everybody(seen: Seen, axe: str) -> None:
    """No message of the browser, nothing wider than the screen, nothing serious for axe; a picture of each."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = seen.console.browser()
    for name in ("check", "verify-crc", "plan-start", "recover"):
        browser.run(name)
    paths = [*cluster_paths(), *store_pages(browser)]
    group = seen.json("/groups/G")
    paths.append(
        f"/clients/G/{group['online']['clients'][0]['clientId'].replace('#', '%23').replace('@', '%40')}?stack=1"
    )
    wrong: list[str] = []
    for theme in THEMES:
        seen.tab.emulate_media(color_scheme=theme)
        for width, height in SIZES:
            seen.tab.set_viewport_size({"width": width, "height": height})
            for path in paths:
                seen.open(path)
                name = re.sub(r"\W+", "-", path.partition("?")[0]).strip("-")
                picture = seen.tab.screenshot(path=PICTURES / f"{name}-{width}-{theme}.png", full_page=True)
                if os.environ.get("RSTORE_PICTURES") and (name, width, theme) in SHOWN:
                    (ROOT / "fixtures" / f"console-{name}.png").write_bytes(picture)
                wide = seen.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                if wide > 0:
                    wrong.append(f"{path} {width} {theme}: {wide} pixels too wide")
                if (width == SIZES[0][0]) == (theme == THEMES[0]):  # each size once, and each theme
                    seen.tab.evaluate(axe)
                    found = seen.tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
                    wrong += [f"{path} {width} {theme}: {words}" for words in serious(found)]
                wrong += [f"{path} {width} {theme}: {told}" for told in seen.problems]
    seen.tab.set_viewport_size({"width": 1440, "height": 900})
    seen.tab.emulate_media(color_scheme="light")
    assert wrong == [], "\n".join(wrong)


def serious(found: dict[str, Any]) -> Iterator[str]:
    for one in found["violations"]:
        if one["impact"] in WORST:
            places = [node["html"][:120] for node in one["nodes"][:2]]
            yield f"{one['id']}: {one['help']} {places}"


def test_a_line_over_time_is_drawn(seen: Seen) -> None:
    seen.open("/groups/G")
    seen.tab.wait_for_selector(".plot canvas")
    assert seen.tab.locator(".u-legend .u-series").count() > 1


# --- the keyboard alone ----------------------------------------------------------------------------------------------


def test_the_keyboard_finds_a_message_by_key(seen: Seen) -> None:
    key = seen.json("/messages?topic=T")["rows"][0]["properties"].get("KEYS")
    unique = seen.json("/messages?topic=T")["rows"][0]["properties"]["UNIQ_KEY"]
    seen.open("/cluster")
    seen.choose("Messages", "**/messages")
    seen.press("/")
    seen.tab.keyboard.type("T")
    seen.press("Tab")
    seen.tab.keyboard.type(key or unique)
    seen.press("Enter")
    seen.tab.wait_for_selector("#messages")
    seen.choose(unique, "**/messages/view*")
    assert unique in seen.words


def test_the_keyboard_resets_a_group(seen: Seen) -> None:
    seen.open("/groups/G")
    seen.reach("Topic")
    seen.tab.keyboard.type("T")
    seen.press("Tab")
    seen.tab.keyboard.type("first")
    seen.press("Enter")
    seen.tab.wait_for_url("**/change/offset-reset")
    assert "Nothing has been changed yet" in seen.words
    seen.choose("Carry out this plan", "**/apply")
    assert "Done" in seen.words
    row = seen.json("/operations")["rows"][0]
    assert (row["state"], row["who"]) == ("done", "token")


def test_the_keyboard_reads_why_recovery_refuses_and_undoes_a_repair(seen: Seen) -> None:
    """Damage in the middle of the log: refused, bridged, undone."""
    state = seen.json("/store/log")
    segment = [one for one in state["segments"] if one["filled"] > one["offset"]][-1]  # which a recovery reads
    rows = seen.json(f"/store/log/records?from={segment['offset']}")["rows"]
    at = rows[5]["physicalOffset"] - segment["offset"]
    file = seen.store / "commitlog" / segment["file"]
    before = file.read_bytes()
    with file.open("r+b") as data:
        data.seek(at + 90)
        data.write(b"\x00\xff\x00\xff")
    damaged = file.read_bytes()
    seen.console.do(_forget(seen.console))
    seen.open("/store/repair")
    seen.reach("Plan a recovery")
    seen.press("Enter")
    seen.tab.wait_for_selector("text=Refused")
    assert "--bridge" in seen.words
    seen.reach("Plan it with bridges over damage")
    seen.press("Enter")
    seen.tab.wait_for_selector("text=Show the whole plan")
    seen.choose("Show the whole plan", "**/change/recover")
    seen.choose("Carry out this plan", "**/apply")
    assert "Done" in seen.words
    assert file.read_bytes() != damaged
    seen.open("/store/repair")
    seen.choose("Undo the last repair", "**/change/undo")
    seen.choose("Carry out this plan", "**/apply")
    assert "Done" in seen.words
    assert file.read_bytes() == damaged
    file.write_bytes(before)
    check_clean(seen.store, known={"not-closed"}, why="its broker was killed")


async def _forget(console: ConsoleThread) -> None:
    console.running.console.changed()


def test_a_byte_is_marked_with_its_field(seen: Seen) -> None:
    seen.open("/store/log/bytes?at=0")
    seen.tab.hover("tr[data-field=magicCode]")
    assert seen.tab.inner_text(".hex b.on >> nth=0").strip() == "da a3 20 a7"
    seen.tab.focus("tr[data-field=queueId]")
    assert seen.tab.locator("tr.on code").inner_text() == "queueId"


def test_bytes_of_a_record_come_into_the_page(seen: Seen) -> None:
    seen.open("/store/log/records")
    seen.tab.click("#records tbody a >> nth=2")
    seen.tab.wait_for_selector("#bytes .hexview")
    assert seen.tab.url.endswith("/store/log/records")
    seen.tab.hover("#bytes tr[data-field=topic]")
    assert seen.tab.locator("#bytes .hex b.on").count() > 0
    assert seen.problems == []


# --- what a task takes -----------------------------------------------------------------------------------------------


def test_six_tasks_take_as_many_steps_as_the_document_says(seen: Seen) -> None:
    """Each click and each field that is filled is a step; from the first page on."""
    rows = tables(section(ROOT / "engine" / "console" / "CONSOLE.md", "Six tasks, beside rocketmq-dashboard"))[0]
    stated = {row["task"]: int(re.findall(r": (\d+)", row["console"])[0]) for row in rows}
    properties = seen.json("/messages?topic=T")["rows"][0]["properties"]
    unique, key = properties["UNIQ_KEY"], properties["KEYS"].split()[0]
    click, fill = seen.tab.click, seen.tab.fill
    tasks = {
        "find a message by key": [
            lambda: click("nav >> text=Messages >> nth=0"),
            lambda: fill("input[name=topic]", "T"),
            lambda: fill("input[name=key]", key),
            lambda: click("main button.main"),
            lambda: click(f"text={unique}"),
        ],
        "reset a group to two hours ago": [
            lambda: click("nav >> text=Groups"),
            lambda: click("main >> a >> text=/^G$/"),
            lambda: fill("form[action$=offset-reset] input[name=topic]", "T"),
            lambda: fill("input[name=to]", "2 hours ago"),
            lambda: click("form[action$=offset-reset] button"),
            # a plan with nothing to do can only be left
            lambda: click("form.confirm button:text('Carry out this plan'), main a.button:text-is('Back')"),
        ],
        "why is a group behind": [
            lambda: click("nav >> text=Groups"),
            lambda: click("main >> a >> text=/^G$/"),
        ],
        "read why a recovery refuses": [
            lambda: click("nav >> text=Repair"),
            lambda: click("text=Plan a recovery"),
        ],
        "see the bytes of a damaged record": [
            lambda: click("nav >> text=/^Log$/"),
            seen.tab.locator("svg.strip a").first.click,
        ],
    }
    for task, steps in tasks.items():
        seen.open("/")
        for step in steps:
            step()
        seen.tab.wait_for_load_state()  # what has not come yet has no progress either
        seen.tab.wait_for_selector("progress", state="detached")  # the page comes anew when its run has ended
        seen.tab.wait_for_load_state()
        assert len(steps) == stated[task], task
        assert seen.tab.locator(".problem >> text=failed").count() == 0, task
    assert stated["undo a repair"] == 3
