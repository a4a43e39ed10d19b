"""Heads that are left out before a boundary are left out rightly: each of them is looked at here the long way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.format.record import (
    BLANK_MAGIC,
    MAGICS,
    POSITION_MAGIC,
    V4_HEAD_SIZE,
)
from engine.log.boundary import Boundaries
from engine.log.near_heads import reaching
from tests.support import planted
from tests.support.planted import Planted
from tests.support.wide import examples

SEGMENT = 1 << 16
KNOWN = tuple(magic.to_bytes(4, "big") for magic in (*MAGICS, BLANK_MAGIC))


def heads(buffer: bytes, end: int) -> list[int]:
    """Every position before `end` with a magic, byte by byte."""
    return [at for at in range(end) if buffer[at + POSITION_MAGIC : at + POSITION_MAGIC + 4] in KNOWN]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(planted.ANY, min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, SEGMENT - 200), st.binary(min_size=4, max_size=4)), max_size=6),
    st.integers(1, SEGMENT - 1),
    st.integers(0, SEGMENT // 2),
    st.sampled_from((0, 300, 65538)),
)
def test_none_that_reaches_is_left_out(
    some: list[Planted], changed: list[tuple[int, bytes]], offset: int, start: int, behind_body: int
) -> None:
    log = planted.build(some, SEGMENT).built.log
    for at, value in changed:  # lengths, magics and flags as damage leaves them
        log.files[0][at : at + 4] = value
    segment, boundaries = log.segments[0], Boundaries(log)
    start = min(start, offset)
    before = bytes(log.read(start, offset - start + V4_HEAD_SIZE))
    end = min(offset - start, len(before))
    near = set(reaching(before, end, start, offset, segment.end, behind_body))
    every = heads(before, end)
    assert near <= set(every)
    if behind_body == 65538:  # what Boundaries asks with
        left = [at for at in every if at not in near]
        assert not any(boundaries._reaches(segment, start, at, before, offset) for at in left)


def test_far_heads_are_left_out() -> None:
    """A MiB of small records: only those within a longest topic and properties of the place are looked at."""
    record = bytearray(planted.build([Planted(before=0, inner=10)], SEGMENT).built.log.files[0])
    size = int.from_bytes(record[:4], "big")
    data = bytearray()
    while len(data) < 1 << 20:
        one = bytearray(record[:size])
        one[28:36] = len(data).to_bytes(8, "big")
        data += one
    near = list(reaching(bytes(data), len(data), 0, len(data), 1 << 30, 65538))
    assert 0 < len(near) < 2 * 65538 // size
