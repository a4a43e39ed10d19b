"""The room that a repair asks for is what it takes, in blocks: what it saves, and the files that it makes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import DiskFull, NoSpaceToSave
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.format.message import Message
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover, plan_truncate
from engine.repair.recover.space_needed import space_needed
from engine.store import MessageStore
from tests.engine.repair import test_rules as rules
from tests.support import stores
from tests.support.checking import check_clean

Planner = Callable[[Disk], RecoverPlan]
BLOCK = 4096
LARGE = {"max_hash_slot_num": 100_000, "max_index_num": 400_000}
"""Index files of 8.4 MB: Apache's have 420 MB."""


class Cramped(Disk):
    """Says that there are only so many bytes left."""

    def __init__(self, usable: int) -> None:
        super().__init__()
        self._usable = usable

    def usage(self, path: str) -> Usage:
        return Usage(1 << 40, (1 << 40) - self._usable, self._usable)


def settings(root: Path, extension: int | None = None) -> StoreConfig:
    """`extension`: bytes of a file of consumequeue_ext."""
    kept = {} if extension is None else {"mapped_file_size_consume_queue_ext": extension}
    sizes = {"mapped_file_size_consume_queue": 20 * 3000, **LARGE, **kept}
    return rules.settings(root).with_changes(enable_consume_queue_ext=extension is not None, **sizes)


def blocks(root: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*") if path.is_file())


def put(config: StoreConfig, first: int, end: int) -> list[int]:
    """The messages' physical offsets."""
    places = []
    with MessageStore.open(config) as opened:
        for i in range(first, end):
            keys = {"KEYS": f"key{i}", "UNIQ_KEY": f"unique{i:06d}"}
            result = opened.put(Message("T", b"%06d" % i * 16, queue_id=i % 2, properties=keys))
            assert result.append is not None
            assert result.ok
            places.append(result.append.physical_offset)
    return places


def index_gone(root: Path) -> None:
    shutil.rmtree(root / "index")


def index_wrong(root: Path) -> None:
    """It goes, and is made again: what the old one had is free before."""
    (path,) = (root / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 20)


def queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def copied_with_holes(root: Path) -> None:
    """`cp --sparse`: the index gets blocks again as soon as a key is put, the log where its end is made zeros."""
    with sorted((root / "commitlog").iterdir())[-1].open("r+b") as file:
        file.seek(2600)
        file.write(b"\xff" * 300)
    copy = root.with_name("copy")
    subprocess.run(["cp", "-a", "--sparse=always", root, copy], check=True)
    shutil.rmtree(root)
    copy.rename(root)
    (root / "abort").touch()


def index_behind(root: Path) -> None:
    """An index of some days ago, copied with holes: it gets blocks for all of it before a key is put."""
    (path,) = (root / "index").iterdir()
    old = root.with_name("index")
    subprocess.run(["cp", "-a", "--sparse=always", path, old], check=True)
    put(settings(root), 300, 350)
    old.rename(path)


def damaged(root: Path) -> None:
    rules.damage(root, 20_000, b"\xff" * 3000)
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def untouched(root: Path) -> None:
    pass


CASES: dict[str, Callable[[Path], None]] = {
    "index-gone": index_gone,
    "index-wrong": index_wrong,
    "queues-gone": queues_gone,
    "copied-with-holes": copied_with_holes,
    "index-behind": index_behind,
    "damaged": damaged,
    "untouched": untouched,
}


@pytest.fixture(params=CASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    put(settings(root), 0, 300)
    CASES[request.param](root)
    return root


def extension_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue_ext")


def extension_file_gone(root: Path) -> None:
    max((root / "consumequeue_ext" / "T" / "0").iterdir()).unlink()


def extended_queue_gone(root: Path) -> None:
    """Its extension stays: new units go behind the old ones."""
    shutil.rmtree(root / "consumequeue" / "T" / "1")


EXTENDED: dict[str, Callable[[Path], None]] = {
    "untouched": untouched,
    "extension-gone": extension_gone,
    "extension-file-gone": extension_file_gone,
    "queue-gone": extended_queue_gone,
    "queues-gone": queues_gone,
    "copied-with-holes": copied_with_holes,
    "damaged": damaged,
}


@pytest.fixture(params=EXTENDED)
def case(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return EXTENDED[request.param]


@pytest.mark.parametrize("size", [400, 20_000, 1 << 20], ids=["many-files", "some-files", "one-file"])
def test_the_extension_of_queues_is_asked_for_as_well(case: Callable[[Path], None], size: int, tmp_path: Path) -> None:
    """Units of 20 bytes each, in files that get blocks by steps of 64 KiB."""
    config = settings(tmp_path / "store", size)
    put(config, 0, 2200 if size == 20_000 else 400)
    case(config.store_path_root_dir)
    asked_and_taken(config, recovery(config))


@pytest.mark.parametrize("size", [400, 1 << 20], ids=["many-files", "one-file"])
def test_extension_units_that_go_leave_holes_behind_them(size: int, tmp_path: Path) -> None:
    """All of a broker's sparse file got blocks when a unit of it went: 48 MB a queue."""
    config = settings(tmp_path / "store", size)
    root = config.store_path_root_dir
    end = put(config, 0, 400)[300]
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    copied_with_holes(root)
    had = blocks(root / "consumequeue_ext" / "T" / "0")
    plan = plan_truncate(Disk(), config, to_offset=end)
    assert [cut.queue.queue_id for cut in plan.ext] == [0, 1]
    asked_and_taken(config, lambda disk: plan_truncate(disk, config, to_offset=end))
    assert blocks(root / "consumequeue_ext" / "T" / "0") <= had


def asked(plan: Planner, usable: int) -> tuple[int, int]:
    """Bytes to save and bytes to make, as a refusal names them."""
    with pytest.raises(NoSpaceToSave) as refused:
        apply(Cramped(usable), plan(Disk()))
    numbers = re.findall(r"(\d+) bytes", refused.value.message)
    return int(numbers[0]), int(numbers[1]) if "that it writes" in refused.value.message else 0


def recovery(config: StoreConfig) -> Planner:
    return lambda disk: plan_recover(disk, config, bridge=True)


def test_what_is_asked_for_is_what_is_taken(store: Path) -> None:
    asked_and_taken(settings(store), recovery(settings(store)))


def asked_and_taken(config: StoreConfig, plan_of: Planner) -> None:
    store, plan = config.store_path_root_dir, plan_of(Disk())
    if not (plan.changed or plan.marks):
        assert space_needed(Disk(), plan) == {}
        return
    made = sum(space_needed(Disk(), plan).values())
    before, had = stores.snapshot(store), blocks(store)
    saving, told = asked(plan_of, 0)
    assert told == made
    assert asked(plan_of, saving + made - BLOCK)
    assert stores.snapshot(store) == before
    disk = Cramped(saving + made)
    salvage = apply(disk, plan_of(disk)).salvage
    assert salvage is not None
    taken = blocks(store) - had
    kept = blocks(Path(salvage))
    assert taken - kept <= made + BLOCK  # the checkpoint, where there was none
    assert made <= max(0, taken - kept) + blocks(store / "index") // 100 + 8 * BLOCK
    assert kept <= saving
    known = {"log-bridged"} if plan.log.bridges else set()
    check_clean(store, config, known=known, why="bytes were overwritten" if known else "")


def test_without_salvage_there_must_be_room_as_well(store: Path) -> None:
    plan = recovery(settings(store))(Disk())
    made = sum(space_needed(Disk(), plan).values())
    if made:
        before = stores.snapshot(store)
        with pytest.raises(NoSpaceToSave, match=f"{made} bytes, {made - 1} are free"):
            apply(Cramped(made - 1), plan, keep=False)
        assert stores.snapshot(store) == before
    apply(Cramped(made), recovery(settings(store))(Disk()), keep=False)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["salvage", "--salvage-dir"])
def test_a_disk_that_gets_full_while_saving_leaves_nothing_and_the_next_run_works(
    elsewhere: bool, tmp_path: Path
) -> None:
    """Another process took the room that was there when it was asked for."""
    root, into = tmp_path / "store", tmp_path / "elsewhere"
    rules.put(root, 60)
    rules.damage(root, 5_000, b"\xff" * 3000)
    before = stores.contents(root)
    salvage_dir = str(into) if elsewhere else None
    for number in range(200):
        disk = FaultyDisk(None)
        plan = plan_recover(disk, rules.settings(root), bridge=True)
        disk.fail_after(number)
        done = disk.steps_seen.count("salvage.written")
        try:
            apply(disk, plan, salvage_dir=salvage_dir)
        except DiskFull:
            if "salvage.written" in disk.steps_seen[done:]:
                break
        salvage = root / "salvage"
        assert not salvage.exists() or not list(salvage.iterdir()), number
        assert not into.exists() or not [path for path in into.rglob("*") if path.is_file()], number
        shutil.rmtree(salvage, ignore_errors=True)
        assert stores.contents(root) == before, number
    else:
        pytest.fail("it never came so far as to change the store")
    assert number > 4
    apply(Disk(), plan_recover(Disk(), rules.settings(root), bridge=True), salvage_dir=salvage_dir)


@pytest.mark.leaves
def test_room_is_asked_of_the_disk_that_a_link_leads_to(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(settings(root), 0, 300)
    copied_with_holes(root)
    (tmp_path / "elsewhere").mkdir()
    for path in sorted((root / "commitlog").iterdir()):
        path.rename(tmp_path / "elsewhere" / path.name)
        path.symlink_to(tmp_path / "elsewhere" / path.name)
    places = space_needed(Disk(), recovery(settings(root))(Disk()))
    assert str(tmp_path / "elsewhere") in places
    assert str(root / "commitlog") not in places
