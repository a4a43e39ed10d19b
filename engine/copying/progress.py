"""How far a copy is: its offset maps, in a directory of its own that one process at a time may use.

`map.json` is written at one stroke, and may be older than what the target has, never newer: who resumes reads the
target from where the map ends, and finds what was copied since by its marker.
"""

from __future__ import annotations

import secrets
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from engine.client.queues import MessageQueue
from engine.copying.offset_map import MapRun, OffsetMap
from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.files.disk import Disk

MAP = "map.json"
_LARGEST = 1 << 30
"""Bytes of a map that are read."""
_FORMAT = 1


@dataclass(slots=True)
class QueueProgress:
    """One queue of the source.

    Attributes:
        target: the queue that its messages go to, which no other queue of the source shares.
        looked: target offset up to which the target was looked at for messages of this copy.
        doubles: messages that are at the target a second time.
        left_out: messages that had come from the target. `deleted`: that the source had deleted before they were
            copied. `refused`: that the target's broker did not take.
        before: messages of the map that this run did not send: of earlier runs. Not kept.
    """

    source: MessageQueue
    target: MessageQueue
    map: OffsetMap
    looked: int
    doubles: int = 0
    left_out: int = 0
    deleted: int = 0
    refused: int = 0
    before: int = 0

    @property
    def accounted(self) -> int:
        """Source offsets of which something became."""
        return self.map.copied + self.left_out + self.deleted + self.refused

    @property
    def base(self) -> int:
        """Source offset at which the copy of the queue began, by its counts: lower after a part was read twice."""
        return self.map.following - self.accounted

    def cut(self, target_end: int) -> int:
        """See OffsetMap.cut."""
        lost = self.map.cut(target_end)
        self.before = min(self.before, self.map.copied)
        return lost


@dataclass(slots=True)
class CopyProgress:
    """See the module.

    Attributes:
        id: in the marker of each message.
        source, target: names of the clusters' brokers, `cluster/broker`.
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    queues: dict[MessageQueue, QueueProgress] = field(default_factory=dict)

    @classmethod
    def new(cls, source: Collection[str], target: Collection[str]) -> CopyProgress:
        """Of a copy that begins."""
        return cls(secrets.token_hex(6), tuple(sorted(source)), tuple(sorted(target)))

    def dump(self) -> bytes:
        """As it is kept."""
        queues = [
            {
                "source": list(one.source),
                "target": list(one.target),
                "base": one.map.base,
                "next": one.map.following,
                "looked": one.looked,
                "doubles": one.doubles,
                "leftOut": one.left_out,
                "deleted": one.deleted,
                "refused": one.refused,
                "runs": [tuple(run) for run in one.map.runs],
            }
            for one in self.queues.values()
        ]
        return orjson.dumps(
            {
                "format": _FORMAT,
                "id": self.id,
                "from": self.source,
                "to": self.target,
                "queues": queues,
            }
        )


def load(disk: Disk, directory: Path) -> CopyProgress | None:
    """What is kept there; None: nothing.

    Raises:
        FormatError: it is no map of ours. StorageError.
    """
    path = directory / MAP
    if not path.exists():
        return None
    try:
        fields = orjson.loads(disk.read_file(str(path), _LARGEST))
        if fields["format"] != _FORMAT:
            raise FormatError(f"unknown format {fields['format']!r} of an offset map", path=path)
        made = CopyProgress(str(fields["id"]), tuple(fields["from"]), tuple(fields["to"]))
        for one in fields["queues"]:
            queue = _queue_progress(one)
            made.queues[queue.source] = queue
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"malformed offset map: {type(error).__name__} {error}", path=path) from None
    return made


def save(disk: Disk, directory: Path, progress: CopyProgress) -> None:
    """Keep it. Raises StorageError."""
    disk.write_file_atomically(str(directory / MAP), progress.dump())


def _queue_progress(fields: dict[str, Any]) -> QueueProgress:
    runs = (MapRun(*map(int, run)) for run in fields["runs"])
    return QueueProgress(
        _queue(fields["source"]),
        _queue(fields["target"]),
        OffsetMap(int(fields["base"]), int(fields["next"]), runs),
        int(fields["looked"]),
        int(fields["doubles"]),
        int(fields["leftOut"]),
        int(fields["deleted"]),
        int(fields["refused"]),
    )


def _queue(fields: list[Any]) -> MessageQueue:
    topic, broker, queue_id = fields
    return MessageQueue(str(topic), str(broker), int(queue_id))
