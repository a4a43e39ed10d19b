"""`rstore undo`: the repairs, the plan, the question, the refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from tests.rstore_cli.conftest import Cli
from tests.support import stores


def files(root: Path) -> dict[str, str]:
    found = stores.contents(root)
    return {p: d for p, d in found.items() if p.split("/", maxsplit=1)[0] not in ("salvage", "lock")}


@pytest.mark.leaves("log-damage")
def test_a_repair_is_taken_back(damaged: Path, cli: Cli) -> None:
    before = files(damaged)
    assert cli("--store", damaged, "recover", "--bridge", "--yes").code == 0
    listed = cli("--store", damaged, "undo", "--list", "--json").json["repairs"]
    assert [(one["command"], one["state"]) for one in listed] == [("recover", "done")]
    dry = cli("--store", damaged, "undo", "--dry-run", "--json")
    assert (dry.code, dry.json["undoes"], dry.json["done"]) == (1, [listed[0]["id"]], False)
    assert cli("--store", damaged, "undo").code == 2
    done = cli("--store", damaged, "undo", "--yes")
    assert done.code == 0
    assert "Done" in done.out
    assert files(damaged) == before
    assert cli("--store", damaged, "undo", "--list", "--json").json["repairs"][0]["state"] == "undone"
    again = cli("--store", damaged, "undo", "--yes", "--json")
    assert (again.code, again.json["error"]["code"]) == (4, "cannot-repair")
    assert cli("--store", damaged, "undo", "--list").code == 0


@pytest.mark.leaves("log-damage")
def test_a_changed_store_is_refused(damaged: Path, cli: Cli) -> None:
    assert cli("--store", damaged, "recover", "--cut", "--yes").code == 0
    (damaged / "abort").touch()
    ran = cli("--store", damaged, "undo", "--yes", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (4, "changed")
    assert ran.json["error"]["path"] == str(damaged / "abort")
    (damaged / "abort").unlink()
    assert cli("--store", damaged, "undo", "--yes", "--json").json["done"] is True


def test_a_locked_store(damaged: Path, cli: Cli) -> None:
    assert cli("--store", damaged, "recover", "--bridge", "--yes").code == 0
    with StoreLock(Disk(), str(damaged)):
        assert cli("--store", damaged, "undo", "--yes").code == 3
        assert cli("--store", damaged, "undo", "--dry-run").code == 1
        assert cli("--store", damaged, "undo", "--list").code == 0
