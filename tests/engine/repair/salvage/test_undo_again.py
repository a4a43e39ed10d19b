"""Undo where the store was odd before the repair, and where salvage/ holds what no repair writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.errors import CannotRepair, Refused, StoreChanged
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import names
from engine.inspect.dump.replayed import read_runs
from engine.inspect.dump.saved_log import saved_repairs
from engine.inspect.store.repairs import MANIFEST, REPLAYED, listing, repairs
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.reindex.reindex import Scope, build
from engine.repair.reindex.swap import SWAP, build_directory, clear, swap
from engine.repair.salvage.since import demand_unchanged
from engine.repair.salvage.undo import plan_undo, undo
from engine.repair.salvage.undo_names import is_made_since
from tests.conftest import Store
from tests.engine.repair.salvage.test_undo import files
from tests.support.checking import check_clean

DISK = Disk()


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root)


def queue_file(root: Path) -> Path:
    return next(path for path in sorted((root / names.CONSUMEQUEUE).rglob("0*")) if path.is_file())


@pytest.mark.leaves("file-size", "file-stray", "not-closed", "unit-missing")
@pytest.mark.parametrize("length", [0, 19, 3083])
def test_a_queue_file_of_another_length_comes_back(length: int, golden_copy: Store) -> None:
    root = golden_copy("crashed-small")
    with queue_file(root).open("r+b") as file:
        file.truncate(length)
    before = files(root)
    apply(DISK, plan_recover(DISK, settings(root)))
    assert queue_file(root).stat().st_size > length
    undo(DISK, plan_undo(DISK, settings(root)))
    assert files(root) == before


def test_what_was_set_aside_and_is_gone_is_refused_before_anything_changes(golden_copy: Store) -> None:
    root = golden_copy("crashed-small")
    with queue_file(root).open("r+b") as file:
        file.truncate(19)
    apply(DISK, plan_recover(DISK, settings(root)))
    aside = next(path for path in (root / names.QUARANTINE).rglob("*") if path.is_file())
    aside.unlink()
    after = files(root)
    with pytest.raises(CannotRepair, match="moved to quarantine/ is missing"):
        plan_undo(DISK, settings(root))
    assert files(root) == after


@pytest.mark.leaves("index-link")
@pytest.mark.parametrize("behind_the_end", [False, True])
def test_index_entries_that_a_cut_links_anew_come_back(behind_the_end: bool, golden_copy: Store) -> None:
    root = golden_copy("clean-small")
    plan = plan_truncate(DISK, settings(root), to_offset=3 << 20)
    rewind = plan.index.rewinds[0]
    path = root / names.INDEX / rewind.name
    entry = plan.files.index_layout.entry_position(rewind.had + 7 if behind_the_end else 5)
    with path.open("r+b") as file:
        file.seek(entry + 18)
        file.write(b"\x03\x07")
    before = files(root)
    apply(DISK, plan_truncate(DISK, settings(root), to_offset=3 << 20), command="truncate")
    undo(DISK, plan_undo(DISK, settings(root)))
    assert files(root) == before


@pytest.mark.leaves("not-closed")
def test_repairs_are_taken_back_one_after_the_other(golden_copy: Store) -> None:
    root = golden_copy("crashed-small")
    seen = [(files(root), times(root))]
    apply(DISK, plan_recover(DISK, settings(root)))
    seen.append((files(root), times(root)))
    apply(DISK, plan_truncate(DISK, settings(root), to_offset=3 << 20), command="truncate")
    seen.append((files(root), times(root)))
    apply(DISK, plan_truncate(DISK, settings(root), to_offset=1 << 20), command="truncate")
    for before in reversed(seen):
        undo(DISK, plan_undo(DISK, settings(root)))
        assert (files(root), times(root)) == before


def times(root: Path) -> dict[str, int]:
    """The last modification of every file, as retention goes by it."""
    return {path: (root / path).stat().st_mtime_ns for path in files(root) if (root / path).is_file()}


@pytest.fixture
def cut(golden_copy: Store) -> Path:
    root = golden_copy("clean-small")
    apply(DISK, plan_truncate(DISK, settings(root), to_offset=3 << 20), command="truncate")
    return root


def rewrite(root: Path, name: str, change: dict[str, Any]) -> None:
    """Change the first kept piece of the log in the last repair's manifest."""
    path = Path(repairs(DISK, str(root))[-1].directory) / name
    said = json.loads(path.read_bytes())
    piece = next(piece for piece in said["pieces"] if piece["file"] is not None)
    piece.update(change)
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../outside"},
        {"path": "commitlog/../../outside"},
        {"path": "/"},
        {"path": ""},
        {"path": "a\0b"},
        {"path": 7},
        {"file": "../../outside"},
        {"file": "/etc/passwd"},
        {"file": {}},
        {"offset": -1},
        {"length": -1},
        {"length": 1 << 70},
        {"length": "7"},
        {"length": True},
        {"action": "format"},
        {"action": "move", "target": "../outside"},
        {"sha256": None},
    ],
    ids=str,
)
def test_a_manifest_that_can_not_be_is_no_repair(change: dict[str, Any], cut: Path) -> None:
    rewrite(cut, MANIFEST, change)
    before = files(cut)
    assert repairs(DISK, str(cut)) == [] or change == {"path": "/"}
    with pytest.raises(CannotRepair):
        plan_undo(DISK, settings(cut))
    assert files(cut) == before


def test_an_absolute_place_must_be_a_log_directory(cut: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "00000000000000000000"
    rewrite(cut, MANIFEST, {"path": str(outside)})
    with pytest.raises(CannotRepair, match="in no directory of the log"):
        plan_undo(DISK, settings(cut))
    assert not outside.parent.exists()


@pytest.mark.parametrize("text", ["", "7", "[7]", '["../outside"]', '["/outside"]', '["config"]', "{"])
def test_a_swap_that_can_not_be_is_built_again(text: str, cut: Path) -> None:
    built = Path(build_directory(str(cut)))
    (built / "config").mkdir(parents=True)
    (built / SWAP).write_text(text)
    before = files(cut)
    clear(DISK, str(cut))
    assert not built.exists()
    assert {path: seen for path, seen in before.items() if not path.startswith(built.name)} == files(cut)


@pytest.mark.parametrize(
    "change",
    [{"end": "x"}, {"end": 1 << 70}, {"position": None}, {"topics": [7]}, {"target": 7}, {"done": "yes"}, {"more": 1}],
    ids=str,
)
def test_a_replay_that_can_not_be_is_refused(change: dict[str, Any], cut: Path) -> None:
    saved = saved_repairs(DISK, str(cut))[-1]
    run = {
        "target": ".",
        "topics": None,
        "displaced": False,
        "again": False,
        "made": False,
        "end": 7,
        "position": 7,
        "messages": 1,
        "done": True,
    }
    path = Path(saved.directory) / REPLAYED
    path.write_text(json.dumps({"version": 1, "runs": [run]}))
    assert len(read_runs(DISK, saved)) == 1
    path.write_text(json.dumps({"version": 1, "runs": [run | change]}))
    with pytest.raises(Refused):
        read_runs(DISK, saved)


@pytest.mark.leaves("unit-missing")
@pytest.mark.parametrize(
    ("step", "nth"),
    [("planned", 1), ("set-aside", 1), ("set-aside", 2), ("swap-in", 1), ("swap-in", 2), ("swap-in", 3)],
)
def test_a_killed_reindex_that_a_recovery_went_on_from_comes_back(step: str, nth: int, golden_copy: Store) -> None:
    """The recovery changes a file in place that the reindex was to rename."""
    root = golden_copy("clean-small")
    for path in sorted(path for path in (root / names.CONSUMEQUEUE).rglob("0*") if path.is_file())[:3]:
        data = path.read_bytes()
        path.write_bytes(data[:20] + data[:20] + data[40:])
    before = files(root)
    disk = FaultyDisk(str(root))
    disk.kill_at(f"reindex.{step}", nth)
    built = build_directory(str(root))
    plan = build(disk, settings(root), built, Scope())
    with pytest.raises(Killed):
        swap(disk, plan)
    clear(DISK, str(root))
    apply(DISK, plan_recover(DISK, settings(root)))
    check_clean(root, settings(root))
    while repairs(DISK, str(root)) and any(not one.undone for one in repairs(DISK, str(root))):
        undo(DISK, plan_undo(DISK, settings(root)))
    assert files(root) == before


@pytest.mark.leaves("log-tail", "repair-unfinished")
@pytest.mark.parametrize("word", ["after the log end", "behind the log's end"])
def test_messages_after_a_killed_cut_are_seen_with_the_words_of_every_version(word: str, golden_copy: Store) -> None:
    """Earlier versions wrote another word for a piece after the log end into the manifest."""
    root = golden_copy("clean-small")
    disk = FaultyDisk(None)
    disk.kill_at("recover.checkpoint-written")
    with pytest.raises(Killed):
        apply(disk, plan_truncate(DISK, settings(root), to_offset=3 << 20), command="truncate")
    (killed,) = repairs(DISK, str(root))
    path = Path(killed.directory) / MANIFEST
    manifest = json.loads(path.read_bytes())
    tails = [piece for piece in manifest["pieces"] if piece["why"] == "after the log end"]
    for piece in tails:
        piece["why"] = word
    path.write_text(json.dumps(manifest))
    (killed,) = repairs(DISK, str(root))
    demand_unchanged(DISK, str(root), [killed], listing(DISK, settings(root)))
    tail = next(piece for piece in tails if piece["action"] == "overwrite")
    with (root / tail["path"]).open("r+b") as file:
        file.seek(tail["offset"] + 64)
        was = file.read(1)
        file.seek(tail["offset"] + 64)
        file.write(bytes([was[0] ^ 0x55 or 0x33]))
    with pytest.raises(StoreChanged):
        demand_unchanged(DISK, str(root), [killed], listing(DISK, settings(root)))


@pytest.mark.parametrize(
    "word",
    ["an empty file", "a queue file without a unit, after a gap", "a queue's file that holds nothing, behind a gap"],
)
def test_an_empty_queue_file_of_a_killed_repair_is_known_by_the_words_of_every_version(
    word: str, golden_copy: Store
) -> None:
    root = golden_copy("clean-small")
    for to_offset in (3 << 20, 1 << 20):
        apply(DISK, plan_truncate(DISK, settings(root), to_offset=to_offset), command="truncate")
    older, newer = repairs(DISK, str(root))
    piece = {"action": "move", "why": word, "path": "consumequeue/T/0/00000000000000600000"}
    assert is_made_since(piece, newer, [newer, older])
    assert not is_made_since(piece, older, [newer, older])
    assert not is_made_since({**piece, "why": "not a file"}, newer, [newer, older])
