"""Recoveries of stores with batch queues of RocketMQ 5: damage by seed, judged by a ledger; kills; single rules."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import TimeLimitReached
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.recover.batch_damage import config, files, judge, swap_queues
from tests.support import batch_stores, newer, stores
from tests.support.batch_stores import FILE_SIZE, SEGMENT, UNIT, Written
from tests.support.wide import WIDE, sample


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A sound store, all of it: nothing changes it."""
    written = batch_stores.write(tmp_path_factory.mktemp("batches") / "store", 3, 60)
    apply(Disk(), plan_recover(Disk(), config(written.root)))
    shutil.rmtree(written.root / "salvage")
    return written


@pytest.fixture
def store(made: Written, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return stores.copy(made.root, tmp_path / "store")


def recovered(root: Path) -> RecoverPlan:
    plan = plan_recover(Disk(), config(root))
    assert plan.refusal is None
    apply(Disk(), plan)
    return plan


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("block", range(40 if WIDE else 5))
def test_damaged_stores_get_the_queues_that_the_ledger_has(block: int, tmp_path: Path) -> None:
    for seed in range(block * 50, block * 50 + 50) if WIDE else (block, block + 2000):
        judge(tmp_path / "store", seed)
        shutil.rmtree(tmp_path / "store")


@pytest.mark.parametrize("name", ["batch", "killed"])
def test_queues_of_a_real_broker_are_rebuilt_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = newer.unpack(name, tmp_path)
    given = StoreConfig(store_path_root_dir=root, other={"mapperFileSizeBatchConsumeQueue": "4600"})
    assert not plan_recover(Disk(), given).changed or name == "killed"
    before = stores.contents(root / "batchconsumequeue")
    shutil.rmtree(root / "batchconsumequeue")
    apply(Disk(), plan_recover(Disk(), given))
    assert stores.contents(root / "batchconsumequeue") == before
    assert not (root / "consumequeue" / "B").exists()


def test_an_undamaged_store_stays_as_it_is(store: Path) -> None:
    plan = plan_recover(Disk(), config(store), whole=True)
    assert not plan.would_change
    assert [(q.queue.topic, q.queue.queue_id) for q in plan.every_queue] == [
        ("B", 0), ("B", 1), ("Solo", 0), ("T", 0), ("T", 1),
    ]  # fmt: skip
    assert plan.to_json()["queues"][0]["unitsFilled"] == 0


def test_queues_that_are_lost_come_back_and_the_plan_names_them(store: Path, made: Written) -> None:
    shutil.rmtree(store / "batchconsumequeue")
    plan = recovered(store)
    lines = {(one["topic"], one["queueId"]): one for one in plan.to_json()["queues"]}
    for queue in made.queues:
        assert batch_stores.held(store, queue) == (0, made.units(*queue))
        assert lines[queue]["unitsRebuilt"] == len(made.units(*queue))


@pytest.mark.parametrize("without", [0, 1, 2])
def test_the_length_of_files_is_that_of_most_without_a_setting(without: int, store: Path, made: Written) -> None:
    paths = sorted((store / "batchconsumequeue" / "B" / "0").iterdir())
    paths[without].write_bytes(b"x")
    sizes = config(store).with_changes()
    given = StoreConfig(store_path_root_dir=store).with_changes(**{name: getattr(sizes, name) for name in sizes.given})
    apply(Disk(), plan_recover(Disk(), given))
    assert batch_stores.held(store, ("B", 0)) == (0, made.units("B", 0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_truncate_cuts_the_units_after_the_new_end(share: float, store: Path, made: Written) -> None:
    put = made.puts[int(share * len(made.puts))]
    apply(Disk(), plan_truncate(Disk(), config(store), to_offset=put.physical), command="truncate")
    for queue in made.queues:
        left = [unit for unit in made.units(*queue) if UNIT.unpack(unit)[0] < put.physical]
        assert batch_stores.held(store, queue)[1] == left


@pytest.mark.leaves("unit-foreign")
def test_plain_queues_of_a_batch_topic_are_set_aside(store: Path, made: Written) -> None:
    """A 5.x broker does not start over queues of both kinds (ConsumeQueueStore#queueTypeShouldBe)."""
    shutil.copytree(store / "consumequeue" / "T", store / "consumequeue" / "B")
    before = files(store)
    recovered(store)
    assert not (store / "consumequeue" / "B").exists()
    assert (store / "quarantine" / "consumequeue" / "B" / "0").is_dir()
    assert batch_stores.held(store, ("B", 0)) == (0, made.units("B", 0))
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert files(store) == before


@pytest.mark.leaves("topic-unused")
def test_a_topic_that_was_deleted_and_made_again_has_its_newest_life(tmp_path: Path) -> None:
    """The second half of the log says queue offsets from 0 on: the queue has those alone."""
    first = batch_stores.write(tmp_path / "store", 7, 30)
    again = batch_stores.write(tmp_path / "again", 8, 30)
    end = len(list((first.root / "commitlog").iterdir())) * SEGMENT
    for path in sorted((again.root / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        for put in again.puts:
            at = put.physical - int(path.name)
            if 0 <= at < SEGMENT:
                data[at + 28 : at + 36] = (put.physical + end).to_bytes(8, "big")
        (first.root / "commitlog" / f"{int(path.name) + end:020}").write_bytes(data)
    _close(first.root, first.puts[-1].physical + first.puts[-1].size)
    shutil.rmtree(again.root)
    shutil.rmtree(first.root / "batchconsumequeue")
    recovered(first.root)
    for queue in again.queues:
        units = [(one[0] + end, *one[1:]) for one in map(UNIT.unpack, again.units(*queue))]
        assert list(map(UNIT.unpack, batch_stores.held(first.root, queue)[1])) == units


def _close(root: Path, end: int) -> None:
    """A blank record from there to the end of its segment."""
    path = root / "commitlog" / f"{end - end % SEGMENT:020}"
    data = bytearray(path.read_bytes())
    data[end % SEGMENT : end % SEGMENT + 8] = (SEGMENT - end % SEGMENT).to_bytes(4, "big") + batch_stores.BLANK[4:]
    path.write_bytes(data)


def test_remembered_segments_have_their_batch_units(store: Path, made: Written) -> None:
    """What a recovery notes of the log for the next run holds units of batch queues, too."""
    shutil.rmtree(store / "batchconsumequeue")
    with pytest.raises(TimeLimitReached):
        plan_recover(Disk(), config(store), whole=True, locked=True, time_box_ms=0)
    assert any((store / "recover.progress").iterdir())
    plan = plan_recover(Disk(), config(store), whole=True, locked=True)
    apply(Disk(), plan)
    for queue in made.queues:
        assert batch_stores.held(store, queue) == (0, made.units(*queue))


def damaged(root: Path) -> None:
    """Something of everything that is changed in batch queues."""
    queue = sorted((root / "batchconsumequeue" / "B" / "1").iterdir())
    queue[0].write_bytes(queue[0].read_bytes()[:50])
    queue[-1].with_name(f"{int(queue[-1].name) + 2 * FILE_SIZE:020}").write_bytes(b"")
    (queue[0].parent / "stray").write_bytes(b"1")
    data = bytearray(queue[-1].read_bytes().rstrip(b"\0"))
    queue[-1].write_bytes(
        (data + bytes(-len(data) % UNIT.size) + UNIT.pack(1 << 40, 9, 0, 0, 900, 2, -1, 0)).ljust(FILE_SIZE, b"\0")
    )
    shutil.rmtree(root / "batchconsumequeue" / "Solo")
    (root / "abort").write_bytes(b"")


@pytest.mark.wide
def test_killed_anywhere_and_run_again(store: Path, made: Written, tmp_path: Path) -> None:
    damaged(store)
    before = files(store)

    def run(root: Path, arm: Callable[[FaultyDisk], object] = lambda _: None) -> FaultyDisk:
        disk = FaultyDisk(None)
        plan = plan_recover(disk, config(root))
        arm(disk)
        apply(disk, plan)
        return disk

    disk = run(stores.copy(store, tmp_path / "whole"))
    kills: list[Callable[[FaultyDisk], object]] = []
    for step, count in Counter(disk.steps_seen).items():
        kills += [lambda disk, step=step, nth=nth: disk.kill_at(step, nth) for nth in sorted({1, count})]
    kills += [lambda disk, nth=nth: disk.kill_before(nth) for nth in range(1, disk.changes_seen + 1, 2)]
    for number, arm in enumerate(sample(kills, 9)):
        copy = stores.copy(store, tmp_path / f"killed-{number}")
        with pytest.raises(Killed):
            run(copy, arm)
        run(copy)
        for queue in made.queues:
            assert batch_stores.held(copy, queue) == (0, made.units(*queue))
        undo(Disk(), plan_undo(Disk(), config(copy)))
        assert files(copy) == before
        shutil.rmtree(copy)
    shutil.rmtree(store)


def test_swapped_queues_change_nobody_s_records(store: Path, made: Written) -> None:
    import random

    from tests.engine.repair.recover.batch_damage import Truth

    swap_queues(random.Random(1), Truth(Written(store, made.puts)))
    plan = recovered(store)
    assert not plan.log.requeued
    for queue in made.queues:
        assert batch_stores.held(store, queue) == (0, made.units(*queue))
