"""Seals and backups: they come back with whole segments, and a backup tells what has changed since it was sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import of_store
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.raw_file import RawFile
from engine.inspect.store.survey import survey
from engine.seals.directory import sealed_offsets
from engine.seals.sealing import SealState, list_seals
from tests.engine.backup import repositories
from tests.engine.seals.stores_sealed import filled, scrubbed, seal, segments, write

SIZE = 65536


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = filled(tmp_path / "store", 600)
    seal(root)
    return root


def test_seals_come_back_with_whole_segments(store: Path, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    assert not repositories.back_up(repository, store).notes
    repositories.bring_back(repository, tmp_path / "whole")
    offsets = [int(path.name) for path in segments(store)[:-1]]
    assert sealed_offsets(Disk(), str(tmp_path / "whole" / "seals")) == offsets
    assert scrubbed(tmp_path / "whole", keep_state=False).sealed == len(offsets)
    assert not scrubbed(tmp_path / "whole", keep_state=False).wrong
    assert seal(tmp_path / "whole").refreshed == offsets
    repositories.bring_back(repository, tmp_path / "cut", offset=2 * SIZE + 30_000)
    assert sealed_offsets(Disk(), str(tmp_path / "cut" / "seals")) == [0, SIZE]
    assert not scrubbed(tmp_path / "cut", keep_state=False).wrong
    repositories.bring_back(repository, tmp_path / "between", offset=2 * SIZE)
    seal(tmp_path / "between")
    rows = list_seals(Disk(), survey(Disk(), of_store(tmp_path / "between")))
    assert {row.state for row in rows} == {SealState.SEALED}


@pytest.mark.leaves
def test_a_full_backup_tells_what_is_not_as_it_was_sealed(store: Path, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    path = segments(store)[1]
    write(path, path.read_bytes().index(b"KEYS") + 6, b"\x07")
    assert not repositories.back_up(repository, store).notes, "it is not read again"
    (note,) = repositories.back_up(repository, store, full=True).notes
    assert note == f"segment {SIZE} is not as it was sealed: rstore scrub --once shows where"


class NoSeal(Disk):
    """Can't read the seal of the second segment."""

    def open_reader(self, path: str) -> RawFile:
        if path.endswith("00000000000000065536.seal"):
            raise StorageError("opening: input/output error", path=path)
        return super().open_reader(path)


def test_a_seal_that_the_disk_cannot_read(tmp_path: Path) -> None:
    """The log is backed up all the same, and it is told."""
    root = filled(tmp_path / "store")
    seal(root)
    repository = repositories.new(tmp_path / "repository")
    created = repositories.back_up(repository, root, NoSeal())
    assert any("00000000000000065536.seal: opening" in one for one in created.snapshot.skipped)
    repositories.bring_back(repository, tmp_path / "new")
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(root)


@pytest.mark.leaves
def test_a_link_in_the_place_of_a_seal_is_not_followed(store: Path, tmp_path: Path) -> None:
    path = store / "seals" / f"{SIZE:020d}.seal"
    path.rename(tmp_path / "secret")
    path.symlink_to(tmp_path / "secret")
    repository = repositories.new(tmp_path / "repository")
    snapshot = repositories.back_up(repository, store).snapshot
    assert [one.partition(": ")[0] for one in snapshot.skipped] == [f"seals/{path.name}"]
    assert f"seals/{path.name}" not in {file.path for file in snapshot.files}
    follows = replace(of_store(store), follow_links=True)
    assert f"seals/{path.name}" in {file.path for file in repositories.back_up(repository, follows).snapshot.files}
