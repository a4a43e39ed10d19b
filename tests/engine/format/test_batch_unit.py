"""The unit of a batch consume queue, on literal bytes and as an array."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import batch_unit
from engine.format.batch_unit import BATCH_UNIT_SIZE, BatchUnit
from tests.support import strategies

LITERAL = bytes.fromhex(
    "00000000000014dc 000001c5 0000000000000000 000001a206230549 0000000000000000 0004 ffffffff 00000000"
)
"""The first unit of B/0 in fixtures/rocketmq5/batch."""
FIRST = BatchUnit(5340, 453, 0, 1795399288137, 0, 4)
units = st.builds(
    BatchUnit,
    *(strategies.longs, strategies.ints, strategies.longs, strategies.longs, strategies.longs),
    *(st.integers(-(1 << 15), (1 << 15) - 1), strategies.ints, strategies.ints),
)


def test_literal_bytes() -> None:
    assert FIRST.encode() == LITERAL
    assert batch_unit.decode(b"xx" + LITERAL, 2) == FIRST
    assert FIRST.end_offset == 4


@given(st.lists(units, max_size=5), st.binary(max_size=BATCH_UNIT_SIZE - 1))
def test_units_one_by_one_and_as_an_array(some: list[BatchUnit], rest: bytes) -> None:
    data = b"".join(unit.encode() for unit in some) + rest
    assert [batch_unit.decode(data, i * BATCH_UNIT_SIZE) for i in range(len(some))] == some
    table = batch_unit.decode_many(data)
    assert [BatchUnit(*row) for row in table.tolist()] == some
    assert batch_unit.valid_units(table).tolist() == [unit.is_valid for unit in some]


@pytest.mark.parametrize("length", [0, 1, BATCH_UNIT_SIZE - 1])
def test_a_unit_that_is_cut_is_refused(length: int) -> None:
    with pytest.raises(FormatError) as caught:
        batch_unit.decode(LITERAL + LITERAL[:length], BATCH_UNIT_SIZE)
    assert caught.value.offset == BATCH_UNIT_SIZE


@pytest.mark.parametrize(
    "wrong", [{"physical_offset": -1}, {"size": 0}, {"base_offset": -1}, {"batch_size": 0}, {"batch_size": -4}]
)
def test_which_units_are_valid(wrong: dict[str, int]) -> None:
    assert FIRST.is_valid
    assert not dataclasses.replace(FIRST, **wrong).is_valid
