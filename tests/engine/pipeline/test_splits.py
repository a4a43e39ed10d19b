"""Splits: for any size, and whatever is in the log, their union is the engine's own scan; damage is found once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format import message
from engine.format.message import Message
from engine.format.record import BLANK_SIZE, V4_HEAD_SIZE
from engine.log import boundary
from engine.log.boundary import Boundaries
from engine.log.scan import Blank, Damage, Gap, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.splits import Split, events, log_end, open_log, plan_splits
from engine.pipeline.stores import StoreRef, find_stores
from tests.engine.log.test_scan import flat
from tests.engine.repair import corpus
from tests.support import golden, logs, mutate, planted, references
from tests.support.logs import PAGE, MemoryLog
from tests.support.planted import Planted
from tests.support.wide import examples

Store = Callable[[str], Path]
SEGMENT = 8192


def ref(log: MemoryLog, limit: int = 4 << 20) -> StoreRef:
    config = StoreConfig(store_path_root_dir=Path("memory")).with_changes(max_message_size=limit)
    return StoreRef("memory", config, tuple(log.segments), False)


def alone(split: Split, log: MemoryLog) -> MemoryLog:
    """What the reader of a split sees: one file."""
    at = split.segment.offset
    return MemoryLog({at: log.files[at]}, log.unreadable, log.holes)


def union(log: MemoryLog, size: int, *, check_crc: bool, limit: int = 4 << 20) -> list[tuple[object, ...]]:
    found = []
    for split in plan_splits([ref(log, limit)], split_bytes=size):
        found += flat(events(split, alone(split, log), check_crc=check_crc))  # type: ignore[arg-type]
    return found


def scanned(log: MemoryLog, *, check_crc: bool, limit: int = 4 << 20) -> list[tuple[object, ...]]:
    scanner = Scanner(log, check_crc=check_crc, max_message_size=limit, kernels=False)
    return [event for event in flat(scanner.scan(0, resume=True)) if event[0] != "gap"]


def assert_equal(log: MemoryLog, size: int, limit: int = 4 << 20) -> None:
    for check_crc in (True, False):
        assert union(log, size, check_crc=check_crc, limit=limit) == scanned(log, check_crc=check_crc, limit=limit)


SMASH = ("zeros", "magic", "noise", "body", "own offset", "total", "blank", "blank to the end", "copy")
damages = st.lists(st.tuples(st.sampled_from(SMASH), st.integers(0, 1 << 20), st.integers(1, 700)), max_size=6)


def smash(found: planted.PlantedLog, what: str, where: int, length: int) -> None:
    """Damage one record (or what lies around it) in one of the ways that a reader of a part could fall for."""
    built = found.built
    i = where % len(built.offsets)
    offset = built.offsets[i]
    segment = next(s for s in built.log.segments if s.offset <= offset < s.end)
    data = built.log.files[segment.offset]
    at = offset - segment.offset
    inside = at + where // 7 % len(built.records[i])
    length = min(length, len(data) - inside)
    match what:
        case "zeros":
            data[inside : inside + length] = bytes(length)
        case "magic":
            data[inside : inside + min(4, length)] = b"\xda\xa3\x20\xa7"[: min(4, length)]
        case "noise":
            data[inside : inside + length] = bytes((where + k * 37) % 256 for k in range(length))
        case "body":
            data[at + V4_HEAD_SIZE] ^= 1
        case "own offset":
            data[at + 28 : at + 36] = (offset + 1).to_bytes(8, "big")
        case "total":
            data[at : at + 4] = (len(built.records[i]) + length).to_bytes(4, "big")
        case "blank":
            data[at : at + 8] = message.encode_blank(length)
        case "blank to the end":
            data[at : at + 8] = message.encode_blank(len(data) - at)
        case "copy":
            record = built.records[i]
            data[inside : inside + len(record)] = record[: len(data) - inside]


@pytest.mark.wide
@settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(planted.ANY, min_size=1, max_size=40),
    damages,
    st.integers(90, 3 * SEGMENT),
    st.booleans(),
    st.sets(st.integers(0, 12), max_size=2),
    st.sets(st.integers(0, 12), max_size=1),
)
def test_the_union_is_the_scan(
    some: list[Planted],
    damage: list[tuple[str, int, int]],
    size: int,
    stale: bool,
    unreadable: set[int],
    missing: set[int],
) -> None:
    found = planted.build(some, SEGMENT)
    if stale:
        planted.leave_stale(found.built, SEGMENT)
    for what, where, length in damage:
        smash(found, what, where, length)
    log = found.built.log
    log.unreadable |= {page for page in unreadable if page % 5 == 0}
    for i in missing:
        if len(log.files) > 2:
            log.files.pop(i * SEGMENT, None)
    assert_equal(log, size)


@pytest.mark.parametrize("size", [23, 200, 1000, 5000, 1 << 20])
def test_every_wish_of_a_small_log(size: int) -> None:
    some = [Planted(before=20, count=3, inner=10, to_the_end=i % 2 == 0, v6=i % 3 == 0) for i in range(12)]
    found = planted.build(some, SEGMENT)
    assert_equal(found.built.log, size)


def test_planted_records_are_sound_and_know_their_place() -> None:
    """Else the tests here would prove nothing."""
    found = planted.build([Planted(before=20, count=3, inner=10, to_the_end=True)], SEGMENT)
    scanner = Scanner(found.built.log)
    first = V4_HEAD_SIZE + 20
    size = scanner.sound_size(first)
    assert size == len(message.encode(Message("In", b"i" * 10)))
    last = first + 2 * size
    assert last + scanner.sound_size(last) == found.built.end
    assert [e.end for e in scanner.scan(0, found.built.end) if isinstance(e, RecordBatch)] == [found.built.end]


def test_a_record_in_the_body_of_a_damaged_record() -> None:
    """With CRCs the scan steps over all that the damaged ones claim; without, the outer ones are its records."""
    found = planted.build([Planted(before=100, count=2, inner=40, behind=50) for _ in range(10)], SEGMENT)
    data = found.built.log.files[0]
    for offset in found.built.offsets[2:6]:
        data[offset + V4_HEAD_SIZE + 50] ^= 1
    log = found.built.log
    kinds_seen = {event[0] for event in scanned(log, check_crc=True)}
    assert "damage" in kinds_seen
    assert len(scanned(log, check_crc=True)) != len(scanned(log, check_crc=False))
    for size in (60, 300, 700, 2000):
        assert_equal(log, size)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(planted.ANY, min_size=1, max_size=12), damages, st.sets(st.integers(0, 11)), st.booleans())
def test_boundaries_are_places_of_the_scan_in_the_order_of_the_wishes(
    some: list[Planted], damage: list[tuple[str, int, int]], bodies: set[int], check_crc: bool
) -> None:
    """The lemma that makes the union the scan, for each wish: whatever bodies hold, and damaged heads claim."""
    found = planted.build(some, SEGMENT)
    log, offsets = found.built.log, found.built.offsets
    for i in bodies:
        if i < len(offsets):
            smash(found, "body", i, 1)
    for what, where, length in damage:
        smash(found, what, where, length)
    boundaries = Boundaries(log, check_crc=check_crc)
    events = Scanner(log, check_crc=check_crc, kernels=False).scan(0, resume=True)
    places = {at for event in events if isinstance(event, RecordBatch) for at in event.offsets().tolist()}
    for segment in log.segments:
        last = segment.offset
        for wish in range(segment.offset, min(segment.end, found.built.end) + 1, 37):
            at = boundaries.at(segment, wish)
            assert at in places or at in (segment.offset, segment.end)
            assert at >= max(last, wish)
            last = at


def test_stale_records_behind_a_blank_are_no_boundary() -> None:
    found = planted.build([Planted(before=900) for _ in range(30)], SEGMENT)
    assert planted.leave_stale(found.built, SEGMENT) > 0
    assert any(Scanner(found.built.log).sound_size(at + BLANK_SIZE) for at, _ in found.built.blanks)
    for size in (100, 500, 3000):
        assert_equal(found.built.log, size)


def test_damage_across_a_boundary_is_found_once() -> None:
    built = logs.build([Message("T", b"x" * 100) for _ in range(60)], 1 << 14)
    first, last = built.offsets[10], built.offsets[20]
    built.log.write(first, bytes(last - first))
    for wish in range(first - 3, last + 3, 50):
        found = []
        for split in plan_splits([ref(built.log)], split_bytes=wish):
            found += [e for e in events(split, alone(split, built.log)) if isinstance(e, Damage) and e.offset < last]  # type: ignore[arg-type]
        assert [(e.offset, e.end) for e in found] == [(first, last)]


def test_pages_that_cannot_be_read() -> None:
    built = logs.build([Message("T", bytes([i]) * 300, i) for i in range(200)], 1 << 15)
    built.log.unreadable.update({2, 3, 9})
    for size in (500, PAGE, 9000):
        assert_equal(built.log, size)


@pytest.mark.parametrize("size", [3000, 40_000])
def test_large_records_that_prove_themselves(size: int) -> None:
    """Larger than maxMessageSize allows, and full of records: stepped over, as the scan does."""
    some = [Planted(before=1000, count=60, inner=2000), *[Planted(before=50)] * 30]
    found = planted.build(some * 3, 1 << 20)
    assert_equal(found.built.log, size, limit=1000)


@pytest.mark.parametrize("what", ["record", "damaged record", "blank"])
def test_what_reaches_farther_than_a_record_can_is_told(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank that no broker wrote, a record or a claim beyond maxMessageSize: never rows too many, but an error."""
    monkeypatch.setattr(boundary, "WINDOW", 0)
    limit = 1000
    some = [Planted(before=1000, count=100, inner=3000), *[Planted(before=50)] * 30]
    built = planted.build(some, 1 << 20).built
    assert Boundaries(built.log, max_message_size=limit).at(built.log.segments[0], 200_000) < built.offsets[1]
    if what == "blank":
        built.log.write(0, message.encode_blank(1 << 20))
    if what == "damaged record":
        built.log.files[0][V4_HEAD_SIZE] ^= 1
    with pytest.raises(FormatError, match="a split was read up to"):
        union(built.log, 100_000, check_crc=True, limit=limit)
    assert_equal(built.log, 1 << 20, limit)


def test_boundaries_before_an_offset() -> None:
    found = planted.build([Planted(before=100, count=i % 3, inner=40) for i in range(600)], 1 << 18)
    log = found.built.log
    boundaries = Boundaries(log)
    places = {event[0] if isinstance(event[0], int) else event[1] for event in scanned(log, check_crc=True)}
    segment = log.segments[0]
    for offset in range(0, found.built.end, 977):
        place = boundaries.before(segment, offset)
        assert place <= offset
        assert place in places


@pytest.mark.leaves("checkpoint-missing", "unit-missing")
def test_the_end_of_a_log(tmp_path: Path) -> None:
    directory = tmp_path / "store" / "commitlog"
    directory.mkdir(parents=True)
    built = logs.build([Message("T", b"x" * 500) for _ in range(40)], 1 << 14)
    for start, data in built.log.files.items():
        (directory / f"{start:020d}").write_bytes(data)
    size = 1 << 14
    (directory / f"{len(built.log.files) * size:020d}").write_bytes(bytes(size))
    (store,) = find_stores([str(tmp_path / "store")])
    assert log_end(store, Disk()) == built.end
    assert log_end(store, Disk(), start=built.offsets[3]) == built.end
    assert log_end(store, Disk(), start=built.end) == built.end
    at, length = built.blanks[-1]
    for start in (at, at + length):
        assert log_end(store, Disk(), start=start) == built.end


@pytest.mark.leaves("checkpoint-missing", "log-damage", "log-tail", "unit-missing")
def test_a_long_log_ends_where_its_scan_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By kernels, and from a boundary near the end: the same as from the file's start."""
    monkeypatch.setattr("engine.pipeline.splits._TAIL", 1 << 20)
    directory = tmp_path / "store" / "commitlog"
    directory.mkdir(parents=True)
    built = logs.build([Message("T", bytes([i % 251]) * 50_000, i) for i in range(500)], 1 << 25)
    data = built.log.files[0]
    data[built.offsets[-1] + 200] ^= 1  # what is written last has no CRC yet
    data[built.offsets[-30] + 200] ^= 1
    (directory / f"{0:020d}").write_bytes(data)
    (store,) = find_stores([str(tmp_path / "store")])
    assert log_end(store, Disk()) == built.offsets[-1]
    assert log_end(store, Disk(), start=built.offsets[-2]) == built.offsets[-1]


def test_a_store_without_records(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (store,) = find_stores([str(tmp_path / "store")])
    assert log_end(store, Disk()) == 0
    assert plan_splits([store], end=0) == []


def of_store(store: StoreRef, sizes: list[int]) -> None:
    """The union of a store's splits is its scan, to its end and to the log's."""
    disk = Disk()
    end = log_end(store, disk)
    with ClosedLog(disk, store.segments) as log:
        for check_crc in (True, False):
            scanner = Scanner(log, check_crc=check_crc)
            for until in (None, end):
                start = store.segments[0].offset if store.segments else 0
                expected = [e for e in flat(scanner.scan(start, until, resume=True)) if e[0] != "gap"]
                for size in sizes:
                    found = []
                    for split in plan_splits([store], split_bytes=size, end=until):
                        with open_log(split, disk) as one:
                            found += flat(events(split, one, check_crc=check_crc))
                    assert found == expected


@pytest.mark.parametrize("reference", references.ALL)
def test_reference_stores(reference: str, reference_store: Store) -> None:
    (store,) = find_stores([str(reference_store(reference))])
    scanned_whole = store.segments[0].size
    of_store(store, [scanned_whole // 3 + 1, scanned_whole // 17])
    records = references.dump(reference, "log")
    assert log_end(store, Disk()) == max(r["physicalOffset"] + r["size"] for r in records)


@pytest.mark.leaves
@pytest.mark.parametrize("case", corpus.fixture_cases()[::7], ids=lambda case: str(case["id"]))
def test_damaged_stores(case: corpus.Case, fixture_copy: Store) -> None:
    store = fixture_copy(case["base"])
    mutate.apply(store, case["ops"])
    if list((store / "commitlog").glob("0*")):
        of_store(find_stores([str(store)])[0], [30_000])


@pytest.mark.leaves
@pytest.mark.parametrize("case", golden.cases()[::29], ids=lambda case: str(case["id"]))
def test_damaged_golden_stores(case: corpus.Case, golden_copy: Store) -> None:
    store = golden_copy(case["base"])
    mutate.apply(store, case["ops"])
    if list((store / "commitlog").glob("0*")):
        of_store(find_stores([str(store)])[0], [300_000])


def test_what_events_are(fixture_store: Store) -> None:
    """A split's events are the scanner's own kinds, and none is a gap."""
    (store,) = find_stores([str(fixture_store("clean-small"))])
    seen = set()
    for split in plan_splits([store], split_bytes=50_000):
        with open_log(split, Disk()) as log:
            seen |= {type(event) for event in events(split, log)}
    assert seen <= {RecordBatch, Blank, Damage}
    assert Gap not in seen
