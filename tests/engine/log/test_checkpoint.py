"""The checkpoint file: Apache's three times, and whatever else is in there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import DiskFull
from engine.files.disk import Disk
from engine.files.operations import Doing, Operation
from engine.format.checkpoint import FILE_SIZE, Checkpoint
from engine.log.checkpoint import CheckpointFile
from tests.support import golden

TIMES = Checkpoint(1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003)


def load(path: Path) -> CheckpointFile:
    return CheckpointFile.load(Disk(), str(path))


@pytest.mark.leaves("not-closed")
@pytest.mark.parametrize("name", golden.NAMES)
def test_apaches_times(golden_store, golden_copy, name: str) -> None:
    seen = golden.dump(name, "before")[0]["checkpoint"]
    file = load(golden_store(name) / "checkpoint")
    assert file.finding is None
    assert file.value == Checkpoint(*(seen[f"{part}MsgTimestamp"] for part in ("physic", "logics", "index")))
    path = golden_copy(name) / "checkpoint"
    before = path.read_bytes()
    load(path).flush()
    assert path.read_bytes() == before


def test_a_missing_file_is_made_by_the_first_flush(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    file = load(path)
    assert (file.value, file.finding) == (Checkpoint(), None)
    assert not path.exists()
    file.set(TIMES)
    file.flush()
    assert path.read_bytes() == TIMES.encode().ljust(FILE_SIZE, b"\0")
    assert load(path).value == TIMES


def test_what_lies_behind_the_times_stays(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(24) + bytes(range(255)) * 15 + bytes(247))
    file = load(path)
    file.logics_msg_timestamp = 77
    file.flush()
    assert path.read_bytes() == Checkpoint(0, 77, 0).encode() + bytes(range(255)) * 15 + bytes(247)


@pytest.mark.parametrize("size", [0, 10, 24, 40, 4095, 5000])
def test_a_wrong_length_is_a_finding_and_usable(tmp_path: Path, size: int) -> None:
    path = tmp_path / "checkpoint"
    content = (TIMES.encode() + b"beyond" * 1000)[:size]
    path.write_bytes(content)
    file = load(path)
    assert file.finding is not None
    assert str(size) in str(file.finding)
    assert file.value == (TIMES if size >= 24 else Checkpoint())
    assert path.read_bytes() == content
    file.set(TIMES)
    file.flush()
    assert path.read_bytes() == TIMES.encode() + content[24:].ljust(FILE_SIZE - 24, b"\0")
    assert load(path).value == TIMES


class NoRoom(Disk):
    """No write finds room."""

    def doing(self, operation: Operation, path: str, offset: int | None = None, length: int = 0, source=None) -> Doing:
        if operation is Operation.WRITE:
            raise DiskFull("writing", path=path)
        return super().doing(operation, path, offset, length, source)


@pytest.mark.parametrize("size", [0, 4096])
def test_a_flush_that_fails_leaves_the_old_times(tmp_path: Path, size: int) -> None:
    path = tmp_path / "checkpoint"
    if size:
        path.write_bytes(TIMES.encode().ljust(size, b"\0"))
    file = CheckpointFile.load(NoRoom(), str(path))
    file.physic_msg_timestamp = 5
    with pytest.raises(DiskFull):
        file.flush()
    assert load(path).value == (TIMES if size else Checkpoint())
    assert [entry.name for entry in tmp_path.iterdir()] == (["checkpoint"] if size else [])


def test_it_needs_neither_maps_nor_allocation(fs) -> None:
    fs.create_dir("/store")
    file = load(Path("/store/checkpoint"))
    file.set(TIMES)
    file.flush()
    file.flush()
    assert load(Path("/store/checkpoint")).value == TIMES
