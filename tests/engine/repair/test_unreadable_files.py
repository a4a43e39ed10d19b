"""Files of the log that the system can't read: no verdict is given of what they hold, and nothing is lost by a plain
recovery. The disk is real, and fails with EIO where the test says (engine.files.faults).
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.inspect.check.check import check
from engine.inspect.status.status import status
from engine.inspect.store.layout import layout_of
from engine.inspect.store.record_search import whole
from engine.inspect.store.segment_place import UNREAD
from engine.inspect.store.survey import survey
from engine.log.source import ClosedLog, Segment
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.recover.shifted import is_shifted
from tests.support import layouts
from tests.support.layouts import SIZE, Made

PAGE = 4096
LARGEST = 1 << 20


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return layouts.make(tmp_path_factory.mktemp("unreadable") / "base")


@pytest.fixture
def made(base: Made, tmp_path: Path) -> Made:
    return base.copy(tmp_path / "store")


def failing(path: Path, low: int = 0, high: int = SIZE, operation: Operation = Operation.READ) -> FaultyDisk:
    """A disk on which reading [low, high) of a file is an I/O error."""
    disk = FaultyDisk(None, mapped=False)

    def bad(doing: Doing) -> bool:
        at = doing.offset or 0
        return doing.operation is operation and doing.path == str(path) and at < high and at + (doing.length or 1) > low

    disk.fail_when(bad, errno.EIO)
    return disk


def test_records_in_front_of_a_page_that_cannot_be_read_are_found(made: Made) -> None:
    path = made.files[1]
    held = [at for at, (_, _, data) in made.records.items() if at >= SIZE and at + len(data) <= SIZE + PAGE]
    unread: list[int] = []
    with ClosedLog(failing(path, PAGE, SIZE), [Segment(SIZE, SIZE, str(path))]) as log:
        found = [batch.offset(i) for batch in whole(log, SIZE, 2 * SIZE, LARGEST, unread) for i in range(len(batch))]
    assert found == held
    assert unread == [SIZE + PAGE]


def test_records_on_both_sides_of_such_a_page(tmp_path: Path, made: Made) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"".join(file.read_bytes() for file in made.files))
    bad = (5 * PAGE, 6 * PAGE)
    unread: list[int] = []
    with ClosedLog(failing(path, *bad), [Segment(0, 6 * SIZE, str(path))]) as log:
        found = {batch.offset(i) for batch in whole(log, 0, 6 * SIZE, LARGEST, unread) for i in range(len(batch))}
    assert found == {at for at, (_, _, data) in made.records.items() if at + len(data) <= bad[0] or at >= bad[1]}
    assert unread == [bad[0]]


@pytest.mark.parametrize("number", [2, -1])
def test_a_renamed_segment_that_cannot_be_read_is_refused(number: int, made: Made) -> None:
    path = made.files[number]
    path = path.rename(f"{path}.bak")
    disk = failing(path)
    refusal = plan_recover(disk, made.config).refusal
    assert refusal is not None
    assert refusal.message == UNREAD
    assert refusal.path == str(path)
    assert refusal.next is not None
    assert status(disk, made.config).next is not None
    assert {look(disk, made.config).next.command for look in (status, check)} == {refusal.next.command}  # type: ignore[operator]
    assert plan_recover(disk, made.config, bridge=True).refusal is None
    assert not plan_recover(Disk(), made.config).layout.aside, "readable again, it has its place"
    apply(Disk(), plan_recover(Disk(), made.config))


@pytest.mark.parametrize("low", [0, PAGE])
def test_a_segment_that_cannot_be_read_beside_a_part_of_it(low: int, made: Made) -> None:
    """What is readable of it is in the other, which takes its place where that is wished."""
    path = made.files[2]
    other = shutil.copy(path, f"{path}.Xy12ab")
    os.truncate(other, PAGE + 500)
    disk = failing(path, low)
    refusal = plan_recover(disk, made.config).refusal
    assert refusal is not None
    assert (refusal.message, refusal.path) == (UNREAD, str(path))
    bridged = plan_recover(disk, made.config, bridge=True)
    assert bridged.refusal is None
    assert [odd.path for odd in bridged.set_aside] == [str(path)]
    apply(Disk(), plan_recover(Disk(), made.config))


def test_a_complete_segment_stays_beside_a_copy_that_cannot_be_read(made: Made) -> None:
    path = made.files[2]
    other = Path(shutil.copy(path, f"{path}.bak"))
    layout = layout_of(disk := failing(other, PAGE), survey(disk, made.config))
    assert layout.refusal is None
    assert [odd.path for odd in layout.aside] == [str(other)]
    assert not layout.changed
    apply(Disk(), plan_recover(Disk(), made.config))


def test_a_whole_copy_takes_the_place_of_a_segment_that_cannot_be_read(made: Made) -> None:
    path = made.files[3]
    other = shutil.copy(path, f"{path}.bak")
    disk = failing(path, PAGE)
    refusal = plan_recover(disk, made.config).refusal
    assert refusal is not None
    assert refusal.path == str(path)
    layout = plan_recover(disk, made.config, bridge=True).layout
    assert [(one.path, one.target) for one in layout.relocations] == [(other, str(path))]
    apply(Disk(), plan_recover(disk, made.config, bridge=True))


def test_whether_records_lie_off_their_place_is_not_denied_unread(made: Made) -> None:
    path = made.files[2]
    segment = Segment(2 * SIZE, SIZE, str(path))
    with pytest.raises(StorageError):
        is_shifted(failing(path, operation=Operation.OPEN), segment, LARGEST, segment.offset)
    assert not is_shifted(Disk(), segment, LARGEST, segment.offset)
