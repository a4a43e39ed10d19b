"""The segments that a scan begins with, of logs with and without gaps."""

from __future__ import annotations

import pytest

from engine.log.source import Segment, segments_from

SIZE = 100


@pytest.mark.parametrize("places", [(), (0,), (0, 100, 200), (300, 400, 700, 1000), (5 << 40, (5 << 40) + 200)])
def test_those_that_end_behind_a_place(places: tuple[int, ...]) -> None:
    log = [Segment(place, SIZE, str(place)) for place in places]
    for offset in {0, 1, *(p + d for p in places for d in (-1, 0, 1, 99, 100, 101))}:
        assert list(segments_from(log, offset)) == [one for one in log if one.end > offset]
