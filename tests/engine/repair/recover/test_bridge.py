"""Every damaged store, recovered with `bridge`: no sound message is lost, by queue, by key or by place.

Sound is a message whose record has the same bytes in the damaged copy as in the undamaged store. What Apache read from
the undamaged one says where it has to be found.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DamageInTheMiddle, InvalidArgument, RStoreError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import properties, sysflag
from engine.format.batch import BatchItem
from engine.format.message import (
    INERT_TOPIC,
    Message,
    blank_length,
    decode,
    encode,
    encode_inert,
    patch,
)
from engine.format.queue_unit import decode_many
from engine.format.record import MIN_RECORD_SIZE
from engine.inspect.check.check import check as check_store
from engine.inspect.store.survey import survey
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.compat import fixtures
from tests.conftest import Store
from tests.engine.repair import corpus, differences
from tests.engine.repair.test_rules import SIZES, damage, messages, put, settings
from tests.support import golden, mutate, stores
from tests.support.wide import sample

GOLDEN = golden.cases()
OURS = corpus.fixture_cases()
MOST = 64


def ids(case: corpus.Case) -> str:
    return str(case["id"])


def records(case: corpus.Case) -> list[corpus.Case]:
    """Every record that Apache found in the undamaged log, prepared and rolled back ones, too."""
    if case["id"].startswith("v"):
        return golden.dump(case["base"], "log")
    return [line for line in fixtures.dump(case["base"]) if line["type"] == "log"]


def check_keys(store: ReadStore, whole: list[corpus.Case]) -> None:
    """Each key finds each of its messages (the newest 64)."""
    wanted: dict[tuple[str, str], set[int]] = defaultdict(set)
    for line in whole:
        if sysflag.is_indexed(line["sysFlag"]):
            for key in {line["uniqKey"], *properties.key_words(line["keys"])} - {None}:
                wanted[line["topic"], key].add(line["physicalOffset"])
    for (topic, key), places in wanted.items():
        found = {decode(record).physical_offset for record in store.query(topic, key, MOST).messages}
        assert set(sorted(places)[-MOST:]) <= found, (topic, key)


def check(case: corpus.Case, base: Path, store: Path) -> None:
    mutate.apply(store, case["ops"])
    damaged = stores.copy(store, store.parent / "damaged")
    disk = Disk()
    plan = plan_recover(disk, corpus.config(store, case), bridge=True)
    if case["id"] in differences.REFUSED:
        with pytest.raises(RStoreError) as refused:
            apply(disk, plan)
        assert refused.value.exit_code == 4
        return
    apply(disk, plan)
    said = plan.to_json()
    assert said["recordsAfter"] == 0
    whole = corpus.whole_messages(case, base, damaged, 0, 1 << 62)
    whole = [line for line in whole if line["physicalOffset"] >= max(plan.state.min_offset, 0)]
    units = corpus.Units(store)
    for line in whole:
        assert line["physicalOffset"] < plan.state.max_offset
        unit = units.at(line)
        assert unit is not None, line
        assert unit[0] == line["cqPhyOffset"], line
        assert line["physicalOffset"] + line["size"] in (plan.state.max_offset, unit[0] + line["size"])
    with ReadStore(corpus.config(store, case)) as reader:
        there = {line["physicalOffset"] for line in whole}
        for line in whole:
            found = reader.look_message(line["physicalOffset"])
            assert found is not None
            assert (found.topic, found.queue_offset, found.body_crc) == (
                line["topic"],
                line["queueOffset"],
                line["bodyCRC"],
            )
        check_keys(reader, [line for line in records(case) if line["physicalOffset"] in there])
    check_no_queue_offset_moved(case, plan, whole)
    again = plan_recover(Disk(), corpus.config(store, case))
    assert again.refusal is None
    assert not again.changed, again.to_json()
    assert again.trap is None
    assert not plan_recover(Disk(), corpus.config(store, case), bridge=True).changed
    sound = Scanner(ClosedLog(Disk(), survey(Disk(), corpus.config(store, case)).log))
    assert not [e for e in sound.scan(plan.state.min_offset, plan.state.max_offset) if isinstance(e, Damage)]


def place(line: corpus.Case) -> tuple[tuple[str, int], int]:
    """The queue and queue offset at which Apache read a message (a light queue's differ from the record's)."""
    queue = line.get("cqTopic", line["topic"]), line.get("cqQueueId", line["queueId"])
    return queue, line.get("cqOffset", line["queueOffset"])


def check_no_queue_offset_moved(case: corpus.Case, plan: RecoverPlan, whole: list[corpus.Case]) -> None:
    """A queue with a whole message behind a lost one ends where it ended undamaged."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for queue, offset in map(place, corpus.messages(case)):
        ends[queue] = max(ends[queue], offset + 1)
    ours = {(q.queue.topic, q.queue.queue_id): q.max_offset for q in plan.queues}
    for queue, offset in map(place, whole):
        assert offset < ours[queue]
    if case["category"] not in ("cq-garbage", "cq-past-end", "combo", "flip-header"):
        assert all(end <= ends[queue] for queue, end in ours.items() if queue in ends), (ours, ends)


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(GOLDEN[::12], 6), ids=ids)
def test_golden_case(case: corpus.Case, golden_store: Store, golden_copy: Store) -> None:
    """Some of them: the loss table of `make interop` reads all of them by queue, key and place."""
    check(case, golden_store(case["base"]), golden_copy(case["base"]))


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(OURS, 4), ids=ids)
def test_fixture_case(case: corpus.Case, fixture_store: Store, fixture_copy: Store) -> None:
    check(case, fixture_store(case["base"]), fixture_copy(case["base"]))


# --- one by one ------------------------------------------------------------------------------------------------------


def bridge(root: Path) -> RecoverPlan:
    plan = plan_recover(Disk(), settings(root), bridge=True)
    apply(Disk(), plan)
    assert not plan_recover(Disk(), settings(root)).changed
    return plan


def rows(root: Path, queue: int) -> list[tuple[int, int]]:
    data = b"".join(path.read_bytes() for path in sorted((root / "consumequeue/T" / str(queue)).iterdir()))
    return [(int(row["physical_offset"]), int(row["size"])) for row in decode_many(data)]


def log(root: Path, offset: int, length: int) -> bytes:
    with ClosedLog(Disk(), survey(Disk(), settings(root)).log) as source:
        return bytes(source.read(offset, length))


def test_the_record_of_a_bridge(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    old = log(tmp_path, offsets[260], offsets[261] - offsets[260])
    damage(tmp_path, offsets[260] + 90, b"\xff")
    damaged = log(tmp_path, offsets[260], len(old))
    plan = bridge(tmp_path)
    assert plan.to_json()["bridged"] == [{"offset": offsets[260], "length": len(old)}]
    record = decode(log(tmp_path, offsets[260], len(old)))
    before = decode(log(tmp_path, offsets[259], len(old)))
    assert (record.total_size, record.physical_offset, record.topic) == (len(old), offsets[260], INERT_TOPIC)
    assert record.sys_flag == sysflag.TRANSACTION_ROLLBACK
    assert record.crc_ok
    assert record.store_timestamp == before.store_timestamp
    assert rows(tmp_path, 0)[130] == rows(tmp_path, 0)[129] == (offsets[258], len(old))
    assert len(messages(tmp_path)) == 299
    (salvage,) = (tmp_path / "salvage").iterdir()
    manifest = json.loads((salvage / "manifest.json").read_text())
    assert manifest["bridged"] == [{"offset": offsets[260], "length": len(old)}]
    assert (salvage / manifest["pieces"][0]["file"]).read_bytes() == damaged
    assert put(tmp_path, 2, first=300)[0] == plan.state.max_offset
    assert len(messages(tmp_path)) == 301


def test_check_knows_a_bridged_place(tmp_path: Path) -> None:
    """Index entries of the lost messages point into the bridge: that is said once, as a note, and is no error."""
    offsets = put(tmp_path, 300)
    damage(tmp_path, offsets[260] + 90, b"\xff")
    bridge(tmp_path)
    found = check_store(Disk(), settings(tmp_path))
    assert found.ok, found.findings
    assert "log-bridged" in {finding.code for finding in found.findings}


def test_several_stretches_and_one_before_recovery_s_start(tmp_path: Path) -> None:
    offsets = put(tmp_path, 400)
    for i in (5, 6, 7, 100, 350):
        damage(tmp_path, offsets[i] + 95, b"\xff")
    plan = bridge(tmp_path)
    assert [b["offset"] for b in plan.to_json()["bridged"]] == [offsets[5], offsets[100], offsets[350]]
    assert plan.trap is None
    assert len(messages(tmp_path)) == 395


def test_damage_up_to_a_file_s_end_is_its_blank_record(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    size = SIZES["mapped_file_size_commit_log"]
    last = max(i for i, offset in enumerate(offsets) if offset < 3 * size)
    damage(tmp_path, offsets[last], bytes(3 * size - offsets[last]))
    bridge(tmp_path)
    assert blank_length(log(tmp_path, offsets[last], 8)) == 3 * size - offsets[last]
    assert len(messages(tmp_path)) == 299


def test_nothing_of_a_lost_file_s_end_is_left_behind_its_blank_record(tmp_path: Path) -> None:
    """An index entry of a lost message leads there, and Apache allocates what stands there as a length: a key's query
    dies of it, and the sound messages with that key are not found.
    """
    offsets = put(tmp_path, 300)
    size = SIZES["mapped_file_size_commit_log"]
    last = max(i for i, offset in enumerate(offsets) if offset < 3 * size)
    lost = bytearray(log(tmp_path, offsets[last - 4], 3 * size - offsets[last - 4]))
    damage(tmp_path, offsets[last - 4], bytes(lost[4:]) + bytes(4))
    before = log(tmp_path, offsets[last - 4], len(lost))
    bridge(tmp_path)
    assert blank_length(log(tmp_path, offsets[last - 4], 8)) == len(lost)
    assert log(tmp_path, offsets[last - 4] + 8, len(lost) - 8) == INERT_TOPIC.encode().ljust(len(lost) - 8, b"\0")
    assert len(messages(tmp_path)) == 295
    (salvage,) = (tmp_path / "salvage").iterdir()
    manifest = json.loads((salvage / "manifest.json").read_text())
    assert (salvage / manifest["pieces"][0]["file"]).read_bytes() == before


def test_a_file_that_a_batch_closed_early_has_lost_nothing(tmp_path: Path) -> None:
    """Its first record would have had room: no reason to take a copy behind a queue's end for a lost message's row."""
    with MessageStore.open(settings(tmp_path)) as store:
        assert store.put(Message("Rare", b"x")).ok
        for _ in range(6):
            assert store.put_batch(Message("T", b""), [BatchItem(bytes(100))] * 12).ok
    queue = tmp_path / "consumequeue" / "Rare" / "0" / f"{0:020d}"
    before = queue.read_bytes()
    queue.write_bytes(before[:20] * 2 + before[40:])
    bridge(tmp_path)
    assert queue.read_bytes() == before


def test_a_whole_file_of_zeros(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    size = SIZES["mapped_file_size_commit_log"]
    lost = [i for i, offset in enumerate(offsets) if size <= offset < 2 * size]
    damage(tmp_path, size, bytes(size))
    bridge(tmp_path)
    assert blank_length(log(tmp_path, size, 8)) == size
    assert len(messages(tmp_path)) == 300 - len(lost)


@pytest.mark.parametrize("queues_lost", [False, True])
def test_a_queue_s_first_messages_repeat_the_one_behind(queues_lost: bool, tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    damage(tmp_path, offsets[0], bytes(offsets[4] - offsets[0]))
    if queues_lost:
        shutil.rmtree(tmp_path / "consumequeue")
    plan = bridge(tmp_path)
    assert [(q.min_offset, q.max_offset) for q in plan.queues] == [(0, 50), (0, 50)]
    assert rows(tmp_path, 1)[:3] == [rows(tmp_path, 1)[2]] * 3
    assert rows(tmp_path, 1)[2][0] == offsets[5]
    assert len(messages(tmp_path)) == 96
    first = decode(log(tmp_path, 0, offsets[4]))
    assert first.store_timestamp == decode(log(tmp_path, offsets[4], 400)).store_timestamp


def test_a_queue_s_last_message_keeps_its_queue_offset(tmp_path: Path) -> None:
    offsets = put(tmp_path, 100)
    put(tmp_path, 1, first=2, queues=3)
    damage(tmp_path, offsets[99] + 95, b"\xff")
    bridge(tmp_path)
    with MessageStore.open(settings(tmp_path)) as store:
        assert store.max_offset("T", 1) == 50
    put(tmp_path, 1, first=101)
    assert (1, 50) in messages(tmp_path)


def test_rows_of_another_queue_s_file_lengthen_no_queue(tmp_path: Path) -> None:
    """They show lost messages, too, behind messages of that other queue: so do the rows in front of them."""
    put(tmp_path, 1, topic="Rare", queues=1)
    offsets = put(tmp_path, 100, queues=1)
    damage(tmp_path, offsets[60], b"\xff" * (offsets[70] - offsets[60]))
    before = rows(tmp_path, 0)
    files = [tmp_path / "consumequeue" / topic / "0" / f"{0:020d}" for topic in ("Rare", "T")]
    data = [path.read_bytes() for path in files]
    for path, other in zip(files, reversed(data), strict=True):
        path.write_bytes(other)
    for path in sorted(files[1].parent.iterdir())[1:]:
        shutil.copy2(path, files[0].parent / path.name)
    plan = bridge(tmp_path)
    assert [(q.queue.topic, q.max_offset) for q in plan.queues] == [("Rare", 1), ("T", 100)]
    assert len(rows(tmp_path, 0)) == len(before)


def test_a_queue_that_lost_every_message_keeps_its_end(tmp_path: Path) -> None:
    offsets = put(tmp_path, 3, topic="Lost", queues=1)
    put(tmp_path, 50)
    damage(tmp_path, 0, bytes(offsets[2] + 100))
    plan = bridge(tmp_path)
    lost = next(q for q in plan.queues if q.queue.topic == "Lost")
    assert (lost.min_offset, lost.max_offset) == (0, 3)
    with MessageStore.open(settings(tmp_path)) as store:
        assert decode(store.get("Lost", 0, 0).messages[0]).topic == INERT_TOPIC
        result = store.put(Message("Lost", b"again"))
        assert result.append is not None
        assert result.append.queue_offset == 3


def test_a_stretch_too_short_for_a_record_is_taken_in_by_the_one_before(tmp_path: Path) -> None:
    """A log that was cut and written on: the stale records behind a shorter new one, and some bytes between."""
    offsets = put(tmp_path, 300)
    size = offsets[251] - offsets[250]
    record = bytearray(log(tmp_path, offsets[250], size))
    shorter = decode(record)
    body = shorter.body[:-60]
    new = encode(shorter.to_message()._replace(body=body))
    patch(new, 0, queue_offset=125, physical_offset=offsets[250], store_timestamp=shorter.store_timestamp)
    assert len(new) == size - 60
    damage(tmp_path, offsets[250], bytes(new) + b"\x5a" * 60)
    plan = bridge(tmp_path)
    assert plan.to_json()["bridged"] == [{"offset": offsets[250] + size - 60, "length": 60}]
    grown = decode(log(tmp_path, offsets[250], size))
    assert (grown.total_size, grown.body, grown.properties) == (size, body, shorter.properties)
    assert rows(tmp_path, 0)[125] == (offsets[250], size)
    assert len(messages(tmp_path)) == 300
    with MessageStore.open(settings(tmp_path)) as store:
        assert len(store.query("T", "key250").messages) == 1


def test_large_damage_becomes_several_records(tmp_path: Path) -> None:
    big = {**SIZES, "mapped_file_size_commit_log": 1 << 20, "max_message_size": 100_000}
    config = StoreConfig(store_path_root_dir=tmp_path).with_changes(**big)
    with MessageStore.open(config) as store:
        offsets = [store.put(Message("T", bytes([i]) * 50_000)).append.physical_offset for i in range(15)]  # type: ignore[union-attr]
    with (tmp_path / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(offsets[2])
        file.write(bytes(offsets[10] - offsets[2]))
    apply(Disk(), plan_recover(Disk(), config, bridge=True))
    with ClosedLog(Disk(), survey(Disk(), config).log) as source:
        found = [e for e in Scanner(source, max_message_size=100_000).scan(0) if isinstance(e, RecordBatch)]
    sizes = [row.size for batch in found for row in batch.rows]
    assert sum(sizes[2:-5]) == offsets[10] - offsets[2]
    assert len(sizes) > 9
    assert max(sizes) <= 100_000
    assert not plan_recover(Disk(), config).changed


def test_a_missing_segment_is_named_not_bridged(tmp_path: Path) -> None:
    put(tmp_path, 300)
    files = sorted((tmp_path / "commitlog").iterdir())
    files[2].unlink()
    plan = bridge(tmp_path)
    assert plan.to_json()["bridged"] == []
    assert [d["physicalOffset"] for d in plan.to_json()["damage"]] == [int(files[2].name)]
    assert not files[2].exists()
    assert plan_recover(Disk(), settings(tmp_path)).refusal is None


@pytest.mark.leaves("index-missing", "log-damage", "unit-missing")
def test_what_cannot_be_bridged_is_refused(tmp_path: Path) -> None:
    offsets = put(tmp_path, 300)
    inert = bytes(encode_inert(MIN_RECORD_SIZE + 3, offsets[250], 1))
    assert decode(inert).topic == INERT_TOPIC[:3]
    assert decode(bytes(encode_inert(MIN_RECORD_SIZE, 0, 1))).topic == ""
    size = SIZES["mapped_file_size_commit_log"]
    first = next(i for i, offset in enumerate(offsets) if offset >= 2 * size)
    message = decode(log(tmp_path, offsets[first], 400))
    moved = encode(message.to_message()._replace(body=message.body[:-60]))
    patch(moved, 0, queue_offset=0, physical_offset=2 * size + 60, store_timestamp=message.store_timestamp)
    damage(tmp_path, 2 * size, b"\xff" * 60 + bytes(moved))
    before = stores.snapshot(tmp_path)
    plan = plan_recover(Disk(), settings(tmp_path), bridge=True)
    with pytest.raises(DamageInTheMiddle) as refused:
        apply(Disk(), plan)
    assert refused.value.offset == 2 * size
    assert "can't be bridged" in str(refused.value)
    assert stores.snapshot(tmp_path) == before


def test_cut_and_bridge_exclude_each_other(tmp_path: Path) -> None:
    put(tmp_path, 3)
    with pytest.raises(InvalidArgument):
        plan_recover(Disk(), settings(tmp_path), cut=True, bridge=True)


def test_an_undamaged_store_keeps_every_byte(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    before = stores.snapshot(store)
    plan = plan_recover(Disk(), StoreConfig(store_path_root_dir=store), bridge=True)
    apply(Disk(), plan)
    assert not plan.changed
    assert stores.snapshot(store) == before


def test_a_torn_tail_is_cut_as_ever(tmp_path: Path) -> None:
    offsets = put(tmp_path, 60)
    damage(tmp_path, offsets[59] + 95, b"\xff")
    plan = bridge(tmp_path)
    assert plan.to_json()["bridged"] == []
    assert plan.state.max_offset == offsets[59]


@pytest.mark.leaves("log-damage")
@pytest.mark.wide
def test_killed_anywhere_and_run_again(tmp_path: Path) -> None:
    """A queue's first, last and only messages are lost: what the first run had begun, the second ends as planned."""
    root = tmp_path / "store"
    put(root, 2, topic="Lost", queues=1)
    offsets = put(root, 300)
    put(root, 40, topic="Other")
    damage(root, 0, bytes(offsets[3] - 0))
    damage(root, offsets[150] + 95, b"\xff")
    damage(root, offsets[299] + 95, b"\xff")
    whole = stores.copy(root, tmp_path / "whole")
    disk = FaultyDisk(None)
    plan = plan_recover(Disk(), settings(whole), bridge=True)
    apply(disk, plan)
    expected = like_log(whole)
    ends = {q.queue: (q.min_offset, q.max_offset) for q in plan.queues}
    assert ends["Lost", 0] == (0, 2)  # type: ignore[index]
    for number in sample(range(1, disk.changes_seen + 1), 4, disk.changes_seen - 1):  # the last one among them
        copy = stores.copy(root, tmp_path / "killed")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            apply(faulty, plan_recover(Disk(), settings(copy), bridge=True))
        apply(Disk(), plan_recover(Disk(), settings(copy), bridge=True))
        assert like_log(copy) == expected, number
        assert not plan_recover(Disk(), settings(copy)).changed
        shutil.rmtree(copy)


def like_log(root: Path) -> dict[str, str]:
    found = stores.contents(root)
    return {path: digest for path, digest in found.items() if path.startswith(("commitlog", "consumequeue"))}
