"""Boundaries: places where every scan from the file's start stops, the same for whoever looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.format import message
from engine.format.message import Message
from engine.format.record import BLANK_SIZE
from engine.log import boundary
from engine.log.boundary import Boundaries
from engine.log.scan import RecordBatch, Scanner
from tests.support import logs, planted
from tests.support.logs import MemoryLog
from tests.support.planted import Planted
from tests.support.wide import examples

SEGMENT = 1 << 16


def visited(log: MemoryLog, *, check_crc: bool) -> list[int]:
    """Where records begin that a scan from the file's start meets."""
    found: list[int] = []
    for event in Scanner(log, check_crc=check_crc, kernels=False).scan(0, resume=True):
        if isinstance(event, RecordBatch):
            found += event.offsets().tolist()
    return found


@pytest.mark.wide
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(planted.ANY, min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, SEGMENT - 1), st.integers(1, 300)), max_size=4),
    st.lists(st.integers(-5, SEGMENT + 5), min_size=1, max_size=30),
    st.booleans(),
)
def test_a_boundary_is_a_place_that_is_visited(
    some: list[Planted], damage: list[tuple[int, int]], wishes: list[int], check_crc: bool
) -> None:
    """At or behind the wish, or the end; never in front of the boundary of an earlier wish."""
    log = planted.build(some, SEGMENT).built.log
    for at, length in damage:
        log.files[0][at : at + length] = bytes(min(length, SEGMENT - at))
    places = {*visited(log, check_crc=check_crc), 0, SEGMENT}
    boundaries = Boundaries(log, check_crc=check_crc)
    last = 0
    for wish in sorted(wishes):
        found = boundaries.at(log.segments[0], wish)
        assert found in places
        assert found >= min(max(wish, 0), SEGMENT)
        assert found >= last
        last = found
        before = boundaries.before(log.segments[0], max(0, min(wish, SEGMENT)))
        assert before in places
        assert before <= max(0, min(wish, SEGMENT))


def test_before_is_not_far() -> None:
    built = logs.build([Message("T", bytes([i % 251]) * 1000, i) for i in range(4000)], 1 << 23)
    boundaries = Boundaries(built.log)
    for wish in (0, 1, 500_000, 2_000_000, 4_000_000):
        found = boundaries.before(built.log.segments[0], wish)
        assert found <= wish
        assert wish - found < 1 << 21


@pytest.mark.parametrize("more", range(-1, 3))
def test_a_blank_that_just_reaches(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """The longest blank that a broker writes is a little longer than the largest record: it is still seen."""
    monkeypatch.setattr(boundary, "WINDOW", 0)
    reach = 1000 + message.ENCODE_OVERHEAD
    length = reach + BLANK_SIZE - 1
    start = 4000
    data = bytearray(start + length)
    data[start : start + 8] = message.encode_blank(length)
    record = message.encode(Message("Stale", b"s"))
    place = start + length - len(record) - more if more > 0 else start + BLANK_SIZE - more
    message.patch(record, 0, queue_offset=0, physical_offset=place, store_timestamp=1)
    data[place : place + len(record)] = record
    first = message.encode_inert(start, 0, 1)
    data[:start] = first
    log = MemoryLog({0: data})
    assert Scanner(log).sound_size(place) == len(record)
    boundaries = Boundaries(log, max_message_size=1000)
    assert boundaries.at(log.segments[0], start + 1) == len(data)
    assert boundaries.at(log.segments[0], place) == len(data)


def test_what_does_not_end_with_its_file_is_no_blank() -> None:
    built = logs.build([Message("T", b"x" * 100) for _ in range(20)], SEGMENT)
    built.log.write(built.offsets[5], message.encode_blank(4000))
    assert Boundaries(built.log).at(built.log.segments[0], built.offsets[6]) == built.offsets[6]


def test_little_is_read_for_a_boundary() -> None:
    """Heads that claim to be very large are not read: bytes that look like a record's head are cheap."""
    head = (1 << 28).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(80)
    built = logs.build([Message("T", head * 20) for _ in range(200)], 1 << 20)
    built.log.longest = 0
    found = Boundaries(built.log).at(built.log.segments[0], built.offsets[150] + 1)
    assert found == built.offsets[151]
    assert built.log.longest < 3 << 20
