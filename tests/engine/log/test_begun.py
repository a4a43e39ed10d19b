"""What is the beginning of a record, and what is more than that."""

from __future__ import annotations

import pytest

from engine.format.message import Message, encode, encode_blank
from engine.log.begun import begins_a_record

RECORD = bytes(encode(Message("T", b"x" * 100)))


@pytest.mark.parametrize("length", [1, 7, 8, 50, len(RECORD) - 1])
def test_the_beginning_of_a_record(length: int) -> None:
    assert begins_a_record(memoryview(RECORD[:length]), length)


def test_the_beginning_of_a_blank() -> None:
    assert begins_a_record(memoryview(bytes(encode_blank(100)) + bytes(20)), 28)


@pytest.mark.parametrize(
    "data",
    [
        RECORD,
        RECORD + RECORD[:30],
        (1 << 20).to_bytes(4, "big") + RECORD[4:] + RECORD[:30],  # a damaged length, a sound record behind
        bytes(30),
        b"\xff" * 30,
    ],
)
def test_anything_else(data: bytes) -> None:
    assert not begins_a_record(memoryview(data), len(data))
    assert not begins_a_record(memoryview(data)[:20], len(data))
