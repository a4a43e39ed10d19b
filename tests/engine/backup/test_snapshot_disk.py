"""A snapshot reads like the store that was backed up: its names, its log, its damage; and is never changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.backup.manifest import PIECE_SIZE
from engine.backup.snapshot_disk import SnapshotDisk
from engine.config import StoreConfig, of_store
from engine.errors import NotReached, Refused, StorageError
from engine.files.disk import Disk
from engine.inspect.check.verify import VerifyResult, verify
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.survey import survey
from engine.log.source import ClosedLog
from tests.engine.backup import repositories
from tests.engine.backup.test_create_and_restore import Rotten
from tests.engine.repair import corpus
from tests.support import golden, mutate, stores

Store = Callable[[str], Path]
LOG = "commitlog/00000000000000131072"


def backed_up(place: Path, store: Path | StoreConfig, disk: Disk | None = None) -> SnapshotDisk:
    repository = repositories.new(place)
    created = repositories.back_up(repository, store, disk)
    return SnapshotDisk(repository, created.name, created.snapshot)


def places(result: VerifyResult) -> list[tuple[int, int, str, str]]:
    return [(one.offset, one.length, Path(one.path).name, one.reason) for one in result.bad]


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_it_looks_like_the_store(fixture_store: Store, tmp_path: Path, name: str) -> None:
    store = fixture_store(name)
    disk = backed_up(tmp_path / "repository", store)
    config = disk.config()
    theirs, ours = survey(Disk(), of_store(store)), survey(disk, config)
    assert [(one.offset, one.size, Path(one.path).name) for one in ours.log] == [
        (one.offset, one.size, Path(one.path).name) for one in theirs.log[: len(ours.log)]
    ]
    assert all(
        not Path(one.path).read_bytes().strip(b"\0") for one in theirs.log[len(ours.log) :]
    )  # made ahead of time
    assert ours.log == tuple(one.placed() for one in disk.segments)
    with ClosedLog(Disk(), theirs.log) as log, ClosedLog(disk, disk.segments) as held:
        for one in ours.log:
            assert held.read(one.offset, one.size) == log.read(one.offset, one.size)
            assert held.read(one.offset + 100, 5000) == log.read(one.offset + 100, 5000)
            assert all(
                not bytes(log.read(end, min(start, one.end) - end)).strip(b"\0")
                for (_, end), (start, _) in zip(
                    [(0, one.offset), *held.data_ranges(one, one.offset)],
                    [*held.data_ranges(one, one.offset), (one.end, 0)],
                    strict=True,
                )
            )
    for path in sorted((store / "config").glob("*")) if (store / "config").is_dir() else ():
        assert disk.read_file(disk.path_of(f"config/{path.name}")) == path.read_bytes()
    for wanted in ("mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_message_size"):
        assert getattr(config, wanted) == getattr(theirs.config, wanted)
    assert KnownNames.of_store(disk, config).configured == KnownNames.of_store(Disk(), of_store(store)).configured
    result, expected = verify(disk, config), verify(Disk(), of_store(store))
    assert (result.records, result.messages, result.end, places(result)) == (
        expected.records, expected.messages, expected.end, places(expected)
    )  # fmt: skip


def cases() -> list[corpus.Case]:
    return corpus.fixture_cases() + (golden.cases() if golden.find() is not None else [])


@pytest.mark.leaves
def test_damage_is_what_it_was(golden_store: Store, fixture_store: Store, tmp_path: Path) -> None:
    """Every 31st case of the corpora: the same places, the same reasons, without the repository's own judgement."""
    seen = 0
    for number, case in enumerate(cases()):
        if number % 31:
            continue
        base = golden_store if case["id"].startswith("v") else fixture_store
        root = stores.copy(base(case["base"]), tmp_path / case["id"])
        mutate.apply(root, case["ops"])
        config = corpus.config(root, case)
        try:
            disk = backed_up(tmp_path / "r" / case["id"], config)
        except StorageError:
            continue
        expected, result = verify(Disk(), config), verify(disk, disk.config())
        assert places(result) == places(expected), case["id"]
        assert (result.records, result.suspects) == (expected.records, expected.suspects)
        seen += bool(expected.bad)
        shutil.rmtree(root)
    assert seen > 2


def test_pages_that_could_not_be_read(fixture_store: Store, tmp_path: Path) -> None:
    """They were stored as zeros, and are not read as such: the scan says what it says of the store."""
    store = fixture_store("clean-small")
    disk = backed_up(tmp_path / "repository", store, Rotten())
    result, expected = verify(disk, disk.config()), verify(Rotten(), of_store(store))
    assert expected.bad
    assert places(result) == places(expected)
    assert result.records == expected.records


def pieces(repository: Path) -> list[Path]:
    return sorted(path for path in (repository / "pieces").rglob("*") if path.is_file())


def rotten(piece: Path) -> None:
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.write_bytes(data)


@pytest.mark.parametrize("damage", [Path.unlink, rotten], ids=["missing", "rotten"])
def test_a_damaged_piece_is_damage_of_its_range(
    fixture_store: Store, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    store = fixture_store("clean-small")
    disk = backed_up(tmp_path / "repository", store)
    (name,) = disk.log.pieces_of(disk.log.segments[1]).pieces
    damage(tmp_path / "repository" / "pieces" / str(name)[:2] / str(name))
    disk = SnapshotDisk(disk.repository, disk.name, disk.snapshot)
    result, expected = verify(disk, disk.config()), verify(Disk(), of_store(store))
    segment = disk.segments[1]
    assert places(result) == [(segment.offset, segment.size, Path(segment.path).name, "the system can't read it")]
    with ClosedLog(disk, [segment]) as log, pytest.raises(StorageError, match="the repository can't give it") as error:
        log.read(segment.offset + 77, 1)
    assert error.value.offset == segment.offset + 77
    assert 0 < result.records < expected.records


@pytest.mark.parametrize("below", ["pieces", "segments"])
def test_a_repository_that_does_not_answer_is_no_damage(fixture_store: Store, tmp_path: Path, below: str) -> None:
    """A scan that took it for damage would leave out what is there."""
    disk = backed_up(tmp_path / "repository", fixture_store("clean-small"))
    for path in (tmp_path / "repository" / below).glob("*/*"):
        path.unlink()
        path.mkdir()  # what the system can't read
    with pytest.raises(NotReached, match="the repository can't give it"):
        verify(disk, disk.config())


def test_nothing_is_changed_through_it(fixture_store: Store, tmp_path: Path) -> None:
    disk = backed_up(tmp_path / "repository", fixture_store("clean-small"))
    before = stores.snapshot(tmp_path / "repository")
    path = disk.path_of(LOG)
    for change in (
        lambda: disk.write_file(path, b"x"),
        lambda: disk.write_file_atomically(path, b"x"),
        lambda: disk.unlink(path),
        lambda: disk.mkdirs(disk.path_of("new")),
        lambda: disk.replace(path, path + "x"),
        lambda: disk.set_modified(path, 1),
        lambda: disk.open_segment(path, 4096, writable=True),
    ):
        with pytest.raises(Refused, match="a snapshot is never changed"):
            change()
    with pytest.raises(StorageError):
        disk.open_raw(path).write(0, b"x")
    assert stores.snapshot(tmp_path / "repository") == before


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Pieces that were read are let go."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    size = 9 * PIECE_SIZE
    with (root / "commitlog" / f"{0:020d}").open("wb") as file:
        for number in range(9):
            file.write(bytes([number + 1]) * PIECE_SIZE)
    disk = backed_up(tmp_path / "repository", of_store(root).with_changes(mapped_file_size_commit_log=size))
    with ClosedLog(disk, disk.segments) as log:
        for at in range(0, size, PIECE_SIZE // 2):
            assert bytes(log.read(at, 8)) == bytes([at // PIECE_SIZE + 1]) * 8
    assert len(disk.log._pieces) <= 8
    shutil.rmtree(root)
