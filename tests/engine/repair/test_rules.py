"""The rules of RECOVERY.md, one by one: what it promises, on a store where Apache hurts its users."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DamageInTheMiddle, LogMissing, NoSpaceToSave
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Operation
from engine.format.message import Message, decode
from engine.format.queue_unit import UNIT_SIZE, decode_many
from engine.format.record import POSITION_PHYSICAL_OFFSET
from engine.inspect.store.survey import survey
from engine.log.index_reader import ClosedIndexFile
from engine.log.source import ClosedLog
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.compat import fixtures
from tests.conftest import Store
from tests.support import stores
from tests.support.checking import check_clean

SIZES = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
}


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SIZES)


def put(root: Path, count: int, *, topic: str = "T", body: int = 100, first: int = 0, queues: int = 2) -> list[int]:
    """Put messages with a key each; their physical offsets."""
    offsets = []
    with MessageStore.open(settings(root)) as store:
        for i in range(first, first + count):
            keys = {"KEYS": f"key{i}", "UNIQ_KEY": f"unique{i:06d}", "TAGS": "abc"[i % 3]}
            result = store.put(Message(topic, b"%06d" % i * (body // 6), queue_id=i % queues, properties=keys))
            assert result.append is not None
            assert result.ok
            offsets.append(result.append.physical_offset)
    return offsets


def damage(root: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of the log at a physical offset."""
    size = SIZES["mapped_file_size_commit_log"]
    with (root / "commitlog" / f"{offset - offset % size:020d}").open("r+b") as file:
        file.seek(offset % size)
        file.write(data)


def recover(root: Path, *, cut: bool = False) -> RecoverPlan:
    plan = plan_recover(Disk(), settings(root), cut=cut)
    apply(Disk(), plan)
    check_clean(root, settings(root))
    return plan


def messages(root: Path, *, follow_links: bool = False) -> dict[tuple[int, int], bytes]:
    """Body of every message by queue and queue offset."""
    found = {}
    with MessageStore.open(replace(settings(root), follow_links=follow_links)) as store:
        for queue in (0, 1):
            at = store.min_offset("T", queue)
            while at < store.max_offset("T", queue):
                result = store.get("T", queue, at)
                for message in map(decode, result.messages):
                    found[queue, message.queue_offset] = message.body
                at = result.next_begin_offset
    return found


@pytest.mark.leaves("log-damage")
def test_rule_1_damage_in_the_middle_is_refused_and_counted(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    before = stores.snapshot(tmp_path)
    plan = plan_recover(Disk(), settings(tmp_path))
    with pytest.raises(DamageInTheMiddle) as refused:
        apply(Disk(), plan)
    assert refused.value.exit_code == 4
    assert plan.to_json()["recordsAfter"] == 39
    assert {(b["queueId"], b["records"]) for b in plan.to_json()["after"]} == {(0, 19), (1, 20)}
    assert stores.snapshot(tmp_path) == before


def test_rule_1_cut_saves_everything_that_goes(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    log_before = {p.name: p.read_bytes() for p in (tmp_path / "commitlog").iterdir()}
    plan = plan_recover(Disk(), settings(tmp_path), cut=True)
    applied = apply(Disk(), plan)
    assert applied.state.max_offset == offsets[260]
    assert len(messages(tmp_path)) == 260
    assert applied.salvage is not None
    manifest = json.loads((Path(applied.salvage) / "manifest.json").read_text())
    saved = {Path(p["path"]).name: p for p in manifest["pieces"] if p["path"].startswith("commitlog/")}
    for name, data in log_before.items():
        if int(name) + len(data) > offsets[260]:
            piece = saved[name]
            kept = (Path(applied.salvage) / piece["file"]).read_bytes() if piece["file"] else bytes(piece["length"])
            assert kept == data[piece["offset"] : piece["offset"] + piece["length"]]
            assert piece["offset"] == max(0, offsets[260] - int(name))


@pytest.mark.leaves("log-damage")
def test_rule_1_no_room_to_save_is_refused(tmp_path: Path) -> None:
    class Full(Disk):
        def usage(self, path: str) -> Usage:
            return Usage(total=1 << 30, used=1 << 30, usable=100)

    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    before = stores.snapshot(tmp_path)
    with pytest.raises(NoSpaceToSave):
        apply(Full(), plan_recover(Full(), settings(tmp_path), cut=True))
    assert stores.snapshot(tmp_path) == before


def test_rule_2_the_stale_tail_never_comes_back(tmp_path: Path) -> None:
    """Cut at N, put one message of the size of the old one at N, crash: N + 1 messages, not all of the old ones."""
    offsets = put(tmp_path, 60)
    damage(tmp_path, offsets[50] + 90, b"\xff")
    recover(tmp_path, cut=True)
    put(tmp_path, 1, first=50)
    (tmp_path / "abort").touch()
    plan = recover(tmp_path)
    assert plan.state.max_offset == offsets[51]
    assert len(messages(tmp_path)) == 51


def test_rule_3_a_wrong_physical_offset_is_mended(tmp_path: Path) -> None:
    offsets = put(tmp_path, 50)
    damage(tmp_path, offsets[20] + POSITION_PHYSICAL_OFFSET + 6, b"\x77")
    shutil.rmtree(tmp_path / "consumequeue")
    plan = recover(tmp_path)
    assert plan.to_json()["physicalOffsetsCorrected"] == [offsets[20]]
    with MessageStore.open(settings(tmp_path)) as store:
        found = store.look_message(offsets[20])
    assert found is not None
    assert found.physical_offset == offsets[20]
    assert len(messages(tmp_path)) == 50


@pytest.mark.parametrize("lost", ["newest", "oldest", "all", "none"])
def test_rules_4_and_11_every_key_is_found_once(tmp_path: Path, lost: str) -> None:
    put(tmp_path, 300)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    index = sorted((tmp_path / "index").iterdir())
    assert len(index) > 2
    for path in {"newest": index[-1:], "oldest": index[:1], "all": index, "none": []}[lost]:
        path.unlink()
    recover(tmp_path)
    with MessageStore.open(settings(tmp_path)) as store:
        for i in range(300):
            for key in (f"key{i}", f"unique{i:06d}"):
                assert len(store.query("T", key).messages) == 1, key


def test_rule_4_an_undamaged_index_keeps_every_byte(fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    before = {p.name: p.read_bytes() for p in (store / "index").iterdir()}
    apply(Disk(), plan_recover(Disk(), StoreConfig(store_path_root_dir=store)))
    assert {p.name: p.read_bytes() for p in (store / "index").iterdir()} == before


def test_rule_5_a_queue_lost_alone_is_rebuilt_to_the_byte(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    queue = max((store / "consumequeue").glob("*/*"), key=lambda path: len(list(path.iterdir())))
    before = {p.name: p.read_bytes() for p in queue.iterdir()}
    shutil.rmtree(queue)
    apply(Disk(), plan_recover(Disk(), StoreConfig(store_path_root_dir=store)))
    assert {p.name: p.read_bytes() for p in queue.iterdir()} == before


def test_rule_5_a_queue_lost_before_the_start_is_rebuilt(tmp_path: Path) -> None:
    """All messages of the queue lie in segments that a normal recovery doesn't read: the units of the others tell."""
    put(tmp_path, 40, topic="Old")
    put(tmp_path, 400)
    assert len(list((tmp_path / "commitlog").iterdir())) > 6
    queue = tmp_path / "consumequeue" / "Old" / "1"
    before = {p.name: p.read_bytes() for p in queue.iterdir()}
    shutil.rmtree(queue)
    plan = recover(tmp_path)
    assert [q.units_rebuilt for q in plan.queues if q.changed] == [20]
    assert {p.name: p.read_bytes() for p in queue.iterdir()} == before


def test_rule_6_rebuilt_delayed_units_carry_the_delivery_time(fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    delayed = [m for m in fixtures.dump("crashed-small") if m["type"] == "msg" and m["topic"] == "SCHEDULE_TOPIC_XXXX"]
    shutil.rmtree(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    (store / "checkpoint").write_bytes(bytes(4096))
    apply(Disk(), plan_recover(Disk(), StoreConfig(store_path_root_dir=store)))
    assert delayed
    for line in delayed:
        data = (store / "consumequeue" / line["topic"] / str(line["queueId"]) / ("0" * 20)).read_bytes()
        unit = decode_many(data)[line["queueOffset"]]
        assert unit["tags_code"] == line["cqTagsCode"] > line["storeTimestamp"]


def test_rule_9_a_gap_is_named_and_stepped_over(tmp_path: Path) -> None:
    put(tmp_path, 300)
    files = sorted((tmp_path / "commitlog").iterdir())
    files[2].unlink()
    refused = plan_recover(Disk(), settings(tmp_path))
    assert isinstance(refused.refusal, DamageInTheMiddle)
    assert refused.refusal.offset == int(files[2].name)
    plan = recover(tmp_path, cut=True)
    assert plan.state.max_offset == refused.state.max_offset > int(files[3].name)
    assert plan_recover(Disk(), settings(tmp_path)).refusal is None, "what the operator accepted is known later"


@pytest.mark.leaves("log-damage", "unit-missing")
def test_rule_10_planning_writes_nothing(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "0")
    before = stores.snapshot(tmp_path)
    plan = plan_recover(Disk(), settings(tmp_path), cut=True)
    assert plan.changed
    assert stores.snapshot(tmp_path) == before


def test_rule_12_index_entries_behind_the_cut_go(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    damage(tmp_path, offsets[60] + 90, b"\xff")
    recover(tmp_path, cut=True)
    found = survey(Disk(), settings(tmp_path))
    for one in found.index:
        with ClosedIndexFile(Disk(), one.path, found.index_layout) as file:
            assert file.verify().fault is None
            assert (file.entries()["physical_offset"] < offsets[60]).all()
    put(tmp_path, 5, first=1000)
    with MessageStore.open(settings(tmp_path)) as store:
        assert all(len(store.query("T", f"key{i}").messages) == 1 for i in (0, 59, 1000, 1004))
        assert not store.query("T", "key60").messages


def test_rule_13_strays_are_set_aside_never_deleted(tmp_path: Path) -> None:
    put(tmp_path, 50)
    (tmp_path / "commitlog" / ".DS_Store").write_bytes(b"desk")
    (tmp_path / "commitlog" / f"{1 << 30:020d}").touch()
    (tmp_path / "commitlog" / "old").mkdir()
    (tmp_path / "commitlog" / "old" / "notes").write_bytes(b"notes")
    recover(tmp_path)
    aside = tmp_path / "quarantine" / "commitlog"
    assert (aside / ".DS_Store").read_bytes() == b"desk"
    assert (aside / "old" / "notes").read_bytes() == b"notes"
    assert (aside / f"{1 << 30:020d}").stat().st_size == 0
    assert len(messages(tmp_path)) == 50


@pytest.mark.leaves("file-size", "log-damage")
def test_rule_13_a_segment_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    """It is damage in the middle; --bridge fills it up. test_layout.py has the rest of this rule."""
    put(tmp_path, 300)
    first = min((tmp_path / "commitlog").iterdir())
    os.truncate(first, 5000)
    with pytest.raises(DamageInTheMiddle) as refused:
        recover(tmp_path)
    assert refused.value.path == str(first)


@pytest.mark.leaves("log-damage")
def test_rule_14_a_blank_in_the_middle_of_a_file_is_damage(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 4, bytes.fromhex("cbd43194"))
    plan = plan_recover(Disk(), settings(tmp_path))
    assert isinstance(plan.refusal, DamageInTheMiddle)
    assert plan.refusal.offset == offsets[260]


def test_rule_16_a_jump_of_queue_offsets_is_filled(tmp_path: Path) -> None:
    """Lost messages leave a jump: later ones keep their own queue offsets, the hole repeats the unit before it."""
    offsets = put(tmp_path, 300)
    files = sorted((tmp_path / "commitlog").iterdir())
    lost = [i for i, offset in enumerate(offsets) if int(files[1].name) <= offset < int(files[2].name)]
    files[1].unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    recover(tmp_path, cut=True)
    found = messages(tmp_path)
    units = b"".join(p.read_bytes() for p in sorted((tmp_path / "consumequeue/T/0").iterdir()))
    rows = decode_many(units)
    for i in range(300):
        if i not in lost:
            assert found[i % 2, i // 2] == b"%06d" % i * 16
    first = next(i for i in lost if i % 2 == 0) // 2
    assert rows[first]["physical_offset"] == rows[first - 1]["physical_offset"] == offsets[(first - 1) * 2]
    assert len(units) >= 150 * UNIT_SIZE


def test_rule_17_the_min_offset_is_the_first_real_unit(tmp_path: Path) -> None:
    put(tmp_path, 300)
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    recover(tmp_path)
    with MessageStore.open(settings(tmp_path)) as store, ClosedLog(Disk(), survey(Disk(), settings(tmp_path)).log):
        for queue in (0, 1):
            low = store.min_offset("T", queue)
            assert low > 0
            assert decode(store.get("T", queue, low).messages[0]).queue_offset == low


def test_a_store_without_its_log_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 30)
    shutil.rmtree(tmp_path / "commitlog")
    before = stores.snapshot(tmp_path)
    with pytest.raises(LogMissing):
        recover(tmp_path)
    assert stores.snapshot(tmp_path) == before
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), log_is_gone=True))
    assert messages(tmp_path) == {}


def test_a_lost_log_takes_a_queue_of_zeros_along(tmp_path: Path) -> None:
    """A queue that lost its units is still one without a log: nothing else would take it away."""
    put(tmp_path, 30)
    shutil.rmtree(tmp_path / "commitlog")
    (empty,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    empty.write_bytes(bytes(empty.stat().st_size))
    before = {path: seen for path, seen in stores.contents(tmp_path).items() if seen != "directory"}
    plan = plan_recover(Disk(), settings(tmp_path), log_is_gone=True)
    assert [odd.path for odd in plan.set_aside] == [str(empty)]
    apply(Disk(), plan)
    check_clean(tmp_path, settings(tmp_path))
    again = plan_recover(Disk(), settings(tmp_path))
    assert again.refusal is None
    assert not again.changed
    undo(Disk(), plan_undo(Disk(), settings(tmp_path)))
    after = {path: seen for path, seen in stores.contents(tmp_path).items() if seen != "directory"}
    assert {path: seen for path, seen in after.items() if not path.startswith("salvage")} == before


def test_segments_under_swapped_names_get_their_own_back(tmp_path: Path) -> None:
    """Their records all know where they belong: mending them would destroy what tells."""
    put(tmp_path, 300)
    log = stores.contents(tmp_path / "commitlog")
    files = sorted((tmp_path / "commitlog").iterdir())
    a, b = files[-3], files[-2]
    a.rename(tmp_path / "swap")
    b.rename(a)
    (tmp_path / "swap").rename(b)
    recover(tmp_path)
    assert stores.contents(tmp_path / "commitlog") == log
    assert len(messages(tmp_path)) == 300


def test_what_cannot_be_read_is_no_torn_tail(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    last = max((tmp_path / "commitlog").iterdir())
    disk = FaultyDisk(None)
    bad = offsets[299] - int(last.name)
    disk.fail_when(
        lambda doing: (
            doing.operation is Operation.READ
            and doing.path == str(last)
            and doing.offset is not None
            and doing.offset <= bad < doing.offset + doing.length
        ),
        errno.EIO,
    )
    plan = plan_recover(disk, settings(tmp_path))
    assert isinstance(plan.refusal, DamageInTheMiddle)
    assert plan.refusal.path == str(last)


@pytest.mark.leaves("index-orphaned", "unit-orphaned")
def test_units_behind_the_end_and_topics_that_come_back_are_named(tmp_path: Path) -> None:
    put(tmp_path, 300)
    put(tmp_path, 10, topic="Gone")
    max((tmp_path / "commitlog").iterdir()).unlink()
    assert any("are segments missing there?" in p for p in plan_recover(Disk(), settings(tmp_path)).problems)
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
    assert any("T gets its queues back" in p for p in plan_recover(Disk(), settings(tmp_path)).problems)


@pytest.mark.parametrize("name", ["clean-small", "transient-ext", "lmq"])
def test_an_undamaged_store_keeps_every_byte(fixture_copy: Store, name: str) -> None:
    store = fixture_copy(name)
    before = stores.snapshot(store)
    config = StoreConfig(store_path_root_dir=store)
    if name == "lmq":
        config = config.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    plan = plan_recover(Disk(), config)
    apply(Disk(), plan)
    assert not plan.changed, plan.to_json()
    assert stores.snapshot(store) == before
