"""Logs and directories that nobody should have made: recovery stays within the store, ends, and says what it met."""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DataIsAbsent, LogMissing
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.operations import Operation
from engine.format.hashing import body_crc
from engine.format.message import Message
from engine.format.queue_unit import QueueUnit
from engine.format.record import MESSAGE_MAGIC
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.status.status import status
from engine.inspect.store.intervals import Intervals
from engine.log.derive import TopicQueue
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.repair.start.plan_start import plan_start
from engine.store import MessageStore
from tests.support import stores
from tests.support.checking import check_clean

SIZES = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
}
TIME = 1_700_000_000_000
HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
BODY = b"x" * 100


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SIZES)


def record(topic: bytes, queue_id: int, queue_offset: int, place: int) -> bytes:
    """A sound record with any topic."""
    size = 91 + len(BODY) + len(topic)
    head = struct.pack(">iIiiiqqiq", size, MESSAGE_MAGIC, body_crc(BODY), queue_id, 0, queue_offset, place, 0, TIME)
    return (
        head + HOST + struct.pack(">q", TIME) + HOST + struct.pack(">iqi", 0, 0, len(BODY)) + BODY
        + bytes([len(topic)]) + topic + bytes(2)
    )  # fmt: skip


def log(root: Path, records: Sequence[tuple[bytes, int, int]]) -> list[int]:
    """One segment of records (topic, queue id, queue offset); where they lie."""
    data, places = bytearray(), []
    for one in records:
        places.append(len(data))
        data += record(*one, len(data))
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(8192, b"\0"))
    return places


def recover(root: Path, *, cut: bool = False) -> RecoverPlan:
    plan = plan_recover(Disk(), settings(root), cut=cut)
    apply(Disk(), plan)
    return plan


def queues(plan: RecoverPlan) -> dict[str, tuple[int, int]]:
    return {str(queue.queue): (queue.min_offset, queue.max_offset) for queue in plan.queues}


@pytest.mark.leaves("record-suspect")
@pytest.mark.parametrize("topic", [b"../../x", b"/../x", b"a/b", b"a\0b", b"", b".", b"..", b"\xff" * 127])
def test_a_topic_never_leads_out_of_the_store(tmp_path: Path, topic: bytes) -> None:
    root = tmp_path / "a" / "b" / "store"
    log(root, [(topic, 0, 0), (b"T", 0, 0), (topic, 0, 1)])
    plan = recover(root)
    assert queues(plan) == {"T/0": (0, 1)}
    assert any("no valid directory name" in problem for problem in plan.problems)
    assert {path.name for path in (root / "consumequeue").iterdir()} == {"T"}
    assert [path.name for path in (root / "consumequeue" / "T").iterdir()] == ["0"]
    assert [path.name for path in root.parent.iterdir()] == ["store"]
    assert not recover(root).changed
    with MessageStore.open(settings(root)) as store:
        assert store.queues.queues() == (TopicQueue("T", 0),)


def test_an_absolute_topic_is_no_path(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    log(tmp_path / "store", [(str(outside).encode()[:127], 0, 0)])
    recover(tmp_path / "store")
    assert not outside.exists()


@pytest.mark.leaves("record-suspect")
def test_a_queue_id_below_0_has_a_directory_that_the_next_start_knows(tmp_path: Path) -> None:
    log(tmp_path, [(b"T", -5, 0), (b"T", -5, 1)])
    assert queues(recover(tmp_path)) == {"T/-5": (0, 2)}
    assert not recover(tmp_path).changed


def test_another_spelling_of_a_queue_id_is_not_that_queue(tmp_path: Path) -> None:
    log(tmp_path, [(b"T", 7, i) for i in range(30)])
    recover(tmp_path)
    (tmp_path / "consumequeue" / "T" / "7").rename(tmp_path / "consumequeue" / "T" / "007")
    assert recover(tmp_path).queues[0].units_rebuilt == 30
    with MessageStore.open(settings(tmp_path)) as store:
        assert store.max_offset("T", 7) == 30


@pytest.mark.parametrize("target", ["nowhere", "loop"])
def test_links_that_lead_nowhere_are_named(tmp_path: Path, target: str) -> None:
    log(tmp_path, [(b"T", 0, 0)])
    recover(tmp_path)
    (tmp_path / "consumequeue" / "loop").symlink_to(target)
    (tmp_path / "consumequeue" / "T" / "1").symlink_to(tmp_path / "consumequeue" / "loop")
    plan = plan_recover(Disk(), settings(tmp_path))
    assert isinstance(plan.refusal, DataIsAbsent)
    assert any("consumequeue/loop" in problem for problem in plan.problems)
    (tmp_path / "consumequeue" / "loop").unlink()
    (tmp_path / "consumequeue" / "T" / "1").unlink()
    plan = recover(tmp_path)
    assert queues(plan) == {"T/0": (0, 1)}


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        b"\xff\xfe\0",
        b"[]",
        b'{"accepted":5}',
        b'{"accepted":[{"offset":Infinity}]}',
        b"[" * 100_000,
        b"1" * 5000,
    ],
)
def test_a_garbage_manifest_accepts_nothing(tmp_path: Path, content: bytes) -> None:
    log(tmp_path, [(b"T", 0, 0)])
    recover(tmp_path)
    (tmp_path / "salvage" / "x").mkdir(parents=True)
    (tmp_path / "salvage" / "x" / "manifest.json").write_bytes(content)
    (tmp_path / "salvage" / "y" / "manifest.json").mkdir(parents=True)
    assert not recover(tmp_path).changed


# --- queue offsets that begin anew, or lie ---------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 10, 25])
def test_messages_of_a_deleted_topic_do_not_come_back_behind_the_new_ones(tmp_path: Path, first: int) -> None:
    """The log has #first … of the old topic, then #0 … #9 of the new one, whose queue is whole."""
    places = log(tmp_path, [(b"T", 0, first + i) for i in range(20)] + [(b"T", 0, i) for i in range(10)])
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    units = b"".join(QueueUnit(place, 192, 0).encode() for place in places[20:])
    (directory / f"{0:020d}").write_bytes(units.ljust(400, b"\0"))
    plan = recover(tmp_path)
    assert queues(plan) == {"T/0": (0, 10)}
    assert not plan.changed
    assert any("20 records from 0" in problem for problem in plan.problems)


@pytest.mark.parametrize("first", [0, 10, 25])
def test_a_queue_made_anew_has_the_newest_life_of_its_topic(tmp_path: Path, first: int) -> None:
    places = log(tmp_path, [(b"T", 0, first + i) for i in range(20)] + [(b"T", 0, i) for i in range(10)])
    plan = recover(tmp_path)
    assert queues(plan) == {"T/0": (0, 10)}
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    assert [int.from_bytes(units[i * 20 : i * 20 + 8], "big") for i in range(10)] == places[20:]
    assert any("queue offsets restart" in problem for problem in plan.problems)
    assert not recover(tmp_path).changed


@pytest.mark.leaves("record-suspect", "unit-missing")
@pytest.mark.parametrize("wrong", [1 << 10, 1 << 40, 1 << 58, 1 << 60, (1 << 63) - 1, -1])
def test_a_first_queue_offset_that_lies_does_not_hide_the_rest(tmp_path: Path, wrong: int) -> None:
    log(tmp_path, [(b"T", 0, wrong)] + [(b"T", 0, i) for i in range(1, 30)])
    assert queues(recover(tmp_path)) == {"T/0": (1, 30)}


@pytest.mark.leaves("unit-missing")
@pytest.mark.parametrize("wrong", [1 << 20, 1 << 60, (1 << 63) - 1])
def test_an_only_queue_offset_that_lies_is_no_place(tmp_path: Path, wrong: int) -> None:
    log(tmp_path, [(b"T", 0, wrong)])
    plan = recover(tmp_path)
    assert queues(plan) == {"T/0": (0, 0)}
    assert any("invalid ones" in problem for problem in plan.problems)


# --- more than one queue, more than one directory --------------------------------------------------------------------


def test_a_light_queue_lost_alone_is_made_anew_as_a_whole(tmp_path: Path) -> None:
    """Its units in the files before recovery's start are no hole among those of the other queues."""
    config = settings(tmp_path).with_changes(enable_lmq=True, enable_multi_dispatch=True)
    with MessageStore.open(config) as store:
        for _ in range(200):
            assert store.put(Message("T", BODY, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})).ok
    before = stores.contents(tmp_path / "consumequeue")
    assert not plan_recover(Disk(), config).changed
    shutil.rmtree(tmp_path / "consumequeue" / "%LMQ%a")
    apply(Disk(), plan_recover(Disk(), config))
    assert stores.contents(tmp_path / "consumequeue") == before


@pytest.mark.leaves("log-missing")
def test_a_log_directory_that_is_not_mounted_is_no_end_of_the_log(tmp_path: Path) -> None:
    config = settings(tmp_path).with_changes(store_path_commit_log=f"{tmp_path}/a,{tmp_path}/b")
    with MessageStore.open(config) as store:
        for _ in range(60):
            assert store.put(Message("T", BODY)).ok
    (tmp_path / "b").rename(tmp_path / "elsewhere")
    before = stores.snapshot(tmp_path)
    with pytest.raises(LogMissing) as refused:
        apply(Disk(), plan_recover(Disk(), config))
    assert refused.value.path == str(tmp_path / "b")
    assert stores.snapshot(tmp_path) == before
    (tmp_path / "elsewhere").rename(tmp_path / "b")
    assert not plan_recover(Disk(), config).changed


@pytest.mark.leaves("log-gap", "path-unnamed", "unit-orphaned")
@pytest.mark.parametrize("segments", [2, 5], ids=["its end", "holes in it"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_directories_of_the_log_that_are_not_looked_at(segments: int, named: bool, tmp_path: Path) -> None:
    """One is not mounted, or no broker.conf was given: nothing is bridged, and every command names what to bring."""
    root = tmp_path / "store"
    paths = [root / "commitlog", root / "commitlog-2"]
    config = settings(root).with_changes(store_path_commit_log=",".join(map(str, paths)))
    with MessageStore.open(config) as store:
        for _ in range(segments * 42 - 20):
            assert store.put(Message("T", BODY)).ok
    assert len(list(root.glob("commitlog*/*"))) == segments
    away = tmp_path / "elsewhere"
    if named:
        paths[1].rename(away)
        code, place = "path-missing", str(paths[1])
    else:
        config, code, place = settings(root), "path-unnamed", "commitlog-2/"
    before = stores.snapshot(root)
    for choice in ({}, {"bridge": True}, {"whole": True}):
        refused = plan_recover(Disk(), config, **choice).refusal
        assert isinstance(refused, DataIsAbsent | LogMissing)
        assert place in str(refused.path)
        assert refused.next is not None
        assert refused.next.command is None
    if segments > 2 or named:
        for found in (
            status(Disk(), config),
            check(Disk(), config),
            doctor(Disk(), config),
            plan_start(Disk(), config),
        ):
            assert found.next is not None
            assert found.next.command is None
            assert place in found.next.why
        assert code in {one.code for one in check(Disk(), config).findings}
    assert stores.snapshot(root) == before
    if named:
        away.rename(paths[1])
    else:
        config = config.with_changes(store_path_commit_log=",".join(map(str, paths)))
    assert not plan_recover(Disk(), config).changed
    check_clean(root, config)
    if not named:  # a segment that was moved aside, and is moved back
        for path in paths[1].iterdir():
            path.rename(paths[0] / path.name)
        assert not plan_recover(Disk(), settings(root)).changed


# --- damage that stays ----------------------------------------------------------------------------------------------


def _trapped(root: Path) -> None:
    """Damage in the first and in the second file of four: a cut at the second leaves the first to a normal start."""
    with MessageStore.open(settings(root)) as store:
        for i in range(150):
            assert store.put(Message("T", BODY, properties={"KEYS": f"k{i}"})).ok
    for name, at in ((0, 3000), (8192, 5000)):
        with (root / "commitlog" / f"{name:020d}").open("r+b") as file:
            file.seek(at)
            file.write(b"\xff" * 50)


@pytest.mark.leaves("log-damage")
def test_the_mark_of_damage_that_stays_outlives_a_clean_run(tmp_path: Path) -> None:
    _trapped(tmp_path)
    end = recover(tmp_path, cut=True).state.max_offset
    for _ in range(2):
        with MessageStore.open(settings(tmp_path)) as store:
            assert store.log.max_offset >= end
            assert store.put(Message("T", b"new")).ok
            end = store.log.max_offset
        assert (tmp_path / "abort").exists()
    plan = plan_recover(Disk(), settings(tmp_path))
    assert plan.refusal is None
    assert not plan.changed
    with MessageStore.open(settings(tmp_path)) as store:  # until the damage is behind
        for _ in range(150):
            assert store.put(Message("T", BODY)).ok
    assert not (tmp_path / "abort").exists()
    assert not plan_recover(Disk(), settings(tmp_path)).changed


@pytest.mark.leaves("log-damage", "not-closed")
def test_killed_while_cutting_it_does_not_cut_more_the_next_time(tmp_path: Path) -> None:
    _trapped(tmp_path / "model")
    whole = stores.copy(tmp_path / "model", tmp_path / "whole")
    end = recover(whole, cut=True).state.max_offset
    for nth in range(1, 200, 7):
        root = stores.copy(tmp_path / "model", tmp_path / f"killed{nth}")
        disk = FaultyDisk(None)
        plan = plan_recover(disk, settings(root), cut=True)
        disk.kill_before(nth)
        try:
            apply(disk, plan)
        except Killed:
            assert recover(root, cut=True).state.max_offset >= end
        else:
            break


def test_a_tail_that_cannot_be_read_does_not_stop_the_planning(tmp_path: Path) -> None:
    log(tmp_path, [(b"T", 0, i) for i in range(5)])
    recover(tmp_path)
    disk = FaultyDisk(None, mapped=False)

    def bad(doing: object) -> bool:
        operation, path = getattr(doing, "operation", None), getattr(doing, "path", "")
        start = getattr(doing, "offset", None) or 0
        touches = start < 5120 and start + getattr(doing, "length", 0) > 4608
        return operation is Operation.READ and "commitlog" in path and touches

    disk.fail_when(bad, errno.EIO)
    plan = plan_recover(disk, settings(tmp_path))
    assert plan.refusal is None
    assert plan.state.max_offset == 5 * 192


def test_the_overlap_of_intervals() -> None:
    found = Intervals()
    for start in range(0, 100, 10):
        found.add(start, start + 5)
    members = {n for n in range(105) if n in found}
    for start in range(-3, 105, 4):
        for end in range(start, 106, 3):
            assert found.overlap(start, end) == len(members & set(range(start, end)))


def test_keys_in_a_hole_before_index_files_that_are_cut_are_put(tmp_path: Path) -> None:
    """The second index file is lost, the third points behind the cut: one recovery, not two, makes the index whole."""
    with MessageStore.open(settings(tmp_path)) as store:
        for i in range(420):
            assert store.put(Message("T", b"x" * 20, properties={"KEYS": f"k{i}"})).ok
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) == 3
    files[1].unlink()
    with (tmp_path / "commitlog" / f"{5 * 8192:020d}").open("r+b") as file:
        file.write(b"\xff" * 100)
    recover(tmp_path, cut=True)
    assert not plan_recover(Disk(), settings(tmp_path)).changed
    with MessageStore.open(settings(tmp_path)) as store:
        assert all(store.query("T", f"k{i}").messages for i in range(store.max_offset("T", 0)))


def test_what_was_accepted_once_is_not_asked_for_again(tmp_path: Path) -> None:
    """Damage before recovery's start, and a lost queue: with that made anew, other parts of the log are read."""
    with MessageStore.open(settings(tmp_path)) as store:
        for i in range(250):
            assert store.put(Message("TTU"[i % 3], BODY, queue_id=i % 2, properties={"KEYS": f"k{i}"})).ok
    shutil.rmtree(tmp_path / "consumequeue" / "U")
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(1869)
        file.write(bytes(1226))
        file.seek(3750)
        file.write(b"\xff")
    recover(tmp_path, cut=True)
    plan = plan_recover(Disk(), settings(tmp_path))
    assert plan.refusal is None
    assert not plan.changed
