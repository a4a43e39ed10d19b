"""Where a recovered store stands: what recovery hands over to the store that opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.log.derive import TopicQueue


NORMAL_FILES = 3
"""Segments that a normal recovery reads."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """One consume queue: offsets of its first real unit and after its last one (queue offsets).

    `max_physical_offset`: after the last message that it knows (physical offset + size), −1 for an empty queue.
    """

    queue: TopicQueue
    min_offset: int
    max_offset: int
    max_physical_offset: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """The whole store: the log's first byte and its end (physical offsets), the queues, the index files' names.

    `trap`: physical offset of the last damage that stays in the log and that a normal start would cut at, as long as
    it lies in one of the files which that reads. `next_offsets`: the queue offset of the next message, of queues that
    lack records of the log end, which are left to dispatch.
    """

    min_offset: int
    max_offset: int
    queues: tuple[QueueState, ...]
    index_files: tuple[str, ...]
    trap: int | None = None
    next_offsets: Mapping[TopicQueue, int] = field(default_factory=dict)
