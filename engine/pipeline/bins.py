"""How wide the bars of a time axis are: so that a log of ten minutes has more than one of them."""

from __future__ import annotations

MOST = 60
"""Bars of a picture that is finer than hours, at most."""
DAY_MS = 86_400_000
_WIDTHS = (
    *(n * unit for unit in (1, 10, 100) for n in (1, 2, 5)),
    *(1000, 2000, 5000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
)
_UNITS = ((60_000, "min"), (1000, "s"), (1, "ms"))


def bin_ms(first: int | None, last: int | None) -> int | None:
    """The width of a bar (ms) for times from `first` to `last` (ms); None where hours will do: a day and more."""
    if first is None or last is None or last - first >= DAY_MS:
        return None
    return next(width for width in _WIDTHS if last // width - first // width < MOST)


def words(width: int) -> str:
    """A width as people say it."""
    unit, name = next(one for one in _UNITS if width % one[0] == 0)
    return f"{width // unit} {name}"
