"""A repair is killed, a broker that knows nothing of it runs and stores messages, the next repair ends the killed one.

Whatever undo takes back then, what the broker has acknowledged stays.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CannotRepair, StoreChanged
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import names
from engine.format.message import Message
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.reindex.swap import unchanged
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.engine.repair.reindex.test_reindex import reindex
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.salvaged import by_queue
from tests.support.wide import sample

CAME = 10
TOPIC = "Came"
KEPT = 200


def truncate(root: Path, disk: Disk) -> None:
    to = (root / "to").read_text()
    apply(disk, plan_truncate(Disk(), settings(root), to_offset=int(to)), command="truncate")


def cut(root: Path, disk: Disk) -> None:
    apply(disk, plan_recover(Disk(), settings(root), cut=True, whole=True))


def rebuild(root: Path, disk: Disk) -> None:
    """As the command does it: where no queue differs, it closes what was killed."""
    plan, _ = reindex(settings(root), disk=disk)
    if not plan.changed:
        unchanged(disk, settings(root))


def recover(root: Path, disk: Disk) -> None:
    apply(disk, plan_recover(Disk(), settings(root)))


Repairing = Callable[[Path, Disk], None]


def stored(root: Path) -> set[bytes]:
    """The bodies of the broker's topic, by its queue."""
    return {bytes(message.body) for topic, *_, message in by_queue(settings(root)) if topic == TOPIC}


def let_broker_run(root: Path, count: int = CAME) -> set[bytes]:
    """A broker that knows no `salvage/` starts, stores messages, and stops; their bodies."""
    aside = root.with_name(f"{root.name}.salvage")
    (root / names.SALVAGE).rename(aside)
    came = {b"%06d" % i * 70 for i in range(count)}
    cut(root, Disk())  # as Apache's start does
    with MessageStore.open(settings(root)) as store:
        for body in sorted(came):
            assert store.put(Message(TOPIC, body)).ok
    shutil.rmtree(root / names.SALVAGE, ignore_errors=True)  # of its own start
    aside.rename(root / names.SALVAGE)
    return came


def take_back_all(root: Path, came: set[bytes]) -> None:
    """Until undo refuses; the broker's messages stay, each time."""
    for _ in range(4):
        try:
            undo(Disk(), plan_undo(Disk(), settings(root)))
        except (StoreChanged, CannotRepair):
            return
        assert came <= stored(root)
    pytest.fail("undo never refused")


@pytest.mark.leaves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.wide
@pytest.mark.parametrize(
    ("killed", "then"),
    [(truncate, recover), (cut, recover), (rebuild, recover), (rebuild, rebuild)],
    ids=lambda it: it.__name__,
)
def test_what_a_broker_stored_after_a_kill_stays(killed: Repairing, then: Repairing, tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, 300)
    (root / "to").write_text(str(offsets[KEPT]))
    if killed is cut:
        damage(root, offsets[KEPT] + 90, b"\xff")
    if killed is rebuild:
        shutil.rmtree(root / names.CONSUMEQUEUE / "T" / "1")
    counting = FaultyDisk(None)
    killed(stores.copy(root, tmp_path / "whole"), counting)
    ran = 0
    for number in sample(range(1, counting.changes_seen + 1), 9, random.Random(killed.__name__).randrange(9)):
        store = stores.copy(root, tmp_path / f"killed-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            killed(store, faulty)
        if not (store / names.SALVAGE).exists():
            continue  # nothing was begun
        came = let_broker_run(store)
        ran += 1
        then(store, Disk())
        assert came <= stored(store)
        check_clean(store, settings(store))
        take_back_all(store, came)
    assert ran


@pytest.mark.parametrize("goes_on", [True, False], ids=["next repair", "undo at once"])
def test_what_a_broker_put_where_a_repair_had_lengthened_a_file_stays(goes_on: bool, tmp_path: Path) -> None:
    """The last file was as long as what it holds: a killed repair gives it its length, a broker goes on in it."""
    root = tmp_path / "store"
    offsets = put(root, 100)
    last = max((root / names.COMMITLOG).iterdir())
    kept = [offset for offset in offsets if offset >= int(last.name)]
    os.truncate(last, kept[2] - int(last.name))
    faulty = FaultyDisk(None)
    faulty.kill_at("recover.log-done")
    with pytest.raises(Killed):
        cut(root, faulty)
    came = let_broker_run(root)
    if goes_on:
        recover(root, Disk())
    assert came <= stored(root)
    take_back_all(root, came)
    assert came <= stored(root)
    recover(root, Disk())


@pytest.mark.parametrize("goes_on", [True, False], ids=["next repair", "undo at once"])
def test_what_a_broker_put_behind_what_a_repair_bridged_stays(goes_on: bool, tmp_path: Path) -> None:
    """The repair was to change the log's last file and its queue, and nothing behind the log's end."""
    root = tmp_path / "store"
    offsets = put(root, 100, topic=TOPIC)
    damage(root, offsets[-5] + 90, b"\xff")
    shutil.rmtree(root / names.CONSUMEQUEUE)
    faulty = FaultyDisk(None)
    faulty.kill_at("recover.log-done")
    with pytest.raises(Killed):
        apply(faulty, plan_recover(Disk(), settings(root), bridge=True, whole=True))
    came = let_broker_run(root, 2)
    if goes_on:
        recover(root, Disk())
    take_back_all(root, came)
    assert came <= stored(root)
    recover(root, Disk())


@pytest.mark.parametrize("left", [None, 0, 100], ids=["gone", "empty", "short"])
def test_a_killed_repair_whose_saved_piece_is_not_whole_is_closed(left: int | None, tmp_path: Path) -> None:
    """Nothing tells then what a broker put: the next recovery does its work all the same."""
    root = tmp_path / "store"
    offsets = put(root, 300)
    damage(root, offsets[-10] + 90, b"\xff")
    faulty = FaultyDisk(None)
    faulty.kill_at("recover.zero-tail")
    with pytest.raises(Killed):
        cut(root, faulty)
    (saved,) = (root / names.SALVAGE).glob("*/0001-*")
    if left is None:
        saved.unlink()
    else:
        os.truncate(saved, left)
    cut(root, Disk())
    check_clean(root, settings(root))
    assert len(plan_undo(Disk(), settings(root)).repairs) == 1


@pytest.mark.leaves
def test_a_file_that_a_broker_made_in_a_log_directory_elsewhere_stays(tmp_path: Path) -> None:
    """The log's first file is full, so that of those which a killed repair was not to touch none is changed."""
    root, log, away = tmp_path / "store", tmp_path / "log", tmp_path / "away"
    config = settings(root).with_changes(store_path_commit_log=str(log))
    with MessageStore.open(config) as store:
        while store.log.max_offset < config.mapped_file_size_commit_log:
            near = store.log.max_offset + 1000 > config.mapped_file_size_commit_log
            assert store.put(Message(TOPIC if near else "T", bytes(500))).ok
    _, made = sorted(log.iterdir())
    queue = root / names.CONSUMEQUEUE / TOPIC
    away.mkdir()
    made.rename(away / made.name)
    queue.rename(away / TOPIC)
    shutil.rmtree(root / names.CONSUMEQUEUE / "T")
    faulty = FaultyDisk(None)
    faulty.kill_at("recover.log-done")
    with pytest.raises(Killed):
        apply(faulty, plan_recover(Disk(), config, cut=True, whole=True))
    shutil.copy2(away / made.name, made)  # as a broker writes them: message by message, in a new file
    shutil.copytree(away / TOPIC, queue, dirs_exist_ok=True)
    true = made.read_bytes()
    apply(Disk(), plan_recover(Disk(), config))
    check_clean(root, config)
    undo(Disk(), plan_undo(Disk(), config))
    with pytest.raises(StoreChanged):
        plan_undo(Disk(), config)
    assert made.read_bytes() == true
    apply(Disk(), plan_recover(Disk(), config))
    check_clean(root, config)
