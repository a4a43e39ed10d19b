"""status, doctor, check and plan-start go by the log's files as recovery will make them: nothing that a file under
another name holds is missing, and all of them name the same next command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.finding_codes import Severity
from engine.inspect.status.status import StoreCondition, status
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.start.plan_start import plan_start
from tests.support import layouts
from tests.support.layouts import SIZE, Made


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Made]:
    at = tmp_path_factory.mktemp("planned")
    return {segments: layouts.make(at / str(segments), segments=segments) for segments in (1, 6)}


def renamed(number: int) -> Callable[[Made], None]:
    return lambda made: made.files[number].rename(f"{made.files[number]}.bak")


def swapped(made: Made) -> None:
    one, two = made.files[1:3]
    two.rename(made.root / "aside")
    one.rename(two)
    (made.root / "aside").rename(one)


def left_by_rsync(made: Made) -> None:
    directory = made.files[2].parent / ".~tmp~"
    path = made.files[2]
    directory.mkdir()
    path.rename(directory / path.name)


def longer(made: Made) -> None:
    os.truncate(made.files[2], SIZE + 300)


MOVED = {
    "a single segment renamed": (1, renamed(0)),
    "the first renamed": (6, renamed(0)),
    "one in the middle renamed": (6, renamed(2)),
    "the last renamed": (6, renamed(-1)),
    "two swapped": (6, swapped),
    "one that rsync left": (6, left_by_rsync),
    "a longer one": (6, longer),
}
"""Nothing is lost by any of these."""


@pytest.mark.parametrize("name", MOVED)
def test_a_file_under_another_name_is_no_loss(name: str, bases: dict[int, Made], tmp_path: Path) -> None:
    segments, damage = MOVED[name]
    made = bases[segments].copy(tmp_path / "store")
    damage(made)
    checked = check(Disk(), made.config)
    wrong = {one.code for one in checked.findings if one.severity is not Severity.INFO}
    assert wrong <= {"log-misplaced", "file-size", "file-stray"}
    assert checked.counts["records"] == len(made.records)
    seen = status(Disk(), made.config)
    end = max(offset + len(record) for offset, (_, _, record) in made.records.items())
    assert (seen.state, seen.log.min_offset, seen.log.max_offset) == (StoreCondition.DAMAGED, 0, end)
    assert seen.log.files == segments
    assert seen.messages == len(made.records)
    plan = plan_recover(Disk(), made.config)
    assert plan.refusal is None
    apply(Disk(), plan)


def short(number: int, size: int) -> Callable[[Made], None]:
    return lambda made: os.truncate(made.files[number], size)


def surplus(made: Made) -> None:
    with made.files[2].open("ab") as file:
        file.write(b"surplus" * 40)


LOST = {
    "the last one short": (6, short(-1, 1000)),
    "a single one short": (1, short(0, 5000)),
    "one in the middle short": (6, short(2, 5000)),
    "one in the middle with bytes behind it": (6, surplus),
}


@pytest.mark.parametrize("name", [*MOVED, *LOST])
def test_all_name_the_same_next_command(name: str, bases: dict[int, Made], tmp_path: Path) -> None:
    segments, damage = {**MOVED, **LOST}[name]
    made = bases[segments].copy(tmp_path / "store")
    damage(made)
    looks = (check, status, doctor, plan_start)
    told = {look.__name__: look(Disk(), made.config).next for look in looks}
    assert len(set(told.values())) == 1, told
    refusal = plan_recover(Disk(), made.config).refusal
    following = told["status"]
    assert following is not None
    assert following.command is not None
    if refusal is not None:
        assert refusal.next is not None
        assert following.command == refusal.next.command
    plan = plan_recover(Disk(), made.config, bridge=refusal is not None)
    apply(Disk(), plan)


@pytest.mark.parametrize(("segments", "size"), [(1, 5000), (6, 1000)])
def test_the_log_ends_where_its_short_last_file_does(
    segments: int, size: int, bases: dict[int, Made], tmp_path: Path
) -> None:
    made = bases[segments].copy(tmp_path / "store")
    short(-1, size)(made)
    end = (segments - 1) * SIZE + size
    held = [offset for offset, (_, _, record) in made.records.items() if offset + len(record) <= end]
    seen = status(Disk(), made.config)
    assert seen.log.newest is not None
    assert seen.log.newest.offset == max(held)
    assert seen.log.max_offset <= end
    assert check(Disk(), made.config).counts["records"] == len(held)
    apply(Disk(), plan_recover(Disk(), made.config))
