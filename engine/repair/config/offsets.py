"""consumerOffset.json made again: kept where it is known, else a floor that the operator chose.

A group without an offset in a queue begins where its client says, by default at the end (CONSUME_FROM_LAST_OFFSET):
what it has not read would be passed over. So each pair of topic and group that anything tells of gets an offset in each
queue that holds messages. `min` reads messages again rather than losing one.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.inspect.store.config_shapes import LMQ_TABLE, OFFSET_TABLE
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.repair.config.evidence import Evidence, QueueRange
    from engine.repair.config.sources import Source

Offsets = dict[str, dict[str, int]]
"""By `topic@group` and queue id."""


@dataclass(slots=True)
class RebuiltOffsets:
    """The tables. `kept`: offsets that are known; `floor`: that got the floor."""

    table: Offsets = field(default_factory=dict)
    light: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    floor: int = 0
    lines: list[str] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)


def rebuilt_offsets(
    sources: Sequence[Source], evidence: Evidence, floor: str | int, pairs: set[tuple[str, str]]
) -> RebuiltOffsets:
    """The table of offsets.

    Args:
        sources: of the file, freshest first.
        evidence: what the queues hold.
        floor: "min", "max", or ms: the first message that was stored then or later.
        pairs: (topic, group) that the log tells of.
    """
    maker = _Maker(evidence, floor)
    for source in sources:
        maker.take(source)
    return maker.make(pairs)


class _Maker:
    def __init__(self, evidence: Evidence, floor: str | int) -> None:
        self._evidence = evidence
        self._floor = floor
        self._known: dict[tuple[str, str], dict[int, int]] = {}
        self._spans: dict[str, dict[int, QueueRange]] = {}
        for queue, span in evidence.ranges.items():
            self._spans.setdefault(queue.topic, {})[queue.queue_id] = span
        self._bounds: dict[TopicQueue, int] = {}
        self._rebuilt = RebuiltOffsets()

    def take(self, source: Source) -> None:
        """What a source knows and no fresher one did."""
        for key, queues in source.table.tables.get(OFFSET_TABLE, {}).items():
            topic, _, group = key.partition("@")
            if topic and group and "@" not in group:
                mine = self._known.setdefault((topic, group), {})
                for queue_id, offset in queues.items():
                    if int(queue_id) >= 0 and offset >= 0:
                        mine.setdefault(int(queue_id), offset)
        for key, offset in source.table.tables.get(LMQ_TABLE, {}).items():
            if offset >= 0:
                self._rebuilt.light.setdefault(key, offset)

    def make(self, pairs: set[tuple[str, str]]) -> RebuiltOffsets:
        """All of it, once every source was taken."""
        rebuilt = self._rebuilt
        for topic, group in [*self._known, *sorted(pairs - self._known.keys())]:
            table = self._pair(topic, group)
            if table:
                rebuilt.table[f"{topic}@{group}"] = table
        for key, offset in list(rebuilt.light.items()):
            light = self._spans.get(key.partition("@")[0], {}).get(0)
            if light is not None and offset > light.high:
                rebuilt.light[key] = light.high
                rebuilt.lines.append(f"{key}: {offset} becomes {light.high}, the queue end")
        rebuilt.groups = {key.rpartition("@")[2] for key in rebuilt.table}
        return rebuilt

    def _pair(self, topic: str, group: str) -> dict[str, int]:
        rebuilt, spans = self._rebuilt, self._spans.get(topic, {})
        table: dict[str, int] = {}
        for queue_id, offset in sorted(self._known.get((topic, group), {}).items()):
            end = spans[queue_id].high if queue_id in spans else offset
            if offset > end:
                rebuilt.lines.append(f"{group} in {topic}/{queue_id}: {offset} becomes {end}, the queue end")
            table[str(queue_id)] = min(offset, end)
            rebuilt.kept += 1
        if names.is_lmq(group):
            return table
        for queue_id, span in sorted(spans.items()):
            if span.high > 0 and str(queue_id) not in table:
                table[str(queue_id)] = at = self._bound(TopicQueue(topic, queue_id), span)
                rebuilt.floor += 1
                rebuilt.lines.append(f"{group} in {topic}/{queue_id}: {at} ({_words(self._floor)})")
        return table

    def _bound(self, queue: TopicQueue, span: QueueRange) -> int:
        if queue not in self._bounds:
            self._bounds[queue] = _floor(self._evidence, queue, span, self._floor)
        return self._bounds[queue]


def _floor(evidence: Evidence, queue: TopicQueue, span: QueueRange, floor: str | int) -> int:
    if floor == "min":
        return span.low
    if floor == "max":
        return span.high
    return min(max(evidence.by_time(queue, int(floor)), span.low), span.high)


def _words(floor: str | int) -> str:
    return {"min": "its first message", "max": "its end"}.get(str(floor), "by time")
