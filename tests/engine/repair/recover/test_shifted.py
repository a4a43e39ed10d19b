"""Bytes inserted into a segment, or taken out of it: the records behind go back to their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.inspect.check.check import check
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.repair.truncate.truncate import plan_truncate
from tests.engine.repair.test_rules import SIZES, messages, put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.wide import WIDE

SIZE = SIZES["mapped_file_size_commit_log"]
COUNT = 170
Store = tuple[Path, list[int]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("made") / "store"
    return root, put(root, COUNT)


def segment(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset // SIZE * SIZE:020d}"


def files(root: Path) -> dict[str, bytes]:
    """Log, queues and index."""
    parts = ("commitlog", "consumequeue", "index")
    return {
        str(p.relative_to(root)): p.read_bytes()
        for part in parts
        for p in sorted((root / part).rglob("*"))
        if p.is_file()
    }


SPLICES = {
    "inserted between records": (0, 0, b"\x07" * 50),
    "a record there twice": (0, 0, None),
    "inserted into a record": (100, 0, b"\x07" * 33),
    "taken out of a record": (100, 40, b""),
    "a record taken out": (0, 226, b""),
}
LENGTHS = ["spliced", "padded"]
"""The file has another length then; or its own, as the tool that wrote it keeps that."""


def splice(root: Path, offset: int, name: str, length: str) -> None:
    """Change a segment at a record (physical offset)."""
    path, at = segment(root, offset), offset % SIZE
    into, gone, more = SPLICES[name]
    data = path.read_bytes()
    more = data[at - 226 : at] if more is None else more
    data = data[: at + into] + more + data[at + into + gone :]
    path.write_bytes(data[:SIZE].ljust(SIZE, b"\0") if length == "padded" else data)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SPLICES)
@pytest.mark.parametrize("place", ["middle", "end"])
def test_what_lies_behind_goes_back(place: str, name: str, length: str, made: Store, tmp_path: Path) -> None:
    root, offsets = stores.copy(made[0], tmp_path / "store"), made[1]
    start = SIZE if place == "middle" else offsets[-1] // SIZE * SIZE
    mine = [offset for offset in offsets if start <= offset < start + SIZE]
    at = mine[5]
    splice(root, at, name, length)
    before = files(root)
    refused = plan_recover(Disk(), settings(root)).refusal
    assert refused is not None
    assert refused.next is not None
    assert (refused.next.command or "").endswith("recover --bridge")
    assert "the right place" in str(refused)
    plan = plan_recover(Disk(), settings(root), bridge=True)
    assert plan.refusal is None
    assert plan.log.shifts
    apply(Disk(), plan)
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert files(root) == before
    assert not (root / "recover.progress").exists()
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    hurt = {at} if name in ("inserted into a record", "taken out of a record", "a record taken out") else set()
    if length == "padded" and place == "middle" and SPLICES[name][2] != b"":
        hurt |= {mine[-1]}  # pushed out of the file
    lost = COUNT - len(messages(root))
    assert lost <= len(hurt)


@pytest.mark.wide
def test_a_kill_leaves_the_one_file_or_the_other(made: Store, tmp_path: Path) -> None:
    """And the next recovery ends what that one began."""
    at = next(offset for offset in made[1] if offset >= SIZE + 1000)
    step = 0
    every = 1 if WIDE else 3
    while True:
        root = stores.copy(made[0], tmp_path / str(step))
        splice(root, at, "taken out of a record", "spliced")
        disk = FaultyDisk(None)
        disk.kill_before(step + 1)
        try:
            apply(disk, plan_recover(disk, settings(root), bridge=True))
        except Killed:
            apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
            check_clean(root, settings(root))
            assert len(messages(root)) == COUNT - 1
            step += every
        else:
            break
    assert step > 10


def test_what_can_not_go_back_can_be_cut(made: Store, tmp_path: Path) -> None:
    """Ten records of another segment in the middle of this one."""
    root, offsets = stores.copy(made[0], tmp_path / "store"), made[1]
    others = [offset for offset in offsets if SIZE <= offset < 2 * SIZE][:10]
    mine = [offset for offset in offsets if 2 * SIZE <= offset < 3 * SIZE]
    data, here = segment(root, SIZE).read_bytes(), segment(root, 2 * SIZE)
    piece = data[others[0] % SIZE : others[-1] % SIZE + 226]
    whole = bytearray(here.read_bytes())
    whole[mine[5] % SIZE : mine[5] % SIZE + len(piece)] = piece
    here.write_bytes(whole)
    plan = plan_recover(Disk(), settings(root), bridge=True)
    assert isinstance(plan.refusal, RStoreError)
    assert plan.refusal.next is not None
    words = (plan.refusal.next.command or "").split()
    assert words[-2:] == ["--to-offset", str(mine[5])]
    apply(Disk(), plan_truncate(Disk(), settings(root), to_offset=mine[5]), command="truncate")
    check_clean(root, settings(root))
    assert check(Disk(), settings(root)).ok


@pytest.mark.parametrize("at", [SIZE - 226 * 9, SIZE, SIZE + 4096])
def test_copies_of_records_that_are_at_home_are_not_shifted(at: int, made: Store, tmp_path: Path) -> None:
    """Behind the log's end, in its file or behind that one's length: nothing there is taken for a part of the log."""
    root, offsets = stores.copy(made[0], tmp_path / "store"), made[1]
    path = segment(root, offsets[-1])
    assert offsets[-1] % SIZE + 226 < at
    data = path.read_bytes()
    path.write_bytes(data[:at].ljust(at, b"\0") + data[: 226 * 9] + data[at + 226 * 9 :])
    (root / "abort").touch()
    plan = plan_recover(Disk(), settings(root))
    if at >= SIZE:
        assert plan.refusal is not None
        assert plan.refusal.next is not None
        plan = plan_recover(Disk(), settings(root), bridge=True)
    apply(Disk(), plan)
    assert len(messages(root)) == COUNT
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root)).changed
