"""The consume queue unit and the extension unit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import queue_ext, queue_unit
from engine.format.numbers import LONG_MIN
from engine.format.queue_ext import ExtUnit
from engine.format.queue_unit import PRE_BLANK, QueueUnit
from tests.support import strategies

LITERAL = bytes.fromhex("00000000000e87cc0000008cffffffff80000000")
UNIT = QueueUnit(952268, 140, -2147483648)
units = st.builds(QueueUnit, strategies.longs, strategies.ints, strategies.longs)
ext_units = st.builds(ExtUnit, strategies.longs, strategies.longs, st.binary(max_size=100))


def test_literal_bytes() -> None:
    assert UNIT.encode() == LITERAL
    assert queue_unit.decode(b"xx" + LITERAL, 2) == UNIT


@given(st.lists(units))
def test_units_one_by_one_and_as_an_array(some: list[QueueUnit]) -> None:
    raw = b"".join(unit.encode() for unit in some)
    assert [queue_unit.decode(raw, i * 20) for i in range(len(some))] == some
    table = queue_unit.decode_many(raw + b"rest of less than 20")
    assert [QueueUnit(*row) for row in table[: len(some)].tolist()] == some
    assert table[: len(some)].tobytes() == raw
    assert queue_unit.decode_many(raw + b"rest").shape == (len(some),)


def test_the_array_is_packed() -> None:
    assert queue_unit.unit_dtype().itemsize == queue_unit.UNIT_SIZE
    assert np.frombuffer(LITERAL, queue_unit.unit_dtype())["tags_code"].tolist() == [-2147483648]


@pytest.mark.parametrize("position", [-1, 1, 20])
def test_too_few_bytes(position: int) -> None:
    with pytest.raises(FormatError) as caught:
        queue_unit.decode(LITERAL, position)
    assert caught.value.offset == position


def test_validity() -> None:
    assert UNIT.is_valid
    assert not QueueUnit(0, 0, 0).is_valid
    assert not QueueUnit(-1, 5, 0).is_valid
    assert PRE_BLANK.is_valid
    assert PRE_BLANK.is_pre_blank
    assert PRE_BLANK.encode().hex() == "00000000000000007fffffff0000000000000000"
    assert not QueueUnit(0, 0x7FFFFFFF, 1).is_pre_blank


def test_ext_addresses() -> None:
    assert queue_unit.is_ext_address(-2147483649)
    assert not queue_unit.is_ext_address(-2147483648)
    assert queue_ext.to_address(0) == LONG_MIN
    with pytest.raises(FormatError):
        queue_ext.to_offset(-2147483648)


@given(st.integers(0, queue_ext.MAX_REAL_OFFSET))
def test_ext_addresses_go_both_ways(offset: int) -> None:
    address = queue_ext.to_address(offset)
    assert queue_unit.is_ext_address(address)
    assert queue_ext.to_offset(address) == offset


def test_ext_unit_literal_bytes() -> None:
    raw = bytes.fromhex("0016ffffffff800000000000018bcfe568000002a55a")
    unit = ExtUnit(-2147483648, 0x18BCFE56800, b"\xa5\x5a")
    assert unit.encode() == raw
    assert queue_ext.decode(raw) == unit
    assert queue_ext.unit_size(raw, 0) == unit.size == 22


@given(ext_units, st.binary(max_size=5))
def test_ext_units_go_both_ways(unit: ExtUnit, before: bytes) -> None:
    assert queue_ext.decode(before + unit.encode() + b"behind", len(before)) == unit


def test_ext_unit_limits() -> None:
    largest = ExtUnit(0, 0, bytes(32767 - 20))
    assert queue_ext.decode(largest.encode()) == largest
    with pytest.raises(FormatError):
        ExtUnit(0, 0, bytes(32768 - 20)).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0",
        b"\0\x14",
        queue_ext.END_MARK + bytes(30),
        bytes(30),
        b"\0\x13" + bytes(30),
        b"\0\x15" + bytes(16) + b"\0\x02" + bytes(9),
    ],
    ids=["nothing", "half a size", "cut", "end mark", "zeros", "too small", "bit map too long"],
)
def test_ext_units_that_are_none(raw: bytes) -> None:
    with pytest.raises(FormatError):
        queue_ext.decode(raw)


def test_a_negative_bit_map_size_counts_as_none() -> None:
    assert queue_ext.decode(b"\0\x14" + bytes(16) + b"\xff\xff") == ExtUnit(0, 0, b"")
