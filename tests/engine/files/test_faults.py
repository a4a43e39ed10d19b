from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import DiskFull, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.mapped_file import MappedFile
from engine.files.operations import Operation
from engine.format.names import segment_name

PAGE = 4096
PAGES = 6
SIZE = PAGE * PAGES

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, SIZE - 1), st.integers(1, 2 * PAGE)),
        st.tuples(st.just("sync"), st.integers(0, SIZE - 1), st.integers(0, SIZE)),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(moves=MOVES, seed=st.integers(0, 2**32), mapped=st.booleans(), torn=st.booleans())
def test_what_was_synced_survives_and_nothing_else_appears(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[str, int, int]],
    seed: int,
    mapped: bool,
    torn: bool,
) -> None:
    base = tmp_path_factory.mktemp("faults")
    root = base / "store"
    root.mkdir()
    disk = FaultyDisk(str(root), mapped=mapped)
    file = MappedFile.create(disk, str(root / segment_name(0)), SIZE)
    now, durable = bytearray(SIZE), bytearray(SIZE)
    for number, (what, start, length) in enumerate(moves, 1):
        end = min(SIZE, start + length)
        if what == "write":
            file.write_at(start, bytes([number]) * (end - start))
            now[start:end] = bytes([number]) * (end - start)
        elif end > start:
            file.sync(start, end)
            first, last = start // PAGE * PAGE, -(-end // PAGE) * PAGE
            durable[first:last] = now[first:last]

    disk.crash_copy(str(base / "crashed"), Random(seed), "random", torn=torn)
    disk.crash_copy(str(base / "sure"), lose="all")
    disk.crash_copy(str(base / "lucky"), lose="none")

    crashed = (base / "crashed" / segment_name(0)).read_bytes()
    assert len(crashed) == SIZE
    unit = 512 if torn else PAGE
    for at in range(0, SIZE, unit):
        assert crashed[at : at + unit] in (durable[at : at + unit], now[at : at + unit])
    assert (base / "sure" / segment_name(0)).read_bytes() == durable
    assert (base / "lucky" / segment_name(0)).read_bytes() == now
    file.destroy(0)
    shutil.rmtree(base)


def some(faulty: FaultyDisk, tmp_path: Path, count: int = 60) -> list[Path]:
    copies = [tmp_path / f"copy{seed}" for seed in range(count)]
    for seed, copy in enumerate(copies):
        faulty.crash_copy(str(copy), Random(seed))
    return copies


def test_what_was_there_before_is_durable(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_bytes(b"{}")
    (root / "checkpoint").write_bytes(b"x" * 5000)
    FaultyDisk(str(root)).crash_copy(str(tmp_path / "copy"), lose="all")
    assert (tmp_path / "copy/config/topics.json").read_bytes() == b"{}"
    assert (tmp_path / "copy/checkpoint").read_bytes() == b"x" * 5000


def test_a_copy_is_of_one_moment(faulty: FaultyDisk, tmp_path: Path) -> None:
    """Two threads that named their copies alike once made one store of both, which no disk could have left."""
    faulty.crash_copy(str(tmp_path / "copy"))
    with pytest.raises(FileExistsError):
        faulty.crash_copy(str(tmp_path / "copy"))


def test_pages_are_lost_in_any_order(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), 3 * PAGE)
    file.append(b"x" * 3 * PAGE)
    seen = {
        tuple(copy.joinpath(segment_name(0)).read_bytes()[at] for at in (0, PAGE, 2 * PAGE))
        for copy in some(faulty, tmp_path)
    }
    assert len(seen) == 8


def test_a_name_is_sure_only_after_the_directory_s_sync(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.open_raw(str(tmp_path / "store/f"), new=True).close()
    assert {copy.joinpath("f").exists() for copy in some(faulty, tmp_path)} == {True, False}
    faulty.sync_dir(str(tmp_path / "store"))
    assert all(copy.joinpath("f").exists() for copy in some(faulty, tmp_path / "later"))


def test_a_removed_name_may_come_back_with_its_bytes(faulty: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "store/f"
    faulty.write_file(str(path), b"content")
    faulty.sync_dir(str(path.parent))
    faulty.unlink(str(path))
    found = {
        copy.joinpath("f").read_bytes() if copy.joinpath("f").exists() else None for copy in some(faulty, tmp_path)
    }
    assert found == {b"content", None}
    faulty.sync_dir(str(path.parent))
    assert not any(copy.joinpath("f").exists() for copy in some(faulty, tmp_path / "later"))


def test_a_rename_happens_as_a_whole(faulty: FaultyDisk, tmp_path: Path) -> None:
    root = tmp_path / "store"
    for name, data in (("f", b"old"), ("g", b"new")):
        faulty.write_file(str(root / name), data)
    faulty.sync_dir(str(root))
    faulty.replace(str(root / "g"), str(root / "f"))
    found = {
        tuple(sorted((path.name, path.read_bytes()) for path in copy.iterdir())) for copy in some(faulty, tmp_path)
    }
    assert found == {(("f", b"old"), ("g", b"new")), (("f", b"new"),)}


def test_an_unsynced_file_may_be_empty(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = faulty.open_raw(str(tmp_path / "store/f"), new=True)
    file.write(0, b"content")
    faulty.sync_dir(str(tmp_path / "store"))
    found = {copy.joinpath("f").read_bytes() for copy in some(faulty, tmp_path)}
    assert {b"", b"content"} <= found <= {b"", b"content", bytes(7)}


@pytest.mark.parametrize("seed", range(10))
def test_an_atomic_write_is_old_or_new_wherever_it_is_cut(tmp_path: Path, seed: int) -> None:
    for nth in range(1, 20):
        root = tmp_path / f"store{nth}"
        root.mkdir()
        (root / "f").write_bytes(b"old" * 3000)
        disk = FaultyDisk(str(root))
        disk.kill_before(nth)
        try:
            disk.write_file_atomically(str(root / "f"), b"new!" * 4000)
            done = True
        except Killed:
            done = False
        disk.crash_copy(str(tmp_path / f"copy{nth}"), Random(seed), torn=True)
        content = (tmp_path / f"copy{nth}" / "f").read_bytes()
        assert content in ((b"new!" * 4000,) if done else (b"old" * 3000, b"new!" * 4000))
        if done:
            return
    pytest.fail("it never came to its end")


def test_new_directories_are_durable(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.mkdirs(str(tmp_path / "store/a/b"))
    faulty.crash_copy(str(tmp_path / "copy"), lose="all")
    assert (tmp_path / "copy/a/b").is_dir()


def test_a_created_segment_is_durable(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.open_segment(str(tmp_path / "store" / segment_name(0)), SIZE, create=True)
    faulty.crash_copy(str(tmp_path / "copy"), lose="all")
    assert (tmp_path / "copy" / segment_name(0)).read_bytes() == bytes(SIZE)


def test_a_zeroed_tail_never_comes_back(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), SIZE)
    file.append(b"x" * SIZE)
    file.flush()
    file.invalidate_tail(5000)
    for copy in some(faulty, tmp_path, 10):
        assert copy.joinpath(segment_name(0)).read_bytes() == b"x" * 5000 + bytes(SIZE - 5000)


def test_lost_syncs(faulty: FaultyDisk, tmp_path: Path) -> None:
    file = MappedFile.create(faulty, str(tmp_path / "store" / segment_name(0)), SIZE)
    faulty.lost_syncs = True
    file.append(b"x" * 10)
    assert file.flush() == 10
    faulty.crash_copy(str(tmp_path / "copy"), lose="all")
    assert (tmp_path / "copy" / segment_name(0)).read_bytes() == bytes(SIZE)


def test_what_others_put_there_is_in_the_copy(faulty: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / "store/stranger").write_bytes(b"hello")
    faulty.crash_copy(str(tmp_path / "copy"), lose="all")
    assert (tmp_path / "copy/stranger").read_bytes() == b"hello"


def test_failing_after_some_writes(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.fail_after(3)
    file = faulty.open_raw(str(tmp_path / "store/f"), new=True)
    file.write(0, b"a")
    file.write(1, b"b")
    with pytest.raises(DiskFull) as raised:
        file.write(2, b"c")
    assert raised.value.offset == 2
    file.sync(0, 2)
    faulty.heal()
    file.write(2, b"c")
    faulty.fail_after(lambda doing: doing.path.endswith("f"), errno.EIO)
    with pytest.raises(StorageError, match="input/output"):
        file.write(3, b"d")


def test_killing_at_a_step(faulty: FaultyDisk) -> None:
    faulty.kill_at("here", 2)
    faulty.step("there")
    faulty.step("here")
    with pytest.raises(Killed):
        faulty.step("here")
    assert faulty.steps_seen == ["there", "here", "here"]


def test_after_the_kill_nothing_is_changed(faulty: FaultyDisk, tmp_path: Path) -> None:
    faulty.kill_at("write-atomically:written")
    path = tmp_path / "store/f"
    with pytest.raises(Killed):
        faulty.write_file_atomically(str(path), b"new")
    assert path.with_name("f.tmp").exists()
    with pytest.raises(Killed):
        faulty.write_file(str(path), b"new")
    assert not path.exists()
    Disk().write_file_atomically(str(path), b"new")
    assert [entry.name for entry in path.parent.iterdir()] == ["f"]


def test_a_crash_copy_waits_for_a_rename_of_another_thread(tmp_path: Path) -> None:
    """Half way the old name is gone, and the new one has what the model does not know yet."""
    root = tmp_path / "store"
    root.mkdir()
    (root / "a").write_bytes(b"old")
    (root / "b").write_bytes(b"new")
    disk = FaultyDisk(str(root))
    errors: list[BaseException] = []

    def copy() -> None:
        try:
            disk.crash_copy(str(tmp_path / "copy"), lose="none")
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=copy)
    with disk.doing(Operation.REPLACE, str(root / "a"), source=str(root / "b")):
        os.replace(root / "b", root / "a")
        thread.start()
        thread.join(0.2)  # without the wait it is done by now
    thread.join(60)
    assert not errors
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"a": b"new"}
