"""How long dispatch lets messages come under load, so that it does them together: in one turn for many."""

from __future__ import annotations

from typing import NamedTuple

GATHER_MS = 1
"""How long messages are gathered under load at least, to be dispatched together (Apache sleeps as long between turns).

A message that comes alone is dispatched at once, and so is everything while somebody waits for it.
"""


class DispatchPace(NamedTuple):
    """How much of the time dispatch leaves to others under load, for it holds up every other thread.

    A turn owes `share` times its own time, up to `most` ms. What others had before counts: only what is owed above
    `free` ms is waited for, so messages that come singly wait for nothing, nor do some in a row.
    """

    share: int
    most: int
    free: int


LISTENED = DispatchPace(8, 4, 4)
"""While somebody listens: pulls are held, which wait for what arrives."""
ALONE = DispatchPace(64, 20, 200)
"""While nobody does: a turn costs little more for a hundred messages than for ten."""


def still_owed(owed: float, rest: float, took: float, pace: DispatchPace) -> float:
    """What dispatch owes others after a turn that `took` so long, and that came so long (`rest`) after the one before.

    In ms. Under load there are GATHER_MS to `pace.most` between one turn and the next, whatever was owed at first.
    """
    before = min(max(0.0, owed - rest), pace.free)
    return before + max(GATHER_MS - took, min(pace.share * took, pace.most))
