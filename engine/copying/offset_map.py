"""Which queue offset at the target a message of a source queue has. No I/O.

Both sides ascend, and messages that follow one another on both sides are one run: a queue that nobody else sends to has
one run however long it is.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable


class MapRun(NamedTuple):
    """So many messages, from a source offset and a target offset on."""

    source: int
    target: int
    size: int


class OffsetMap:
    """The map of one queue.

    Args:
        base: target offset from which on the copy wrote.
        following: source offset that is copied next; messages before it are copied or left out.

    Raises:
        FormatError: the runs don't ascend.
    """

    def __init__(self, base: int, following: int, runs: Iterable[MapRun] = ()) -> None:
        self.base = base
        self.following = following
        self.runs: list[MapRun] = []
        for run in runs:
            self._demand(run)
            self.runs.append(run)
            self.following = max(self.following, run.source + run.size)

    def add(self, source: int, target: int, count: int = 1) -> None:
        """Messages are at the target. Raises FormatError: they don't come after all that is known."""
        run = MapRun(source, target, count)
        self._demand(run)
        self.following = max(self.following, source + count)
        last = self.runs[-1] if self.runs else None
        if last is not None and (last.source + last.size, last.target + last.size) == (source, target):
            self.runs[-1] = MapRun(last.source, last.target, last.size + count)
        else:
            self.runs.append(run)

    def leave_out(self, source: int) -> None:
        """A message is not copied."""
        self.following = max(self.following, source + 1)

    @property
    def target_end(self) -> int:
        """The target offset after the last copied message; the base without one."""
        return self.runs[-1].target + self.runs[-1].size if self.runs else self.base

    @property
    def copied(self) -> int:
        """Messages in the map."""
        return sum(run.size for run in self.runs)

    def place(self, number: int) -> tuple[int, int]:
        """Source and target offset of a copied message, by its number from 0 on. Raises IndexError: there is none."""
        for run in self.runs:
            if number < run.size:
                return run.source + number, run.target + number
            number -= run.size
        raise IndexError(number)

    def target_of(self, source: int) -> int:
        """Where a group continues at the target that continues at this offset of the source.

        At the first copied message from there on; after all of them where there is none.
        """
        at = bisect_right(self.runs, source, key=lambda run: run.source) - 1
        if at >= 0 and source < self.runs[at].source + self.runs[at].size:
            return self.runs[at].target + source - self.runs[at].source
        return self.runs[at + 1].target if at + 1 < len(self.runs) else self.target_end

    def cut(self, target_end: int) -> int:
        """Forget what lies at this target offset and after it: the target has lost it. How many messages that is."""
        forgotten = 0
        while self.runs and self.target_end > target_end:
            last = self.runs.pop()
            kept = max(0, target_end - last.target)
            if kept:
                self.runs.append(MapRun(last.source, last.target, kept))
            forgotten += last.size - kept
            self.following = min(self.following, last.source + kept)
        self.base = min(self.base, target_end)
        return forgotten

    def _demand(self, run: MapRun) -> None:
        source_end = self.runs[-1].source + self.runs[-1].size if self.runs else 0
        if run.source < source_end or run.target < self.target_end or run.size < 1:
            raise FormatError(f"an offset map doesn't ascend: {tuple(run)} after {source_end} and {self.target_end}")
