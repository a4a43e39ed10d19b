"""With seals each byte is healed, header and properties included, and each page from whichever source still has it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from engine.config import of_store
from engine.errors import CannotRepair
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.heal.damage import LostKind
from engine.heal.plan import Proof
from engine.inspect.store.survey import survey
from engine.repair.change import Ending
from engine.seals.directory import seals_directory, write_seal
from engine.seals.make import complete_segments, make_seal
from tests.conftest import Store
from tests.engine.heal.healing import (
    SIZE,
    assert_healed,
    bridge,
    damaged,
    heal,
    log_of,
    records_of,
    recovered,
    repository,
    take_back,
    write,
)
from tests.engine.opening import assert_sound
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.wide import WIDE

ROUNDS, FLIPS = (125, 40) if WIDE else (1, 40)


def seal(store: Path) -> None:
    """Seals of all complete segments."""
    files = survey(Disk(), of_store(store))
    for segment in complete_segments(Disk(), files):
        made = make_seal(Disk(), segment, max_message_size=4 << 20, by="test")
        assert not made.damage
        write_seal(Disk(), seals_directory(str(store)), made)


def rot(store: Path, offset: int, data: bytes) -> None:
    """Bytes change, and no time."""
    path = store / "commitlog" / f"{offset // SIZE * SIZE:020d}"
    status = path.stat()
    write(store, offset, data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def good(fixture_copy: Store) -> Path:
    store = recovered(fixture_copy("crashed-small"))
    seal(store)
    return store


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["store", "repository"])
def test_any_byte(kind: str, good: Path, tmp_path: Path) -> None:
    """Flips anywhere in sealed segments, and lost pages: 80, 10,000 in a wide run."""
    truth, draw = log_of(good), Random(kind)
    end = records_of(good)[-1][0] // SIZE * SIZE
    source = good if kind == "store" else repository(tmp_path / "repository", good, None)
    kinds = set()
    for _ in range(ROUNDS):
        store = stores.copy(good, tmp_path / "store")
        for number in range(FLIPS):
            at = draw.randrange(end)
            if number % 10 == 9:
                rot(store, at // 4096 * 4096, bytes(4096))
            else:
                was = (store / "commitlog" / f"{at // SIZE * SIZE:020d}").read_bytes()[at % SIZE]
                rot(store, at, bytes([was ^ 1 << draw.randrange(8)]))
        outcome = heal(store, source)
        assert_healed(outcome, store, truth)
        assert {one.proof for one in outcome.plan.healed} == {Proof.SEAL}
        kinds |= {one.part.lost for one in outcome.plan.healed}
        assert_sound(of_store(store))
        assert heal(store, source).ending is Ending.UNCHANGED
        rot(store, SIZE + 77, b"\xff\x00")  # the seals still count
        assert_healed(heal(store, source), store, truth)
        shutil.rmtree(store)
    assert LostKind.CHANGED in kinds  # of what no CRC covers


@pytest.mark.leaves
def test_killed_while_writing_what_seals_show(good: Path, tmp_path: Path) -> None:
    """Changes that nothing but a seal shows: the next run finds those that the killed one had not written."""
    truth, draw = log_of(good), Random(8)
    store = stores.copy(good, tmp_path / "store")
    for record in draw.sample([one for one in records_of(good) if SIZE < one[0] < 2 * SIZE - 5000], 8):
        rot(store, record[0] + 44, b"\xff\xee")  # queueOffset … bornHost: no CRC covers them
    counting = FaultyDisk(None)
    whole = stores.copy(store, tmp_path / "whole")
    assert_healed(heal(whole, good, disk=counting), whole, truth)
    steps = counting.steps_seen.count("recover.bridge")
    assert steps >= 4
    for nth in (1, steps // 2, steps):
        copy = stores.copy(store, tmp_path / f"killed-{nth}")
        disk = FaultyDisk(None)
        disk.kill_at("recover.bridge", nth)
        with pytest.raises(Killed):
            heal(copy, good, disk=disk)
        heal(copy, good)
        assert log_of(copy) == truth


def test_damage_bridges_and_missing_segments(good: Path, tmp_path: Path) -> None:
    truth = log_of(good)
    store = damaged(good, tmp_path / "store", Random(31), ("body", "zeros"))
    bridge(store)  # it removes the seals of what it changes: these come from elsewhere
    shutil.copytree(good / "seals", store / "seals", dirs_exist_ok=True)
    (store / "commitlog" / f"{SIZE:020d}").unlink()
    outcome = heal(store, good)
    assert_healed(outcome, store, truth)
    kinds = {one.part.lost: one for one in outcome.plan.healed}
    assert kinds[LostKind.MISSING].proof is Proof.SEAL
    assert kinds[LostKind.MISSING].messages > 50
    assert "log-bridged" not in {one.code for one in check_clean(store).findings}


@pytest.mark.leaves
def test_each_page_from_whoever_has_it(good: Path, tmp_path: Path) -> None:
    """Three sources that are rotten themselves, none whole; the seal tells which page of which is right."""
    truth = log_of(good)
    store, sources = stores.copy(good, tmp_path / "store"), []
    places = [SIZE + 4096 * n + 100 for n in (2, 7, 11)]
    for at in places:
        rot(store, at, b"\x00\xff\x00\xff")
    for at in places:
        other = stores.copy(good, tmp_path / f"source-{at}")
        for wrong in (one for one in places if one != at):
            rot(other, wrong, b"\xff\x00\xff\x00")
        sources.append(other)
    before = log_of(store)
    first = heal(store, sources[0], sources[1])
    assert first.plan.left
    assert log_of(store) != truth
    for name, data in log_of(store).items():  # each byte is what it was, or what is true
        assert all(one in (was, true) for one, was, true in zip(data, before[name], truth[name], strict=True))
    take_back(store)
    outcome = heal(store, *sources)
    assert_healed(outcome, store, truth)
    assert len({name for one in outcome.plan.healed for name in one.copies}) == 3
    take_back(store)
    assert log_of(store) == before


@pytest.mark.leaves
def test_copies_that_differ_are_told_apart_by_the_seal(good: Path, tmp_path: Path) -> None:
    """Without a seal none would be taken; and what contradicts the seal is not taken either."""
    offset, size, _ = next(one for one in records_of(good) if one[0] > SIZE and one[2] > 50)
    store, other = stores.copy(good, tmp_path / "store"), stores.copy(good, tmp_path / "other")
    rot(store, offset + 90, b"\xff\x00\xff")
    write(other, offset + size - 3, b"#")
    with pytest.raises(CannotRepair):
        heal(store, other)
    assert_healed(heal(store, other, good), store, log_of(good))


@pytest.mark.leaves
def test_a_segment_that_was_written_since_keeps_its_records(good: Path, tmp_path: Path) -> None:
    """A program's change of a sound record is not taken back by an old seal; a damaged seal decides nothing."""
    offset, size, _ = next(one for one in records_of(good) if one[0] > SIZE and one[2] > 50)
    store = stores.copy(good, tmp_path / "store")
    write(store, offset + size - 3, b"#")  # its time changes
    before = log_of(store)
    outcome = heal(store, good)
    assert outcome.ending is Ending.UNCHANGED
    assert "was written since it was sealed" in outcome.plan.problems[0]
    assert log_of(store) == before
    seals = Path(seals_directory(str(store)))
    for path in seals.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    rot(store, next(one[0] for one in records_of(good) if one[2] > 50) + 130, b"\xff\x00\xff")
    outcome = heal(store, good)
    assert "a seal can't be used" in outcome.plan.problems[0]
    assert [one.proof for one in outcome.plan.healed] == [Proof.RECORDS]
