"""How far a scrub is: `scrub.json` beside the seals, so that the next one continues after any end.

It is a note for the scrub alone: where it is lost or damaged, the scrub begins anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import StorageError

if TYPE_CHECKING:
    from engine.files.disk import Disk

NAME = "scrub.json"
_BAD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_VERSION = 1


@dataclass(slots=True)
class SegmentState:
    """A segment's last reading: when it ended (ms since 1970), and what was wrong (the JSON of a report)."""

    read_ms: int
    wrong: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class ScrubState:
    """A pass: when it began and ended (ms; 0: it hasn't), segments by offset, and where it is within one.

    `at`: (physical offset of the segment, pieces that are read); None: between two. `ranges`: what differed in those
    pieces: position, bytes, kind.
    """

    began: int = 0
    finished: int = 0
    segments: dict[int, SegmentState] = field(default_factory=dict)
    at: tuple[int, int] | None = None
    ranges: list[tuple[int, int, str]] = field(default_factory=list)

    def is_read(self, offset: int) -> bool:
        """Whether this pass has read the segment."""
        known = self.segments.get(offset)
        return known is not None and known.read_ms >= self.began > 0

    def oldest(self) -> int:
        """When the segment was read that was read longest ago, ms since 1970; 0: none was."""
        return min((one.read_ms for one in self.segments.values()), default=0)


def read_state(disk: Disk, directory: str) -> ScrubState:
    """The state that was kept; a new one where there is none that can be read."""
    path = os.path.join(directory, NAME)
    try:
        if not disk.exists(path):
            return ScrubState()
        kept = json.loads(bytes(disk.read_file(path)))
        if kept["version"] != _VERSION:
            return ScrubState()
        at = kept["at"]
        return ScrubState(
            int(kept["began"]),
            int(kept["finished"]),
            {int(offset): SegmentState(int(one["read"]), _wrong(one)) for offset, one in kept["segments"].items()},
            None if at is None else (int(at[0]), int(at[1])),
            [(int(position), int(length), str(kind)) for position, length, kind in kept["ranges"]],
        )
    except (*_BAD, StorageError):
        return ScrubState()


def write_state(disk: Disk, directory: str, state: ScrubState) -> None:
    """Keep it. Raises StorageError, DiskFull."""
    kept = {
        "version": _VERSION,
        "began": state.began,
        "finished": state.finished,
        "segments": {str(at): {"read": one.read_ms, "wrong": one.wrong} for at, one in sorted(state.segments.items())},
        "at": state.at,
        "ranges": state.ranges,
    }
    disk.mkdirs(directory)
    disk.write_file_atomically(os.path.join(directory, NAME), json.dumps(kept, indent=1).encode())


def _wrong(one: dict[str, Any]) -> list[dict[str, Any]]:
    wrong = one["wrong"]
    if not isinstance(wrong, list) or not all(isinstance(row, dict) for row in wrong):
        raise ValueError
    return wrong
