"""What every command that changes a store promises: no change beside a live process, a dry run that is what is done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.drill.commands import COMMANDS, execute
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.repair.change import carry_out
from engine.repair.config.history import keep
from tests.engine.repair.test_rules import damage, settings
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.elsewhere import PLANNED, Elsewhere, places, store_of
from tests.support import stores
from tests.support.checking import check_clean

__all__ = ["places"]

TOLD_WHEN_DONE = {"salvage", "done", "seconds", "timestamp", "next", "diskUsedRatio"}
"""What a plan can't know: how full the disk is changes with what others write there between plan and change."""


class Change(NamedTuple):
    """A command and the store that it is for. `again`: exit code of a dry run once it is done."""

    words: tuple[str, ...]
    prepare: Callable[[Path, Cli], None]
    again: int = 0


def crashed(root: Path, _: Cli) -> None:
    places = store_of(root)
    damage(root, places[-1] + 95, b"\xff")
    (root / "abort").touch()


def damaged(root: Path, _: Cli) -> None:
    damage(root, store_of(root)[90] + 95, b"\xff")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))  # so that recovery reads the whole log


def cut(root: Path, cli: Cli) -> None:
    damaged(root, cli)
    assert cli("--store", root, "recover", "--cut", "--yes").code == 0


def cut_twice(root: Path, cli: Cli) -> None:
    cut(root, cli)
    last = cli("--store", root, "dump", "commitlog", "--json").lines[-2]["physicalOffset"]
    assert cli("--store", root, "truncate", "--to-offset", str(last), "--yes").code == 0


def sound(root: Path, _: Cli) -> None:
    store_of(root)


def sound_unread(root: Path, cli: Cli) -> None:
    store_of(root)
    (root / "config" / "consumerOffset.json").unlink()


def without_queue(root: Path, _: Cli) -> None:
    store_of(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def lost_config(root: Path, _: Cli) -> None:
    store_of(root)
    (root / "config" / "topics.json").unlink()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:20,1:')


def other_state(root: Path, _: Cli) -> None:
    store_of(root)
    keep(Disk(), str(root), "consumerOffset.json", b'{"offsetTable":{"T@g":{0:3,1:20}}}', 1_700_000_000_000)


CHANGES = {
    "recover": Change(("recover",), crashed),
    "recover --bridge": Change(("recover", "--bridge"), damaged),
    "recover --cut": Change(("recover", "--cut"), damaged),
    "undo": Change(("undo",), cut, again=4),
    "truncate": Change(("truncate", "--to-offset", "0"), sound_unread),
    "reindex": Change(("reindex",), without_queue),
    "expire": Change(("expire", "--force", "--reserved-hours", "0"), sound),
    "rebuild-config": Change(("rebuild-config",), lost_config),
    "config restore": Change(("config", "restore", "consumerOffset.json", "--at", "20231114T221320.000Z"), other_state),
    "offsets set": Change(("offsets", "set", "g", "T", "0", "min"), sound),
    "salvage replay": Change(("salvage", "replay"), cut, again=4),
    "salvage prune": Change(("salvage", "prune", "--keep", "1"), cut_twice),
}


DRILLED: dict[str, dict[str, object]] = {
    "recover": {},
    "recover --bridge": {"bridge": True},
    "recover --cut": {"cut": True},
    "undo": {},
    "truncate": {"to_offset": 0},
    "reindex": {},
    "expire": {"force": True, "reserved_hours": 0.0},
    "offsets set": {"group": "g", "topic": "T", "queue": 0, "to": 0},
}
"""The same change in a drill's script: its options."""


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("name", DRILLED)
def test_a_drill_makes_it_as_the_command_line_does(
    name: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same class, with the same options: a drill rehearses the code that ships."""
    made: list[object] = []

    def seen(change: object, *others: object) -> object:
        made.append(change)
        return carry_out(change, *others)  # type: ignore[arg-type]

    typed, root = CHANGES[name], tmp_path / "store"
    typed.prepare(root, cli)
    copy = stores.copy(root, tmp_path / "copy")
    monkeypatch.setattr("engine.repair.change.carry_out", seen)
    assert cli("--store", root, *typed.words, "--yes").code == 0
    outcome = execute(name.partition(" --")[0], Disk(), settings(copy), DRILLED[name])
    assert (outcome.exit, outcome.changed) == (0, True), outcome
    by_hand, drilled = made
    assert type(by_hand) is type(drilled)
    if name != "offsets set":  # whose offset is a word on the command line
        assert by_hand == drilled
    if name != "undo":  # which brings the damage back
        check_clean(root, settings(root))
        check_clean(copy, settings(copy))


def test_a_drill_knows_every_change_but_those_of_what_was_saved() -> None:
    changes = {name.partition(" --")[0] for name in CHANGES}
    assert changes - {name for name, command in COMMANDS.items() if not command.reads} == {
        "config restore",
        "rebuild-config",
        "salvage prune",
        "salvage replay",
    }


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("name", CHANGES)
def test_it_keeps_the_promise(name: str, tmp_path: Path, cli: Cli) -> None:
    change, root = CHANGES[name], tmp_path / "store"
    change.prepare(root, cli)
    keeps_the_promise(root, change.words, cli, change.again)
    if name != "undo":  # which brings the damage back
        check_clean(root, settings(root))


@pytest.mark.leaves
@pytest.mark.parametrize("name", PLANNED)
def test_so_does_what_needs_another_place(name: str, tmp_path: Path, cli: Cli, places: Elsewhere) -> None:
    root, elsewhere = tmp_path / "store", stores.contents(places.good)
    places.make(name, root)
    keeps_the_promise(root, places.words(PLANNED[name][0]), cli)
    check_clean(root, settings(root))
    assert stores.contents(places.good) == elsewhere


def keeps_the_promise(root: Path, words: tuple[str, ...], cli: Cli, again: int = 0) -> None:
    """See the module. `again`: exit code of a dry run once it is done."""
    before = stores.snapshot(root)

    dry = cli("--store", root, *words, "--dry-run", "--json")
    assert dry.code == 1, dry
    assert stores.snapshot(root) == before

    with StoreLock(Disk(), str(root)):
        held = cli("--store", root, *words, "--yes")
    assert held.code == 3, held
    assert {path: seen for path, seen in stores.snapshot(root).items() if path != "lock"} == {
        path: seen for path, seen in before.items() if path != "lock"
    }

    asked = cli("--store", root, *words)
    assert asked.code == 2, asked  # nobody is here to answer
    assert "--yes" in asked.error_line
    # Planning has left nothing: neither a byte changed, nor what it builds or remembers on the way.
    assert {path: seen.digest for path, seen in stores.snapshot(root).items() if path != "lock"} == {
        path: seen.digest for path, seen in before.items() if path != "lock"
    }

    done = cli("--store", root, *words, "--yes", "--json")
    assert done.code == 0, done
    # A command that takes something out of what was saved names the repair, once there is one.
    told = json.loads(done.out.replace(os.path.basename(done.json.get("salvage") or "") or "ID", "ID"))
    assert planned_of(told) == planned_of(dry.json)
    ran = cli("--store", root, *words, "--dry-run")
    assert ran.code == again, ran


def planned_of(told: object) -> object:
    """What a plan has of it."""
    if isinstance(told, list):
        return [planned_of(one) for one in told]
    if not isinstance(told, dict):
        return told
    return {key: planned_of(one) for key, one in told.items() if key not in TOLD_WHEN_DONE}
