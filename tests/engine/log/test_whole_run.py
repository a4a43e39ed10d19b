"""A get whose records are judged together gives what one gives that looks at each unit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.files.selected import SelectedBuffer
from engine.format.message import Message, StoredMessage, decode, decode_many, encode
from engine.format.queue_unit import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from engine.format.record import MIN_RECORD_SIZE
from engine.log import reading
from engine.log.reading import ReadLimits, get_message
from engine.log.results import GetResult
from engine.log.whole_run import whole_run
from tests.support import strategies
from tests.support.wide import examples

FILE = 4000
FILES = 3


class MadeLog:
    """A log of equal files; `at_once`: bytes that are read at a time, None: all of a file, as of a map."""

    min_offset = 0

    def __init__(self, base: int, at_once: int | None) -> None:
        self.base = base
        self.at_once = at_once
        self.data = memoryview(bytes(i * 7 % 251 for i in range(FILE * FILES)))

    def read_at(self, offset: int, size: int) -> memoryview | None:
        start = offset - self.base
        inside = start >= 0 and size >= 0 and start % FILE + size <= FILE and start + size <= len(self.data)
        return self.data[start : start + size] if inside else None

    def readable(self, offset: int, size: int, length: int) -> tuple[int, memoryview] | None:
        start = offset - self.base
        if not 0 <= start < len(self.data):
            return None
        first = start // FILE * FILE
        if self.at_once is None:
            return self.base + first, self.data[first : first + FILE]
        end = min(start + max(size, length, self.at_once), first + FILE)
        return (offset, self.data[start:end]) if size >= 0 and start + size <= end else None

    def roll_next_file(self, offset: int) -> int:
        return offset + FILE - (offset - self.base) % FILE


class MadeQueue:
    """A queue of these units, from queue offset 0 on."""

    min_offset = 0

    def __init__(self, units: list[tuple[int, int, int]], torn: int) -> None:
        self.data = memoryview(b"".join([UNIT.pack(*unit) for unit in units]) + bytes(torn))
        self.max_offset = len(units)

    def select(self, offset: int, most: int | None = None) -> SelectedBuffer | None:
        view = self.data[offset * UNIT_SIZE :]
        return SelectedBuffer(None, offset * UNIT_SIZE, view if most is None else view[: most * UNIT_SIZE])

    def roll_next_file(self, offset: int) -> int:
        return offset + 1

    def ext_unit(self, tags_code: int) -> None:
        return None


def ascending(base: int) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Units as a broker writes them: each after the one before."""

    def laid(steps: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        at, out = base, []
        for gap, size in steps:
            out.append((at + gap, size, size))
            at += gap + size
        return out

    return st.lists(st.tuples(st.sampled_from([0, 0, 0, 90, 700]), st.integers(1, 400)), max_size=60).map(laid)


def any_units(base: int) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Units that are damaged, too."""
    offsets = st.integers(base - 50, base + FILE * FILES + 50) | st.sampled_from([-1, 0, -(1 << 63), (1 << 63) - 1])
    sizes = st.integers(1, 300) | st.sampled_from([0, -1, -(1 << 31), PRE_BLANK_SIZE, FILE, FILE + 1])
    return st.lists(st.tuples(offsets, sizes, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=50)


LIMITS = st.builds(
    ReadLimits,
    memory=st.sampled_from([0, 500, FILE, 1 << 40]),
    bytes_in_memory=st.sampled_from([0, 10, 3000, 256 * 1024]),
    count_in_memory=st.sampled_from([-1, 0, 1, 7, 32, 1000]),
    bytes_in_disk=st.sampled_from([0, 10, 1500, 64 * 1024]),
    count_in_disk=st.sampled_from([0, 1, 8]),
    correct_offsets=st.booleans(),
)
BASE = st.sampled_from([0, FILE, 1 << 40])
UNITS = BASE.flatmap(lambda base: st.tuples(st.just(base), ascending(base) | any_units(base)))


def told(result: GetResult) -> tuple[object, ...]:
    places = [(bytes(view), view.nbytes) for view in result.messages]
    return (*result[:4], result.suggest_from_slave, result.message_count, result.total_size, places)


@pytest.mark.wide
@settings(max_examples=examples(2000), deadline=None)
@given(
    UNITS,
    LIMITS,
    st.sampled_from([None, 1, 600]),
    st.integers(-1, 61),
    st.sampled_from([-1, 0, 1, 5, 32, 900]),
    st.sampled_from([0, 0, 7]),
    st.sampled_from([0, FILE, FILE * FILES]),
)
def test_units_together_and_one_by_one_give_the_same(
    made: tuple[int, list[tuple[int, int, int]]],
    limits: ReadLimits,
    at_once: int | None,
    offset: int,
    max_msgs: int,
    torn: int,
    end: int,
) -> None:
    base, units = made
    asked = (MadeLog(base, at_once), base + end, MadeQueue(units, torn), offset, max_msgs, limits)
    together = get_message(*asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "whole_run", lambda *_: None)
        one_by_one = get_message(*asked)
    assert told(together) == told(one_by_one)
    assert together == one_by_one


def test_an_ordinary_get_is_judged_together() -> None:
    """The test above is worth something: this is the way that most gets take."""
    units = b"".join([UNIT.pack(100 + i * 50, 50, 0) for i in range(40)])
    limits = ReadLimits(1 << 40, 1 << 18, 32, 1 << 16, 8, True)
    run = whole_run(memoryview(units), 5000, 32, limits)
    assert run is not None
    physical, sizes, first, end, last = run
    assert physical == tuple(range(100, 100 + 32 * 50, 50))
    assert sizes == (50,) * 32
    assert (first, end, last) == (100, 100 + 32 * 50, 100 + 32 * 50)
    assert whole_run(memoryview(b""), 5000, 32, limits) is None


def each(records: list[memoryview]) -> list[StoredMessage] | str:
    try:
        return [decode(record) for record in records]
    except FormatError as error:
        return str(error)


@pytest.mark.wide
@settings(max_examples=examples(600), deadline=None)
@given(
    st.lists(strategies.messages, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-8, 8)), max_size=2),
)
def test_many_are_decoded_as_each(
    messages: list[Message], flips: list[tuple[int, int, int]], cuts: list[tuple[int, int]]
) -> None:
    """Damaged bytes, torn and overlong records, too."""
    records = [bytes(encode(one)) for one in messages]
    for which, at, value in flips:
        if which < len(records) and at < len(records[which]):
            one = records[which]
            records[which] = one[:at] + bytes([value]) + one[at + 1 :]
    for which, many in cuts:
        if which < len(records):
            records[which] = records[which] + bytes(many) if many > 0 else records[which][: len(records[which]) + many]
    views = [memoryview(record) for record in records]
    try:
        many_decoded: list[StoredMessage] | str = decode_many(views)
    except FormatError as error:
        many_decoded = str(error)
    assert many_decoded == each(views)


def test_equal_neighbours_and_others() -> None:
    """Hosts and topics are taken over from the record before only where they are equal."""
    made = [Message("T", b"1"), Message("T", b"2"), Message("U", b""), Message("T", b"3", properties={"a": "\x01b"})]
    records = [memoryview(bytes(encode(one))) for one in made]
    short = memoryview(bytes(MIN_RECORD_SIZE - 1))
    assert decode_many(records * 2) == each(records * 2)
    with pytest.raises(FormatError):
        decode_many([*records, short])
