"""Files of config/ that are damaged by chance, and a rebuild that is killed: what is known elsewhere comes back."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import CannotRepair, Refused
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import fastjson
from engine.inspect.check.check import check
from engine.inspect.store.config_files import ConfigFileState, read_table
from engine.inspect.store.config_shapes import CONSUMERS, GROUPS, OFFSET_TABLE, TOPIC_TABLE, TOPICS
from engine.inspect.store.repairs import repairs
from engine.log.derive import TopicQueue
from engine.repair.config.apply import apply
from engine.repair.config.plan import RebuildChoices, plan_rebuild
from engine.repair.recover.apply import apply as recovered
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.conftest import Store
from tests.engine.repair.config.test_rebuild import FILES, config, kept, lived, plan, read, rebuild, write
from tests.engine.repair.test_rules import put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.wide import sample

# --- damage by chance -------------------------------------------------------------------------------------------------


def _cut(path: Path, rng: random.Random, _: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def _zeroed(path: Path, rng: random.Random, _: Path) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at : at + rng.randrange(1, 64)] = bytes(len(data[at : at + rng.randrange(1, 64)]))
    path.write_bytes(data)


def _flipped(path: Path, rng: random.Random, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _wrong(path: Path, rng: random.Random, _: Path) -> None:
    value = fastjson.loads(path.read_text())
    place = value
    while isinstance(place, dict) and place and rng.random() < 0.8:
        key = rng.choice(sorted(place))
        if not isinstance(place[key], dict) or rng.random() < 0.3:
            place[key] = rng.choice([None, "x", -7, 1e999, [], {}, True, 2**70, "5"])
            break
        place = place[key]
    path.write_text(json.dumps(value))


def _missing(path: Path, rng: random.Random, _: Path) -> None:
    path.unlink()


def _empty(path: Path, rng: random.Random, _: Path) -> None:
    path.write_bytes(rng.choice([b"", b"\0" * 99, b"  ", b"null", b"[]", b"{}"]))


def _foreign(path: Path, rng: random.Random, other: Path) -> None:
    shutil.copy(other / rng.choice(FILES), path)


DAMAGES: tuple[Callable[[Path, random.Random, Path], None], ...] = (
    *(_cut, _zeroed, _flipped, _wrong, _missing, _empty, _foreign),
)


@pytest.mark.leaves("config-bad", "config-bak", "config-missing", "config-value")
@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_damage_by_chance(seed: int, fixture_copy: Store, tmp_path: Path) -> None:
    rng = random.Random(seed)
    store = fixture_copy("clean-small")
    offsets = lived(store)
    other = tmp_path / "other"
    shutil.copytree(store / "config", other)
    if rng.random() < 0.5:
        for name in FILES:
            shutil.copy(store / "config" / name, store / "config" / f"{name}.bak")
    hurt = rng.sample(FILES, rng.randrange(1, 5))
    for name in hurt:
        rng.choice(DAMAGES)(store / "config" / name, rng, other)
        backup = store / "config" / f"{name}.bak"
        if backup.exists() and rng.random() < 0.3:
            rng.choice(DAMAGES[:6])(backup, rng, other)
    before = kept(store)
    surviving = {
        key: queue
        for name in (CONSUMERS, f"{CONSUMERS}.bak")
        if (store / "config" / name).exists()
        for key, queue in _readable(store, name).items()
    }
    shown = plan(store)
    assert kept(store) == before
    done = rebuild(store)
    assert shown.to_json(None) | {"files": None} == done.to_json(None) | {"files": None}
    for name in FILES:
        found = read_table(Disk(), str(store / "config"), name)
        assert found.state is ConfigFileState.SOUND, (name, found.problem)
    bad = [f for f in check(Disk(), config(store)).findings if f.code.startswith("config-") and "bak" not in f.code]
    assert not [f for f in bad if f.code not in ("config-not-strict", "config-absent")], bad
    if TOPICS in {one.name for one in done.changes}:
        table = read(store, TOPICS)[TOPIC_TABLE]
        for queue in (store / "consumequeue").glob("*/*"):
            assert any(not any(file.read_bytes()) for file in queue.iterdir()) or queue.parent.name in table
    new = _readable(store, CONSUMERS)
    for key in surviving.keys() & offsets.keys() if CONSUMERS in {one.name for one in done.changes} else ():
        for queue, offset in surviving[key].items():
            assert new[key][queue] == min(offset, _end(store, key, queue)) or offset < 0
    assert not plan(store).changed
    if done.changed:
        undo(Disk(), plan_undo(Disk(), config(store)))
        assert kept(store) == before


def _readable(store: Path, name: str) -> dict[str, dict[str, int]]:
    found = read_table(Disk(), str(store / "config"), CONSUMERS, backup=name.endswith(".bak"))
    return {key: queues for key, queues in found.tables[OFFSET_TABLE].items() if key.count("@") == 1}


def _end(store: Path, key: str, queue: str) -> int:
    from engine.inspect.store.survey import survey
    from engine.repair.config.evidence import evidence_of

    spans = evidence_of(Disk(), survey(Disk(), config(store))).ranges
    span = spans.get(TopicQueue(key.partition("@")[0], int(queue)))
    return 1 << 62 if span is None else span.high


@pytest.mark.leaves("config-bad")
@pytest.mark.wide
def test_killed_at_every_step(fixture_copy: Store, tmp_path: Path) -> None:
    """Every file is the old one or the new one; run again it is all done, and undo brings back all that was."""
    store = fixture_copy("clean-small")
    lived(store)
    write(store, f"{TOPICS}.bak", "{")
    write(store, TOPICS, '{"topicConfigTable":{"T":5')
    write(store, CONSUMERS, "{")
    (store / "config" / GROUPS).unlink()
    before = kept(store)
    whole = stores.copy(store, tmp_path / "whole")
    disk = FaultyDisk(None)
    apply(disk, plan(whole, disk=disk))
    after = {path: seen.digest for path, seen in kept(whole).items() if TOPICS not in path and GROUPS not in path}
    assert disk.changes_seen > 20
    for number in sample(range(1, disk.changes_seen + 1, 2), 3):
        copy = stores.copy(store, tmp_path / f"killed-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            apply(faulty, plan(copy, disk=faulty))
        undone = stores.copy(copy, tmp_path / f"undone-{number}")
        try:
            taken_back = plan_undo(Disk(), config(undone))
        except CannotRepair:
            assert {p: s.digest for p, s in kept(undone).items()} == {p: s.digest for p, s in before.items()}
        else:
            undo(Disk(), taken_back)
            assert kept(undone) == before
        rebuild(copy)
        assert not plan(copy).changed
        found = {path: seen.digest for path, seen in kept(copy).items()}
        assert {path: found.get(path) for path in after} == after, number
        shutil.rmtree(copy)
        shutil.rmtree(undone)


@pytest.mark.leaves("config-bad", "config-missing", "index-missing")
def test_undo_behind_a_killed_recovery_keeps_the_broken_file(tmp_path: Path) -> None:
    """The killed recovery changed nothing of config/, and lists nothing of it."""
    root = tmp_path / "store"
    put(root, 30)
    shutil.rmtree(root / "index")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / GROUPS).write_text("{broken", encoding="utf-8")
    before = stores.contents(root / "config")
    disk = FaultyDisk(None)
    disk.kill_at("recover.index-done")
    with pytest.raises(Killed):
        recovered(disk, plan_recover(Disk(), settings(root)))
    with pytest.raises(Refused, match="rstore recover"):
        plan_rebuild(Disk(), settings(root), RebuildChoices())
    recovered(Disk(), plan_recover(Disk(), settings(root)))
    apply(Disk(), plan_rebuild(Disk(), settings(root), RebuildChoices()))
    check_clean(root, settings(root))
    while any(not one.undone for one in repairs(Disk(), str(root))):
        undo(Disk(), plan_undo(Disk(), settings(root)))
    assert stores.contents(root / "config") == before
