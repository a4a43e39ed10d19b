"""The log as a strip of segments: how far each is filled and flushed, when it was written, and when it may expire;
and what is known of damage in it. One small read a segment, never a scan.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.inspect.store.known import known_places
from engine.inspect.store.log_clock import store_time_at
from engine.log.retention import RetentionRules
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

MOST = 4096
"""Segments whose time is read: 4 TiB of log."""


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """A segment: physical offsets [offset, end); `filled`: the log's end within it. Times in ms, 0: not known.

    `expires`: from when on a round of retention may delete it, by its age alone; None: never, it is the last.
    """

    file: str
    offset: int
    end: int
    filled: int
    first_ms: int
    modified_ms: int
    expires: int | None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "file": self.file,
            "offset": self.offset,
            "end": self.end,
            "filled": self.filled,
            "firstStoreTimestamp": self.first_ms,
            "modified": self.modified_ms,
            "expires": self.expires,
        }


@dataclass(frozen=True, slots=True)
class LogMap:
    """All segments; ranges of the log that repairs bridged, or that somebody accepted as lost; files that are missing
    between two segments."""

    segments: tuple[SegmentLine, ...]
    bridged: tuple[tuple[int, int], ...]
    accepted: tuple[tuple[int, int], ...]
    missing: tuple[tuple[int, int], ...]
    delete_hours: tuple[int, ...]
    reserved_hours: float

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "segments": [one.to_json() for one in self.segments],
            "bridged": _ranges(self.bridged),
            "accepted": _ranges(self.accepted),
            "missing": _ranges(self.missing),
            "deleteWhen": list(self.delete_hours),
            "fileReservedTime": self.reserved_hours,
        }


def _ranges(some: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"physicalOffset": start, "length": end - start} for start, end in some]


def log_map(disk: Disk, files: StoreFiles, max_offset: int) -> LogMap:
    """Look at the segments of a store that was surveyed. `max_offset`: the log's end. Raises StorageError."""
    rules = RetentionRules.of(files.config)
    known = known_places(disk, files.root)
    lines: list[SegmentLine] = []
    missing: list[tuple[int, int]] = []
    with ClosedLog(disk, files.log) as log:
        for at, segment in enumerate(files.log):
            before = files.log[at - 1].end if at else segment.offset
            if before < segment.offset:
                missing.append((before, segment.offset))
            modified = disk.stat(segment.path).mtime_ns // 1_000_000
            is_last = at == len(files.log) - 1
            lines.append(
                SegmentLine(
                    os.path.basename(segment.path),
                    segment.offset,
                    segment.end,
                    min(max(max_offset, segment.offset), segment.end),
                    store_time_at(log, segment.offset) if at < MOST else 0,
                    modified,
                    None if is_last else modified + rules.reserved_ms,
                )
            )
    return LogMap(
        tuple(lines),
        tuple(known.bridged),
        tuple(known.accepted),
        tuple(missing),
        tuple(sorted(rules.hours)),
        rules.reserved_ms / 3_600_000,
    )
