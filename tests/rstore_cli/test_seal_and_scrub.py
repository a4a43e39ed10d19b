"""`rstore seal` and `rstore scrub`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.markdown import section, tables
from tests.engine.seals.stores_sealed import segments, write
from tests.rstore_cli.conftest import Cli

PAGE = Path(__file__).parents[2] / "engine" / "seals" / "SEALS.md"
Store = Callable[[str], Path]


def keys_of(command: str) -> set[str]:
    """What SEALS.md says of a command's JSON."""
    (row,) = (row for row in tables(section(PAGE, "JSON"), marks=True)[0] if row["command"] == f"`{command}`")
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row["keys"].partition(";")[0])))


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    return fixture_copy("clean-small")


def test_sealed_listed_and_scrubbed(store: Path, cli: Cli) -> None:
    planned = cli("--store", store, "seal", "--dry-run")
    assert planned.code == 1
    assert "3 segments to seal" in planned.out
    assert not (store / "seals").exists()
    assert cli("--store", store, "seal", "--list").code == 1
    made = cli("--store", store, "seal", "--json")
    assert (made.code, set(made.json)) == (0, keys_of("seal"))
    assert len(made.json["sealed"]) == 3
    again = cli("--store", store, "seal")
    assert again.code == 0
    assert "no segments sealed, 3 sealed already" in again.out
    listed = cli("--store", store, "seal", "--list", "--json")
    assert (listed.code, [row["state"] for row in listed.lines]) == (0, ["sealed"] * 3)
    assert set(listed.lines[0]) == keys_of("seal --list")
    assert "sealed" in cli("--store", store, "seal", "--list").out
    clean = cli("--store", store, "scrub", "--once")
    assert clean.code == 0
    assert "3 sealed segments compared" in clean.out
    assert "Nothing has changed." in clean.out
    assert set(cli("--store", store, "scrub", "--once", "--json").json) == keys_of("scrub")


@pytest.mark.leaves
def test_a_changed_property_is_found_that_verify_crc_does_not_see(store: Path, cli: Cli) -> None:
    cli("--store", store, "seal")
    path = segments(store)[1]
    at = path.read_bytes().index(b"KEYS") + 6
    write(path, at, bytes([path.read_bytes()[at] ^ 1]))
    assert cli("--store", store, "verify-crc").code == 0
    ran = cli("--store", store, "scrub", "--once")
    assert ran.code == 1
    assert "1 range not as sealed" in ran.out
    assert "header or properties" in ran.out
    assert f"Next: rstore --store {store} heal --from SOURCE" in " ".join(ran.out.split())
    (wrong,) = cli("--store", store, "scrub", "--once", "--json").json["wrong"]
    assert (wrong["segment"], wrong["physicalOffset"]) == (int(path.name), int(path.name) + at // 4096 * 4096)
    assert set(wrong) == set(
        re.findall(r"`(\w+)`", next(
            row["keys"] for row in tables(section(PAGE, "JSON"), marks=True)[0] if row["command"] == "`scrub`"
        ).rpartition("has ")[2])
    )  # fmt: skip


@pytest.mark.leaves
def test_what_keeps_a_segment_from_being_sealed_is_told(store: Path, cli: Cli) -> None:
    write(segments(store)[0], 3000, bytes(500))
    ran = cli("--store", store, "seal")
    assert ran.code == 1
    assert "which its seal notes" in ran.err
    os.utime(segments(store)[1], (1, 1))
    with segments(store)[1].open("r+b") as file:
        file.write(b"x")
    ran = cli("--store", store, "seal")
    assert ran.code == 1
    assert f"segment {segments(store)[1].name.lstrip('0')} is not sealed again" in ran.err
    assert cli("--store", store, "seal", "--renew").code == 1  # it has damage
    assert cli("--store", store, "scrub", "--once").code == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("seal", "--rate", "0"), "--rate must be more than 0"),
        (("seal", "--list", "--renew"), "--list excludes"),
        (("scrub", "--pace", "x"), "not a duration"),
        (("seal", "--jobs", "0"), "--jobs"),
    ],
)
def test_misuse(words: tuple[str, ...], error: str, store: Path, cli: Cli) -> None:
    ran = cli("--store", store, *words)
    assert ran.code == 2
    assert error in ran.err


@pytest.mark.leaves
def test_without_once_it_goes_on_until_it_is_interrupted(store: Path, cli: Cli) -> None:
    """It tells what it finds at once; Ctrl-C ends it."""
    cli("--store", store, "seal")
    write(segments(store)[0], 5000, b"rot")
    words = [sys.executable, "-m", "rstore_cli.app", "--store", str(store), "--json", "scrub", "--pace", "1s"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert '"physicalOffset":4096' in ran.stdout.readline()
        assert '"physicalOffset":4096' in ran.stdout.readline(), "the next pass finds it again"
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=60)
    assert ran.returncode == 130
    assert "scrub continues here" in err
