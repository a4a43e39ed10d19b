"""`salvage`: what is lost and what is whole, to the byte; what repairs saved, listed, exported and pruned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import CannotRepair, InvalidArgument, Refused
from engine.files.disk import Disk
from engine.format.message import Message
from engine.inspect.check.check import check
from engine.inspect.dump.dump import dump_log
from engine.inspect.dump.salvage_list import describe, inventory
from engine.inspect.dump.salvage_scan import ScanReport, scan_file, scan_store
from engine.log.scan import WINDOW
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.replay.plan import ReplayRequest
from engine.repair.replay.planner import plan_replay
from engine.repair.salvage.export import Export, Filter, export_raw
from engine.repair.salvage.prune import plan_prune, prune
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import golden, mutate, stores
from tests.support.salvaged import by_queue, cut, put_back, replayed
from tests.support.wide import sample

SIZE = 8192
CASES = [*corpus.fixture_cases(), *golden.cases()[::5]]


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SIZE:020d}"


def lost(report: ScanReport) -> list[tuple[int, int]]:
    return [(stretch.offset, stretch.length) for stretch in report.lost]


def spread(report: ScanReport, end: int) -> int:
    """Bytes that the report accounts for, of those before a log's end."""
    inside = sum(stretch.length for stretch in report.lost if stretch.offset < end)
    return report.sound.size + report.blank_bytes + inside + report.bridged_bytes


# --- scan -------------------------------------------------------------------------------------------------------------


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(CASES, 2), ids=lambda case: str(case["id"]))
def test_every_whole_message_is_found(
    case: corpus.Case, fixture_store: Store, fixture_copy: Store, golden_store: Store, golden_copy: Store
) -> None:
    ours = not case["id"].startswith("v")
    undamaged = (fixture_store if ours else golden_store)(case["base"])
    root = (fixture_copy if ours else golden_copy)(case["base"])
    mutate.apply(root, case["ops"])
    before = stores.snapshot(root)
    report = scan_store(Disk(), corpus.config(root, case))
    assert stores.snapshot(root) == before
    intact = scan_store(Disk(), corpus.config(undamaged, case))
    assert not intact.lost
    assert report.sound.records + report.displaced.records <= intact.sound.records
    whole = {m["physicalOffset"] for m in corpus.whole_messages(case, undamaged, root, 0, 1 << 62)}
    odd = {path for path, _ in report.odd}
    in_odd = [m for m in whole if any(_lies_in(m, path) for path in odd)]
    missing = {m for m in whole if any(s.offset <= m < s.offset + s.length for s in report.lost)}
    assert not missing
    assert report.sound.records >= len(whole) - len(in_odd)
    behind = sum(stretch.after.records for stretch in report.lost)
    assert behind <= report.sound.records


def _lies_in(offset: int, path: str) -> bool:
    name = os.path.basename(path)
    return name.isdigit() and int(name) <= offset < int(name) + os.path.getsize(path)


@pytest.mark.leaves("log-damage", "log-gap")
def test_lost_bytes_to_the_byte(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60, body=300)
    config = settings(tmp_path)
    intact = scan_store(Disk(), config)
    end = plan_recover(Disk(), config).state.max_offset
    assert (intact.lost, intact.sound.records, spread(intact, end)) == ([], 60, end)
    damage(tmp_path, offsets[20] + 100, b"\xff")
    damage(tmp_path, offsets[30] + 4, b"\xff")
    damage(tmp_path, offsets[31] + 4, b"\xff")
    segment(tmp_path, 2).rename(tmp_path / "elsewhere")
    report = scan_store(Disk(), config)
    gap = next(s for s in report.lost if s.file is None)
    assert (gap.offset, gap.length, report.missing_bytes) == (2 * SIZE, SIZE, SIZE)
    stretches = [s for s in report.lost if s.file is not None]
    inner = [(offsets[20], offsets[21]), (offsets[30], offsets[32])]
    inside = [(a, b) for a, b in inner if not 2 * SIZE <= a < 3 * SIZE]
    assert [(s.offset, s.offset + s.length) for s in stretches] == inside
    assert {s.file: s.position for s in stretches} == {f"{a - a % SIZE:020d}": a % SIZE for a, _ in inside}
    assert spread(report, end) == end
    places = [stretch.offset for stretch in report.lost]
    for stretch, following in zip(report.lost, [*places[1:], end], strict=True):
        real = [o for o in offsets if stretch.offset + stretch.length <= o < following]
        assert stretch.after.records == len(real)
    part = scan_store(Disk(), config, start=offsets[25], end=offsets[28])
    assert (part.sound.records, part.lost) == (sum(not 2 * SIZE <= o < 3 * SIZE for o in offsets[25:28]), part.lost)


@pytest.mark.leaves("index-orphaned", "log-tail", "unit-orphaned")
def test_a_torn_tail_and_a_bridge(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60, body=300)
    damage(tmp_path, offsets[50] + 100, b"\xff")
    config = settings(tmp_path)
    apply(Disk(), plan_recover(Disk(), config, bridge=True))
    report = scan_store(Disk(), config)
    assert (report.lost, report.bridged, report.sound.records) == ([], 1, 59)
    damage(tmp_path, offsets[59] + 30, b"\xff" * 200)
    report = scan_store(Disk(), config)
    assert [s.offset for s in report.lost] == [offsets[59]]


def test_content_that_is_shifted(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60, body=300)
    config = settings(tmp_path)
    at = next(o for o in offsets if o > 2 * SIZE + 2000) + 50
    data = segment(tmp_path, 2).read_bytes()
    place = at % SIZE
    segment(tmp_path, 2).write_bytes(data[:place] + data[place + 100 :] + bytes(100))
    report = scan_store(Disk(), config)
    shifted = [o for o in offsets if at < o < 3 * SIZE]
    assert dict(report.distances) == {-100: len(shifted)}
    assert report.sound.records == 60 - len(shifted) - 1
    cut(config)
    plan = plan_replay(Disk(), config, ReplayRequest())
    assert {why.name: n for why, (n, _) in plan.share.skipped.items()} == {"DISPLACED": len(shifted)}
    put_back(config)
    put_back(config, displaced=True)
    assert len(replayed(config)) == 59 - sum(o < at - 50 for o in offsets)
    assert len({m.properties["UNIQ_KEY"] for _, _, _, m in by_queue(config)}) == 59
    assert isinstance(plan_replay(Disk(), config, ReplayRequest(displaced=True)).refusal, Refused)


@pytest.mark.leaves("log-gap")
def test_a_segment_of_another_name_and_any_file(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60, body=300)
    config = settings(tmp_path)
    inside = [o for o in offsets if SIZE <= o < 2 * SIZE]
    segment(tmp_path, 1).rename(tmp_path / f"{7 * SIZE:020d}")
    report = scan_file(Disk(), config, str(tmp_path / f"{7 * SIZE:020d}"))
    assert (report.sound.records, dict(report.distances)) == (0, {6 * SIZE: len(inside)})
    (tmp_path / f"{7 * SIZE:020d}").rename(tmp_path / "copy.bin")
    with pytest.raises(InvalidArgument):
        scan_file(Disk(), config, str(tmp_path / "copy.bin"))
    report = scan_file(Disk(), config, str(tmp_path / "copy.bin"), base=SIZE)
    assert (report.sound.records, report.lost, report.blanks) == (len(inside), [], 1)


@pytest.mark.leaves("log-surplus")
def test_displaced_records_across_windows(tmp_path: Path) -> None:
    """Larger than a window, and lying across the borders of windows."""
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(mapped_file_size_commit_log=8 * WINDOW)
    sizes = [3_900_000, 100, 3_000_000, 50_000, 3_900_000, 70_000] + [1000] * 200
    with MessageStore.open(config) as store:
        for size in sizes:
            assert store.put(Message("T", b"b" * size)).ok
    (path,) = (tmp_path / "commitlog").iterdir()
    path.write_bytes(b"\xff" * 13 + path.read_bytes()[:-13])
    report = scan_store(Disk(), config)
    assert dict(report.distances) == {13: len(sizes)}
    assert report.sound.records == 0


# --- list, show, export -----------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[StoreConfig, list[int]]:
    """A store of 60 messages; the one at 20 lost, the 39 behind it saved by `recover --cut`. Their offsets."""
    offsets = put(tmp_path, 60, body=300)
    damage(tmp_path, offsets[20] + 100, b"\xff")
    cut(settings(tmp_path))
    return settings(tmp_path), offsets


def test_list_and_show(damaged: tuple[StoreConfig, list[int]]) -> None:
    config, offsets = damaged
    root = Path(config.store_path_root_dir)
    (root / "salvage" / "20200101T000000Z-recover").mkdir()
    (root / "salvage" / "20200101T000000Z-recover" / "0001-x").write_bytes(b"x" * 100)
    (root / "salvage" / "20200102T000000Z-recover").mkdir()
    (root / "salvage" / "20200102T000000Z-recover" / "manifest.json").write_text("{")
    before = stores.snapshot(root)
    found = inventory(Disk(), config)
    (entry,) = found.entries
    assert (entry.saved.state, entry.report.sound.records) == ("done", 39)
    assert lost(entry.report) == [(offsets[20], offsets[21] - offsets[20])]
    assert [(Path(path).name[:8], size) for path, size, _ in found.leftovers] == [("20200101", 100), ("20200102", 1)]
    files = [path for path in (root / "salvage").rglob("*") if path.is_file()]
    assert 0 < found.disk_bytes <= sum(path.stat().st_size for path in files)
    detail = describe(Disk(), config, entry.saved.id[:12])
    assert sum(piece.get("records", 0) for piece in detail.pieces) == 39
    assert len(detail.pieces) == len(entry.saved.repairs[0].pieces)
    assert stores.snapshot(root) == before
    put_back(config)
    assert inventory(Disk(), config).entries[0].to_json()["replays"][0]["messages"] == 39


def test_export(damaged: tuple[StoreConfig, list[int]]) -> None:
    config, offsets = damaged
    name = inventory(Disk(), config).entries[0].saved.id

    def places(**wanted: object) -> list[int]:
        return [place for place, _ in Export(Disk(), config, name, Filter(**wanted))]  # type: ignore[arg-type]

    assert places() == offsets[21:]
    with pytest.raises(InvalidArgument, match="no topic nothing"):
        places(topic="nothing")
    assert places(queue_id=1) == [o for i, o in enumerate(offsets) if i > 20 and i % 2]
    assert places(start=offsets[30], end=offsets[40]) == offsets[30:40]
    export = Export(Disk(), config, name, Filter())
    bodies = [message.body for _, message in export]
    assert bodies == [b"%06d" % i * 50 for i in range(21, 60)]
    assert lost(export.report) == [(offsets[20], offsets[21] - offsets[20])]


@pytest.mark.leaves("log-damage")
def test_export_of_the_bytes(damaged: tuple[StoreConfig, list[int]], tmp_path: Path) -> None:
    config, offsets = damaged
    name = inventory(Disk(), config).entries[0].saved.id
    raw = tmp_path / "raw"
    export_raw(Disk(), config, name, str(raw))
    rows = [row.offset for row in dump_log(Disk(), StoreConfig(store_path_root_dir=raw)) if row.message is not None]
    assert rows == offsets[21:]
    undo(Disk(), plan_undo(Disk(), config))
    for path in (raw / "commitlog").iterdir():
        data, whole = path.read_bytes(), (tmp_path / "commitlog" / path.name).read_bytes()
        start = max(0, offsets[20] - int(path.name))
        assert data[start:] == whole[start:]
        assert not any(data[:start])
    with pytest.raises(Refused):
        export_raw(Disk(), config, name, str(raw))


def test_nothing_of_the_log_was_saved(tmp_path: Path) -> None:
    put(tmp_path, 20)
    (tmp_path / "consumequeue" / "T" / "0" / "00000000000000000000").write_bytes(bytes(400))
    config = settings(tmp_path)
    apply(Disk(), plan_recover(Disk(), config))
    name = inventory(Disk(), config).entries[0].saved.id
    with pytest.raises(CannotRepair):
        Export(Disk(), config, name, Filter())
    with pytest.raises(CannotRepair):
        plan_replay(Disk(), config, ReplayRequest())


# --- prune ------------------------------------------------------------------------------------------------------------


def test_prune_keeps_what_tells(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60, body=300)
    config = settings(tmp_path)
    damage(tmp_path, offsets[50] + 100, b"\xff")
    apply(Disk(), plan_recover(Disk(), config, bridge=True))
    damage(tmp_path, offsets[55] + 100, b"\xff")
    cut(config)
    bridged, last = (entry.saved.id for entry in inventory(Disk(), config).entries)
    plan = plan_prune(Disk(), config, keep=0)
    assert [(one.saved.id, one.records, one.keeps_manifest is not None) for one in plan.pruned] == [
        (bridged, 0, True),
        (last, 4, True),
    ]
    checked = [f.code for f in check(Disk(), config).findings]
    prune(Disk(), plan)
    assert [f.code for f in check(Disk(), config).findings] == checked
    assert not plan_recover(Disk(), config).changed
    assert not plan_prune(Disk(), config, keep=0).changed
    with pytest.raises(CannotRepair, match="prune"):
        plan_undo(Disk(), config)
    for use in (
        lambda: plan_replay(Disk(), config, ReplayRequest(last)),
        lambda: Export(Disk(), config, last, Filter()),
    ):
        with pytest.raises((Refused, CannotRepair), match="prune"):
            use()
    assert {entry.saved.state for entry in inventory(Disk(), config).entries} == {"pruned"}


def test_prune_by_age_and_by_number(tmp_path: Path) -> None:
    config = settings(tmp_path)
    for n in range(3):
        (offset,) = put(tmp_path, 1, first=n, queues=1)[-1:]
        damage(tmp_path, offset + 5, b"\xff")
        disk = Disk()
        disk.now_ms = lambda n=n: 1_700_000_000_000 + n * 86_400_000  # type: ignore[method-assign]
        apply(disk, plan_recover(disk, config, cut=True))
    ids = [entry.saved.id for entry in inventory(Disk(), config).entries]
    by_age = plan_prune(Disk(), config, before_ms=1_700_000_000_000 + 86_400_000)
    assert [one.saved.id for one in by_age.pruned] == ids[:1]
    by_number = plan_prune(Disk(), config, keep=1)
    assert [one.saved.id for one in by_number.pruned] == ids[:2]
    prune(Disk(), by_number)
    assert [entry.saved.id for entry in inventory(Disk(), config).entries] == ids[2:]
    plan_undo(Disk(), config)


def test_prune_refuses_what_is_needed(damaged: tuple[StoreConfig, list[int]]) -> None:
    config, _ = damaged
    root = Path(config.store_path_root_dir)
    name = inventory(Disk(), config).entries[0].saved.id
    applied = root / "salvage" / name / "applied.json"
    text = applied.read_bytes()
    applied.unlink()
    with pytest.raises(Refused, match="interrupted"):
        plan_prune(Disk(), config, ids=[name])
    assert not plan_prune(Disk(), config, keep=0).changed
    assert plan_prune(Disk(), config, keep=0).kept[0][0] == name
    with pytest.raises(Refused, match="interrupted"):
        plan_replay(Disk(), config, ReplayRequest(name))
    applied.write_bytes(text)
    put_back(config)
    note = root / "salvage" / name / "replayed.json"
    note.write_text(note.read_text().replace('"done": true', '"done": false'))
    with pytest.raises(Refused, match="replay"):
        plan_prune(Disk(), config, ids=[name])
    with pytest.raises(InvalidArgument):
        plan_prune(Disk(), config, ids=["nothing"])


def test_a_copy_that_is_gone_hides_nothing_else(damaged: tuple[StoreConfig, list[int]]) -> None:
    config, _ = damaged
    apply(Disk(), plan_recover(Disk(), config, cut=True))
    root = Path(config.store_path_root_dir)
    (directory,) = (root / "salvage").iterdir()
    pieces = json.loads((directory / "manifest.json").read_text())["pieces"]
    copies = [piece["file"] for piece in pieces if piece["file"] and piece["path"].startswith("commitlog")]
    assert len(copies) > 1
    (whole,) = inventory(Disk(), config).entries
    (directory / copies[0]).unlink()
    (entry,) = inventory(Disk(), config).entries
    assert entry.unreadable == f"missing: {copies[0]}"
    assert 0 < entry.report.sound.records < whole.report.sound.records
    described = describe(Disk(), config, directory.name)
    assert len(described.pieces) == len(pieces)
    with pytest.raises(CannotRepair, match="missing"):
        Export(Disk(), config, directory.name, Filter())
    with pytest.raises(CannotRepair, match="missing"):
        plan_replay(Disk(), config, ReplayRequest())
    plan_prune(Disk(), config, keep=0)
