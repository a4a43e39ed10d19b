"""`rstore truncate`: the plan first, then the cut; what is refused; what is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_recover import KEYS
from tests.support import fixtures, stores

Store = Callable[[str], Path]


@pytest.fixture
def middle() -> int:
    """Where some record of clean-small begins."""
    records = [m for m in fixtures.dump("clean-small") if m["type"] == "log"]
    return int(records[len(records) // 2]["physicalOffset"])


def offsets(store: Path, table: str) -> None:
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(table)


def test_the_dry_run_is_what_is_done(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    before = stores.snapshot(store)
    dry = cli("--store", store, "truncate", "--to-offset", str(middle), "--dry-run", "--json")
    assert dry.code == 1
    assert dry.json.keys() >= KEYS | {"unread", "ledger", "consumers", "extension"}
    assert (dry.json["truncateTo"], dry.json["maxOffset"]) == (middle, middle)
    assert stores.snapshot(store) == before
    done = cli("--store", store, "truncate", "--to-offset", str(middle), "--yes", "--json")
    assert done.code == 0
    told = done.json
    assert told.pop("next")["command"] == f"rstore --store {store} check"
    assert {**told, "salvage": None} == dry.json
    assert Path(done.json["salvage"]).name.endswith("-truncate")
    again = cli("--store", store, "truncate", "--to-offset", str(middle), "--json")
    assert (again.code, again.json["changed"]) == (0, False)
    assert cli("--store", store, "verify-crc", "--json").json["records"] == 300
    assert cli("--store", store, "recover", "--dry-run").code == 0


def test_to_a_time(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    records = [m for m in fixtures.dump("clean-small") if m["type"] == "log"]
    when = records[100]["storeTimestamp"]
    left = next(m["physicalOffset"] for m in records if m["storeTimestamp"] > when)
    done = cli("--store", store, "truncate", "--to-time", str(when), "--yes", "--json")
    assert (done.code, done.json["maxOffset"]) == (0, left)
    assert cli("--store", store, "truncate", "--to-time", "now").code == 0


def test_in_words(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    assert cli("--store", store, "truncate", "--to-offset", str(middle)).code == 2
    out = cli("--store", store, "truncate", "--to-offset", str(middle), "--yes").out
    for word in ("Messages to be removed, from offset", "salvage", "Done.", f"The log ends at {middle}"):
        assert word in out
    assert "the log already ends there" in cli("--store", store, "truncate", "--to-offset", str(middle)).out


@pytest.mark.leaves("config-missing")
def test_unread_messages_want_a_yes(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    queue = next(m for m in fixtures.dump("clean-small") if m["type"] == "msg" and m["physicalOffset"] >= middle)
    offsets(store, f'{{"offsetTable":{{"{queue["topic"]}@orders":{{{queue["queueId"]}:0}}}}}}')
    before = stores.contents(store)
    for args in ((), ("--dry-run",)):
        ran = cli("--store", store, "truncate", "--to-offset", str(middle), *args)
        assert ran.code == 4
        assert "orders" in ran.error_line
        assert f"{queue['topic']}/{queue['queueId']}" in ran.error_line
        assert "NOT READ YET" in ran.out
        assert len(ran.out.splitlines()) == 10
        assert ran.out.endswith("more lines (--verbose shows all)\n")
        assert "REFUSED" in cli("--store", store, "truncate", "--to-offset", str(middle), *args, "--verbose").out
        refused = cli("--store", store, "truncate", "--to-offset", str(middle), *args, "--json")
        assert refused.code == 4
        assert refused.json["error"]["code"] == "refused"
        assert refused.json["unread"][0]["group"] == "orders"
    assert {k: v for k, v in stores.contents(store).items() if k not in ("lock", ".")} == {
        k: v for k, v in before.items() if k not in ("lock", ".")
    }
    assert cli("--store", store, "truncate", "--to-offset", str(middle), "--dry-run", "--yes").code == 1
    done = cli("--store", store, "truncate", "--to-offset", str(middle), "--yes", "--json")
    assert done.code == 0
    assert done.json["unread"][0]["messages"] > 0


def test_what_makes_no_sense(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    assert cli("--store", store, "truncate", "--yes").code == 2
    assert cli("--store", store, "truncate", "--to-offset", "1", "--to-time", "now", "--yes").code == 2
    assert cli("--store", store, "truncate", "--to-offset", str(1 << 40), "--yes").code == 2
    assert cli("--store", store, "truncate", "--to-offset", str(middle), "--no-salvage").code == 2
    ran = cli("--store", store, "truncate", "--to-offset", str(middle + 1), "--yes")
    assert ran.code == 4
    assert f"--to-offset {middle}," in ran.error_line


def test_no_salvage(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    done = cli("--store", store, "truncate", "--to-offset", str(middle), "--no-salvage", "--yes", "--json")
    assert (done.code, done.json["salvage"]) == (0, None)
    assert not (store / "salvage").exists()


def test_damage_before_it_is_refused(damaged: Path, cli: Cli) -> None:
    at = cli("--store", damaged, "recover", "--dry-run", "--json").json["damage"][0]["physicalOffset"]
    last = cli("--store", damaged, "dump", "commitlog", "--json").lines[-1]["physicalOffset"]
    ran = cli("--store", damaged, "truncate", "--to-offset", str(last), "--yes")
    assert ran.code == 4
    assert ran.next_command[-2:] == ["recover", "--bridge"]
    assert cli("--store", damaged, "truncate", "--to-offset", str(at), "--yes").code == 0
    assert cli("--store", damaged, "recover", "--dry-run").code == 0


def test_a_locked_store(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    with StoreLock(Disk(), str(store)):
        assert cli("--store", store, "truncate", "--to-offset", str(middle), "--yes").code == 3
        assert cli("--store", store, "truncate", "--to-offset", str(middle), "--dry-run").code == 1


def test_what_goes_is_in_the_manifest(fixture_copy: Store, cli: Cli, middle: int) -> None:
    store = fixture_copy("clean-small")
    done = cli("--store", store, "truncate", "--to-offset", str(middle), "--yes", "--json").json
    pieces = json.loads((Path(done["salvage"]) / "manifest.json").read_text())["pieces"]
    gone = {piece["path"] for piece in pieces if piece["action"] == "remove"}
    assert set(done["filesRemoved"]) <= gone
