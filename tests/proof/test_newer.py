"""Timer messages and epochs of real RocketMQ 5 stores after repairs, by the proof's own reader and model of a start."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof import bases, command, judge, newer, own, truth
from tests.proof.bases import Base
from tests.proof.shapes.newer import SLOT, TIMER

SLOTS = 1_209_600


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return bases.unpack("mixed-5.3.3", tmp_path_factory.mktemp("bases"))


@pytest.fixture
def store(base: Base, tmp_path: Path) -> Path:
    return judge.copy(base.store, tmp_path / "store")


def run(base: Base, store: Path, *words: str) -> command.Ran:
    conf = store.with_suffix(".conf")
    conf.write_text(base.conf(store), encoding="utf-8")
    return command.run(store, conf, *words)


def codes(base: Base, store: Path) -> set[str]:
    """Of errors and warnings."""
    return {one["code"] for one in run(base, store, "check").said["findings"] if one["severity"] != "info"}


def wrong(base: Base, store: Path) -> list[str]:
    return newer.wrong(base, base.facts, base.store, store, truth.held(base, store))


def timer_records(base: Base) -> list[int]:
    """Physical offsets, by queue offset."""
    return [base.facts.queues[one] for one in sorted(base.facts.queues) if one[0] == newer.TOPIC]


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def damage_body(base: Base, store: Path, offset: int) -> None:
    """A byte of the body of a record."""
    start = offset // base.segment * base.segment
    path = store / "commitlog" / f"{start:020}"
    at = offset - start + 100
    put(path, at, bytes([own.content(path)[at] ^ 1]))


def last_unit(store: Path) -> tuple[Path, int]:
    path = store / "timerlog" / f"{0:020}"
    data = own.content(path)
    return path, max(at for at in range(0, len(data) - TIMER, TIMER) if data[at : at + 4] == b"\0\0\0\x34")


def test_what_a_broker_left_is_right(base: Base) -> None:
    must, may = newer.waiting(base, base.facts, truth.held(base, base.store))
    assert must.total() == may.total() == 12
    assert wrong(base, base.store) == []


@pytest.mark.parametrize("number", [6, 9, 12, 17])
def test_a_timer_message_that_is_lost_takes_no_other_with_it(number: int, base: Base, store: Path) -> None:
    """And no unit of the timer log stays that names the record with which the damage is bridged."""
    damage_body(base, store, timer_records(base)[number])
    ran = run(base, store, "recover", "--bridge", "--yes")
    assert ran.exit == 0, ran
    assert wrong(base, store) == []
    assert codes(base, store) == set()


@pytest.mark.parametrize("number", [6, 9])
def test_a_unit_that_names_no_timer_message_is_mended_later_too(number: int, base: Base, store: Path) -> None:
    """As a repair of an earlier release left it: the timer log of before, the log bridged."""
    before = {path: own.content(path) for path in (*(store / "timerlog").iterdir(), store / "config" / "timercheck")}
    damage_body(base, store, timer_records(base)[number])
    assert run(base, store, "recover", "--bridge", "--yes").exit == 0
    for path, data in before.items():
        path.write_bytes(data)
    assert "timer-orphaned" in codes(base, store)
    assert run(base, store, "recover", "--yes").exit == 0
    assert codes(base, store) == set()
    assert wrong(base, store) == []


def foreign_topic(store: Path) -> str:
    path, at = last_unit(store)
    put(path, at + 40, struct.pack(">i", 4711))
    return "timer-foreign"


def too_early(store: Path) -> str:
    """The unit is due a second before its message, and stands in the slot of that time."""
    path, at = last_unit(store)
    data = own.content(path)
    written, delay = struct.unpack_from(">qi", data, at + 16)
    put(path, at + 4, struct.pack(">q", -1))
    put(path, at + 24, struct.pack(">i", delay - 1000))
    (before,) = struct.unpack_from(">q", data, at + 4)
    due = (written + delay) // 1000
    wheel = store / "timerwheel"
    (first,) = struct.unpack_from(">q", own.content(wheel), due % SLOTS * SLOT + 8)
    put(wheel, due % SLOTS * SLOT, struct.pack(">qqqii", due, first, before, 11, 0))
    put(wheel, (due - 1) % SLOTS * SLOT, struct.pack(">qqqii", due - 1, at, at, 1, 0))
    return "timer-foreign"


def last_unit_wild(store: Path) -> str:
    path, at = last_unit(store)
    put(path, at, b"\xa5" * TIMER)
    return "timer-damage"


def slot_zero(store: Path) -> str:
    """Of a due time whose units a start does not go through again: the checkpoint says that they are on disk."""
    path, at = last_unit(store)
    data = own.content(path)
    written, delay = struct.unpack_from(">qi", data, at + 16)
    put(store / "timerwheel", (written + delay) // 1000 % SLOTS * SLOT, bytes(SLOT))
    put(store / "config" / "timercheck", 8, struct.pack(">q", 10 * os.path.getsize(path)))
    path.with_name(f"{os.path.getsize(path):020}").write_bytes(bytes(os.path.getsize(path)))
    return "timer-slot"


def read_in_the_future(store: Path) -> str:
    """A broker passes over all that is due before."""
    put(store / "config" / "timercheck", 0, struct.pack(">q", 4_102_444_800_000))
    return "timer-check"


@pytest.mark.parametrize("damage", [read_in_the_future, foreign_topic, too_early, last_unit_wild, slot_zero])
def test_damage_to_the_timer_s_files_is_found_and_mended(
    damage: Callable[[Path], str], base: Base, store: Path
) -> None:
    """By what check names, on a store that was closed cleanly: nothing else tells of a crash."""
    code = damage(store)
    assert code in codes(base, store)
    (following,) = {run(base, store, "check").said["next"]["command"].split(" recover")[-1]}
    assert following.strip() in ("", "--whole")
    assert run(base, store, "recover", "--yes").exit == 0
    assert codes(base, store) == set()
    assert wrong(base, store) == []
