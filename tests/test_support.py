"""The helpers that other tests lean on: they must notice what they are there to notice."""

from __future__ import annotations

import os
import socket
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.load.ports import holders, is_free
from tests.support import archives, golden, mutate, stores
from tests.support.in_time import Hung, in_time
from tests.support.mutate import Misfit

pytestmark = pytest.mark.leaves("file-stray")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / "0").write_bytes(b"abc" + bytes(200_000) + b"def")
    (root / "checkpoint").write_bytes(bytes(4096))
    return root


def write(path: Path, at: int, data: bytes) -> None:
    """Write without leaving a trace in the time."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_snapshot_notices_one_byte(store: Path) -> None:
    before = stores.snapshot(store)
    assert stores.snapshot(store) == before
    write(store / "commitlog" / "0", 100_000, b"\1")
    assert {path for path, seen in stores.snapshot(store).items() if seen != before[path]} == {"commitlog/0"}


def test_a_snapshot_notices_a_time_a_file_and_a_length(store: Path) -> None:
    before = stores.snapshot(store)
    os.utime(store / "checkpoint", ns=(1, 1))
    assert stores.snapshot(store) != before
    assert stores.contents(store) == {path: seen.digest for path, seen in before.items()}
    (store / "lock").touch()
    assert "lock" in stores.snapshot(store)
    contents = stores.contents(store)
    os.truncate(store / "checkpoint", 4095)
    assert stores.contents(store) != contents


def test_holes_and_zeros_are_the_same_content(tmp_path: Path) -> None:
    zeros, hole = tmp_path / "zeros", tmp_path / "hole"
    zeros.write_bytes(b"x" + bytes(300_000))
    hole.write_bytes(b"x")
    os.truncate(hole, 300_001)
    assert stores.digest(zeros) == stores.digest(hole)
    write(hole, 299_999, b"x")
    assert stores.digest(zeros) != stores.digest(hole)


def test_a_copy_is_the_same_with_its_times(store: Path, tmp_path: Path) -> None:
    assert stores.snapshot(stores.copy(store, tmp_path / "copies" / "one")) == stores.snapshot(store)


def test_unpacking(store: Path, tmp_path: Path) -> None:
    packed = tmp_path / "store.tar.xz"
    with tarfile.open(packed, "w:xz") as tar:
        tar.add(store, "store")
    assert stores.contents(stores.unpack(packed, tmp_path / "there")) == stores.contents(store)


@pytest.mark.parametrize("filters", [True, False])
def test_an_archive_is_looked_at_before_a_byte_is_written(
    filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not filters:  # Python 3.11.2
        monkeypatch.delattr(tarfile, "data_filter", raising=False)

    def packed(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> Path:
        with tarfile.open(tmp_path / "packed.tar.xz", "w:xz") as tar:
            for one, what in (("store", tarfile.DIRTYPE), ("store/sound", tarfile.REGTYPE), (name, kind)):
                entry = tarfile.TarInfo(one)
                entry.type, entry.mode, entry.linkname = what, mode if one == name else 0o755, "../../outside"
                entry.uid = entry.gid = 12345
                tar.addfile(entry)
        return tmp_path / "packed.tar.xz"

    into = tmp_path / "into"
    for name in ("/outside", "../outside", "store/../../outside"):
        with pytest.raises(ValueError, match="would lie outside"):
            archives.extract(packed(name), into)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        with pytest.raises(ValueError, match="neither a file nor a directory"):
            archives.extract(packed("store/odd", kind), into)
    assert not into.exists()
    assert archives.extract(packed("store/tool", mode=0o4755), into) == {"store"}
    found = (into / "store" / "tool").stat()
    assert (found.st_mode & 0o7777, found.st_uid) == (0o755, os.getuid())


def test_a_sparse_golden_store_stays_sparse(tmp_path: Path) -> None:
    store = stores.unpack(golden.archive("default-sizes-tiny"), tmp_path)
    for place in (store, stores.copy(store, tmp_path / "copy")):
        log = (place / "commitlog" / "00000000000000000000").stat()
        assert log.st_size == 1 << 30
        assert log.st_blocks * 512 < 16 << 20


@pytest.mark.parametrize(
    ("op", "content"),
    [
        ({"op": "zero", "path": "f", "offset": 1, "length": 2}, b"a\0\0d"),
        ({"op": "write", "path": "f", "offset": 2, "hex": "7879"}, b"abxy"),
        ({"op": "xor", "path": "f", "offset": 0, "hex": "01"}, b"`bcd"),
        ({"op": "resize", "path": "f", "size": 2}, b"ab"),
        ({"op": "resize", "path": "f", "size": 6}, b"abcd\0\0"),
    ],
)
def test_ops(op: dict[str, object], content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcd")
    mutate.apply(tmp_path, [op])
    assert (tmp_path / "f").read_bytes() == content


def test_ops_on_names(tmp_path: Path) -> None:
    mutate.apply(tmp_path, [{"op": "create", "path": "d/f", "size": 3}, {"op": "copy", "from": "d", "to": "e"}])
    assert (tmp_path / "e" / "f").read_bytes() == bytes(3)
    mutate.apply(tmp_path, [{"op": "delete", "path": "d"}, {"op": "delete", "path": "e/f"}])
    assert stores.contents(tmp_path).keys() == {".", "e"}


@pytest.mark.parametrize(
    "op",
    [
        {"op": "zero", "path": "f", "offset": 3, "length": 2},
        {"op": "zero", "path": "g", "offset": 0, "length": 1},
        {"op": "create", "path": "f", "size": 1},
        {"op": "copy", "from": "f", "to": "f"},
        {"op": "delete", "path": "../f"},
        {"op": "delete", "path": "/f"},
        {"op": "burn", "path": "f"},
    ],
)
def test_ops_that_do_not_fit_are_refused(op: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcd")
    with pytest.raises(Misfit):
        mutate.apply(tmp_path, [op])
    assert (tmp_path / "f").read_bytes() == b"abcd"


def test_who_has_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        assert str(os.getpid()) in holders(port)
    assert is_free(port)


def test_what_waits_for_its_turn_is_no_hang() -> None:
    """Beside other work, a store of `make proof` took forty times as long as alone."""
    with in_time(0.1):
        time.sleep(0.3)


def _without_end() -> None:
    while True:
        pass


def _as_for_a_lock() -> None:
    time.sleep(60)


@pytest.mark.parametrize("hang", [_without_end, _as_for_a_lock])
def test_a_hang_ends(hang: Callable[[], None]) -> None:
    with pytest.raises(Hung, match=r"test_support\.py:\d+"), in_time(0.1):
        hang()
