"""`rstore verify-crc`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli

Store = Callable[[str], Path]


def test_a_sound_log(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    ran = cli("--store", store, "verify-crc", "--json")
    assert ran.code == 0
    assert ran.json.keys() == {
        *("records", "messages", "bytes", "seconds"),
        *("damage", "suspectRecords", "suspect", "unusualRecords", "unusual"),
        *("propertyCrcRecords", "propertyCrcMismatches"),
    }
    assert (ran.json["records"], ran.json["damage"]) == (600, [])
    assert "No damage." in cli("--store", store, "verify-crc").out


def test_a_file_beside_the_log_is_named_with_a_command_that_can_be_copied(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    first = min((store / "commitlog").iterdir())
    first.with_name(f"{first.name}.bak").write_bytes(first.read_bytes())
    for command in (["verify-crc"], ["dump", "commitlog"]):
        ran = cli("--store", store, *command)
        assert f"{first.name}.bak was not read" in ran.err
        assert f"Next: rstore --store {store} doctor" in ran.err
    assert cli("--store", store, "doctor").code == 1
    assert cli("--store", store, "recover", "--yes").code == 0


@pytest.mark.leaves("log-damage")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_damage_is_1(jobs: str, damaged: Path, cli: Cli) -> None:
    ran = cli("--store", damaged, "verify-crc", "--json", "--jobs", jobs)
    assert ran.code == 1
    assert ran.json["records"] == 599
    (bad,) = ran.json["damage"]
    assert bad.keys() == {"physicalOffset", "file", "reason"}
    assert bad["file"] == f"{131072:020d}"
    text = cli("--store", damaged, "verify-crc")
    assert text.code == 1
    assert str(bad["physicalOffset"]) in text.out
    assert f"Next: rstore --store {damaged} check (" in text.out


@pytest.mark.leaves("log-damage")
def test_a_part_of_the_log(damaged: Path, cli: Cli) -> None:
    (bad,) = cli("--store", damaged, "verify-crc", "--json").json["damage"]
    at = bad["physicalOffset"]
    before = cli("--store", damaged, "verify-crc", "--json", "--to", str(at))
    behind = cli("--store", damaged, "verify-crc", "--json", "--from", str(at + 1))
    assert (before.code, behind.code) == (0, 0)
    assert before.json["records"] + behind.json["records"] == 599
