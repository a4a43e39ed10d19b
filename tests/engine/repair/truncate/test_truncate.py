"""Truncate: log, queues, extension, index and checkpoint end at one point, and nothing behind it ever comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import DamageInTheMiddle, InvalidArgument, Refused
from engine.files.disk import Disk
from engine.format import names, queue_ext
from engine.format.message import Message
from engine.format.queue_unit import is_ext_address
from engine.inspect.store.survey import survey
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.truncate.truncate import plan
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import fixtures, stores

STORES = fixtures.names()


def boundaries(root: Path, base: str) -> list[int]:
    """Where every record begins, and where the log ends."""
    files = survey(Disk(), corpus.config(root, {"base": base}))
    with ClosedLog(Disk(), files.log) as log:
        batches = [e for e in Scanner(log).scan(files.log[0].offset) if isinstance(e, RecordBatch)]
    return [batch.offset(i) for batch in batches for i in range(len(batch))] + [batches[-1].end]


def cut(root: Path, base: str, to: int) -> str | None:
    """Truncate; the salvage directory."""
    found = plan_truncate(Disk(), corpus.config(root, {"base": base}), to_offset=to)
    applied = apply(Disk(), found, command="truncate")
    assert applied.state.max_offset == to
    return applied.salvage


def check_cut(root: Path, base: str, to: int, undamaged: Path) -> None:
    """Everything before `to` is read as Apache read it, nothing behind it is anywhere, and recovery agrees."""
    config = corpus.config(root, {"base": base})
    lines = list(fixtures.dump(base))
    expected = {(m["cqTopic"], m["cqQueueId"], m["cqOffset"]): m["physicalOffset"] for m in lines if m["type"] == "msg"}
    expected = {place: offset for place, offset in expected.items() if offset < to}
    found = {}
    with ReadStore(config) as store:
        for name in store.queues():
            queue = store.find_queue(*name)
            assert queue is not None
            for at in range(queue.min_offset, queue.max_offset):
                unit = queue.get(at)
                assert unit is not None
                found[(*name, at)] = unit.physical_offset
                if is_ext_address(unit.tags_code):
                    assert queue.ext_unit(unit.tags_code) is not None
    assert found == expected
    files = survey(Disk(), config)
    for segment in files.log:
        data = Path(segment.path).read_bytes()
        before = (undamaged / names.COMMITLOG / Path(segment.path).name).read_bytes()
        keep = max(0, min(len(data), to - segment.offset))
        assert data[:keep] == before[:keep]
        assert not any(data[keep:])
    keys = set()
    for index in files.index:
        with ClosedIndexFile(Disk(), index.path, files.index_layout) as file:
            assert file.verify().fault is None
            keys |= {int(row["physical_offset"]) for row in file.entries(1, file.entry_count)}
    assert keys == {m["physicalOffset"] for m in lines if m["type"] == "log" and m["physicalOffset"] < to} & keys
    assert keys == indexed(undamaged, base, to)
    again = plan_recover(Disk(), config)
    assert again.refusal is None
    assert not again.changed
    assert again.state.max_offset == to
    assert not (root / names.ABORT).exists()


def indexed(root: Path, base: str, to: int) -> set[int]:
    """Records before `to` that have keys."""
    from engine.log.derive import Deriver, DeriveRules, QueueNumbers

    config = corpus.config(root, {"base": base})
    files = survey(Disk(), config)
    deriver = Deriver(DeriveRules.of(config), QueueNumbers())
    found: set[int] = set()
    with ClosedLog(Disk(), files.log) as log:
        for event in Scanner(log).scan(files.log[0].offset, to):
            if isinstance(event, RecordBatch):
                found |= set(deriver.derive(event)[1].physical_offset.tolist())
    return found


@pytest.mark.parametrize("base", STORES)
@pytest.mark.parametrize("part", [0.01, 0.35, 0.5, 0.9, 0.999])
def test_everything_ends_at_one_point(base: str, part: float, fixture_copy: Store, fixture_store: Store) -> None:
    root = fixture_copy(base)
    places = boundaries(root, base)
    to = places[int(part * (len(places) - 1))]
    salvage = cut(root, base, to)
    assert salvage is not None
    check_cut(root, base, to, fixture_store(base))
    manifest = json.loads((Path(salvage) / "manifest.json").read_text())
    assert manifest["command"] == "truncate"


@pytest.mark.parametrize("base", STORES)
def test_at_the_start_of_a_segment_and_at_nothing(base: str, fixture_copy: Store, fixture_store: Store) -> None:
    root = fixture_copy(base)
    for segment in reversed(survey(Disk(), corpus.config(root, {"base": base})).log[:2]):
        cut(root, base, segment.offset)
        check_cut(root, base, segment.offset, fixture_store(base))
        assert (root / names.COMMITLOG / f"{segment.offset:020d}").exists()
    assert survey(Disk(), corpus.config(root, {"base": base})).checkpoint.physic_msg_timestamp == 0


@pytest.mark.parametrize("base", ["clean-small", "transient-ext", "lmq"])
def test_at_the_end_nothing_changes(base: str, fixture_copy: Store) -> None:
    root = fixture_copy(base)
    before = stores.snapshot(root)
    found = plan_truncate(Disk(), corpus.config(root, {"base": base}), to_offset=boundaries(root, base)[-1])
    assert not found.changed
    apply(Disk(), found)
    assert stores.snapshot(root) == before


def test_the_extension_ends_behind_the_last_unit_that_is_named(fixture_copy: Store) -> None:
    root = fixture_copy("transient-ext")
    config = corpus.config(root, {"base": "transient-ext"})
    places = boundaries(root, "transient-ext")
    cut(root, "transient-ext", places[len(places) // 2])
    with ReadStore(config) as store:
        for name in store.queues():
            queue = store.find_queue(*name)
            assert queue is not None
            units = [queue.get(at) for at in range(queue.min_offset, queue.max_offset)]
            codes = [u.tags_code for u in units if u is not None and is_ext_address(u.tags_code)]
            files = sorted((root / names.CONSUMEQUEUE_EXT / name[0] / str(name[1])).iterdir())
            if not codes:
                assert files == []
                continue
            last = queue.ext_unit(max(codes))
            assert last is not None
            end = queue_ext.to_offset(max(codes)) + last.size
            assert int(files[-1].name) < end
            assert not any(files[-1].read_bytes()[end - int(files[-1].name) :])


def test_the_stale_tail_never_comes_back(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    found = plan(Disk(), settings(tmp_path), to_offset=offsets[90])
    apply(Disk(), found.repair, command="truncate")
    assert put(tmp_path, 1, first=90) == [offsets[90]]
    (tmp_path / names.ABORT).touch()
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    with MessageStore.open(settings(tmp_path)) as store:
        assert sum(store.max_offset("T", queue) for queue in (0, 1)) == 91
        assert store.put(Message("T", b"more", queue_id=0, properties={})).ok


def test_no_boundary(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    before = stores.snapshot(tmp_path)
    with pytest.raises(Refused) as refused:
        plan(Disk(), settings(tmp_path), to_offset=offsets[50] + 7)
    assert str(refused.value).startswith(f"offset {offsets[50] + 7} is inside the record {offsets[50]}–{offsets[51]} (")
    assert f"--to-offset {offsets[50]}" in str(refused.value)
    blank = next(b for b in offsets[1:] if b % 8192 == 0) - 2
    with pytest.raises(Refused, match="is inside the record"):
        plan(Disk(), settings(tmp_path), to_offset=blank)
    for beyond in (offsets[-1] + 8000, 1 << 40):
        with pytest.raises(InvalidArgument, match="after the log end"):
            plan(Disk(), settings(tmp_path), to_offset=beyond)
    assert stores.snapshot(tmp_path) == before


def test_before_the_first_byte(tmp_path: Path) -> None:
    offsets = put(tmp_path, 200)
    (tmp_path / names.COMMITLOG / f"{0:020d}").unlink()
    with pytest.raises(InvalidArgument, match="before the log start"):
        plan(Disk(), settings(tmp_path), to_offset=offsets[3])


def test_damage_before_is_refused_and_behind_is_cut(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    found = plan(Disk(), settings(tmp_path), to_offset=offsets[270])
    with pytest.raises(DamageInTheMiddle, match="before the place"):
        apply(Disk(), found.repair)
    found = plan(Disk(), settings(tmp_path), to_offset=offsets[255])
    assert found.repair.log.end.records_after == 300 - 255 - 1
    apply(Disk(), found.repair)
    assert plan_recover(Disk(), settings(tmp_path)).state.max_offset == offsets[255]


def test_to_a_time(fixture_copy: Store) -> None:
    root = fixture_copy("clean-small")
    config = corpus.config(root, {"base": "clean-small"})
    records = [m for m in fixtures.dump("clean-small") if m["type"] == "log"]
    times = sorted({m["storeTimestamp"] for m in records})
    for when in (times[len(times) // 2], times[0], times[0] - 1):
        expected = next(m["physicalOffset"] for m in records if m["storeTimestamp"] > when)
        found = plan_truncate(Disk(), config, to_time=when)
        assert found.to == found.log.end.end == expected
        assert found.changed
    assert not plan_truncate(Disk(), config, to_time=times[-1]).changed
    assert not plan_truncate(Disk(), config, to_time=times[-1] + 1000).changed


@pytest.mark.leaves("config-missing")
def test_what_consumers_have_not_read(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    (tmp_path / names.CONFIG).mkdir()
    table = '{"offsetTable":{"T@slow":{0:10,1:45},"T@quick":{0:50,1:50},"T@none":{1:40},"Other@g":{0:1},"bad":3}}'
    (tmp_path / names.CONFIG / "consumerOffset.json").write_text(table)
    found = plan(Disk(), settings(tmp_path), to_offset=offsets[80])
    assert [(u.group, u.queue.queue_id, u.start, u.end) for u in found.unread] == [
        ("slow", 0, 40, 50),
        ("none", 1, 40, 50),
        ("slow", 1, 45, 50),
    ]
    refusal = found.refusal(agreed=False)
    assert isinstance(refusal, Refused)
    for part in ("slow", "none", "T/0", "T/1", "--yes"):
        assert part in str(refusal)
    assert found.refusal(agreed=True) is None
    above = {(one.queue.queue_id, one.group, one.offset) for one in found.ledger.above}
    assert above == {
        (0, "quick", 50),
        (1, "quick", 50),
        (1, "slow", 45),
    }
    # What they have read may go.
    (tmp_path / names.CONFIG / "consumerOffset.json").write_text('{"offsetTable":{"T@quick":{0:50,1:50}}}')
    assert plan(Disk(), settings(tmp_path), to_offset=offsets[80]).refusal(agreed=False) is None


@pytest.mark.leaves("config-bak", "config-missing")
def test_offsets_that_can_not_be_read_are_a_problem(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    (tmp_path / names.CONFIG).mkdir()
    (tmp_path / names.CONFIG / "consumerOffset.json").write_text('{"offsetTable":{"T@slow"')
    (tmp_path / names.CONFIG / "consumerOffset.json.bak").write_text('{"offsetTable":{"T@slow":{0:10}}}')
    found = plan(Disk(), settings(tmp_path), to_offset=offsets[80])
    assert [u.group for u in found.unread] == ["slow"]
    assert any("consumerOffset.json" in problem for problem in found.to_json()["problems"])


def test_a_time_is_exact_when_the_clock_went_back(tmp_path: Path) -> None:
    """The first record stored later goes, wherever it is, and all behind it: also what was stored earlier again."""
    disk, clock = Disk(), [1_000_000]
    disk.now_ms = lambda: clock[0]  # type: ignore[method-assign]
    offsets = []
    with MessageStore.open(settings(tmp_path), disk) as store:
        for i in range(600):
            clock[0] += 10 if i != 300 else -2500
            result = store.put(Message("T", b"x" * 200, queue_id=0))
            assert result.append is not None
            offsets.append((result.append.physical_offset, result.append.store_timestamp))
    assert len(list((tmp_path / "commitlog").iterdir())) > 1
    for limit in (offsets[250][1], offsets[299][1] - 1, offsets[599][1]):
        expected = next((offset for offset, stored in offsets if stored > limit), None)
        found = plan_truncate(Disk(), settings(tmp_path), to_time=limit)
        assert found.to == expected
