"""Files of the commit log under wrong names, copied, cut short, made longer: every sound record is found again.

Damage by seed (tests/support/layouts.py); what the tests know of it, they know from the files' bytes.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from engine.config import StoreConfig
from engine.errors import CannotRepair, DamageInTheMiddle, LogMissing, RStoreError, WrongFileSize
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format.message import Message
from engine.format.record import POSITION_PHYSICAL_OFFSET, POSITION_QUEUE_OFFSET, store_timestamp_position
from engine.inspect.check.verify import verify
from engine.inspect.dump.salvage_scan import scan_file
from engine.inspect.store.layout import layout_of
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.repairs import repairs
from engine.inspect.store.segment_size import segment_size
from engine.inspect.store.survey import survey
from engine.log.source import ClosedLog
from engine.repair.expire.expire import ExpireRules, plan_expire
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.reindex.reindex import Scope, build
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.support import layouts, stores
from tests.support.checking import check_clean
from tests.support.layouts import FAR, SIZE, Made
from tests.support.wide import sample

SEEDS = 90
_TAGS = "the end of a record's properties lies behind a cut: no CRC covers it"


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    at = tmp_path_factory.mktemp("layouts")
    return [
        layouts.make(at / "plain"),
        layouts.make(at / "far", first=FAR, seed=1),
        layouts.make(at / "several", several=True, segments=7, seed=2),
    ]


@pytest.fixture
def made(bases: list[Made], tmp_path: Path) -> Made:
    return bases[0].copy(tmp_path / "store")


def planned(made: Made) -> RecoverPlan:
    """The plan that may be applied: plain, or as its refusal says."""
    plan = plan_recover(Disk(), made.config, whole=True)
    if plan.refusal is not None:
        assert "--bridge" in (plan.refusal.hint or "")
        plan = plan_recover(Disk(), made.config, bridge=True)
    assert plan.refusal is None
    return plan


def lost(made: Made, held: Iterable[int]) -> list[tuple[int, str]]:
    """Records of those that are not found at their place, or by their queue."""
    disk = Disk()
    files = survey(disk, made.config)
    rows = {found.queue: QueueRows(disk, found) for found in files.queues}
    found: list[tuple[int, str]] = []
    with ClosedLog(disk, files.log) as log:
        for offset in held:
            queue, number, record = made.records[offset]
            unit = rows["T", queue].read(number, number + 1) if ("T", queue) in rows else None
            if bytes(log.read(offset, len(record))) != record:
                found.append((offset, "place"))
            elif unit is None or int(unit["physical_offset"][0]) != offset:
                found.append((offset, "queue"))
    return found


def sound(made: Made) -> None:
    """The store is whole, and another recovery has nothing to do."""
    again = plan_recover(Disk(), made.config)
    assert again.refusal is None
    assert not again.changed
    assert not again.marks
    known = ("unit-tags", "record-suspect", "unit-witness", "index-witness")
    check_clean(made.root, made.config, known=known, why=_TAGS)


def restored(made: Made) -> dict[str, str]:
    """What the store holds, without what repairs leave."""
    return {
        path: seen
        for path, seen in stores.contents(made.root).items()
        if not path.startswith(("salvage", "quarantine"))
    }


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(SEEDS), 3))
def test_any_layout(seed: int, bases: list[Made], tmp_path: Path) -> None:
    made = bases[seed % len(bases)].copy(tmp_path / "store")
    layouts.damage(made, seed)
    held, before = made.held(), restored(made)
    plan = planned(made)
    assert restored(made) == before
    apply(Disk(), plan)
    assert lost(made, held) == [], made.done
    sound(made)
    if plan.changed or plan.marks:
        undo(Disk(), plan_undo(Disk(), made.config))
        assert restored(made) == before, made.done


@pytest.mark.leaves
@pytest.mark.parametrize("seed", [5, 42])
def test_killed_at_each_step_and_run_again_or_taken_back(seed: int, bases: list[Made], tmp_path: Path) -> None:
    whole = bases[seed % len(bases)].copy(tmp_path / "store")
    layouts.damage(whole, seed)
    held, before = whole.held(), restored(whole)
    copy = whole.copy(tmp_path / "whole")
    apply(disk := FaultyDisk(None), planned(copy))
    expected = log_of(copy)
    seen = sorted({step for step in disk.steps_seen if step.startswith("recover.")})
    steps = [(step, n) for step in seen for n in range(1, disk.steps_seen.count(step) + 1)]
    layout = [one for one in steps if one[0].split(".")[-1] in LAYOUT_STEPS]
    others = Random(seed).sample([one for one in steps if one not in layout], 3)
    for number, (step, n) in enumerate([*layout, *others]):
        killed = whole.copy(tmp_path / f"killed-{number}")
        kill(killed, step, n)
        assert lost_anywhere(killed, held) == []
        again = killed.copy(tmp_path / f"again-{number}")
        apply(Disk(), planned(again))
        assert log_of(again) == expected
        assert lost(again, held) == []
        sound(again)
        for store in (killed, again):
            undo(Disk(), plan_undo(Disk(), store.config))
            assert restored(store) == before, (step, n)
        shutil.rmtree(killed.root)
        shutil.rmtree(again.root)


LAYOUT_STEPS = ("set-aside", "lift-segment", "lifted", "rename-segment", "resize-segment")


def kill(made: Made, step: str, nth: int) -> None:
    disk = FaultyDisk(None)
    plan = planned(made)
    disk.kill_at(step, nth)
    with pytest.raises(Killed):
        apply(disk, plan)


def log_of(made: Made) -> dict[str, bytes]:
    return {str(path.relative_to(made.root)): path.read_bytes() for path in made.files}


def lost_anywhere(made: Made, held: dict[int, list[Path]]) -> list[int]:
    """Records that no file of the log and of quarantine/ holds any more."""
    content = [path.read_bytes() for path in [*made.files, *(made.root / "quarantine").rglob("*")] if path.is_file()]
    return [
        offset
        for offset in held
        if not any(data[offset % SIZE :].startswith(made.records[offset][2]) for data in content)
    ]


@pytest.mark.leaves("log-misplaced")
def test_undo_killed_while_it_renames_is_run_again(bases: list[Made], tmp_path: Path) -> None:
    whole = bases[0].copy(tmp_path / "store")
    layouts.turn(whole, Random(1))
    before = restored(whole)
    apply(Disk(), planned(whole))
    copy = whole.copy(tmp_path / "whole")
    undo(disk := FaultyDisk(None), plan_undo(Disk(), copy.config))
    for number in range(1, disk.changes_seen + 1):
        killed = whole.copy(tmp_path / f"killed-{number}")
        disk = FaultyDisk(None)
        plan = plan_undo(Disk(), killed.config)
        disk.kill_before(number)
        with pytest.raises(Killed):
            undo(disk, plan)
        if not (killed.root / "salvage" / plan.repairs[0].name / "undone.json").exists():
            undo(Disk(), plan_undo(Disk(), killed.config))
        assert restored(killed) == before


# --- one by one -------------------------------------------------------------------------------------------------------


def test_early_segments_under_swapped_names_get_them_back(made: Made) -> None:
    """Recovery begins with the third last file: the first two are looked at all the same."""
    log = log_of(made)
    one, two = made.files[:2]
    one.rename(made.root / "aside")
    two.rename(one)
    (made.root / "aside").rename(two)
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    assert plan.to_json()["renamed"] == [
        {"path": f"commitlog/{two.name}", "to": f"commitlog/{one.name}"},
        {"path": f"commitlog/{one.name}", "to": f"commitlog/{two.name}"},
    ]
    apply(Disk(), plan)
    assert log_of(made) == log
    sound(made)


def test_swapped_segments_beside_a_missing_one_without_queues(made: Made) -> None:
    """Nothing but their names tells that the one behind the gap is the log's."""
    one, gone, other = made.files[1:4]
    for path in made.files[4:]:
        path.unlink()
    shutil.rmtree(made.root / "consumequeue")
    gone.unlink()
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    apply(Disk(), planned(made))
    assert (one.read_bytes(), other.read_bytes()) == (first, second)


@pytest.mark.parametrize("size", [0, 1, 4096, 5000, SIZE - 1])
def test_a_short_segment_is_filled_up_and_bridged(made: Made, size: int) -> None:
    early = made.files[1]
    os.truncate(early, size)
    held = made.held()
    plan = plan_recover(Disk(), made.config)
    if len(held) < len(made.records):
        assert isinstance(plan.refusal, DamageInTheMiddle)
        assert plan.refusal.path == str(early)
    plan = planned(made)
    assert plan.to_json()["resized"] == [{"path": f"commitlog/{early.name}", "from": size, "to": SIZE}]
    apply(Disk(), plan)
    assert lost(made, held) == []
    sound(made)


@pytest.mark.leaves("record-suspect", "unit-witness")
def test_a_short_last_segment_is_a_torn_tail(made: Made) -> None:
    last = made.files[-1]
    os.truncate(last, 700)
    held = made.held()
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    apply(Disk(), plan)
    assert last.stat().st_size == SIZE
    assert lost(made, held) == []
    sound(made)


@pytest.mark.parametrize("number", [0, -1])
def test_zeros_behind_a_segment_cost_nothing(made: Made, number: int) -> None:
    log = log_of(made)
    os.truncate(made.files[number], SIZE + 5000)
    apply(Disk(), plan_recover(Disk(), made.config))
    assert log_of(made) == log
    sound(made)


@pytest.mark.parametrize("number", [0, -1])
def test_bytes_behind_a_segment_are_not_cut_unasked(made: Made, number: int) -> None:
    log, long = log_of(made), made.files[number]
    with long.open("ab") as file:
        file.write(b"more")
    assert isinstance(plan_recover(Disk(), made.config).refusal, WrongFileSize)
    plan = plan_recover(Disk(), made.config, cut=True)
    assert plan.refusal is None
    apply(Disk(), planned(made))
    assert log_of(made) == log
    undo(Disk(), plan_undo(Disk(), made.config))
    assert long.read_bytes().endswith(b"more")
    apply(Disk(), plan)
    sound(made)


def test_a_copy_is_set_aside(made: Made) -> None:
    log = log_of(made)
    shutil.copy2(made.files[1], made.root / "commitlog" / f".{made.files[1].name}.Xy12ab")
    shutil.copy2(made.files[2], made.root / "commitlog" / f"{99 * SIZE:020d}")
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    assert len(plan.set_aside) == 2
    apply(Disk(), plan)
    assert log_of(made) == log
    sound(made)


def test_of_two_files_for_one_place_the_whole_one_stays(made: Made) -> None:
    """An rsync that was to mend a file, and was interrupted just before it renamed its own."""
    log = log_of(made)
    torn = made.files[1]
    shutil.copy2(torn, made.root / "commitlog" / f".{torn.name}.Xy12ab")
    os.truncate(torn, 3000)
    apply(Disk(), planned(made))
    assert log_of(made) == log
    sound(made)


def test_records_of_another_store_beside_a_complete_segment_are_set_aside(made: Made, tmp_path: Path) -> None:
    """They are none of this log's, which lacks nothing: no refusal, and the plan names what reads them."""
    log = log_of(made)
    other = layouts.make(tmp_path / "other", seed=77)
    rivals = {
        made.files[1]: made.root / "commitlog" / f"{made.files[1].name}.bak",
        made.files[2]: made.root / "commitlog" / f"{40 * SIZE:020d}",
        made.files[-1]: made.root / "commitlog" / "backup-of-other",
    }
    for one, to in rivals.items():
        shutil.copy2(other.root / "commitlog" / one.name, to)
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    assert {odd.path for odd in plan.set_aside} == {str(path) for path in rivals.values()}
    for one, path in rivals.items():
        there = made.root / "quarantine" / "commitlog" / path.name
        command = f"salvage scan --file {there} --base-offset {int(one.name)} reads it"
        assert any(command in problem for problem in plan.problems)
    apply(Disk(), plan)
    assert log_of(made) == log
    for one, path in rivals.items():
        found = scan_file(
            Disk(), made.config, str(made.root / "quarantine" / "commitlog" / path.name), base=int(one.name)
        )
        assert found.sound.records
    sound(made)


def test_a_segment_of_another_store_behind_the_logs_end(made: Made, tmp_path: Path) -> None:
    """Its name and its records' places fit, but the log ended before, and no queue goes on in it."""
    log = log_of(made)
    other = layouts.make(tmp_path / "other", seed=77, segments=9, body=30)
    foreign = made.root / "commitlog" / f"{len(made.files) * SIZE:020d}"
    shutil.copy2(other.root / "commitlog" / foreign.name, foreign)
    plan = plan_recover(Disk(), made.config)
    assert isinstance(plan.refusal, CannotRepair)
    assert plan.refusal.path == str(foreign)
    apply(Disk(), planned(made))
    assert log_of(made) == log
    assert (made.root / "quarantine" / "commitlog" / foreign.name).exists()
    sound(made)


def segment_of_another_store(record: bytes, *, place: int, number: int, earlier: int = 0) -> bytes:
    """One record, with another topic, physical offset and queue offset (no CRC covers them), stored earlier (ms)."""
    data = bytearray(record)
    struct.pack_into(">qq", data, POSITION_QUEUE_OFFSET, number, place)
    stored = store_timestamp_position(0)
    (time,) = struct.unpack_from(">q", data, stored)
    struct.pack_into(">q", data, stored, time - earlier)
    topic = layouts.BODY + int.from_bytes(data[layouts.BODY - 4 : layouts.BODY], "big") + 1
    assert data[topic : topic + 1] == b"T"
    data[topic] = ord("U")
    return bytes(data).ljust(SIZE, b"\0")


@pytest.mark.parametrize("earlier", [1_000, 3_600_000])
def test_a_lone_older_record_of_another_store_behind_the_logs_end(earlier: int, made: Made) -> None:
    """What its queue would lack has room in the zeros of the segment before, but time would go back over them."""
    log = log_of(made)
    (made.root / "abort").touch()
    foreign = made.root / "commitlog" / f"{len(made.files) * SIZE:020d}"
    _, _, record = made.records[max(made.records)]
    foreign.write_bytes(segment_of_another_store(record, place=int(foreign.name), number=3, earlier=earlier))
    refusal = plan_recover(Disk(), made.config).refusal
    assert isinstance(refusal, CannotRepair)
    assert refusal.path == str(foreign)
    apply(Disk(), planned(made))
    assert log_of(made) == log
    assert (made.root / "quarantine" / "commitlog" / foreign.name).exists()
    sound(made)


@pytest.mark.parametrize("place", [40 * SIZE, 0])
def test_a_lone_record_of_another_store_in_a_segments_place(place: int, made: Made) -> None:
    """The units of the segment that it overwrote point into it, or name another size: it is no record of this log,
    whose physicalOffset was damaged.
    """
    one = made.files[2]
    largest = max((r for _, _, r in made.records.values()), key=len)
    assert len(largest) != len(made.records[in_segment(made, one)[0]][2])
    one.write_bytes(segment_of_another_store(largest, place=place, number=3))
    held = made.held()
    assert isinstance(plan_recover(Disk(), made.config).refusal, CannotRepair | DamageInTheMiddle)
    apply(Disk(), planned(made))
    assert (made.root / "quarantine" / "commitlog" / one.name).exists()
    assert lost(made, held) == []
    assert not (made.root / "consumequeue" / "U").exists()


def test_a_log_that_is_lost_but_for_another_stores_segment(made: Made, tmp_path: Path) -> None:
    """Who says that the log is gone is not refused for the sake of a file that is none of it."""
    other = layouts.make(tmp_path / "other", seed=77, segments=9, body=30)
    first, *others = made.files
    for path in others:
        path.unlink()
    os.truncate(first, 0)
    foreign = first.with_name(f"{SIZE:020d}")
    shutil.copy2(other.root / "commitlog" / f"{3 * SIZE:020d}", foreign)
    assert plan_recover(Disk(), made.config).refusal is not None
    plan = plan_recover(Disk(), made.config, log_is_gone=True)
    assert plan.refusal is None
    apply(Disk(), plan)
    assert (made.root / "quarantine" / "commitlog" / foreign.name).exists()


@pytest.mark.leaves("index-orphaned", "log-surplus")
def test_another_stores_segment_alone_is_no_log(made: Made, tmp_path: Path) -> None:
    """No file is left of this store's log, which was closed: its queues show none of the records that are there."""
    other = layouts.make(tmp_path / "other", seed=77, segments=9, body=30)
    first, *others = made.files
    for path in others:
        path.unlink()
    shutil.copy2(other.root / "commitlog" / f"{7 * SIZE:020d}", first)
    plan = plan_recover(Disk(), made.config)
    assert isinstance(plan.refusal, CannotRepair | LogMissing)
    assert isinstance(plan_recover(Disk(), made.config, bridge=True).refusal, LogMissing)


def test_a_segment_of_another_store_that_names_the_place_of_a_missing_one(made: Made, tmp_path: Path) -> None:
    """The queues' units of the lost segment point into its records, not at them."""
    other = layouts.make(tmp_path / "other", seed=77, segments=9, body=30)
    gone = made.files[2]
    foreign = gone.with_name(f"{len(made.files) * SIZE:020d}")
    shutil.copy2(other.root / "commitlog" / gone.name, foreign)
    gone.unlink()
    held = made.held()
    refusal = plan_recover(Disk(), made.config).refusal
    assert isinstance(refusal, CannotRepair)
    assert refusal.path == str(foreign)
    apply(Disk(), planned(made))
    assert not gone.exists()
    assert (made.root / "quarantine" / "commitlog" / foreign.name).exists()
    assert lost(made, held) == []


@pytest.mark.parametrize(("before", "left"), [(8, None), (0, 5), (0, 1), (3, 1)])
def test_segments_behind_pages_that_were_lost_are_not_taken_for_another_stores(
    before: int, left: int | None, made: Made
) -> None:
    """A power cut may lose the last records of a segment, the first ones of the next, and what was dispatched."""
    queues = made.root / "consumequeue"
    for path in [path for path in queues.rglob("*") if path.is_file()]:
        path.unlink()
    border = int(made.files[-1].name)
    there = sorted(made.records)
    lost_from = [offset for offset in there if offset < border][-before - 1]
    lost_from += len(made.records[lost_from][2])
    with made.files[-2].open("r+b") as file:
        file.seek(SIZE + lost_from - border)
        file.write(bytes(border - lost_from))
    with made.files[-1].open("r+b") as file:
        file.write(bytes(there[-left] - border if left else 0))
    held = made.held()
    assert max(held) == there[-1]
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    sound(made)


def test_a_lone_record_is_not_denied_by_its_own_row(made: Made) -> None:
    """Its physicalOffset names another segment, and the size in its unit is rotten: it stays where it is."""
    one = made.files[2]
    offset = in_segment(made, one)[0]
    queue, number, record = made.records[offset]
    data = bytearray(record)
    struct.pack_into(">q", data, POSITION_PHYSICAL_OFFSET, 40 * SIZE)
    one.write_bytes(bytes(data).ljust(SIZE, b"\0"))
    row = made.root / "consumequeue" / "T" / str(queue) / f"{number // 20 * 400:020d}"
    with row.open("r+b") as file:
        file.seek(number % 20 * 20 + 8)
        file.write((len(record) ^ 16).to_bytes(4, "big"))
    plan = plan_recover(Disk(), made.config, bridge=True)
    assert plan.refusal is None
    assert not plan.set_aside
    apply(Disk(), plan)
    assert offset not in dict(lost(made, [offset]))


def test_a_segment_behind_an_older_copy_of_the_one_before_is_not_taken_for_another_stores(made: Made) -> None:
    """Units point into the zeros that the copy ends with: the log went on there, though it was closed."""
    border = int(made.files[-1].name)
    before = [offset for offset in sorted(made.records) if offset < border]
    with made.files[-2].open("r+b") as file:
        file.seek(before[-9] % SIZE)
        file.write(bytes(SIZE - before[-9] % SIZE))
    for path in (made.root / "consumequeue").glob("*/*/*"):  # as old as the copy, but for a few rows
        rows = bytearray(path.read_bytes())
        for at in range(0, len(rows), 20):
            if int.from_bytes(rows[at : at + 8], "big") >= before[-6]:
                rows[at : at + 20] = bytes(20)
        path.write_bytes(rows)
    held = made.held()
    plan = plan_recover(Disk(), made.config, bridge=True)
    assert not plan.set_aside
    apply(Disk(), plan)
    assert lost(made, held) == []
    sound(made)


@pytest.mark.leaves("index-time")
@pytest.mark.parametrize("how", ["first", "last", "step"])
def test_a_store_time_decides_over_no_segment_behind_pages_that_were_lost(made: Made, how: str) -> None:
    """A rotten store time on either side of lost pages, or a clock that was set back there, and not for long."""
    (made.root / "abort").touch()
    shutil.rmtree(made.root / "consumequeue")
    border = int(made.files[-1].name)
    before, behind = ([o for o in sorted(made.records) if (o < border) == early] for early in (True, False))
    with made.files[-2].open("r+b") as file:
        file.seek(before[-6] % SIZE)
        file.write(bytes(SIZE - before[-6] % SIZE))
    times = {before[-7]: 1 << 40} if how == "last" else {behind[0]: -(1 << 30)}
    if how == "step":
        times = {offset: 4 * i - 8 for i, offset in enumerate(behind)}
    stored = store_timestamp_position(0)
    for offset, more in times.items():
        path = made.files[-2] if offset < border else made.files[-1]
        with path.open("r+b") as file:
            file.seek(offset % SIZE + stored)
            time = int.from_bytes(file.read(8), "big")
            file.seek(offset % SIZE + stored)
            file.write((time + more).to_bytes(8, "big"))
    plan = plan_recover(Disk(), made.config, bridge=True)
    assert not plan.set_aside
    apply(Disk(), plan)
    assert plan.log.end.end > behind[-1]


@pytest.mark.leaves("log-damage", "log-surplus")
@pytest.mark.parametrize("step", [None, "recover.bridge", "recover.set-aside", "recover.log-done"])
def test_a_segment_and_its_copy_each_damaged_elsewhere_lose_nothing(made: Made, step: str | None) -> None:
    """Bridging writes what the copy holds over the segment's damage; a kill at any step of it, too."""
    whole = log_of(made)
    one = made.files[2]
    copy = one.with_name(f"{one.name}.bak")
    shutil.copy2(one, copy)
    mine, its = in_segment(made, one)[1:6:4], in_segment(made, one)[3:8:4]
    for path, offsets in ((one, mine), (copy, its)):
        for offset in offsets:
            with path.open("r+b") as file:
                file.seek(offset % SIZE + 95)
                file.write(b"\xff\xff")
    refusal = plan_recover(Disk(), made.config, whole=True).refusal
    assert isinstance(refusal, CannotRepair)
    held = made.held()
    before = restored(made)
    if step is not None:
        kill(made, step, 1)
    apply(Disk(), plan_recover(Disk(), made.config, bridge=True))
    assert lost(made, held) == []
    assert log_of(made) == whole
    sound(made)
    while any(not repair.undone for repair in repairs(Disk(), str(made.root))):
        undo(Disk(), plan_undo(Disk(), made.config))
    assert restored(made) == before


def test_another_stores_records_are_not_taken_for_what_a_segment_lost(made: Made, tmp_path: Path) -> None:
    other = layouts.make(tmp_path / "other", seed=77)
    one = made.files[1]
    shutil.copy2(other.files[1], one.with_name("rival"))
    with one.open("r+b") as file:
        file.seek(2000)
        file.write(Random(3).randbytes(3000))
    plan = plan_recover(Disk(), made.config, bridge=True)
    assert not plan.log.taken
    apply(Disk(), plan)
    sound(made)


@pytest.mark.parametrize("puts", [0, 3])
def test_truncated_messages_are_not_taken_out_of_a_damaged_backup(puts: int, made: Made) -> None:
    """Nor is the log's end another one: only what was lost by damage comes back."""
    last = [path for path in made.files if any(path.read_bytes())][-1]
    there = in_segment(made, last)
    backup = last.read_bytes()
    apply(Disk(), plan_truncate(Disk(), made.config, to_offset=there[len(there) // 2]))
    with MessageStore.open(made.config) as store:
        for i in range(puts):
            assert store.put(Message("T", b"new" * 50, queue_id=i)).ok
    copy = last.with_name(f"{last.name}.bak")
    copy.write_bytes(backup)
    for path, offset in ((last, there[1]), (copy, there[3])):
        with path.open("r+b") as file:
            file.seek(offset % SIZE + 95)
            file.write(b"\xff\xff")
    plan = plan_recover(Disk(), made.config, bridge=True)
    assert [taken.offset for taken in plan.log.taken] == [there[1]]
    apply(Disk(), plan)
    data = last.read_bytes()
    records = {offset: made.records[offset][2] for offset in there}
    back = [offset for offset in there if data[offset % SIZE :].startswith(records[offset])]
    assert back == there[: len(there) // 2]
    sound(made)


def test_records_that_a_damaged_segment_lacks_are_not_set_aside_unasked(made: Made, tmp_path: Path) -> None:
    """Another store's file beside a segment with damage in its middle: nobody knows which of them to believe."""
    other = layouts.make(tmp_path / "other", seed=77)
    rival = made.root / "commitlog" / "rival"
    shutil.copy2(other.files[1], rival)
    flip(made, 1)
    held = made.held()
    plan = plan_recover(Disk(), made.config, whole=True)
    assert isinstance(plan.refusal, CannotRepair)
    assert plan.refusal.path == str(rival)
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    sound(made)


def test_a_backup_mends_what_its_segment_lost_in_its_middle(made: Made) -> None:
    log, one = log_of(made), made.files[1]
    shutil.copy2(one, one.with_name(f"{one.name}.bak"))
    flip(made, 1)
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    apply(Disk(), plan)
    assert log_of(made) == log
    sound(made)


def test_a_backup_mends_a_segment_in_the_middle_of_the_log_that_lost_its_end(made: Made) -> None:
    """Zeros where the log goes on in the next segment are a loss."""
    log, one = log_of(made), made.files[1]
    shutil.copy2(one, one.with_name(f"{one.name}.bak"))
    at = in_segment(made, one)[5] % SIZE
    one.write_bytes(one.read_bytes()[:at] + bytes(SIZE - at))
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    apply(Disk(), plan)
    assert log_of(made) == log
    sound(made)


@pytest.mark.parametrize("puts", [0, 3])
def test_truncated_messages_do_not_come_back_from_a_backup(puts: int, made: Made) -> None:
    """An old copy beside the segment that was truncated, also when others were put there since."""
    last = made.files[-1]
    backup = last.with_name(f"{last.name}.bak")
    shutil.copy2(last, made.root.parent / "kept")
    apply(Disk(), plan_truncate(Disk(), made.config, to_offset=in_segment(made, last)[5]))
    if puts:
        with MessageStore.open(made.config) as store:
            for number in range(puts):
                store.put(Message("T", b"%d" % number * 50))
    log = last.read_bytes()
    shutil.copy2(made.root.parent / "kept", backup)
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    assert [odd.path for odd in plan.set_aside] == [str(backup)]
    with MessageStore.open(made.config):
        assert last.read_bytes() == log
    assert (made.root / "quarantine" / "commitlog" / backup.name).exists()
    sound(made)


def in_segment(made: Made, one: Path) -> list[int]:
    """Physical offsets of the records that were written to a file with a segment's name."""
    return [offset for offset in sorted(made.records) if 0 <= offset - int(one.name) < SIZE]


def flip(made: Made, number: int) -> None:
    """A bit of a message's body in the middle of a file is another one."""
    one = made.files[number]
    data = bytearray(one.read_bytes())
    data[in_segment(made, one)[5] % SIZE + layouts.BODY] ^= 1
    one.write_bytes(data)


def test_a_log_under_other_names_as_a_whole(bases: list[Made], tmp_path: Path) -> None:
    """Somebody numbered the files anew."""
    made = bases[1].copy(tmp_path / "store")
    log = log_of(made)
    for number, path in enumerate(made.files):
        path.rename(path.with_name(f"{number * SIZE:020d}"))
    apply(Disk(), planned(made))
    assert log_of(made) == log
    sound(made)


@pytest.mark.leaves("log-misplaced")
def test_truncate_wants_the_files_in_order(made: Made) -> None:
    one = made.files[1]
    one.rename(one.with_name(one.name + ".bak"))
    refusal: RStoreError | None = plan_truncate(Disk(), made.config, to_offset=max(made.records)).refusal
    assert refusal is not None
    assert "rstore recover" in (refusal.hint or "")


def test_no_size_given(made: Made) -> None:
    """Short and long files don't say how long a segment is; the others do."""
    log = log_of(made)
    os.truncate(made.files[0], SIZE + 100)
    os.truncate(made.files[-1], 4096)
    config = StoreConfig(store_path_root_dir=made.root)
    apply(Disk(), plan_recover(Disk(), config))
    assert {name: len(data) for name, data in log_of(made).items()} == dict.fromkeys(log, SIZE)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_last_segment_of_one_record_under_another_name(swapped: bool, tmp_path: Path) -> None:
    """One record is no proof by itself: its field may be damaged. A unit that points at it is."""
    made = layouts.make(tmp_path / "store", seed=4)
    last = made.files[-1]
    inside = sorted(offset for offset in made.records if offset >= int(last.name))
    data = bytearray(last.read_bytes())
    data[inside[1] - inside[0] :] = bytes(len(data) - (inside[1] - inside[0]))
    last.write_bytes(data)
    made.records = {offset: one for offset, one in made.records.items() if offset <= inside[0]}
    if swapped:  # with a file of another store, whose name it gets
        other = layouts.make(tmp_path / "other", first=FAR, seed=77)
        shutil.copyfile(other.files[0], made.files[0])
        layouts.swap_names(made.files[0], last)
    else:
        last.rename(last.with_name(f"{50 * SIZE:020d}"))
    held = made.held()
    assert inside[0] in held
    apply(Disk(), planned(made))
    assert last.exists()
    assert lost(made, held) == []
    sound(made)


def test_records_of_a_log_of_another_size_are_none_of_this_one(made: Made) -> None:
    """Their file can't begin where they say."""
    log = log_of(made)
    data = made.files[1].read_bytes()
    (made.root / "commitlog" / f"{6 * SIZE:020d}").write_bytes((data[1000:] + data)[:SIZE])
    plan = planned(made)
    apply(Disk(), plan)
    assert log_of(made) == log
    sound(made)


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({0: SIZE}, SIZE),
        ({0: SIZE, SIZE: 5000}, SIZE),
        ({0: 5000, SIZE: 6000}, SIZE),
        ({0: 4096, SIZE: 4096, 2 * SIZE: SIZE, 3 * SIZE: SIZE}, SIZE),
        ({0: 2 * SIZE, SIZE: SIZE}, SIZE),
        ({0: SIZE, 2 * SIZE: SIZE, 4 * SIZE: SIZE}, SIZE),
        ({7 * SIZE: SIZE}, SIZE),
        ({0: 0, SIZE: 5000, 2 * SIZE: 6000}, SIZE),
        ({0: 5000}, None),
        ({}, None),
    ],
)
def test_how_long_a_segment_is(files: dict[int, int], size: int | None, bases: list[Made], tmp_path: Path) -> None:
    """No setting says so, and files were cut short, or made longer."""
    whole = bases[0].files[0].read_bytes()
    for offset, length in files.items():
        (tmp_path / f"{offset:020d}").write_bytes(whole.ljust(length, b"\0")[:length])
    assert segment_size(Disk(), Disk().scandir(str(tmp_path))) == size


@pytest.mark.parametrize("size", [SIZE // 2, 2 * SIZE])
def test_a_setting_that_is_not_the_files(made: Made, size: int) -> None:
    """Most files say another length: they are not cut or filled, the setting is named. No advice makes them shorter."""
    config = made.config.with_changes(mapped_file_size_commit_log=size)
    refused = plan_recover(Disk(), config, bridge=True).refusal
    assert isinstance(refused, WrongFileSize)
    assert f"mappedFileSizeCommitLog={SIZE}" in (refused.hint or "")
    assert (f"truncate -s {size}" in (refused.hint or "")) == (size > SIZE)


def test_a_single_file_that_was_cut_tells_no_length(tmp_path: Path) -> None:
    made = layouts.make(tmp_path / "store", segments=1)
    for path in made.files[1:]:
        path.unlink()
    os.truncate(made.files[0], 3000)
    config = StoreConfig(store_path_root_dir=made.root)
    refused = plan_recover(Disk(), config).refusal
    assert isinstance(refused, WrongFileSize)
    assert "-c broker.conf" in (refused.hint or "")
    held = made.held()
    apply(Disk(), plan_recover(Disk(), made.config))
    assert lost(made, held) == []
    sound(made)


@pytest.mark.leaves("file-size", "index-orphaned")
def test_a_single_full_file_tells_its_length_whatever_its_blank_record_holds(made: Made) -> None:
    """Apache writes 8 bytes of the blank record; behind them lies what was there."""
    for path in made.files[1:]:
        path.unlink()
    data = made.files[0].read_bytes()
    offset, (_, _, record) = max(item for item in made.records.items() if item[0] < SIZE)
    end = offset + len(record)
    assert SIZE - end > 16
    made.files[0].write_bytes(data[: end + 8] + b"g" * (SIZE - end - 8))
    config = StoreConfig(store_path_root_dir=made.root)
    assert plan_recover(Disk(), config).refusal is None
    os.truncate(made.files[0], SIZE - 1)
    assert isinstance(plan_recover(Disk(), config).refusal, WrongFileSize)


@pytest.mark.parametrize("number", [0, 1])
def test_a_swapped_segment_with_damage_in_its_first_records(number: int, made: Made) -> None:
    """The rest of it is searched; also of the log's first segment, whose records lie where they say in its file."""
    first, other = made.files[0], made.files[3]
    place = sorted(made.records)[number]
    data = bytearray(first.read_bytes())
    data[place + layouts.BODY] ^= 1
    first.write_bytes(data)
    layouts.swap_names(first, other)
    held = made.held()
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    sound(made)


def test_a_page_of_a_segment_that_lies_over_its_beginning_too(tmp_path: Path) -> None:
    """Records that name a place where no segment begins say nothing of where the rest of the file belongs."""
    made = layouts.make(tmp_path / "store", body=30)
    path = made.files[1]
    data = path.read_bytes()
    path.write_bytes(data[3000:6500] + data[3500:])
    held = made.held()
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    sound(made)


@pytest.mark.leaves
@pytest.mark.parametrize("page", [2048, 6000])
def test_the_first_page_of_another_segment_over_a_segments_beginning(page: int, tmp_path: Path) -> None:
    """Neither the other segment nor what is left of this one is taken for a copy, however many records speak for it."""
    made = layouts.make(tmp_path / "store", body=30)
    one, other = made.files[1], made.files[3]
    one.write_bytes(other.read_bytes()[:page] + one.read_bytes()[page:])
    layout = layout_of(Disk(), survey(Disk(), made.config))
    assert {s.offset: s.path for s in layout.segments} == {i * SIZE: str(path) for i, path in enumerate(made.files)}
    assert (layout.aside, layout.relocations) == ((), ())


@pytest.mark.leaves("log-misplaced")
def test_other_changes_want_the_files_in_order(made: Made, tmp_path: Path) -> None:
    layouts.swap_names(*made.files[:2])
    with pytest.raises(CannotRepair, match="recover"):
        plan_expire(Disk(), made.config, ExpireRules(forced=True))
    with pytest.raises(CannotRepair, match="recover"):
        build(Disk(), made.config, str(tmp_path / "into"), Scope())


@pytest.mark.leaves("file-size", "file-stray", "log-damage")
def test_verify_names_what_it_did_not_read(made: Made) -> None:
    assert verify(Disk(), made.config).clean
    os.truncate(made.files[1], 5000)
    shutil.copy2(made.files[2], made.files[2].with_name("copy"))
    found = verify(Disk(), made.config)
    assert not found.clean
    assert {Path(odd.path).name for odd in found.not_read} == {made.files[1].name, "copy"}


@pytest.mark.leaves("file-size", "log-damage", "log-misplaced")
def test_a_renamed_segment_that_a_cut_removes_comes_back(made: Made) -> None:
    layouts.swap_names(*made.files[3:5])
    os.truncate(made.files[1], 3000)
    before = restored(made)
    plan = plan_recover(Disk(), made.config, cut=True)
    assert plan.layout.relocations
    assert plan.log.removed
    apply(Disk(), plan)
    sound(made)
    undo(Disk(), plan_undo(Disk(), made.config))
    assert restored(made) == before


@pytest.mark.parametrize("other_name", ["a", "z"])
def test_of_two_stores_files_for_one_place_the_units_tell_whose_it_is(
    other_name: str, made: Made, tmp_path: Path
) -> None:
    """Neither has the right name, and the other store's file holds more records."""
    log = log_of(made)
    other = layouts.make(tmp_path / "other", seed=77)
    shutil.copy2(other.files[0], made.root / "commitlog" / other_name)
    made.files[0].rename(made.root / "commitlog" / "m")
    os.truncate(made.root / "commitlog" / "m", SIZE - 2000)
    held = made.held()
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    assert (made.root / "quarantine" / "commitlog" / other_name).exists()
    assert log_of(made).keys() == log.keys()
    sound(made)


@pytest.mark.parametrize("size", [SIZE - 1, SIZE // 2, SIZE + 1])
def test_a_single_file_that_is_not_as_long_as_the_setting(size: int, tmp_path: Path) -> None:
    """The setting is believed: one file alone is no witness against it."""
    made = layouts.make(tmp_path / "store", segments=1)
    for path in made.files[1:]:
        path.unlink()
    os.truncate(made.files[0], size)
    held = made.held()
    apply(Disk(), planned(made))
    assert lost(made, held) == []
    sound(made)
