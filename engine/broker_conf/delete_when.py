"""deleteWhen as retention reads it: hour by hour, and an exception at the first that is no number.

The exception ends the round before the disk's use is looked at: at the hours before it retention works, at all others
nothing goes, however full the disk is. Sources: UtilAll#isItTimeToDo, CleanCommitLogService#deleteExpiredFiles.
"""

from __future__ import annotations

from engine.broker_conf.values import ValueKind, read_value, shown, split
from engine.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DeleteWhen:
    """`hours`: at which it is time, local. `stops_at`: the part that is no number, None where each is one."""

    hours: frozenset[int]
    stops_at: str | None

    def problem(self, text: str) -> str | None:
        """What is wrong with it, one sentence; None: nothing."""
        if self.stops_at is None:
            return None if self.hours else f"deleteWhen = {shown(text)} contains no hour of the day (0 to 23)"
        part = f"{shown(self.stops_at)} is " if text != self.stops_at else ""
        when = f" outside of {self.clock()} o'clock" if self.hours else ""
        what = "then nothing is" if self.hours else "nothing is ever"
        return (
            f"deleteWhen = {shown(text)}{':' if part else ' is'} {part}not a number, so every round of retention{when} "
            f"fails: {what} deleted, however full the disk is"
        )

    def clock(self) -> str:
        """The hours in order, as text."""
        return ", ".join(f"{hour:02}" for hour in sorted(self.hours))


def read_delete_when(text: str) -> DeleteWhen:
    """What retention makes of it."""
    hours: set[int] = set()
    for part in split(text, ";"):
        try:
            hour = read_value(ValueKind.INT, part)
        except ValueError:
            return DeleteWhen(frozenset(hours), part)
        if isinstance(hour, int) and 0 <= hour < 24:
            hours.add(hour)
    return DeleteWhen(frozenset(hours), None)
