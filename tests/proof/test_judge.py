"""The judge of the proof can fail: it reads what Apache reads, and sees each thing that a repair may do wrong."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat import fixtures
from tests.compat.apache import Opened
from tests.proof import bases, judge, own, shapes, store, truth
from tests.proof.bases import Base
from tests.proof.scene import NotHere, Scene
from tests.proof.shapes import pages
from tests.proof.store import Wanted
from tests.proof.tree import changes, tree

pytestmark = pytest.mark.leaves()


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[Base, ...]:
    root = tmp_path_factory.mktemp("bases")
    return tuple(bases.unpack(name, root) for name in bases.names())


@pytest.fixture(scope="module")
def keys(every: tuple[Base, ...]) -> Base:
    return next(base for base in every if base.name == "keys")


@pytest.mark.parametrize("name", fixtures.names())
def test_it_reads_what_apache_read(name: str, every: tuple[Base, ...]) -> None:
    base = next(one for one in every if one.name == name)
    bases.hold_against(base.facts, Opened.of(0, list(fixtures.dump(name)), ""))


def test_an_undamaged_store_has_lost_nothing(every: tuple[Base, ...]) -> None:
    for base in every:
        whole = truth.sound(base, base.facts, base.store)
        assert whole == base.facts.records.keys(), base.name
        if not (base.store / "abort").exists():
            lost = truth.loss(base, base.facts, whole, truth.held(base, base.store), to_the_end=True)
            assert not lost.any(), (base.name, lost)


def _unit(path: Path, number: int, unit: tuple[int, int, int]) -> None:
    Scene.write(path, number * own.UNIT, struct.pack(">qiq", *unit))


def _record_zero(base: Base, copy: Path) -> None:
    Scene.write(copy / "commitlog" / f"{0:020d}", sorted(base.facts.records)[3], bytes(30))


def _record_invented(base: Base, copy: Path) -> None:
    start = base.facts.end // base.segment * base.segment
    data = base.facts.records[0][0]
    Scene.write(copy / "commitlog" / f"{start:020d}", base.facts.end - start, data)


def _unit_foreign(base: Base, copy: Path) -> None:
    there = base.facts.queues["Orders", 1, 4]
    _unit(copy / "consumequeue/Orders/0" / f"{0:020d}", 0, (there, base.facts.records[there][1].size, 0))


def _unit_more(base: Base, copy: Path) -> None:
    units = sum(1 for topic, queue_id, _ in base.facts.queues if (topic, queue_id) == ("Orders", 0))
    there = base.facts.queues["Orders", 0, 4]
    _unit(copy / "consumequeue/Orders/0" / f"{0:020d}", units, (there, base.facts.records[there][1].size, 0))


def _units_swapped(base: Base, copy: Path) -> None:
    path = copy / "consumequeue/Orders/0" / f"{0:020d}"
    data = path.read_bytes()
    Scene.write(path, 0, data[20:40] + data[:20])


def _entry_wild(base: Base, copy: Path) -> None:
    path = sorted((copy / "index").iterdir())[1]
    Scene.write(path, 40 + 4 * base.layout[0] + 20 * 7, bytes([1]) * 12)


WRONG: dict[str, Callable[[Base, Path], None]] = {
    "place": _record_zero,
    "invented": _record_invented,
    "queue": _unit_foreign,
    "invented by a unit": _unit_more,
    "moved": _units_swapped,
    "key": _entry_wild,
}


@pytest.mark.parametrize("kind", WRONG)
def test_it_sees_what_is_wrong(kind: str, keys: Base, tmp_path: Path) -> None:
    copy = judge.copy(keys.store, tmp_path / "store")
    WRONG[kind](keys, copy)
    whole = frozenset(keys.facts.records)
    lost = truth.loss(keys, keys.facts, whole, truth.held(keys, copy), to_the_end=True)
    assert getattr(lost, kind.split(maxsplit=1)[0]), lost


def test_of_two_copies_of_a_message_that_differ_either_may_stay_when_the_other_is_saved(
    keys: Base, tmp_path: Path
) -> None:
    copy = judge.copy(keys.store, tmp_path / "store")
    log, offset = copy / "commitlog", sorted(keys.facts.records)[3]
    (log / "copy").write_bytes((log / f"{0:020d}").read_bytes())
    Scene.write(log / f"{0:020d}", offset + 40, b"\x01")
    whole = truth.sound(keys, keys.facts, copy)
    assert offset in whole
    assert truth.contested(keys, keys.facts, copy, whole) == {offset}
    lost = truth.loss(keys, keys.facts, whole, truth.held(keys, copy), to_the_end=True)
    assert lost.place == {offset}
    assert truth.saved(copy, keys.facts, lost.place) == set()
    (copy / "quarantine").mkdir()
    (log / "copy").rename(copy / "quarantine" / "copy")
    assert truth.saved(copy, keys.facts, lost.place) == {offset}


def test_a_log_that_breaks_off_is_seen(keys: Base, tmp_path: Path) -> None:
    copy = judge.copy(keys.store, tmp_path / "store")
    _record_zero(keys, copy)
    whole = truth.sound(keys, keys.facts, copy)
    assert len(whole) == len(keys.facts.records) - 1
    lost = truth.loss(keys, keys.facts, whole, truth.held(keys, copy), to_the_end=True)
    assert lost.broken
    assert not lost.messages


def test_a_change_of_any_kind_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(b"1")
    before = tree(root)
    assert not changes(before, tree(root))
    (root / "empty").mkdir()
    assert "empty" in changes(before, tree(root))
    (root / "empty").rmdir()
    (root / "file").rename(root / "other")
    (root / "file").symlink_to("other")
    assert "link to other" in changes(before, tree(root))


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_each_shape_damages_some_base(name: str, every: tuple[Base, ...], tmp_path: Path) -> None:
    assert shapes.what(name)
    for base in every:
        copy = judge.copy(base.store, tmp_path / base.name)
        others = tuple(one for one in every if one is not base)
        scene = Scene(random.Random(name), copy, base, base.facts, others)
        before = tree(copy)
        try:
            how = shapes.SHAPES[name](scene)
        except NotHere:
            assert not changes(before, tree(copy)), "it was changed all the same"
            continue
        assert how
        if changes(before, tree(copy)):
            return
    pytest.fail("no base was damaged")


@pytest.mark.parametrize("name", pages.SHAPES)
def test_a_segment_that_was_emptied_is_no_place_for_damage(name: str, every: tuple[Base, ...], tmp_path: Path) -> None:
    base = next(base for base in every if base.name == "lmq")
    copy = judge.copy(base.store, tmp_path / "store")
    os.truncate(copy / "commitlog" / f"{0:020d}", 0)
    with pytest.raises(NotHere):
        pages.SHAPES[name](Scene(random.Random(0), copy, base, base.facts))


def test_a_seed_makes_the_same_store_again(every: tuple[Base, ...], tmp_path: Path) -> None:
    wanted = Wanted(seed=11)
    for number in range(0, len(shapes.SHAPES), 7):
        one = store.damaged(wanted, number, every, tmp_path / "one")
        other = store.damaged(wanted, number, every, tmp_path / "other")
        assert one[1] == other[1]
        assert not changes(tree(tmp_path / "one"), tree(tmp_path / "other"))
        assert one[0].whole == other[0].whole


def test_a_blank_record_leads_on_to_a_segment_that_is_there() -> None:
    """As Apache's recovery goes: where none follows, the log ends in front of the blank."""
    blank = struct.pack(">iI", 4096, own.BLANK).ljust(4096, b"\0")
    assert truth.Held({0: blank}, {}, set()).end == 0
    assert truth.Held({0: blank, 4096: bytes(4096)}, {}, set()).end == 4096
    assert truth.Held({8192: bytes(4096)}, {}, set()).end == 8192
    assert truth.Held({}, {}, set()).end == 0
