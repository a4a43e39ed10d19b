"""Complete segments are sealed, and no others, beside who writes; a sealed store stays sealed over what changes it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from engine.config import of_store
from engine.errors import DiskFull, NewerStore, StoreLocked
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.lock import StoreLock
from engine.files.operations import Doing, Operation
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.change import carry_out
from engine.repair.expire.change import ExpireChange
from engine.repair.expire.expire import ExpireRules
from engine.repair.reach import beneath
from engine.repair.recover.change import RecoverChange
from engine.repair.salvage.change import UndoChange
from engine.repair.truncate.change import TruncateChange
from engine.seals.directory import read_seal, sealed_offsets
from engine.seals.sealing import SealOptions, SealState, list_seals, seal_store
from engine.store import MessageStore
from tests.engine.opening import message, small
from tests.engine.seals.stores_sealed import filled, pages_of, scrubbed, seal, segments, write
from tests.support import newer, stores
from tests.support.wide import sample

SIZE, PAGE = 65536, 4096


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return stores.copy(made, tmp_path / "store")


def states(root: Path) -> dict[int, SealState]:
    return {row.offset: row.state for row in list_seals(Disk(), survey(Disk(), of_store(root)))}


def assert_sealed(root: Path) -> None:
    """Every complete segment is sealed, no seal is wrong, and none is left of what is gone."""
    assert set(states(root).values()) <= {SealState.SEALED}
    assert not scrubbed(root, keep_state=False).wrong


def test_only_complete_segments_once(store: Path) -> None:
    planned = seal(store, dry_run=True)
    assert not (store / "seals").exists()
    first = seal(store, jobs=2)
    offsets = [int(path.name) for path in segments(store)]
    assert [row.offset for row in planned.made] == [row.offset for row in first.made] == offsets[:-1]
    assert first.read == SIZE * (len(offsets) - 1)
    before = stores.snapshot(store / "seals")
    second = seal(store)
    assert (second.read, second.kept, second.made) == (0, len(offsets) - 1, [])
    assert stores.snapshot(store / "seals") == before
    assert_sealed(store)
    with MessageStore.open(small(store)) as opened:
        for _ in range(300):
            opened.put(message(b"x" * 300))
    assert [row.offset for row in seal(store).made] == [int(p.name) for p in segments(store)][len(offsets) - 1 : -1]


@pytest.mark.wide
def test_killed_at_each_change(made: Path, tmp_path: Path) -> None:
    counting = FaultyDisk(None)
    seal(stores.copy(made, tmp_path / "whole"), counting)
    assert counting.changes_seen > 15
    for number in sample(range(1, counting.changes_seen + 1), 4):
        root = stores.copy(made, tmp_path / f"killed-{number}")
        before = {path.name: path.read_bytes() for path in segments(root)}
        disk = FaultyDisk(None)
        disk.kill_before(number)
        with pytest.raises(Killed):
            seal(root, disk)
        assert set(states(root).values()) <= {SealState.SEALED, SealState.UNSEALED}
        assert seal(root).clean
        assert {path.name: path.read_bytes() for path in segments(root)} == before
        assert_sealed(root)
        shutil.rmtree(root)


def test_a_full_disk_leaves_what_was_sealed(store: Path) -> None:
    disk = FaultyDisk(None)
    disk.fail_when(lambda doing: doing.operation is Operation.WRITE and f"{2 * SIZE:020d}" in doing.path)
    with pytest.raises(DiskFull):
        seal(store, disk)
    assert [offset for offset, state in states(store).items() if state is SealState.SEALED] == [0, SIZE]
    assert seal(store).clean


def test_a_seal_that_is_no_file_leaves_the_others_to_be_sealed(store: Path) -> None:
    offsets = [int(path.name) for path in segments(store)][:-1]
    fifo, directory, link = (store / "seals" / f"{offset:020d}.seal" for offset in offsets[:3])
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    directory.mkdir()
    (store / "theirs").write_bytes(b"theirs")
    link.symlink_to(store / "theirs")
    assert states(store)[0] is SealState.DAMAGED
    first = seal(store)
    assert [(row.offset, row.problem.partition(":")[0]) for row in first.open] == [
        (offsets[0], "opening"),
        (offsets[1], "opening"),
        (offsets[2], "the seal has 6 bytes, fewer than its header"),
    ]
    assert "a FIFO, not a file" in first.open[0].problem
    assert [row.offset for row in first.made] == offsets[3:]
    config = of_store(store)
    renewed = seal_store(beneath(Disk(), config), config, SealOptions(renew=True))
    assert [row.offset for row in renewed.made] == offsets[:1]
    assert [offset for offset, _ in renewed.failed] == offsets[1:3]
    assert "--follow-links" in renewed.failed[1][1]
    assert (store / "theirs").read_bytes() == b"theirs"
    (store / "theirs").unlink()
    directory.rmdir()
    link.unlink()
    assert seal(store).clean


def test_what_stands_in_the_way_of_one_seal_leaves_the_others_to_be_sealed(store: Path) -> None:
    inside = store / "seals" / f"{SIZE:020d}.seal.tmp" / "x"
    inside.mkdir(parents=True)
    result = seal(store)
    assert [offset for offset, _ in result.failed] == [SIZE]
    assert str(inside.parent) in result.failed[0][1]
    assert len(result.made) == len(segments(store)) - 2
    shutil.rmtree(inside.parent)
    assert [row.offset for row in seal(store).made] == [SIZE]


@pytest.mark.leaves
def test_damage_and_unreadable_pages(store: Path) -> None:
    write(segments(store)[0], 5000, bytes(1000))
    bad = str(segments(store)[1])
    disk = FaultyDisk(None)

    def fails(doing: Doing) -> bool:
        return doing.operation is Operation.READ and doing.path == bad and (doing.offset or 0) + doing.length > 30000

    disk.fail_when(fails, 5)
    result = seal(store, disk)
    assert not result.clean
    assert [offset for offset, _ in result.failed] == [SIZE]
    noted = read_seal(Disk(), str(store), 0)
    assert noted is not None
    assert noted.damage
    assert noted.damage[0].offset < 6000
    assert not pages_of(scrubbed(store, keep_state=False)), "what was noted has not changed since"
    assert states(store)[SIZE] is SealState.UNSEALED


@pytest.mark.leaves
def test_what_was_written_since_is_not_sealed_over(store: Path) -> None:
    """Damage may look so: only `renew` says that it is wanted. The same bytes under another time are no change."""
    seal(store)
    one, two, three = segments(store)[:3]
    os.utime(one, ns=(1, 10**18))
    two.write_bytes(two.read_bytes()[:9000] + b"x" + two.read_bytes()[9001:])
    torn = store / "seals" / f"{three.name}.seal"
    torn.write_bytes(torn.read_bytes()[:-7])
    result = seal(store)
    assert result.refreshed == [0]
    assert [(row.offset, row.state) for row in result.open] == [
        (2 * SIZE, SealState.DAMAGED),
        (SIZE, SealState.WRITTEN),
    ]
    assert pages_of(scrubbed(store, keep_state=False), "changed") == {(SIZE, 2)}
    renewed = seal(store, renew=True)
    assert [row.offset for row in renewed.made] == [SIZE, 2 * SIZE]
    assert_sealed(store)


def test_two_at_once(store: Path) -> None:
    (store / "seals").mkdir()
    with StoreLock(Disk(), str(store / "seals")), pytest.raises(StoreLocked, match="the directory of seals"):
        seal(store)


def test_beside_puts_and_rolls(tmp_path: Path) -> None:
    """As beside a daemon: segments are sealed as soon as the next one is begun, and never before they are full."""
    root = tmp_path / "store"
    ended = threading.Event()
    runs: list[int] = []
    failed: list[BaseException] = []
    with MessageStore.open(small(root)) as opened:
        opened.put(message(b"first"))

        def sealing() -> None:
            try:
                while not ended.is_set():
                    result = seal(root)
                    assert not result.failed
                    assert all(row.seal is not None and not row.seal.damage for row in result.made)
                    runs.append(len(result.made))
            except BaseException as error:  # noqa: BLE001 - the test's own thread tells it below
                failed.append(error)

        thread = threading.Thread(target=sealing)
        thread.start()
        number = 0
        while sum(runs) < 5 and not failed and number < 50_000:
            number += 1
            opened.put(message(os.urandom(300), KEYS=f"k{number}"))
        ended.set()
        thread.join()
    assert failed == []
    assert sum(runs) >= 5
    seal(root)
    assert_sealed(root)


def test_it_stays_sealed_over_a_crash_and_its_recovery(store: Path) -> None:
    seal(store)
    last = segments(store)[-1]
    (store / "abort").touch()
    content = last.read_bytes()
    end = len(content.rstrip(b"\0"))
    write(last, end - 50, bytes(50))
    carry_out(RecoverChange(), Disk(), of_store(store))
    assert_sealed(store)
    with MessageStore.open(small(store)) as opened:
        opened.put(message(b"after"))
    assert_sealed(store)


def test_expire_deletes_the_seals_of_what_it_deletes(store: Path) -> None:
    seal(store)
    os.utime(segments(store)[0], (1, 1))
    os.utime(segments(store)[1], (1, 1))
    first = int(segments(store)[2].name)
    carry_out(ExpireChange(ExpireRules(forced=True, reserved_hours=1000)), Disk(), of_store(store))
    assert int(segments(store)[0].name) == first
    assert sealed_offsets(Disk(), str(store / "seals"))[0] == first
    assert_sealed(store)


def test_truncate_takes_the_seals_of_what_it_cuts_and_undo_those_of_what_it_restores(store: Path) -> None:
    seal(store)
    config = of_store(store)
    with ClosedLog(Disk(), survey(Disk(), config).log) as log:
        third = int(segments(store)[2].name)
        batch = next(event for event in Scanner(log).scan(third, resume=True) if isinstance(event, RecordBatch))
        at = batch.offset(40)
    carry_out(TruncateChange(to_offset=at), Disk(), config)
    assert sealed_offsets(Disk(), str(store / "seals")) == [0, SIZE]
    assert_sealed(store)
    seal(store)
    carry_out(UndoChange(), Disk(), config)
    assert sealed_offsets(Disk(), str(store / "seals")) == [0, SIZE]
    assert seal(store).clean
    assert_sealed(store)


def test_cut_between_two_segments_the_last_one_stays_sealed(store: Path) -> None:
    seal(store)
    config = of_store(store)
    carry_out(TruncateChange(to_offset=2 * SIZE), Disk(), config)
    assert states(store) == {0: SealState.SEALED, SIZE: SealState.SEALED}
    with MessageStore.open(small(store)) as opened:
        opened.put(message(b"next"))
    assert_sealed(store)


def test_a_segment_that_another_broker_writes_again_loses_its_seal(store: Path) -> None:
    """Apache's recovery ends the log where it finds damage, and knows no seals."""
    seal(store)
    kept = (store / "seals" / f"{2 * SIZE:020d}.seal").read_bytes()
    config = of_store(store)
    with ClosedLog(Disk(), survey(Disk(), config).log) as log:
        batch = next(event for event in Scanner(log).scan(2 * SIZE, resume=True) if isinstance(event, RecordBatch))
    carry_out(TruncateChange(to_offset=batch.offset(9)), Disk(), config)
    (store / "seals" / f"{2 * SIZE:020d}.seal").write_bytes(kept)
    assert states(store)[2 * SIZE] is SealState.REWRITTEN
    assert not scrubbed(store, keep_state=False).wrong
    assert seal(store).removed == [2 * SIZE]
    assert_sealed(store)


def test_a_bridge_takes_the_seal_of_its_segment(store: Path) -> None:
    seal(store)
    write(segments(store)[1], 20000, bytes(PAGE))
    config = of_store(store)
    assert pages_of(scrubbed(store, keep_state=False))
    carry_out(RecoverChange(bridge=True, whole=True), Disk(), config)
    assert SIZE not in sealed_offsets(Disk(), str(store / "seals"))
    assert seal(store).made[0].offset == SIZE
    assert_sealed(store)
    before = segments(store)[1].read_bytes()
    write(segments(store)[1], 40000, b"rot")  # of the bridged segment, whose seal is of now
    assert pages_of(scrubbed(store, keep_state=False)) == {(SIZE, 9)}
    write(segments(store)[1], 0, before)


def test_deleted_by_another_broker(store: Path) -> None:
    """Apache's retention knows no seals: those of deleted segments are no finding, and go with the next run."""
    seal(store)
    kept = (store / "seals" / f"{0:020d}.seal").read_bytes()
    os.utime(segments(store)[0], (1, 1))
    carry_out(ExpireChange(ExpireRules(forced=True, reserved_hours=1000)), Disk(), of_store(store))
    assert int(segments(store)[0].name) == SIZE
    (store / "seals" / f"{0:020d}.seal").write_bytes(kept)
    assert not scrubbed(store, keep_state=False).wrong
    assert states(store)[0] is SealState.GONE
    assert seal(store).removed == [0]
    assert_sealed(store)


@pytest.mark.leaves
def test_stores_with_parts_that_seals_do_not_know_are_not_written_into(tmp_path: Path) -> None:
    root = newer.unpack("compaction", tmp_path)
    before = stores.snapshot(root)
    with pytest.raises(NewerStore):
        seal(root)
    assert stores.snapshot(root) == before


def test_json_of_a_run(store: Path) -> None:
    told = json.loads(json.dumps(seal(store).to_json()))
    assert [row["segment"] for row in told["sealed"]] == [int(path.name) for path in segments(store)[:-1]]
    assert all(row["state"] == "sealed" and row["root"] for row in told["sealed"])


def test_a_file_of_before_1970(tmp_path: Path) -> None:
    """Another program gave it an impossible time."""
    root = filled(tmp_path / "store")
    os.utime(segments(root)[1], ns=(-(10**9), -(10**9)))
    assert seal(root).clean
    assert not scrubbed(root).wrong
