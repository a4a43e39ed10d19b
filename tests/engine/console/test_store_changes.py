"""Changes of a store through the console: planned, shown, confirmed, noted; the same bytes as by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import of_store
from engine.console.options import ConsoleOptions
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.support import stores
from tests.support.consoles import Browser, console

Store = Callable[[str], Path]


def options(root: Path, log: Path | None = None, *, write: bool = True) -> ConsoleOptions:
    config = replace(of_store(root, None), typed=("--store", str(root)))
    return ConsoleOptions(store=config, write=write, operations=log)


def bytes_of(root: Path) -> dict[str, bytes]:
    """What lies in a store, but for what a repair notes of itself, and times."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "salvage" not in path.parts
    }


def test_a_recovery_is_that_of_the_command_and_is_undone(fixture_copy: Store, tmp_path: Path, cli: Cli) -> None:
    root, other = fixture_copy("crashed-small"), fixture_copy("crashed-small")
    before = bytes_of(root)
    log = tmp_path / "log" / "operations.jsonl"
    assert cli("--store", other, "recover", "--yes").code == 0
    with console(options(root, log)) as browser:
        planned = browser.send("/change/recover")
        assert "Carry out this plan" in planned.words
        assert bytes_of(root) == before, "a plan changes nothing"
        plan, done = browser.change("recover")
        assert done is not None
        assert "abort" in plan.words
        assert "Done" in done.words
        after = bytes_of(root)
        assert {name: data for name, data in after.items() if name != "lock"} == {
            name: data for name, data in bytes_of(other).items() if name != "lock"
        }
        assert browser.json("/store/repair")["repairs"][0]["state"] == "done"
        saved = browser.json("/store/repair/" + browser.json("/store/repair")["repairs"][0]["id"])
        assert saved == cli("--store", root, "salvage", "show", saved["id"], "--json").json
        assert saved["changes"]
        _, undone = browser.change("undo")
        assert undone is not None
        assert "Done" in undone.words
        assert {name: data for name, data in bytes_of(root).items() if name != "lock"} == {
            name: data for name, data in before.items() if name != "lock"
        }
        rows = browser.json("/operations")["rows"]
        assert [(one["what"], one["state"], one["who"]) for one in rows] == [
            ("undo", "done", "token"),
            ("recover", "done", "token"),
        ]
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [one["state"] for one in lines] == ["begins", "done", "begins", "done"]
    assert lines[0]["plan"]["maxOffset"] > 0
    assert cli("--store", root, "recover", "--yes").code == 0


def test_a_plan_is_good_once_and_for_its_session(fixture_copy: Store) -> None:
    root = fixture_copy("crashed-small")
    with console(options(root)) as browser:
        number = number_of(browser)
        stranger = Browser(browser.address)
        assert stranger.post("/apply", {"number": number}).status == 401
        assert browser.send("/apply", number=number).status == 200
        assert browser.send("/apply", number=number).status == 404
        assert browser.send("/apply", number="x").status == 404


def number_of(browser: Browser, change: str = "recover", **fields: str) -> str:
    answer = browser.ask(
        "POST",
        f"/change/{change}",
        f"csrf={browser.csrf}".encode() + b"".join(f"&{name}={value}".encode() for name, value in fields.items()),
        {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
    )
    assert answer.status == 200, answer.body
    number: str = answer.json["number"]
    return number


def test_a_store_that_has_changed_since_is_left_as_it_is(fixture_copy: Store, cli: Cli) -> None:
    mended, cut = fixture_copy("crashed-small"), fixture_copy("crashed-small")
    with console(options(mended)) as browser:
        number = number_of(browser)
        assert cli("--store", mended, "recover", "--yes").code == 0
        assert "there was nothing to change" in browser.send("/apply", number=number).words
    with console(options(cut)) as browser:
        number = number_of(browser)
        end = browser.json("/store")["commitlog"]["newest"]["physicalOffset"]
        last = next(one for one in sorted((cut / "commitlog").iterdir(), reverse=True) if int(one.name) < end)
        with last.open("r+b") as file:  # the last record is lost meanwhile
            file.truncate(end - int(last.name))
            file.truncate(131072)
        before = bytes_of(cut)
        assert "not as it was" in browser.send("/apply", number=number).words
        assert {**bytes_of(cut), "lock": b""} == {**before, "lock": b""}
        rows = browser.json("/operations")["rows"]
        assert rows[0]["state"] == "failed"
    assert cli("--store", cut, "recover", "--yes").code == 0


def test_damage_in_the_middle_is_refused_and_bridged(fixture_copy: Store, cli: Cli) -> None:
    root = fixture_copy("clean-small")
    with console(options(root)) as browser:
        at = browser.json("/store/log/records")["rows"][5]["physicalOffset"]
        with sorted((root / "commitlog").iterdir())[0].open("r+b") as file:
            file.seek(at + 90)
            file.write(b"\x00\xff\x00\xff")
        (root / "abort").touch()
        run = browser.run("recover", whole="1")
        refused = browser.send("/change/recover", whole="1")
        assert "Carry out" not in refused.words
        assert "--bridge" in refused.words
        assert run["error"] is None
        plan, done = browser.change("recover", how="bridge", whole="1")
        assert done is not None, plan.words
        assert "Done" in done.words
        strip = browser.json("/store/log")["bridged"]
        assert [one["physicalOffset"] for one in strip] == [at]
        assert 'class="bridge"' in browser.get("/store/log").text
        assert any(one.get("bridge") for one in browser.json(f"/store/log/records?from={at}")["rows"])
    assert cli("--store", root, "verify-crc").code == 0


@pytest.mark.leaves("not-closed")
def test_without_console_write_nothing_is_offered_or_taken(fixture_copy: Store) -> None:
    root = fixture_copy("crashed-small")
    before = stores.snapshot(root)
    with console(options(root, write=False)) as browser:
        browser.run("recover")
        page = browser.get("/store/repair")
        assert "/change/" not in page.text
        assert "read-only" in page.words
        for name in ("recover", "undo", "reindex", "rebuild-config", "topic-delete"):
            assert browser.send(f"/change/{name}").status == 403
        assert browser.send("/run/drill", drill="disk-full").status == 403
    assert stores.snapshot(root) == before


@pytest.mark.leaves("not-closed")
def test_a_change_that_cannot_be_noted_is_not_made(fixture_copy: Store, tmp_path: Path) -> None:
    root = fixture_copy("crashed-small")
    before = bytes_of(root)
    place = tmp_path / "operations.jsonl"
    place.mkdir()
    with console(options(root, place)) as browser:
        _, done = browser.change("recover")
        assert done is not None
        assert done.status == 409
        assert bytes_of(root) == before


@pytest.mark.leaves("not-closed")
def test_a_locked_store_says_who_has_it(fixture_copy: Store) -> None:
    from engine.files.disk import Disk
    from engine.files.lock import StoreLock

    root = fixture_copy("crashed-small")
    with console(options(root)) as browser:
        number = number_of(browser)
        with StoreLock(Disk(), str(root)):
            done = browser.send("/apply", number=number)
            assert done.status == 409
            assert "lock" in done.words
        rows = browser.json("/operations")["rows"]
        assert rows[0]["state"] == "failed"


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("fields", [{"how": "x"}, {"mode": "x"}])
def test_a_field_that_makes_no_sense_is_refused(fixture_copy: Store, fields: dict[str, str]) -> None:
    with console(options(fixture_copy("crashed-small"))) as browser:
        assert browser.send("/change/recover", **fields).status == 400
        assert browser.send("/change/nosuch").status == 404
        assert browser.send("/run/nosuch").status == 400


def test_a_drill_is_run_on_scratch_stores(fixture_store: Store) -> None:
    with console(options(fixture_store("clean-small"))) as browser:
        drills = browser.json("/store/drills")["drills"]
        name = next(one["name"] for one in drills if "disk" in one["name"])
        run = browser.run("drill", drill=name)
        assert run["error"] is None
        assert run["answer"]["failed"] == 0
        assert run["answer"]["passed"] == 1
        assert "The last report" in browser.get("/store/drills").words
