"""Seeded damage is healed from each kind of source: the log is the undamaged one, to the byte, and `check` is clean."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from random import Random

import pytest

from engine.config import of_store
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format.record import POSITION_PHYSICAL_OFFSET
from engine.heal.change import HealChange
from engine.heal.damage import LostKind
from engine.heal.plan import Proof
from engine.repair.change import Ending, preview
from tests.conftest import Store
from tests.engine.backup import repositories
from tests.engine.heal.healing import (
    KINDS,
    SIZE,
    as_source,
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

ROUNDS = 300 if WIDE else 2
DAMAGES = 12


def queues_of(contents: dict[str, str]) -> dict[str, str]:
    return {path: digest for path, digest in contents.items() if path.startswith("consumequeue/")}


def of_brokers(contents: dict[str, str]) -> dict[str, str]:
    """All but what rstore alone knows."""
    return {path: digest for path, digest in contents.items() if path.split("/")[0] not in ("salvage", "lock")}


@pytest.fixture
def good(fixture_copy: Store) -> Path:
    return recovered(fixture_copy("crashed-small"))


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["store", "repository", "encrypted"])
def test_damage_of_all_kinds(kind: str, good: Path, tmp_path: Path) -> None:
    """Twelve damages a store: 72 in all kinds of source, 10,800 in a wide run."""
    truth = log_of(good)
    secret = repositories.SECRET if kind == "encrypted" else None
    source = good if kind == "store" else repository(tmp_path / "repository", good, secret)
    before = stores.snapshot(good)
    for seed in range(ROUNDS):
        draw = Random(f"{kind}-{seed}")
        store = damaged(good, tmp_path / f"{seed}", draw, (draw.choice(KINDS) for _ in range(DAMAGES)))
        assert_healed(heal(store, source), store, truth)
        assert_sound(of_store(store))
        if seed % 50:
            shutil.rmtree(store)
    assert stores.snapshot(good) == before


FOUND = {
    "store-4": "what is left of the log looks like one of larger segments",
    "encrypted-185": "the same",
    "encrypted-23": "a record between two damages, whose last bytes the second one has",
}
"""Seeds at which damage was left, and why."""


@pytest.mark.parametrize("seed", FOUND)
def test_damage_that_was_left_once(seed: str, good: Path, tmp_path: Path) -> None:
    truth, draw = log_of(good), Random(seed)
    store = damaged(good, tmp_path / "store", draw, (draw.choice(KINDS) for _ in range(DAMAGES)))
    assert_healed(heal(store, good), store, truth)


@pytest.mark.parametrize("step", [-1, 1], ids=["before", "after"])
def test_a_record_beside_the_damage_names_another_place(step: int, good: Path, tmp_path: Path) -> None:
    """It is sound, and a recovery mends it: it is the copy's all the same."""
    truth, records = log_of(good), records_of(good)
    number = next(i for i, one in enumerate(records) if one[0] > SIZE and one[2] > 50)
    store = stores.copy(good, tmp_path / "store")
    write(store, records[number][0] + 130, b"\xff\x00\xff")
    write(store, records[number + step][0] + POSITION_PHYSICAL_OFFSET, b"\x01\x02")
    assert_healed(heal(store, good), store, truth)


def test_what_a_bridge_gave_up_comes_back(good: Path, tmp_path: Path) -> None:
    truth, before = log_of(good), stores.contents(good)
    store = damaged(good, tmp_path / "store", Random(3), ("body", "page", "missing", "zeros", "head"))
    bridge(store)
    assert log_of(store) != truth
    bridged = stores.contents(store)
    outcome = heal(store, good)
    assert {one.part.lost for one in outcome.plan.healed} == {LostKind.BRIDGED, LostKind.MISSING}
    assert_healed(outcome, store, truth)
    result = check_clean(store)
    assert "log-bridged" not in {one.code for one in result.findings}
    assert queues_of(stores.contents(store)) == queues_of(before)
    take_back(store)
    assert of_brokers(stores.contents(store)) == of_brokers(bridged)
    assert "log-bridged" in {one.code for one in check_clean(store).findings}


def test_queues_and_index_get_what_came_back(good: Path, tmp_path: Path) -> None:
    """Also where they are lost themselves: the queues are as those of the undamaged store."""
    before = stores.contents(good)
    store = damaged(good, tmp_path / "store", Random(5), ("missing", "body"))
    for topic in sorted((store / "consumequeue").iterdir())[1:]:
        shutil.rmtree(topic)
    shutil.rmtree(store / "index")
    assert_healed(heal(store, good), store, log_of(good))
    assert queues_of(stores.contents(store)) == queues_of(before)


@pytest.mark.leaves("log-damage", "log-gap", "file-size")
def test_undo_and_dry_run(good: Path, tmp_path: Path) -> None:
    store = damaged(good, tmp_path / "store", Random(7), ("body", "missing", "short"))
    before = stores.contents(store)
    seen = stores.snapshot(store)
    source = as_source(good, store)
    shown = preview(HealChange((source,)), Disk(), of_store(store))
    assert (shown.ending, shown.changes) == (Ending.PREVIEWED, True)
    assert stores.snapshot(store) == seen
    assert_healed(heal(store, source), store, log_of(good))
    take_back(store)
    assert of_brokers(stores.contents(store)) == of_brokers(before)


def test_pages_that_the_disk_cannot_read(good: Path, tmp_path: Path) -> None:
    store, truth = stores.copy(good, tmp_path / "store"), log_of(good)
    path = store / "commitlog" / f"{SIZE:020d}"
    disk = FaultyDisk(None, mapped=False)
    written: set[int] = set()

    def bad(doing: Doing) -> bool:
        """Two pages fail until they are written."""
        if doing.path != str(path):
            return False
        start = doing.offset or 0
        pages = {page for page in (5, 6) if start < (page + 1) * 4096 and start + (doing.length or 1) > page * 4096}
        if doing.operation is Operation.WRITE:
            written.update(pages)
        return doing.operation is Operation.READ and bool(pages - written)

    disk.fail_when(bad, errno.EIO)
    outcome = heal(store, good, disk=disk)
    assert [one.part.why for one in outcome.plan.healed] == ["the system can't read it"]
    assert_healed(outcome, store, truth)
    assert written == {5, 6}


def test_properties_next_to_damage_come_with_it(good: Path, tmp_path: Path) -> None:
    """A lost page that begins in a record's properties: no CRC covers them, and they come back with the page."""
    offset, size, _ = next(one for one in records_of(good) if one[0] > SIZE)
    store = stores.copy(good, tmp_path / "store")
    write(store, offset + size - 10, bytes(200))
    outcome = heal(store, good)
    assert [one.part.start for one in outcome.plan.healed] == [offset]
    assert_healed(outcome, store, log_of(good))


def test_what_is_proved_by_what(good: Path, tmp_path: Path) -> None:
    store = damaged(good, tmp_path / "store", Random(9), ("body",))
    outcome = heal(store, good, repository(tmp_path / "repository", good))
    (one,) = outcome.plan.healed
    assert one.proof is Proof.RECORDS
    assert len(one.copies) == 2
    assert (one.records, one.messages) == (1, 1)


def test_groups_that_are_past_it(good: Path, tmp_path: Path) -> None:

    store = damaged(good, tmp_path / "store", Random(9), ("body",))
    (store / "config").mkdir(exist_ok=True)
    topics = {path.split("/")[1] for path in queues_of(stores.contents(store))}
    table = {f"{topic}@g": {str(n): 1 << 20 for n in range(64)} for topic in topics}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    plan = heal(store, good).plan
    (passed,) = plan.passed
    assert (passed.group, passed.messages, plan.unread) == ("g", 1, 1)
    assert "get --count 1" in passed.command
    (store / "config" / "consumerOffset.json").unlink()


def test_nothing_is_damaged(good: Path, tmp_path: Path) -> None:
    store = stores.copy(good, tmp_path / "store")
    before = log_of(store)
    outcome = heal(store, good)
    assert (outcome.ending, outcome.changes) == (Ending.UNCHANGED, False)
    assert log_of(store) == before
