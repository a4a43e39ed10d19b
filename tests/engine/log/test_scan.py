"""The scanner on logs made in memory: order, windows, damage, what looks like a record and is none."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format import message, sysflag
from engine.format.hosts import Host
from engine.format.judge import Reason, Row
from engine.format.message import Message
from engine.format.record import POSITION_PHYSICAL_OFFSET, V4_HEAD_SIZE
from engine.log.scan import Blank, Damage, Event, Gap, RecordBatch, Scanner
from tests.support import logs, strategies
from tests.support.logs import PAGE, Built, MemoryLog

SEGMENT = 16384
V6 = Host(bytes(15) + b"\1", 1)


def messages(count: int, size: int = 100) -> list[Message]:
    """Messages of different sizes and hosts, each with a body of its own."""
    return [
        Message(
            f"Topic{i % 3}",
            body=b"%06d" % i * (size // 6 + i % 7),
            queue_id=i % 4,
            properties={"KEYS": f"k{i}", "TAGS": "t"},
            born_host=V6 if i % 5 == 1 else Host(b"\1\2\3\4", i),
            store_host=V6 if i % 5 > 2 else Host(b"\1\2\3\4", i),
        )
        for i in range(count)
    ]


def flat(events: Iterable[Event]) -> list[tuple[object, ...]]:
    """Events without the batches' borders: (offset, record bytes), ("blank", …), ("gap", …), ("damage", …)."""
    found: list[tuple[object, ...]] = []
    for event in events:
        if isinstance(event, RecordBatch):
            found += [(event.offset(i), bytes(event.record(i))) for i in range(len(event))]
        elif isinstance(event, Blank):
            found.append(("blank", event.offset, event.length))
        elif isinstance(event, Gap):
            found.append(("gap", event.offset, event.length))
        else:
            found.append(("damage", event.offset, event.reason, event.length))
    return found


def scan(log: MemoryLog, start: int = 0, end: int | None = None, *, resume: bool = False, **options: int):
    return flat(Scanner(log, **options).scan(start, end, resume=resume))


def records(built: Built) -> list[tuple[object, ...]]:
    return list(zip(built.offsets, built.records, strict=True))


def whole(built: Built) -> list[tuple[object, ...]]:
    """What an undamaged log scans as: records and blanks in order, then the empty rest."""
    found = [*records(built), *(("blank", *blank) for blank in built.blanks)]
    return sorted(found, key=lambda event: event[1] if event[0] == "blank" else event[0])  # type: ignore[arg-type,return-value]


@pytest.fixture
def built() -> Built:
    return logs.build(messages(400), SEGMENT)


def test_everything_in_order(built: Built) -> None:
    assert len(built.log.files) > 3
    assert scan(built.log, end=built.end) == whole(built)


def test_the_end_of_the_log_is_an_empty_place(built: Built) -> None:
    rest = built.log.segments[-1].end - built.end
    assert scan(built.log) == [*whole(built), ("damage", built.end, Reason.EMPTY, 0)]
    assert scan(built.log, resume=True) == [*whole(built), ("damage", built.end, Reason.EMPTY, rest)]


def test_every_column_is_what_decode_says(built: Built) -> None:
    for event in Scanner(built.log).scan(0, built.end):
        if not isinstance(event, RecordBatch):
            continue
        columns = event.columns()
        assert columns.shape == (len(Row._fields), len(event))
        for i, row in enumerate(event.rows):
            found = message.decode(event.buffer, row.position)
            assert tuple(columns[:, i].tolist()) == tuple(row)
            assert row.size == found.total_size
            assert row.queue_id == found.queue_id
            assert row.queue_offset == found.queue_offset
            assert row.stored_offset == found.physical_offset == event.offset(i)
            assert row.sys_flag == found.sys_flag
            assert row.store_timestamp == found.store_timestamp
            assert bytes(event.body(i)) == found.body
            assert event.topic(i).decode() == found.topic
            assert event.properties(i) == found.properties_raw
        assert event.start == event.offset(0)
        assert event.end == event.offset(len(event) - 1) + event.rows[-1].size


@given(window=st.integers(1, 3 * SEGMENT), first=st.integers(0, 399), last=st.integers(0, 399))
def test_the_window_changes_nothing(window: int, first: int, last: int) -> None:
    built = logs.build(messages(400), SEGMENT)
    start, end = built.offsets[first], built.offsets[last]
    expected = [
        event
        for event in whole(built)
        if start <= (event[1] if event[0] == "blank" else event[0]) < end  # type: ignore[operator]
    ]
    assert scan(built.log, start, end, window=window) == expected


@given(st.lists(strategies.messages, min_size=1, max_size=12), st.integers(88, 2000))
def test_any_messages_are_found_again(some: list[Message], window: int) -> None:
    built = logs.build(some, 4096, first=8192)
    assert scan(built.log, 8192, built.end, window=window) == whole(built)


def test_an_end_between_two_records_starts_is_kept(built: Built) -> None:
    end = built.offsets[7] + 1
    assert scan(built.log, end=end) == records(built)[:8]


def corrupt(built: Built, i: int, kind: str) -> Reason:
    """Damage record `i`; the reason that the scanner should give."""
    at, size = built.offsets[i], len(built.records[i])
    found = message.decode(built.records[i])
    body_at = size - 2 - len(found.properties_raw) - 1 - len(found.topic) - len(found.body)
    patches: dict[str, tuple[int, bytes, Reason]] = {
        "body": (body_at, bytes([built.records[i][body_at] ^ 1]), Reason.CRC),
        "crc": (8, bytes(4), Reason.CRC),
        "magic": (4, b"\xda\xa3\x20\xa6", Reason.MAGIC),
        "zeros": (0, bytes(8), Reason.EMPTY),
        "blank": (0, message.encode_blank(size), Reason.BLANK_LENGTH),
        "small": (0, (90).to_bytes(4, "big"), Reason.SIZE),
        "negative": (0, b"\xff\xff\xff\xff", Reason.SIZE),
        "giant": (0, b"\x7f\xff\xff\xff", Reason.SIZE),
        "one more": (0, (size + 1).to_bytes(4, "big"), Reason.LENGTHS),
        "body length": (body_at - 4, b"\x7f\xff\xff\xff", Reason.LENGTHS),
        "topic length": (body_at + len(found.body), b"\xff", Reason.LENGTHS),
        "properties length": (size - len(found.properties_raw) - 2, b"\x7f\xff", Reason.LENGTHS),
    }
    place, patch, reason = patches[kind]
    built.log.write(at + place, patch)
    return reason


KINDS = ["body", "crc", "magic", "zeros", "blank", "small", "negative", "giant", "one more", "body length"]
KINDS += ["topic length", "properties length"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", [0, 57, 250])
@pytest.mark.parametrize("window", [100, 4 << 20])
def test_damage_loses_its_record_only(kind: str, i: int, window: int) -> None:
    built = logs.build(messages(400), SEGMENT)
    expected = whole(built)
    place = expected.index(records(built)[i])
    reason = corrupt(built, i, kind)
    at = built.offsets[i]
    assert scan(built.log, end=built.end, window=window) == [*expected[:place], ("damage", at, reason, 0)]
    length = len(built.records[i])
    assert scan(built.log, end=built.end, resume=True, window=window) == [
        *expected[:place],
        ("damage", at, reason, length),
        *expected[place + 1 :],
    ]


def test_without_crc_a_changed_body_passes(built: Built) -> None:
    corrupt(built, 9, "body")
    assert len(scan(built.log, end=built.end, check_crc=False)) == len(whole(built))


def test_a_crc_that_is_truly_zero_is_no_damage() -> None:
    body = bytes.fromhex("9d0ad96d")  # its CRC-32 is 0
    assert message.body_crc(body) == 0
    built = logs.build([Message("T", body)], 4096)
    assert scan(built.log, end=built.end) == records(built)


def test_damage_at_the_end_of_a_file_goes_on_with_the_next(built: Built) -> None:
    at, length = built.blanks[0]
    built.log.write(at, b"\1" * 8)
    expected = whole(built)
    expected[expected.index(("blank", at, length))] = ("damage", at, Reason.MAGIC, length)
    assert scan(built.log, end=built.end, resume=True) == expected


def test_a_blank_must_end_with_its_file(built: Built) -> None:
    at, length = built.blanks[1]
    built.log.write(at, message.encode_blank(length - 1))
    assert scan(built.log, end=built.end)[-1] == ("damage", at, Reason.BLANK_LENGTH, 0)


def test_a_file_cut_short(built: Built) -> None:
    first = built.log.files[0]
    i = built.offsets.index(max(offset for offset in built.offsets if offset < SEGMENT))
    del first[built.offsets[i] + 50 :]
    events = scan(built.log, end=built.end)
    assert events == [*records(built)[:i], ("damage", built.offsets[i], Reason.SIZE, 0)]
    rest = scan(built.log, end=built.end, resume=True)
    assert rest[i] == ("damage", built.offsets[i], Reason.SIZE, 50)
    assert rest[i + 1] == ("gap", len(first), SEGMENT - len(first))
    assert rest[i + 2] == records(built)[i + 1]


@pytest.mark.parametrize("left", range(1, 100, 7))
def test_a_source_that_ends_inside_a_record(built: Built, left: int) -> None:
    """A live log's source ends with what is written, while the segment goes on."""
    at = built.offsets[20]
    log = built.log

    class Cut(MemoryLog):
        def read(self, offset: int, length: int) -> memoryview:
            return super().read(offset, max(0, min(length, at + left - offset)))

    events = scan(Cut(log.files))
    assert events[:20] == records(built)[:20]
    assert events[20:] == [("damage", at, Reason.CUT, 0)]


def test_missing_segments_are_named_and_stepped_over(built: Built) -> None:
    expected = [
        event for event in whole(built) if not SEGMENT <= (event[1] if event[0] == "blank" else event[0]) < 2 * SEGMENT
    ]  # type: ignore[operator]
    del built.log.files[SEGMENT]
    events = scan(built.log, end=built.end)
    assert ("gap", SEGMENT, SEGMENT) in events
    assert [event for event in events if event[0] != "gap"] == expected


def test_a_wrong_physical_offset_is_reported_beside_a_sound_record(built: Built) -> None:
    built.log.write(built.offsets[5] + POSITION_PHYSICAL_OFFSET, struct.pack(">q", 12345))
    (batch, *_) = Scanner(built.log).scan(0, built.end)
    assert isinstance(batch, RecordBatch)
    assert batch.rows[5].stored_offset == 12345
    assert batch.offset(5) == built.offsets[5]


def test_a_record_inside_a_body_is_no_record() -> None:
    inner = logs.build([Message("Inner", b"inside")], 4096)
    puts = [Message("Outer", inner.records[0] * 3 + message.encode_blank(99)), Message("Outer", b"last")]
    built = logs.build(puts, SEGMENT)
    assert scan(built.log, end=built.end) == records(built)
    built.log.write(built.offsets[0] + 8, b"\0\0\0\0")
    assert scan(built.log, end=built.end, resume=True) == [
        ("damage", 0, Reason.CRC, len(built.records[0])),
        *records(built)[1:],
    ]


def test_a_record_inside_a_body_with_its_own_place_but_a_wrong_crc_is_no_record() -> None:
    inner = message.encode(Message("Inner", b"inside"), crc=1)
    message.patch(inner, 0, queue_offset=0, physical_offset=V4_HEAD_SIZE, store_timestamp=1)
    built = logs.build([Message("Outer", bytes(inner)), Message("Outer", b"last")], SEGMENT)
    built.log.write(8, b"\0\0\0\0")
    assert scan(built.log, end=built.end, resume=True)[0] == ("damage", 0, Reason.CRC, len(built.records[0]))


@pytest.mark.parametrize("window", [100, 128, 1000, SEGMENT])
def test_the_search_finds_magics_across_its_windows(window: int) -> None:
    built = logs.build(messages(60), SEGMENT)
    scanner = Scanner(built.log, window=window)
    for before, offset in zip([-1, *built.offsets], built.offsets, strict=False):
        assert scanner.find_sound(before + 1) == offset
    assert scanner.find_sound(built.offsets[-1] + 1) is None
    assert scanner.find_sound(0, built.offsets[0]) is None
    assert scanner.find_sound(built.offsets[3] + 1, built.offsets[4]) is None


def test_holes_are_not_searched(built: Built) -> None:
    last = built.log.segments[-1]
    built.log.holes = [(built.end, last.end)]
    before = built.log.reads
    assert Scanner(built.log, window=100).find_sound(built.end) is None
    assert built.log.reads == before


def test_records_behind_a_hole_are_found() -> None:
    built = logs.build(messages(100), 1 << 16)
    start, end = built.offsets[10], built.offsets[60]
    built.log.write(start, bytes(end - start))
    built.log.holes = [(start, end)]
    events = scan(built.log, end=built.end, resume=True)
    assert events == [*records(built)[:10], ("damage", start, Reason.EMPTY, end - start), *records(built)[60:]]


@pytest.mark.parametrize("claimed", [0x7FFFFFFF, (1 << 30) - 100, 100 << 20])
def test_a_giant_size_is_never_read_nor_allocated(claimed: int) -> None:
    """The segment is 1 GiB in name only: a read of what the record claims would show."""
    built = logs.build(messages(3), 1 << 16)
    record = bytearray(built.records[1])
    struct.pack_into(">i", record, 0, claimed)
    struct.pack_into(">i", record, 84 + 12 * (record[39] >> 4 & 1), claimed - 200)
    built.log.write(built.offsets[1], bytes(record))

    class Large(MemoryLog):
        @property
        def segments(self):  # type: ignore[no-untyped-def]
            return [type(s)(s.offset, 1 << 30, s.path) for s in super().segments]

    log = Large(built.log.files)
    scan(log, end=built.end, resume=True)  # kernels that are compiled in between would count
    log.longest = 0
    tracemalloc.start()
    events = scan(log, end=built.end, resume=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [event[:2] for event in events if event[0] == "damage"] == [("damage", built.offsets[1])]
    assert events[-1] == records(built)[2]
    assert log.longest <= 4 << 20
    assert peak < 4 << 20


def test_a_record_larger_than_the_maximum_is_read_when_it_proves_itself() -> None:
    puts = [Message("T", b"a"), Message("T", b"x" * 300_000, born_host=V6), Message("T", b"b")]
    built = logs.build(puts, 1 << 20)
    assert scan(built.log, end=built.end, max_message_size=1000, window=4096) == records(built)
    assert Scanner(built.log, max_message_size=1000, window=4096).find_sound(1) == built.offsets[1]
    built.log.write(built.offsets[1] + POSITION_PHYSICAL_OFFSET, bytes(8))
    built.log.longest = 0
    events = scan(built.log, end=built.end, resume=True, max_message_size=1000, window=4096)
    assert events[1][:3] == ("damage", built.offsets[1], Reason.SIZE)
    assert events[-1] == records(built)[-1]
    assert built.log.longest < 100_000


class TestUnreadable:
    """EIO: a page that the system can't read loses the records that touch it, and no other."""

    @pytest.mark.parametrize("size", [60, 700, 6000])
    @pytest.mark.parametrize("window", [100, 4096, 10_000, 4 << 20])
    @pytest.mark.parametrize("pages", [{0}, {3}, {3, 4}, {2, 5}, {7}])
    def test_only_what_touches_the_page_is_lost(self, size: int, window: int, pages: set[int]) -> None:
        built = logs.build(messages(40_000 // (size + 160), size), 1 << 16)
        built.log.unreadable = pages
        events = scan(built.log, end=built.end, resume=True, window=window)
        touched = [
            any(at // PAGE <= page <= (at + len(record) - 1) // PAGE for page in pages) for at, record in records(built)
        ]
        assert any(touched)
        expected = [event for event, lost in zip(records(built), touched, strict=True) if not lost]
        assert [event for event in events if event[0] != "damage"] == expected
        damaged = [event for event in events if event[0] == "damage"]
        assert all(event[2] is Reason.UNREADABLE for event in damaged)
        lost = sum(len(record) for (_, record), gone in zip(records(built), touched, strict=True) if gone)
        assert sum(event[3] for event in damaged) == lost

    def test_without_resume_it_ends_there(self, built: Built) -> None:
        built.log.unreadable = {2}
        first = next(i for i, (at, r) in enumerate(records(built)) if at + len(r) > 2 * PAGE)
        assert scan(built.log) == [*records(built)[:first], ("damage", built.offsets[first], Reason.UNREADABLE, 0)]

    def test_a_large_record_that_cannot_be_proved_is_unreadable(self) -> None:
        built = logs.build([Message("T", b"a"), Message("T", b"x" * 300_000), Message("T", b"b")], 1 << 20)
        built.log.unreadable = {(built.offsets[2] - 10) // PAGE}
        events = scan(built.log, end=built.end, resume=True, max_message_size=1000, window=4096)
        assert events[:2] == [
            records(built)[0],
            ("damage", built.offsets[1], Reason.UNREADABLE, built.end - built.offsets[1]),
        ]


def test_transaction_and_flag_bits_change_no_length() -> None:
    puts = [Message("T", b"b", sys_flag=bits) for bits in (0, sysflag.TRANSACTION_ROLLBACK, 0x7C0 | sysflag.COMPRESSED)]
    built = logs.build(puts, 4096)
    assert scan(built.log, end=built.end) == records(built)


def test_damage_knows_its_end_and_segment(built: Built) -> None:
    corrupt(built, 3, "magic")
    damage = next(e for e in Scanner(built.log).scan(0, built.end, resume=True) if isinstance(e, Damage))
    assert damage.end == built.offsets[4]
    assert damage.segment == built.log.segments[0]


def test_kernels_are_ready_before_a_scan_needs_them() -> None:
    """In a process of its own: here others may have loaded them."""
    words = "from engine.log.scan import kernels_if_loaded, ready_kernels as r; a = kernels_if_loaded(); r()"
    ran = subprocess.run(
        [sys.executable, "-c", f"{words}; print(a, kernels_if_loaded())"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "None True"), ran.stderr
