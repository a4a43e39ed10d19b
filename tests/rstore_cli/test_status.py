"""`rstore status`: the state of a store, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from rstore_cli.render import Output
from rstore_cli.status_text import duration, show
from tests.engine.inspect import aged
from tests.engine.inspect.status.test_forecast import LAST, RoomyDisk, look
from tests.rstore_cli.conftest import Cli
from tests.support import fixtures
from tests.support.config import write_config

Store = Callable[[str], Path]


@pytest.mark.parametrize(("name", "state"), [("clean-small", "clean"), ("crashed-small", "crashed")])
def test_a_store(name: str, state: str, fixture_store: Store, cli: Cli) -> None:
    store = fixture_store(name)
    found = cli("--store", store, "status", "--json").json
    manifest = fixtures.manifest(name)
    assert found["state"] == state
    assert found["commitlog"]["minOffset"] == manifest["minPhyOffset"]
    assert found["commitlog"]["maxOffset"] == manifest["maxPhyOffset"]
    assert found["sizes"] == {
        key: manifest["settings"][key]
        for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    }
    assert found["dispatch"] == {"records": 0, "bytes": 0}
    text = cli("--store", store, "status")
    assert (text.code, text.err) == (0, "")
    assert f"state       {state.upper()}: " in text.out
    command = "recover" if state == "crashed" else "check"
    assert f"next        rstore --store {store} {command} (" in text.out
    assert found["next"]["command"] == f"rstore --store {store} {command}"


def test_messages_by_topic_are_what_the_queues_hold(fixture_store: Store, cli: Cli) -> None:
    found = cli("--store", fixture_store("clean-small"), "status", "--json").json
    expected: dict[str, int] = {}
    for line in fixtures.dump("clean-small"):
        if line["type"] == "queue" and line["max"]:
            expected[line["topic"]] = expected.get(line["topic"], 0) + line["max"] - line["min"]
    assert {t["topic"]: t["messages"] for t in found["topics"]} == expected


@pytest.mark.leaves("checkpoint-ahead", "consumer-above", "unit-delivery-other")
def test_a_day_on_one_screen(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    aged.age(store, "clean-small")
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"Hot@slow":{0:1},"Hot@lost":{0:99999},"Hot@done":{0:262,1:0,2:0,3:0}}}'
    )
    (store / "config" / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"everyone":{}}}')
    write_config(store)
    conf = store / "broker.conf"
    conf.write_text("fileReservedTime=5\n")
    text = cli("--store", store, "-c", conf, "status", "--hours", "3", "--rate-hours", "2")
    assert (text.code, text.err) == (0, "")
    lines = text.out.splitlines()
    assert sum("█" in line for line in lines) == 3
    assert any(line.startswith("before") for line in lines)
    assert any(line.startswith("fills") and "over the 2 h up to its newest message" in line for line in lines)
    assert any(line.startswith("retention") and "5 hours" in line and "the default" not in line for line in lines)
    assert any(line.startswith("slow") and " 261 " in line for line in lines)
    assert any(line.startswith("! config/consumerOffset.json Hot@lost queue 0") for line in lines)
    assert "written" in text.out
    assert "everyone" in lines[-1]
    found = cli("--store", store, "-c", conf, "status", "--hours", "3", "--json").json
    assert len(found["hours"]) == 3
    assert found["olderHours"]["bytes"] + sum(h["bytes"] for h in found["hours"]) == found["commitlog"]["maxOffset"]
    for topic in found["topics"]:
        assert sum(h["bytes"] for h in topic["hours"]) == topic["bytes"]
    assert found["unread"]["source"] == "config/consumerOffset.json"
    assert {f["code"] for f in found["findings"]} == {"consumer-above"}
    slow = next(g for g in found["unread"]["groups"] if (g["group"], g["topic"]) == ("slow", "Hot"))
    assert slow["messages"] == 261
    assert slow["oldestStoreTimestamp"] > found["commitlog"]["oldest"]["storeTimestamp"]


@pytest.mark.leaves("not-closed")
def test_it_reads_only(fixture_copy: Store, cli: Cli, unchanged: Callable[[Path], None]) -> None:
    store = fixture_copy("crashed-small")
    unchanged(store)
    assert cli("--store", store, "status", "--full").code == 0


@pytest.mark.parametrize("option", ["--hours", "--rate-hours"])
def test_no_hours_at_all_are_a_usage_error(option: str, fixture_store: Store, cli: Cli) -> None:
    assert cli("--store", fixture_store("clean-small"), "status", option, "0").code == 2


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0.0 s"),
        (1500, "1.5 s"),
        (60_000, "1 min"),
        (754_000, "12 min 34 s"),
        (7_200_000, "2 h"),
        (7_260_000, "2 h 1 min"),
        (273_600_000, "3 d 4 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_lengths_of_time(millis: int, text: str) -> None:
    assert duration(millis) == text


def test_an_empty_store(new_store: Path, cli: Cli) -> None:
    assert cli("--store", new_store, "status", "--json").json["state"] == "empty"
    assert "rstore" not in cli("--store", new_store, "status").err


def test_who_has_it(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, "status", "--json").json["state"] == "running"
        (store / "abort").unlink()
        found = cli("--store", store, "status", "--json").json
        assert found["state"] == "locked"
        assert f"process {found['pid']}" in found["why"]


@pytest.mark.leaves("checkpoint-missing", "file-stray", "log-gap")
def test_what_looks_wrong_is_said(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{131072:020d}").unlink()
    (store / "commitlog" / "core").write_text("x")
    (store / "checkpoint").unlink()
    text = cli("--store", store, "status").out
    assert "segments of the log are missing" in text
    assert "commitlog/core" in text
    assert "missing or short" in text


@pytest.mark.leaves("checkpoint-ahead", "index-time", "not-closed", "unit-delivery-other")
def test_a_disk_that_is_too_small_for_the_retention(fixture_copy: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """It was told as "the disk at 25115222 %": there is no such level."""
    store = fixture_copy("crashed-small")
    aged.age(store, "crashed-small")
    found = look(store, RoomyDisk(10, 1000, LAST))
    (system,) = found.forecast.file_systems
    assert system.steady_ratio is not None
    assert system.steady_ratio > 1
    show(Output(json=False, quiet=False), found, 24)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "At this rate" in line)
    assert "more than the disk can hold" in line
    assert "%" not in line


def test_minutes_of_data_forecast_nothing(fixture_store: Store, cli: Cli) -> None:
    text = cli("--store", fixture_store("crashed-small"), "status").out
    assert "too short for a forecast (one hour at least)" in text
    assert "at this rate" not in text
