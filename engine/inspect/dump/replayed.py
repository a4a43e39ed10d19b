"""How far replays of a repair have come: `replayed.json` in its directory, and the mark on each message put.

Theory. Records are replayed in log order. A run notes how far it is after a flush of the target: the place of the
last record that is in, and where the target's log ended then. Each message carries the repair and its old place as a
property; so what a killed run has put after its last note is found in the target's log from there on, however the
kill fell between a put and the note.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import Refused
from engine.format import properties
from engine.inspect.store.repairs import REPLAYED
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.dump.saved_log import SavedRepair
    from engine.log.source import LogSource

HERE = "."
"""The target of a replay into the store that the repair is of."""
_MARK = properties.REPLAYED.encode()


@dataclass(frozen=True, slots=True)
class Run:
    """One replay of a repair.

    Attributes:
        target: the store's directory, or HERE.
        topics: the topics that it was restricted to; None: all.
        displaced: whether displaced records went, too.
        again: whether what earlier runs had replayed went once more.
        made: whether it made the target.
        end: the target's log end (physical) when it was noted last.
        position: place (physical, in the old log) of the last record that was noted; −1 before the first.
        messages: how many it has put.
        done: whether it came to its end.
    """

    target: str
    topics: tuple[str, ...] | None
    displaced: bool
    again: bool
    made: bool
    end: int
    position: int
    messages: int
    done: bool

    def covers(self, topic: str, *, displaced: bool) -> bool:
        """Whether such a record was its to replay."""
        return (self.topics is None or topic in self.topics) and (self.displaced or not displaced)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file and in reports."""
        return asdict(self)


def read_runs(disk: Disk, saved: SavedRepair) -> list[Run]:
    """The runs, oldest first.

    Raises:
        Refused: the file can't be understood, so nobody knows what was replayed. StorageError.
    """
    path = os.path.join(saved.directory, REPLAYED)
    if not disk.exists(path):
        return []
    try:
        rows = json.loads(disk.read_file(path))["runs"]
        runs = [Run(**{**run, "topics": None if run["topics"] is None else tuple(run["topics"])}) for run in rows]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        runs = None
    if runs is None or not all(_can_be(run) for run in runs):
        raise Refused(
            "the list of replayed messages can't be read",
            path=path,
            hint="find the replayed messages by their property RSTORE_REPLAYED, then move this file away",
        )
    return runs


def _can_be(run: Run) -> bool:
    marks = (run.displaced, run.again, run.made, run.done)
    return (
        all(type(word) is str for word in (run.target, *(run.topics or ())))
        and all(type(mark) is bool for mark in marks)
        and all(type(number) is int and abs(number) < 1 << 62 for number in (run.end, run.position, run.messages))
    )


def mark(saved: SavedRepair, place: int) -> str:
    """The property's value for the record that lay at a place."""
    return f"{saved.id}:{place}"


def marked_places(log: LogSource, saved: SavedRepair, start: int, end: int) -> frozenset[int]:
    """Places of the records of a repair that lie replayed in the log's [start, end) (physical)."""
    places: set[int] = set()
    prefix = f"{saved.id}:"
    for event in Scanner(log, check_crc=False).scan(start, end, resume=True) if start < end else ():
        if not isinstance(event, RecordBatch):
            continue
        for i in range(len(event)):
            raw = event.properties(i)
            if _MARK in raw:
                value = properties.parse(raw.decode("utf-8", "replace")).get(properties.REPLAYED, "")
                place = value.removeprefix(prefix)
                if value.startswith(prefix) and place.isdecimal():
                    places.add(int(place))
    return frozenset(places)
