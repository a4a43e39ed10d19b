"""Which group filters which topic by SQL92: consumerFilter.json (ConsumerFilterManager).

An entry comes with a heartbeat, is dead when the group has no member, and goes a day later. Its Bloom filter bits are
Apache's, so that its broker takes the file for its own: a file without them it reads, and throws away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.broker.tables.config_file import KeptTable
from engine.errors import CannotRepair
from engine.log.sql import BadExpression, compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.broker.tables.config_file import ConfigFile
    from engine.broker.tables.members import Subscription

WRITE_S = 10
TAG_KINDS = (None, "", "TAG")
"""Types of expressions that are no SQL; who says none means tags."""
_ERROR_RATE, _EXPECTED = 0.2, 32
"""maxErrorRateOfBloomFilter, expectConsumerNumUseFilter."""
_HASHES = math.ceil(math.log(_ERROR_RATE, 0.5))
_BITS = math.ceil(math.ceil(_EXPECTED * math.log2(1 / _ERROR_RATE) * math.log2(math.e)) / 8) * 8
_INT = 1 << 32
_DEAD_AT_LOAD_MS = 30_000


@dataclass(slots=True)
class FilterData:
    """One group's filter of one topic (ConsumerFilterData). Times in ms; `version`: the subscription's."""

    group: str
    topic: str
    expression: str
    kind: str
    version: int
    born_ms: int
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether the group has no member."""
        return self.dead_ms >= self.born_ms

    def to_json(self) -> dict[str, Any]:
        """As consumerFilter.json and QUERY_CONSUME_QUEUE have it."""
        return {
            "bloomFilterData": {"bitNum": _BITS, "bitPos": bloom_bits(f"{self.group}#{self.topic}")},
            "bornTime": self.born_ms,
            "clientVersion": self.version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.kind,
            "topic": self.topic,
        }


def bloom_bits(text: str) -> list[int]:
    """Where a group's bits are. Source: BloomFilter#calcBitPositions, with guava's murmur3_128."""
    import mmh3

    low = mmh3.hash64(text, 0, x64arch=True)[0] % (1 << 64)
    first, second = low % _INT, low >> 32
    bits = []
    for number in range(1, _HASHES + 1):
        combined = (first + number * second) % _INT
        bits.append((combined if combined < _INT // 2 else _INT - 1 - combined) % _BITS)  # ~ of a negative int
    return bits


class ConsumerFilters(KeptTable):
    """See the module.

    Args:
        file: consumerFilter.json.
        now_ms: the clock.
        kept_ms: how long a dead entry stays (filterDataCleanTimeSpan).
    """

    def __init__(self, file: ConfigFile, now_ms: Callable[[], int], kept_ms: int) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self._kept_ms = kept_ms
        self._table: dict[str, dict[str, FilterData]] = {}

    def load(self) -> None:
        """What the file says; all of them are dead until they are heard of. Raises CannotRepair, StorageError."""
        now = self._now_ms()
        try:
            for topic, entry in self._file.load().get("filterDataByTopic", {}).items():
                for group, one in entry.get("groupFilterData", {}).items():
                    filter_data = FilterData(
                        group,
                        topic,
                        str(one["expression"]),
                        str(one["expressionType"]),
                        int(one.get("clientVersion", 0)),
                        int(one.get("bornTime", 0)),
                        int(one.get("deadTime", 0)),
                    )
                    if filter_data.dead_ms == 0:
                        filter_data.dead_ms = max(now - _DEAD_AT_LOAD_MS, filter_data.born_ms)
                    self._table.setdefault(topic, {})[group] = filter_data
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise CannotRepair(f"malformed filter data: {error!r}", path=self._file.path) from None

    def get(self, topic: str, group: str) -> FilterData | None:
        """The filter, None when there is none."""
        return self._table.get(topic, {}).get(group)

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """A group's heartbeat: its filters are these, and no others. Source: #register."""
        wanted = {one.topic: one for one in subscriptions if one.kind not in TAG_KINDS and one.expression}
        for one in wanted.values():
            self._register(group, one)
        for topic, groups in self._table.items():
            if topic not in wanted and group in groups:
                self._die(groups[group])

    def unregister(self, group: str) -> None:
        """The group has no member any more."""
        for groups in self._table.values():
            if group in groups:
                self._die(groups[group])

    def expire(self) -> None:
        """Forget what has been dead for too long."""
        limit = self._now_ms() - self._kept_ms
        for topic, groups in list(self._table.items()):
            for group in [group for group, one in groups.items() if one.is_dead and one.dead_ms <= limit]:
                del groups[group]
                self._changed = True
            if not groups:
                del self._table[topic]

    def to_json(self) -> dict[str, Any]:
        """ConsumerFilterManager; consumerFilter.json."""
        return {
            "filterDataByTopic": {
                topic: {"groupFilterData": {group: one.to_json() for group, one in groups.items()}, "topic": topic}
                for topic, groups in self._table.items()
            }
        }

    def _register(self, group: str, wanted: Subscription) -> None:
        old = self.get(wanted.topic, group)
        if old is not None and wanted.version <= old.version:
            if wanted.version == old.version and old.is_dead:
                old.dead_ms, self._changed = 0, True
            return
        if old is not None and (old.expression, old.kind) == (wanted.expression, wanted.kind):
            self._changed = True
            old.version, old.dead_ms = wanted.version, 0
            return
        try:
            compile_expression(wanted.expression)
        except BadExpression:
            if old is not None:  # the client is told when it pulls: FILTER_DATA_NOT_EXIST
                del self._table[wanted.topic][group]
                self._changed = True
            return
        self._changed = True
        self._table.setdefault(wanted.topic, {})[group] = FilterData(
            group, wanted.topic, wanted.expression, wanted.kind, wanted.version, self._now_ms()
        )

    def _die(self, one: FilterData) -> None:
        if not one.is_dead:
            one.dead_ms, self._changed = self._now_ms(), True
