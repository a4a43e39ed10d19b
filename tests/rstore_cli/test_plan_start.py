"""`rstore plan-start`: what a broker would do, in words and as JSON; exit 4 when data would be lost."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_recover import KEYS
from tests.support import layouts, newer, stores
from tests.support.checking import check_clean
from tests.support.layouts import SIZE

Store = Callable[[str], Path]


def test_a_sound_store(fixture_store: Store, cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), "plan-start", "--json")
    assert ran.code == 0
    assert ran.json.keys() >= KEYS | {"outcome", "bytesToScan", "secondsEstimate", "losesData"}
    assert (ran.json["outcome"], ran.json["mode"], ran.json["losesData"]) == ("opens", "normal", False)
    assert "No message and no key would be lost" in cli("--store", fixture_store("clean-small"), "plan-start").out


@pytest.mark.leaves("log-damage")
def test_damage_in_the_middle(damaged: Path, cli: Cli) -> None:
    before = stores.snapshot(damaged)
    ran = cli("--store", damaged, "plan-start")
    assert ran.code == 4
    assert "Next: rstore --store " in ran.error_line
    assert "LOST if a broker starts now" in ran.out
    found = cli("--store", damaged, "plan-start", "--json")
    assert (found.code, found.json["error"]["code"], found.json["losesData"]) == (4, "refused", True)
    assert found.json["recordsAfter"] == cli("--store", damaged, "recover", "--dry-run", "--json").json["recordsAfter"]
    with StoreLock(Disk(), str(damaged)):
        assert cli("--store", damaged, "plan-start").code == 4
    assert {path: seen for path, seen in stores.snapshot(damaged).items() if path not in ("lock", ".")} == {
        path: seen for path, seen in before.items() if path not in ("lock", ".")
    }


@pytest.mark.leaves("file-stray")
def test_a_store_that_would_not_open(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / "note").write_text("stray")
    ran = cli("--store", store, "plan-start", "--json")
    assert (ran.code, ran.json["outcome"]) == (1, "refuses")
    assert "commitlog/note" in ran.json["why"]


def test_an_empty_store_loses_nothing(tmp_path: Path, cli: Cli) -> None:
    assert cli("--store", tmp_path / "new", "init").code == 0
    ran = cli("--store", tmp_path / "new", "plan-start", "--json")
    assert ran.code == 0
    assert not ran.json["losesData"]
    assert ran.json["problems"] == ["neither a commit log nor queues: a broker starts a new store"]


@pytest.mark.parametrize("how", ["renamed", "short", "long", "short and unnamed"])
def test_a_single_segment_of_another_name_or_length_is_not_a_lost_log(how: str, tmp_path: Path, cli: Cli) -> None:
    """What looks says so, all of it with the same next command; that command brings every message back."""
    made = layouts.make(tmp_path / "store", segments=1)
    for path in made.files[1:]:
        path.unlink()
    held = made.held()
    one, conf = made.files[0], tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={SIZE}\nmappedFileSizeConsumeQueue=400\n")
    if how == "renamed":
        one.rename(one.with_name(f"{1:020d}"))
    else:
        os.truncate(one, SIZE + (1 if how == "long" else -1))
    if how == "short and unnamed":
        one.rename(one.with_name("x.part"))
    store = ("--store", made.root, "-c", conf)
    told = {}
    for command in ("status", "check", "doctor", "plan-start"):
        ran = cli(*store, command, "--json")
        told[command] = ran.json["next"]["command"]
        assert "log-missing" not in ran.out + ran.err
        assert "lost for good" not in ran.out + ran.err
    assert len(set(told.values())) == 1, told
    words = shlex.split(told["status"])
    assert words[0] == "rstore"
    assert cli(*words[1:], "--yes").code == 0
    check_clean(made.root, made.config)
    assert cli(*store, "verify-crc", "--json").json["messages"] == len(held)


def test_the_release_that_is_planned(cli: Cli, fixture_store: Store, tmp_path: Path) -> None:
    """A store's own, 4.9.8 of a plain one; --as another, by a short name, too."""
    plain, own = fixture_store("clean-small"), newer.unpack("default", tmp_path)
    for store, words, release in (
        (plain, (), "4.9.8"),
        (own, (), "5.5.0"),
        (plain, ("--as", "5.3"), "5.3.3"),
        (own, ("--as", "4.9"), "4.9.8"),
        (own, ("--as", "5.3.1"), "5.3.1"),
    ):
        ran = cli("--store", store, "plan-start", *words, "--json")
        assert (ran.code, ran.json["release"], ran.json["outcome"]) == (0, release, "opens")
        assert (ran.json["sign"] is None) == (store is plain)
        assert f"RocketMQ {release}" in cli("--store", store, "plan-start", *words).out
    for unknown in ("6.0", "5.3.9", "x"):
        ran = cli("--store", plain, "plan-start", "--as", unknown)
        assert (ran.code, "5.3.3" in ran.error_line) == (2, True)


def test_what_is_not_planned_is_named(cli: Cli, tmp_path: Path) -> None:
    ran = cli("--store", newer.unpack("timer", tmp_path), "plan-start")
    assert "timer messages (timerlog/)" in ran.out
