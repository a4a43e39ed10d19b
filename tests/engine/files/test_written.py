"""What was written of a file: the same with holes and without, on each kind of disk, and holes are not read."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.written import BLOCK, PIECE, UNIT, blocks, data_ranges, is_written, is_zeros, written, written_end
from tests.engine.files.conftest import Place
from tests.support.counting import CountingDisk

SIZE = 3 * PIECE + 700
DATA = {0: b"a", UNIT - 1: b"bb", PIECE: b"c" * UNIT, 2 * PIECE + 5 * UNIT + 17: b"\0d\0", SIZE - 1: b"e"}
"""What lies where; the rest is zeros."""


def content(data: dict[int, bytes], size: int = SIZE) -> bytes:
    whole = bytearray(size)
    for at, some in data.items():
        whole[at : at + len(some)] = some
    return bytes(whole)


def make(place: Place, data: dict[int, bytes], *, sparse: bool) -> str:
    """A file of SIZE bytes, its zeros written or left out."""
    path = place.path("sparse" if sparse else "dense")
    if not sparse:
        place.disk.write_file(path, content(data))
        return path
    file = place.disk.open_raw(path, new=True)
    file.set_size(SIZE)
    for at, some in data.items():
        file.write(at, some)
    file.close()
    return path


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize(("start", "end"), [(0, SIZE), (1, SIZE - 1), (UNIT + 1, 2 * PIECE), (100, 200), (SIZE, SIZE)])
def test_units_that_hold_data(place: Place, sparse: bool, start: int, end: int) -> None:
    reader = place.disk.open_reader(make(place, DATA, sparse=sparse))
    whole = content(DATA)
    edges = sorted({start, end, *range(-(-start // UNIT) * UNIT, end, UNIT)})
    wanted = [(a, whole[a:b]) for a, b in pairwise(edges) if any(whole[a:b])]
    assert [(at, bytes(unit)) for at, unit in written(reader, start, end)] == wanted
    assert is_written(reader, start, end) == bool(wanted)
    assert written_end(reader, start, end) == start + len(whole[start:end].rstrip(b"\0"))
    ranges = list(data_ranges(reader, start, end))
    outside = content(DATA, SIZE)
    kept = bytearray(SIZE)
    for low, high in ranges:
        kept[low:high] = outside[low:high]
    assert bytes(kept[start:end]) == outside[start:end]
    reader.close()


def test_a_file_that_ends_early(place: Place) -> None:
    path = make(place, DATA, sparse=True)
    reader = place.disk.open_reader(path)
    assert [at for at, _ in written(reader, PIECE + UNIT, 10 * SIZE)] == [2 * PIECE + 5 * UNIT, 3 * PIECE]
    reader.close()


def test_holes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(123 << 20)
        file.write(b"x")
    if path.stat().st_blocks * 512 > PIECE:
        pytest.skip("this file system has no holes")
    disk = CountingDisk()
    reader = disk.open_reader(str(path))
    assert [at for at, _ in written(reader, 0, 1 << 30)] == [123 << 20]
    assert written_end(reader, 0, 1 << 30) == (123 << 20) + 1
    assert disk.read.total() <= 2 * UNIT
    reader.close()


@pytest.mark.parametrize("size", [0, 1, 7, UNIT, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_zeros(size: int) -> None:
    assert is_zeros(bytes(size))
    assert is_zeros(memoryview(bytearray(size)))
    for at in {0, size // 2, size - 1} if size else ():
        data = bytearray(size)
        data[at] = 1
        assert not is_zeros(data), at
        assert not is_zeros(memoryview(bytes(data)))


def test_copies_and_digests_are_the_same_with_holes_and_without(place: Place) -> None:
    from engine.files.written import is_zero
    from engine.inspect.store.repairs import OF_ZEROS, digest, holds
    from engine.repair.trees import same_file

    disk: Disk = place.disk
    one, two = make(place, DATA, sparse=True), make(place, DATA, sparse=False)
    assert same_file(disk, one, two)
    for offset, length in ((0, SIZE), (UNIT, PIECE), (5, SIZE), (2 * PIECE, 3 * UNIT)):
        assert digest(disk, one, offset, length) == digest(disk, two, offset, length)
    assert digest(disk, one, UNIT + 1, 1000) == OF_ZEROS
    copy = place.path("copy")
    disk.copy_file(one, copy, offset=PIECE, length=2 * PIECE)
    assert os.path.basename(copy) in disk.listdir(place.root)
    assert disk.read_file(copy) == content(DATA)[PIECE : 3 * PIECE]
    assert holds(disk, copy, 0, 2 * PIECE, digest(disk, two, PIECE, 2 * PIECE))
    assert not holds(disk, copy, 0, 2 * PIECE, digest(disk, two, PIECE - 1, 2 * PIECE))
    assert not is_zero(disk, copy)
    changed = place.path("changed")
    disk.write_file(changed, content(DATA | {SIZE - 5: b"f"}))
    assert not same_file(disk, two, changed)
    disk.write_file(changed, content(DATA)[:-2] + b"\0\0")
    assert not same_file(disk, two, changed)
    disk.write_file(changed, content(DATA) + b"\0")
    assert not same_file(disk, two, changed)


def test_a_digest_of_an_older_rstore_holds(place: Place) -> None:
    import hashlib

    from engine.inspect.store.repairs import digest, holds

    data = {UNIT: b"data", 2 * PIECE: b"more"}
    path = make(place, data, sparse=True)
    assert digest(place.disk, path, 0, SIZE) == hashlib.sha256(content(data).rstrip(b"\0")).hexdigest()
    assert holds(place.disk, path, 0, SIZE, hashlib.sha256(content(data)).hexdigest())
    assert not holds(place.disk, path, 0, SIZE, hashlib.sha256(content(data)[:-1]).hexdigest())


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_range_is_overwritten_with_holes_as_with_zeros(place: Place, sparse: bool) -> None:
    source = make(place, DATA, sparse=sparse)
    target = place.path("target")
    for offset, length in ((0, SIZE), (UNIT, PIECE), (2 * PIECE + 7, 3 * UNIT)):
        place.disk.write_file(target, b"x" * SIZE)
        place.disk.copy_range(source, offset, length, target, SIZE - length)
        assert place.disk.read_file(target) == b"x" * (SIZE - length) + content(DATA)[offset : offset + length]


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize(("start", "shift"), [(0, 0), (0, 5), (BLOCK, -BLOCK), (UNIT - 1, 1 - UNIT), (100, 1000)])
def test_blocks_that_hold_data(place: Place, sparse: bool, start: int, shift: int) -> None:
    data = DATA | {UNIT + at: b"f" for at in (100, BLOCK, 2 * BLOCK, 5 * BLOCK - 1, UNIT - 9)}
    whole = content(data)
    reader = place.disk.open_reader(make(place, data, sparse=sparse))
    edges = sorted({start, SIZE, *range(-(-(start + shift) // BLOCK) * BLOCK - shift, SIZE, BLOCK)})
    wanted = [(a + shift) // BLOCK for a, b in pairwise(edges) if any(whole[a:b])]
    found: set[int] = set()
    copy, end = bytearray(SIZE), start
    for at, run in blocks(reader, start, SIZE, shift=shift):
        assert at >= end
        end = at + len(run)
        copy[at:end] = run
        found.update(range((at + shift) // BLOCK, (end + shift - 1) // BLOCK + 1))
    assert copy[start:] == whole[start:]
    assert sorted(found) == wanted
    reader.close()


def test_dense_data_is_copied_in_large_pieces(place: Place) -> None:
    place.disk.write_file(place.path("log"), b"a" * (2 * PIECE) + bytes(BLOCK) + b"b" * 700)
    reader = place.disk.open_reader(place.path("log"))
    runs = [(at, len(run)) for at, run in blocks(reader, 0, 3 * PIECE)]
    assert runs == [(0, PIECE), (PIECE, PIECE), (2 * PIECE + BLOCK, 700)]
    reader.close()


def on_disk(path: str) -> int:
    """Bytes of the blocks that a file has, those of its extents (ext4: one for more than four) with it."""
    return Path(path).stat().st_blocks * 512


def pages(path: str, places: range) -> str:
    """A file of holes with a page of data at each of these places, as an index of few keys is."""
    with open(path, "wb") as file:
        for at in places:
            file.seek(at)
            file.write(b"p" * BLOCK)
        file.truncate(1 << 20)
        os.fsync(file.fileno())
    if on_disk(path) > (len(places) + 1) * BLOCK:
        pytest.skip("this file system has no holes of a block")
    return path


def test_copies_have_no_more_blocks_than_their_source(real: Place) -> None:
    source, copy = pages(real.path("from"), range(BLOCK, 9 * UNIT, UNIT)), real.path("to")
    real.disk.copy_file(source, copy)
    assert on_disk(copy) <= on_disk(source)
    real.disk.copy_file(source, real.path("part"), offset=UNIT, length=2 * UNIT)
    assert on_disk(real.path("part")) == 2 * BLOCK
    same = Path(source).read_bytes()
    assert Path(copy).read_bytes() == same
    Path(real.path("all")).write_bytes(same)  # as it is saved where there are no holes
    for name in (source, real.path("all")):
        pages(copy, range(0))
        real.disk.copy_range(name, 0, 1 << 20, copy, 0)
        assert on_disk(copy) <= on_disk(source)
        assert Path(copy).read_bytes() == same


def test_zeros_over_data_take_no_blocks_more(real: Place) -> None:
    source = pages(real.path("from"), range(BLOCK, 3 * UNIT, UNIT))
    target = pages(real.path("to"), range(2 * BLOCK, 3 * UNIT, UNIT))
    real.disk.copy_range(source, 0, 1 << 20, target, 0)
    assert Path(target).read_bytes() == Path(source).read_bytes()
    assert on_disk(target) <= 7 * BLOCK, "the pages of both"


def test_a_range_that_ends_in_zeros_makes_its_target_as_long(place: Place) -> None:
    source, target = place.path("from"), place.path("to")
    place.disk.write_file(source, b"a" * 10 + bytes(3 * UNIT))
    for length in (10, 11, 2 * UNIT):
        place.disk.write_file(target, b"short")
        place.disk.copy_range(source, 0, length, target, 100)
        assert place.disk.read_file(target) == b"short".ljust(100, b"\0") + b"a" * 10 + bytes(length - 10)
    place.disk.write_file(target, b"x" * UNIT)
    place.disk.copy_range(source, 0, 100, target, 0)
    assert place.disk.stat(target).size == UNIT
