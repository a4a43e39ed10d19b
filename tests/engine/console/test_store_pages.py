"""Pages of a store: each answers, says what its command prints, reads alone, and can be read in both languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig, of_store
from engine.console.options import ConsoleOptions
from engine.console.web import words
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.support import golden, stores
from tests.support.consoles import Browser, console, store_pages

Store = Callable[[str], Path]
NAMES = ("clean-small", "crashed-small", "transient-ext", "lmq")
GOLDEN = tuple(f"golden {name}" for name in golden.NAMES)


def named(root: Path) -> StoreConfig:
    """As --store has it."""
    return replace(of_store(root, None), typed=("--store", str(root)))


RUNS = ("check", "verify-crc", "plan-start", "recover", "recover --bridge")


@pytest.fixture(scope="module", params=NAMES + GOLDEN)
def shown(request: pytest.FixtureRequest, fixture_store: Store, golden_store: Store) -> Iterator[tuple[Path, Browser]]:
    kind, _, name = request.param.rpartition(" ")
    root = (golden_store if kind else fixture_store)(name)
    with console(ConsoleOptions(store=named(root))) as browser:
        yield root, browser


def test_every_page_answers_and_no_byte_is_written(shown: tuple[Path, Browser]) -> None:
    root, browser = shown
    before = stores.snapshot(root)
    for name in RUNS:
        assert browser.run(name)["error"] is None, name
    english = store_pages(browser)
    assert len(english) >= 19
    for path in english:
        for language in words.LANGUAGES:
            browser.language = language
            answer = english[path] if language == "en" else browser.get(path)
            assert answer.status == 200, (path, answer.words)
            assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|javascript:", answer.text), path
            assert f'<html lang="{language}"' in answer.text
    browser.language = "en"
    assert stores.snapshot(root) == before


def test_figures_are_those_of_the_commands(shown: tuple[Path, Browser], cli: Cli) -> None:
    root, browser = shown
    words_of_it = ("--store", root, "--json")
    volatile = {"time", "seconds", "secondsEstimate", "notes", "refusal"}

    def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        for name in theirs.keys() - volatile - {"sparkJobs", "daemon", "disk", "forecast", "next", "error"}:
            if name == "diskUsedRatio":  # of the machine's disk, on which other tests write meanwhile
                assert ours[name] == pytest.approx(theirs[name], abs=0.1)
                continue
            assert ours[name] == theirs[name], name

    same(browser.json("/store"), cli(*words_of_it, "status").json)
    same(browser.json("/store/space?hours=48"), cli(*words_of_it, "status", "--hours", "48").json)
    same(browser.run("check")["answer"], cli(*words_of_it, "check").json)
    same(browser.run("verify-crc")["answer"], cli(*words_of_it, "verify-crc").json)
    planned = cli(*words_of_it, "plan-start").json
    same(browser.run("plan-start")["answer"], planned.get("plan", planned))
    dry = cli(*words_of_it, "recover", "--dry-run").json
    same(browser.run("recover")["answer"], dry.get("plan", dry))
    same(browser.json("/store/config"), cli(*words_of_it, "doctor").json)
    assert browser.json("/store/offsets")["rows"] == cli(*words_of_it, "offsets", "list").lines
    headers = cli(*words_of_it, "dump", "index", "--header")
    assert browser.json("/store/index")["files"] == headers.lines
    assert browser.json("/store/repair")["repairs"] == cli(*words_of_it, "undo", "--list").json["repairs"]
    drills = cli("drill", "list", "--json").json["drills"]
    assert browser.json("/store/drills")["drills"] == drills
    assert browser.json("/store/config")["history"] == cli(*words_of_it, "config", "history").lines
    assert browser.json("/store/config")["files"] == cli(*words_of_it, "dump", "config").lines
    topic = browser.json("/store/queues")["topics"][0]["topic"]
    queue = browser.json(f"/store/queues/{topic.replace('%', '%25')}")["queues"][0]["queueId"]
    units = browser.json(f"/store/queues/{topic.replace('%', '%25')}/{queue}")["rows"]
    printed = cli(*words_of_it, "dump", "consumequeue", topic, str(queue), "--limit", "50").lines
    assert [{name: one[name] for name in printed[0]} for one in units] == printed
    rows = browser.json(f"/store/messages?topic={topic.replace('%', '%25')}&queue={queue}")["rows"]
    got = cli(*words_of_it, "get", topic, str(queue), "--count", "32", "--decompress").lines
    assert [{name: one[name] for name in line} for one, line in zip(rows, got, strict=True)] == got


def test_every_word_has_its_chinese(shown: tuple[Path, Browser], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of the engine are not the console's: they begin small, or end with no word of a template."""
    _, browser = shown
    missing: set[str] = set()
    known = words.chinese()
    monkeypatch.setattr("engine.console.web.render.translated", _noting(known, missing))
    browser.run("check")
    browser.language = "zh"
    for path, answer in store_pages(browser).items():
        assert answer.status == 200, (path, answer.words)
    browser.language = "en"
    templates = "".join(path.read_text(encoding="utf-8") for path in words.CATALOGUE.parent.glob("templates/*.html"))
    assert {one for one in missing if f'"{one}"' in templates} == set()


def _noting(known: Any, missing: set[str]) -> Callable[..., str]:
    def translated(text: str, language: str) -> str:
        if language == "zh" and text and text not in known:
            missing.add(text)
        return known.get(text, text) if language == "zh" else text

    return translated


def test_damage_is_drawn_and_its_bytes_are_shown(fixture_copy: Store) -> None:
    root = fixture_copy("clean-small")
    file = sorted((root / "commitlog").iterdir())[0]
    with console(ConsoleOptions(store=named(root))) as browser:
        record = browser.json("/store/log/records")["rows"][3]
        at = record["physicalOffset"]
        with file.open("r+b") as data:
            data.seek(at + 4)
            data.write(b"\xff" * 4)
        verified = browser.run("verify-crc")["answer"]
        assert [one["physicalOffset"] for one in verified["damage"]] == [at]
        log = browser.get("/store/log")
        assert 'class="damage"' in log.text
        assert f"/store/log/bytes?at={at}" in log.links
        shown = browser.json(f"/store/log/bytes?at={at}")
        assert shown["size"] is None
        assert "no record begins here" in browser.get(f"/store/log/bytes?at={at}").words
        rows = browser.json(f"/store/log/records?from={at}")["rows"]
        assert rows[0]["kind"] == "damage"
        assert rows[0]["physicalOffset"] == at
        with file.open("r+b") as data:
            data.seek(at + 4)
            data.write(b"\xda\xa3\x20\xa7")


def test_bytes_are_the_files_own_beside_their_fields(fixture_store: Store) -> None:
    root = fixture_store("clean-small")
    with console(ConsoleOptions(store=named(root))) as browser:
        for row in browser.json("/store/log/records")["rows"][:20]:
            assert row["kind"] == "message", row
            shown = browser.json(f"/store/log/bytes?at={row['physicalOffset']}")
            fields = {one["name"]: one for one in shown["fields"]}
            record = Path(shown["file"]).read_bytes()[shown["position"] :][: shown["size"]]
            for piece in shown["pieces"]:
                data = bytes.fromhex(piece["data"])
                assert record[piece["start"] :][: len(data)] == data
            assert fields["totalSize"]["value"] == str(row["length"])
            assert fields["physicalOffset"]["value"] == str(row["physicalOffset"])
            assert fields["topic"]["value"] == row["topic"]
            covered = [at for one in shown["fields"] for at in range(one["start"], one["start"] + one["length"])]
            assert covered == list(range(len(record)))  # each byte is of one field


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/store/log/bytes?at=99999999999999", 404),
        ("/store/log/bytes?at=-5", 400),
        ("/store/log/bytes?at=zzz", 400),
        ("/store/queues/nosuch", 400),
        ("/store/queues/T/99999999999999999999", 400),
        ("/store/messages?topic=nosuch", 400),
        ("/store/messages?topic=nosuch&at=yesterdayish", 400),
        ("/store/trace?topic=x", 400),
        ("/store/repair/..", 400),
        ("/store/index?file=..%2Fcheckpoint", 400),
        ("/nosuch", 404),
        ("/static/../options.py", 404),
        ("/static/%2e%2e/options.py", 404),
        ("/static/..%2Foptions.py", 404),
        ("/live/nosuch", 404),
        ("/store/space?hours=0", 400),
        (f"/store/messages?topic={'x' * 5000}", 400),
    ],
)
def test_what_makes_no_sense_is_one_page_with_a_word(path: str, status: int, fixture_store: Store) -> None:
    with console(ConsoleOptions(store=named(fixture_store("clean-small")))) as browser:
        answer = browser.get(path)
        assert answer.status == status, answer.words
        assert "Traceback" not in answer.text
        assert "failed" not in answer.words.replace("Failed", "")
