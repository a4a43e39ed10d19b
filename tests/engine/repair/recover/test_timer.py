"""Timer log, wheel and timercheck after a recovery or a cut: a broker then delivers what waits, each message once.

The truth is tests/support/timer_model.py, which knows the broker's own recovery and none of the engine's readers.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.check.check import check
from engine.repair.change import carry_out
from engine.repair.recover.apply import apply
from engine.repair.recover.change import RecoverChange
from engine.repair.recover.recover import plan_recover
from engine.repair.recover.space_needed import space_needed
from engine.repair.salvage.change import UndoChange
from engine.repair.truncate.change import TruncateChange
from tests.support import newer, stores
from tests.support.timer_model import Model

DUE = 1795485480000
NOW = DUE - 3_600_000
FIRST = f"{0:020}"
LATE = Counter({f"Late-{at}": 1 for at in range(5)})
WIDE = bool(os.environ.get("RSTORE_WIDE"))
SEEDS = range(400) if WIDE else (0, 1, 2, 3, 4, 5, 7, 14)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return newer.unpack("timer", tmp_path_factory.mktemp("rocketmq5"))


@pytest.fixture
def store(unpacked: Path, tmp_path: Path) -> Path:
    return stores.copy(unpacked, tmp_path / "store")


class Then(FaultyDisk):
    """A disk at the time when the messages were yet to be delivered."""

    def now_ms(self) -> int:
        return NOW


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root)


def delivers(root: Path) -> Counter[str]:
    model = Model(root, 5200, NOW)
    sent = model.delivers()
    assert not model.hangs
    return sent


def recover(root: Path, disk: Disk | None = None) -> bool:
    """Whether it changed anything."""
    return carry_out(RecoverChange(whole=True), disk or Then(None), config_of(root)).changes


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def records(root: Path) -> list[tuple[int, int, dict[str, str]]]:
    """Physical offset, size and properties of each record, read without the engine."""
    model, found, at = Model(root, 5200, NOW), [], 0
    while len(head := model.log(at, 8)) == 8 and struct.unpack(">ii", head)[1] == -626843481:
        size = struct.unpack(">i", head[:4])[0]
        named = model.message(at, size)
        assert named is not None
        found.append((at, size, named))
        at += size
    return found


def expected(root: Path, end: int) -> Counter[str]:
    """What waits where the log ends at `end`: records of the timer's topic without a copy of them in their own."""
    some = [named for at, size, named in records(root) if at + size <= end]
    waits = Counter(named["KEYS"] for named in some if named["topic"] == "rmq_sys_wheel_timer")
    return waits - Counter(named["KEYS"] for named in some if "TIMER_DEQUEUE_MS" in named)


def damage(root: Path, seed: int) -> str:
    """One thing wrong with the timer's files, and what."""
    chance = random.Random(seed)
    log, wheel, timercheck = root / "timerlog" / FIRST, root / "timerwheel", root / "config" / "timercheck"
    match seed % 8:
        case 0:
            at, length = chance.randrange(520), chance.randrange(1, 60)
            put(log, at, chance.randbytes(length))
            return f"{length} bytes at {at} of the timer log"
        case 1:
            put(log, 260 + 52 * chance.randrange(5) + 4, chance.choice([-1, 0, 208, 300, 312]).to_bytes(8, signed=True))
            return "previous"
        case 2:
            at = chance.randrange(5) * 52 + 260
            put(log, at, bytes(520 - at))
            return f"zeros from {at} of the timer log"
        case 3:
            values = (chance.randrange(DUE // 1000, DUE // 1000 + 9), *sorted(chance.choices(range(0, 5200, 52), k=2)))
            put(wheel, values[0] % 1_209_600 * 32, struct.pack(">qqqii", *values, 1, 0))
            return f"slot {values}"
        case 4:
            values = chance.choice([(NOW, 0, 0, 0), (0, 0, 0, 0), (NOW, 520, 99, 99), (NOW, 5200, 2, 2), (NOW,)])
            put(timercheck, 0, struct.pack(f">{len(values)}q", *values))
            return f"timercheck {values}"
        case 5:
            gone = chance.choice([log, wheel, timercheck])
            gone.unlink()
            return f"{gone.name} is gone"
        case 6:
            path, size = chance.choice([(log, 300), (log, 5000), (wheel, 1 << 20), (timercheck, 20), (wheel, 0)])
            os.truncate(path, size)
            return f"{path.name} has {size} bytes"
        case _:
            at = 260 + 52 * chance.randrange(5)
            put(log, at + 28, struct.pack(">qi", *chance.choice([(1 << 40, 375), (0, 241), (7574, 1), (11170, 419)])))
            return f"physical offset at {at}"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_recovery_each_that_waits_is_delivered_once(seed: int, store: Path) -> None:
    assert delivers(store) == LATE
    what = damage(store, seed)
    wrong = Model(store, 5200, NOW).delivers() != LATE
    codes = {one.code for one in check(Then(None), config_of(store)).findings}
    assert not wrong or any(code.startswith("timer-") for code in codes), what
    (store / "abort").touch()  # as after a crash: what would be delivered is compared with the log
    before = stores.contents(store)
    recover(store)
    assert delivers(store) == LATE, what
    after = stores.contents(store)
    assert not recover(store), what
    assert stores.contents(store) == after, what
    carry_out(UndoChange(), Then(None), config_of(store))
    assert {path: seen for path, seen in stores.contents(store).items() if not path.startswith("salvage")} == before
    recover(store)


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("what", ["timerlog", "timerlog timerwheel"])
def test_timer_files_that_are_all_gone_are_noticed_and_rebuilt(what: str, abort: bool, store: Path) -> None:
    """config/timercheck says that its broker had taken messages into them."""
    for part in what.split():
        (shutil.rmtree if part == "timerlog" else os.unlink)(store / part)
    if abort:
        (store / "abort").touch()
    before = stores.contents(store)
    (found,) = [one for one in check(Then(None), config_of(store)).findings if one.code == "timer-damage"]
    assert "no unit, and 5 messages before queue offset 10 wait" in str(found)
    assert recover(store)
    assert delivers(store) == LATE
    assert not recover(store)
    carry_out(UndoChange(), Then(None), config_of(store))
    after = {path: seen for path, seen in stores.contents(store).items() if not path.startswith("salvage")}
    assert {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)} <= {"timerlog"}
    recover(store)


def test_timer_files_that_are_gone_with_nothing_to_deliver_are_no_damage(store: Path) -> None:
    """Each message that config/timercheck counts has been delivered, or is counted by nobody."""
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    timercheck = store / "config" / "timercheck"
    put(timercheck, 16, struct.pack(">qq", 5, 5))
    waits = [one.code for one in check(Then(None), config_of(store)).findings if one.code.startswith("timer-")]
    assert not waits
    timercheck.unlink()
    assert not recover(store)


def test_the_space_that_a_rebuilt_timer_takes_is_planned(store: Path) -> None:
    """As far as blocks of 4096 bytes tell: what was no file takes all of it."""
    disk = Then(None)
    paths = [store / "timerwheel", store / "timerlog" / FIRST]
    for path in paths:
        path.unlink()
    plan = plan_recover(disk, config_of(store))
    assert plan.timer is not None
    (needed,) = space_needed(disk, plan).values()
    apply(disk, plan)
    took = sum(disk.blocks(str(path)) for path in (*paths, store / "config" / "timercheck"))
    assert took <= needed <= took + 4096


def ends(root: Path) -> list[int]:
    """Where the log can be cut: after each record, from the last one on that no timer message is before."""
    return [at for at, _, _ in records(root)][20:]


@pytest.mark.parametrize("number", range(15) if WIDE else (3, 12))
def test_after_a_cut_each_that_then_waits_is_delivered_once(number: int, store: Path) -> None:
    """Copies after the cut are gone: their messages wait again, and are due at once."""
    end = ends(store)[number]
    wanted = expected(store, end)
    before = stores.contents(store)
    carry_out(TruncateChange(to_offset=end, agreed=True), Then(None), config_of(store))
    assert delivers(store) == wanted
    assert not recover(store)
    carry_out(UndoChange(), Then(None), config_of(store))
    assert {path: seen for path, seen in stores.contents(store).items() if not path.startswith("salvage")} == before


def test_a_cut_that_is_killed_at_any_point_ends_as_one_that_is_not(store: Path, tmp_path: Path) -> None:
    change = TruncateChange(to_offset=ends(store)[12], agreed=True)
    before = stores.contents(store)
    whole = stores.copy(store, tmp_path / "whole")
    disk = Then(None)
    carry_out(change, disk, config_of(whole))
    wanted = delivers(whole)
    shutil.rmtree(whole)
    points = range(1, disk.changes_seen + 1)
    for number in points if WIDE else random.Random(5).sample(points, 2):
        killed = stores.copy(store, tmp_path / f"killed-{number}")
        faulty = Then(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            carry_out(change, faulty, config_of(killed))
        carry_out(change, Then(None), config_of(killed))
        assert delivers(killed) == wanted, number
        if (killed / "salvage").exists():
            carry_out(UndoChange(), Then(None), config_of(killed))
        left = stores.contents(killed)
        assert {path: seen for path, seen in left.items() if not path.startswith("salvage")} == before, number
        shutil.rmtree(killed)
