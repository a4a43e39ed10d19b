"""A seal proves each byte of its segment, and locates each change to the page; its file is whole, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import of_store
from engine.errors import FormatError, InvalidArgument, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.operations import Doing, Operation
from engine.inspect.store.survey import survey
from engine.log.source import Segment
from engine.seals.directory import read_seal, read_seal_in, seal_path, sealed_offsets, seals_directory, write_seal
from engine.seals.layout import MAGIC, PAGE_SIZE, PIECE_SIZE, SealDamaged
from engine.seals.make import complete_segments, make_seal
from engine.seals.page_hash import hash_pages, page_hasher
from engine.seals.seal import Seal, SealedDamage, hash_of, root_of, seal_size
from tests.support import stores

Store = Callable[[str], Path]
SIZE = 2 * PIECE_SIZE + 3 * PAGE_SIZE + 100
"""Two pieces, and one whose last page is no whole one."""


def seal_of(data: bytes, offset: int = 0, damage: tuple[SealedDamage, ...] = ()) -> Seal:
    """A seal of any bytes."""
    pieces = [hash_of(data[at : at + PIECE_SIZE]) for at in range(0, len(data), PIECE_SIZE)]
    root = root_of(offset, len(data), pieces)
    return Seal(offset, len(data), 1, 2, 3, "root@host", damage, root, b"".join(pieces), hash_pages(data))


DATA = Random(1).randbytes(SIZE)
SEAL = seal_of(DATA)
HASHER = page_hasher(1 << 30)


def xxh64(data: bytes) -> int:
    """As its specification has it, for a length that is a multiple of 32, seed 0: a reader of our own."""
    mask = (1 << 64) - 1
    p1, p2, p3, p4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63

    def turned(x: int, by: int) -> int:
        return ((x << by) | (x >> (64 - by))) & mask

    def mixed(lane: int, word: int) -> int:
        return turned((lane + word * p2) & mask, 31) * p1 & mask

    lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
    for at in range(0, len(data), 32):
        lanes = [mixed(lane, int.from_bytes(data[at + 8 * k :][:8], "little")) for k, lane in enumerate(lanes)]
    total = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    for lane in lanes:
        total = ((total ^ mixed(0, lane)) * p1 + p4) & mask
    total = (total + len(data)) & mask
    total = (total ^ total >> 33) * p2 & mask
    total = (total ^ total >> 29) * p3 & mask
    return total ^ total >> 32


def test_pages_are_hashed_as_the_specification_says() -> None:
    data = DATA[: 5 * PAGE_SIZE + 100]
    expected = [xxh64(data[at : at + PAGE_SIZE].ljust(PAGE_SIZE, b"\0")) for at in range(0, len(data), PAGE_SIZE)]
    assert hash_pages(data).tolist() == expected
    assert page_hasher(1 << 30)(data).tolist() == expected
    assert hash_pages(bytes(PAGE_SIZE)).tolist() == [xxh64(bytes(PAGE_SIZE))]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 255)), min_size=1, max_size=6))
def test_each_change_is_located_to_its_page(changes: list[tuple[int, int]]) -> None:
    data = bytearray(DATA)
    for at, bits in changes:
        data[at] ^= bits
    truth = {at // PAGE_SIZE for at, _ in changes if data[at] != DATA[at]}
    seen: set[int] = set()
    for number in range(SEAL.piece_count):
        start, length = SEAL.piece_range(number)
        piece = bytes(data[start : start + length])
        ranges = SEAL.changed_pages(number, piece, HASHER)
        assert SEAL.proves(number, piece) == (not ranges)
        for position, size in ranges:
            pages = range(position // PAGE_SIZE, -(-(position + size) // PAGE_SIZE))
            assert not seen & set(pages)
            seen |= set(pages)
            assert not SEAL.proves_pages(position, bytes(data[position : position + size]))
            assert SEAL.proves_pages(position, DATA[position : position + size])
    assert seen == truth


def test_what_ends_early_is_changed_from_there_on() -> None:
    piece = DATA[:PIECE_SIZE]
    assert SEAL.changed_pages(0, piece[:-1]) == ((PIECE_SIZE - PAGE_SIZE, PAGE_SIZE),)
    assert SEAL.changed_pages(0, b"") == ((0, PIECE_SIZE),)
    last = SEAL.piece_range(2)
    assert last == (2 * PIECE_SIZE, 3 * PAGE_SIZE + 100)
    rest = DATA[2 * PIECE_SIZE :]
    assert SEAL.changed_pages(2, rest[:-1]) == ((SIZE - 100, 100),)
    assert SEAL.changed_pages(2, bytes(len(rest))) == (last,)
    assert not SEAL.proves(2, rest[:-1])
    for wrong in (-1, 3):
        with pytest.raises(InvalidArgument):
            SEAL.proves(wrong, rest)
    for position, data in ((1, DATA[:PAGE_SIZE]), (0, DATA[:100]), (-PAGE_SIZE, DATA[:PAGE_SIZE]), (0, DATA + b"x")):
        with pytest.raises(InvalidArgument):
            SEAL.proves_pages(position, data)


def test_its_file_says_the_same() -> None:
    seal = seal_of(DATA, 1 << 30, (SealedDamage((1 << 30) + 5, 77, "body CRC mismatch"), SealedDamage(9, 8, "x", True)))
    data = seal.encode()
    read = Seal.decode(data, "here")
    assert read.encode() == data
    assert (read.offset, read.end, read.by, read.damage) == (seal.offset, seal.end, seal.by, seal.damage)
    assert len(seal_of(DATA).encode()) - len(b'{"by": "root@host", "damage": []}') == seal_size(SIZE)
    assert seal.root == blake3((1 << 30).to_bytes(8, "big") + SIZE.to_bytes(8, "big") + seal.pieces).digest()
    assert seal.root != SEAL.root


SMALL = seal_of(DATA[: 3 * PAGE_SIZE])
FILE = SMALL.encode()


@given(st.data())
def test_a_damaged_or_torn_file_is_refused(data: st.DataObject) -> None:
    torn = bytearray(FILE)
    kind = data.draw(st.sampled_from(("flip", "cut", "more", "zeros")))
    at = data.draw(st.integers(0, len(FILE) - 1))
    if kind == "flip":
        torn[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del torn[at:]
    elif kind == "more":
        torn += data.draw(st.binary(min_size=1, max_size=64))
    else:
        torn[at:] = bytes(len(torn) - at)
        torn[-1] ^= FILE[-1] == 0
    with pytest.raises(FormatError):
        Seal.decode(bytes(torn), "here")


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    for some in (data, MAGIC + data, MAGIC + b"\1" + data):
        with pytest.raises(FormatError):
            Seal.decode(some, "here")


def test_a_later_version_is_named() -> None:
    with pytest.raises(FormatError, match="a newer rstore reads it"):
        Seal.decode(MAGIC + b"\2" + FILE[5:], "here")


def test_seals_of_a_store(fixture_copy: Store, unchanged: Callable[[Path], None]) -> None:
    """Made of complete segments alone; making them changes nothing; kept, read again, equal."""
    disk, store = Disk(), fixture_copy("clean-small")
    files = survey(disk, of_store(store))
    segments = complete_segments(disk, files)
    assert 0 < len(segments) < len(files.log)
    before = stores.snapshot(store)
    seals = [make_seal(disk, one, max_message_size=1 << 22, by="me@here") for one in segments]
    assert stores.snapshot(store) == before
    records = 0
    for segment, seal in zip(segments, seals, strict=True):
        content = Path(segment.path).read_bytes()
        assert (seal.offset, seal.size, seal.damage) == (segment.offset, len(content), ())
        assert seal.proves(0, content)
        assert seal.pages.tolist() == hash_pages(content).tolist()
        records += seal.records
        write_seal(disk, seals_directory(str(store)), seal)
    assert records > 0
    assert sealed_offsets(disk, seals_directory(str(store))) == [one.offset for one in segments]
    again = read_seal(disk, str(store), segments[1].offset)
    assert again is not None
    assert again.encode() == seals[1].encode()
    assert read_seal(disk, str(store), 1 << 40) is None
    other = Path(seal_path(seals_directory(str(store)), segments[0].offset))
    other.write_bytes(seals[1].encode())
    with pytest.raises(SealDamaged, match="the seal of segment"):
        read_seal(disk, str(store), segments[0].offset)


@pytest.mark.leaves("log-damage")
def test_damage_is_noted_and_not_sealed_as_truth(fixture_copy: Store) -> None:
    disk, store = Disk(), fixture_copy("clean-small")
    segment = complete_segments(disk, survey(disk, of_store(store)))[0]
    path = Path(segment.path)
    path.write_bytes(path.read_bytes()[:8192] + bytes(4096) + path.read_bytes()[12288:])
    seal = make_seal(disk, segment, max_message_size=1 << 22, by="me@here")
    assert seal.damage
    assert all(one.offset < 12288 < one.offset + one.length + 4096 for one in seal.damage if not one.is_suspect)


def test_what_the_disk_cannot_read_is_not_sealed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(5 * PAGE_SIZE))
    disk = FaultyDisk(None)

    def bad(doing: Doing) -> bool:
        return doing.operation is Operation.READ and (doing.offset or 0) + doing.length > 2 * PAGE_SIZE

    disk.fail_when(bad, 5)
    with pytest.raises(StorageError):
        make_seal(disk, Segment(0, 5 * PAGE_SIZE, str(path)), max_message_size=1 << 22, by="me@here")


def test_killed_at_each_change_a_seal_is_whole_or_absent(tmp_path: Path) -> None:
    for nth in range(1, 40):
        root = tmp_path / f"{nth}"
        root.mkdir()
        disk = FaultyDisk(str(root))
        directory = seals_directory(str(root))
        disk.kill_before(nth)
        try:
            write_seal(disk, directory, SMALL)
        except Killed:
            disk.heal()
        else:
            assert nth > 4
            return
        for lose in ("all", "none", "random"):
            copy = tmp_path / f"{nth}-{lose}"
            disk.crash_copy(str(copy), Random(nth), lose)  # type: ignore[arg-type]
            assert sealed_offsets(Disk(), seals_directory(str(copy))) in ([], [0])
            seal = read_seal_in(Disk(), seals_directory(str(copy)), 0)
            assert seal is None or seal.encode() == FILE
            write_seal(Disk(), seals_directory(str(copy)), SMALL)
            assert read_seal_in(Disk(), seals_directory(str(copy)), 0) is not None
    raise AssertionError("never ended")


def test_the_example_of_the_document() -> None:
    text = (Path(__file__).parents[3] / "engine" / "seals" / "SEALS.md").read_text(encoding="utf-8")
    rows = re.findall(r"^    ((?:[0-9a-f]{2} ?)+)$", text.rpartition("### Example")[2], re.MULTILINE)
    data = bytes.fromhex("".join(rows))
    held = b"A" * PAGE_SIZE
    root = root_of(0, PAGE_SIZE, [hash_of(held)])
    made = Seal(0, PAGE_SIZE, 1, 2, 3, "me@here", (), root, hash_of(held), hash_pages(held))
    assert made.encode() == data
    read = Seal.decode(data, "here")
    assert read.proves(0, held)
    assert read.proves_pages(0, held)
    assert f"The seal, {len(data)} bytes" in text
