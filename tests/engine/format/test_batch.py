"""The batch encoding, both ways and on literal bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError, InvalidArgument
from engine.format import batch
from engine.format.batch import Batch, BatchItem
from tests.support import strategies

LITERAL = bytes.fromhex("0000001e0000000000000000fffffffe00000002") + b"hi" + b"\0\x06" + b"a\x01b\x02c\x01"
ITEMS = (BatchItem(b"hi", -2, b"a\x01b\x02c\x01"),)
items = st.lists(st.builds(BatchItem, st.binary(max_size=40), strategies.ints, st.binary(max_size=40)), max_size=5)


def test_literal_bytes() -> None:
    assert batch.encode(ITEMS) == LITERAL
    assert batch.decode(LITERAL) == ITEMS
    assert Batch(ITEMS).encode() == LITERAL


@given(items)
def test_what_is_encoded_is_decoded(some: list[BatchItem]) -> None:
    assert batch.decode(batch.encode(some)) == tuple(some)
    assert batch.decode(memoryview(batch.encode(some))) == tuple(some)


def test_items_with_names() -> None:
    assert BatchItem.of(b"x", {"TAGS": "t", "KEYS": "é"}).properties_raw == "TAGS\x01t\x02KEYS\x01é".encode()


def test_the_total_size_of_an_item_is_not_looked_at() -> None:
    assert batch.decode(b"\x7f\xff\xff\xff" + LITERAL[4:]) == ITEMS


@pytest.mark.parametrize("length", range(1, len(LITERAL)))
def test_a_batch_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(FormatError) as caught:
        batch.decode(LITERAL + LITERAL[:length])
    assert caught.value.offset == len(LITERAL)


@pytest.mark.parametrize(("at", "patch"), [(16, "ffffffff"), (16, "7fffffff"), (22, "ffff"), (22, "7fff")])
def test_lengths_that_lie_are_refused(at: int, patch: str) -> None:
    raw = bytearray(LITERAL)
    raw[at : at + len(patch) // 2] = bytes.fromhex(patch)
    with pytest.raises(FormatError):
        batch.decode(raw)


def test_properties_over_a_short_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        batch.encode([BatchItem(b"", 0, bytes(32768))])
