"""Epochs of a controller and the checkpoint's physical offsets, after the log was cut or lost its end (#9942)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.repair.change import carry_out
from engine.repair.recover.change import RecoverChange
from engine.repair.salvage.change import UndoChange
from engine.repair.truncate.change import TruncateChange
from tests.support import newer, stores


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return newer.unpack("controller", tmp_path_factory.mktemp("rocketmq5"))


@pytest.fixture
def store(unpacked: Path, tmp_path: Path) -> Path:
    return stores.copy(unpacked, tmp_path / "store")


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root)


def written(*epochs: tuple[int, int]) -> bytes:
    """As CheckpointFile#write has it."""
    lines = "".join(f"{epoch}-{offset}\n" for epoch, offset in epochs).encode()
    return f"{len(epochs)}\n{zlib.crc32(lines) & 0x7FFFFFFF}\n".encode() + lines


def places(root: Path) -> list[int]:
    """Where the records begin, and the log end."""
    data, found = (root / "commitlog" / f"{0:020}").read_bytes(), [0]
    while (size := struct.unpack_from(">i", data, found[-1])[0]) > 0:
        found.append(found[-1] + size)
    return found


def offsets(root: Path) -> tuple[int, ...]:
    return struct.unpack_from(">qq", (root / "checkpoint").read_bytes(), 24)


def put_offsets(root: Path, master: int, confirm: int) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.seek(24)
        file.write(struct.pack(">qq", master, confirm))


def codes(root: Path) -> set[str]:
    return {one.code for one in check(Disk(), config_of(root)).findings if one.code.startswith(("epoch", "checkpoint"))}


@pytest.mark.parametrize("number", [0, 7, 9, 12])
def test_epochs_end_with_the_log(number: int, store: Path) -> None:
    """Those that begin at the new end or after it go, in the copy, too; and no offset is after it."""
    at = places(store)
    epochs = [(1, 0), (2, at[7]), (3, at[9]), (5, at[12])]
    for name, some in (("epochFileCheckpoint", epochs), ("epochFileCheckpoint.bak", epochs[:3])):
        (store / name).write_bytes(written(*some))
    put_offsets(store, at[8], at[-1])
    assert not codes(store)
    before = stores.contents(store)
    carry_out(TruncateChange(to_offset=at[number], agreed=True), Disk(), config_of(store))
    kept = [one for one in epochs if one[1] < at[number]]
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        path = store / name
        assert (path.read_bytes() if path.exists() else None) == (written(*kept) if kept else None)
    assert offsets(store) == (min(at[8], at[number]), at[number])
    assert not codes(store)
    assert not kept or not carry_out(RecoverChange(), Disk(), config_of(store)).changes
    carry_out(UndoChange(), Disk(), config_of(store))
    assert {path: seen for path, seen in stores.contents(store).items() if not path.startswith("salvage")} == before


def test_what_a_crash_left_after_the_log_end(store: Path) -> None:
    """A new master's epoch may begin at the end of its log; one after it is of a log that was lost."""
    end = places(store)[-1]
    (store / "epochFileCheckpoint").write_bytes(written((1, 0), (2, end), (3, end + 1)))
    (store / "epochFileCheckpoint.bak").write_bytes(b"1\n0\n")
    put_offsets(store, end + 5, 0)
    (store / "abort").touch()
    assert codes(store) == {"epoch-ahead", "epoch-bak", "checkpoint-offset"}
    carry_out(RecoverChange(), Disk(), config_of(store))
    assert (store / "epochFileCheckpoint").read_bytes() == written((1, 0), (2, end))
    assert offsets(store) == (end, 0)
    assert not codes(store)


@pytest.mark.parametrize(
    ("file", "copy", "code"),
    [
        (b"no epochs", written((1, 0)), "epoch-bak"),
        (written((1, 0))[:-2], None, "epoch-bad"),
        (written((2, 0), (1, 300)), None, "epoch-order"),
    ],
)
@pytest.mark.leaves("epoch-bad", "epoch-order")
def test_files_that_cannot_be_read(file: bytes, copy: bytes | None, code: str, store: Path) -> None:
    """Out of a sound copy the file is written again; what nobody knows is reported, and stays."""
    (store / "epochFileCheckpoint").write_bytes(file)
    (store / "epochFileCheckpoint.bak").unlink(missing_ok=True)
    if copy is not None:
        (store / "epochFileCheckpoint.bak").write_bytes(copy)
    assert codes(store) == {code}
    changed = carry_out(RecoverChange(), Disk(), config_of(store)).changes
    assert changed == (copy is not None)
    assert (store / "epochFileCheckpoint").read_bytes() == (copy or file)
