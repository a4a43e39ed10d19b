"""Which group filters which topic by SQL92: consumerFilter.json (ConsumerFilterManager).

An entry comes with a heartbeat, is dead when the group has no member, and goes a day later. Its Bloom filter bits are
Apache's, so that its broker takes the file for its own: a file without them it reads, and throws away.

Entries are found by group and by topic, so that a heartbeat costs what it has, not what all groups have. There are
`most` of them: then the one that has been dead for longest goes for a new one, and when none is dead no new one comes.
An expression is compiled once, whoever has it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.broker.tables.config_file import KeptTable
from engine.dataclass import dataclass
from engine.errors import CannotRepair
from engine.log.sql import BadExpression, SqlFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.broker.tables.config_file import ConfigFile
    from engine.broker.tables.members import Subscription

WRITE_S = 10
MOST = 10_000
"""Entries (maxConsumerFilters)."""
TAG_KINDS = (None, "", "TAG")
"""Types of expressions that are no SQL; who says none means tags."""
_ERROR_RATE, _EXPECTED = 0.2, 32
"""maxErrorRateOfBloomFilter, expectConsumerNumUseFilter."""
_HASHES = math.ceil(math.log(_ERROR_RATE, 0.5))
_BITS = math.ceil(math.ceil(_EXPECTED * math.log2(1 / _ERROR_RATE) * math.log2(math.e)) / 8) * 8
_INT = 1 << 32
_DEAD_AT_LOAD_MS = 30_000
_COMPILED = 1000
"""Expressions that are kept compiled."""


class SqlFilters:
    """Compiled expressions, the _COMPILED that were asked for last."""

    def __init__(self) -> None:
        self._filters: dict[str, SqlFilter] = {}

    def of(self, expression: str) -> SqlFilter:
        """The filter of an expression. Raises BadExpression."""
        compiled = self._filters.pop(expression, None) or SqlFilter(expression)
        if len(self._filters) >= _COMPILED:
            del self._filters[next(iter(self._filters))]
        self._filters[expression] = compiled
        return compiled


@dataclass(frozen=True, slots=True)
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
        compiled: where expressions are compiled (default: a place of its own).
        most: entries that are kept (maxConsumerFilters).
    """

    def __init__(
        self,
        file: ConfigFile,
        now_ms: Callable[[], int],
        kept_ms: int,
        compiled: SqlFilters | None = None,
        most: int = MOST,
    ) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self._kept_ms = kept_ms
        self._compiled = compiled or SqlFilters()
        self._most = most
        self._table: dict[tuple[str, str], FilterData] = {}
        self._topics: dict[str, dict[str, None]] = {}
        self._dead: dict[tuple[str, str], None] = {}

    def __len__(self) -> int:
        return len(self._table)

    def load(self) -> None:
        """What the file says; all of them are dead until they are heard of. Raises CannotRepair, StorageError."""
        now = self._now_ms()
        entries: list[FilterData] = []
        try:
            for topic, entry in self._file.load().get("filterDataByTopic", {}).items():
                for group, one in entry.get("groupFilterData", {}).items():
                    born, dead = int(one.get("bornTime", 0)), int(one.get("deadTime", 0))
                    filter_data = FilterData(
                        group,
                        topic,
                        str(one["expression"]),
                        str(one["expressionType"]),
                        int(one.get("clientVersion", 0)),
                        born,
                        dead or max(now - _DEAD_AT_LOAD_MS, born),
                    )
                    entries.append(filter_data)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise CannotRepair(f"malformed filter data: {error!r}", path=self._file.path) from None
        entries.sort(key=lambda one: one.dead_ms)
        for one in entries[max(len(entries) - self._most, 0) :]:
            self._put(one)
        self._changed = len(entries) > self._most

    def get(self, topic: str, group: str) -> FilterData | None:
        """The filter, None when there is none."""
        return self._table.get((topic, group))

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """A group's heartbeat: its filters are these, and no others. Source: #register."""
        for _ in self.steps(group, subscriptions):
            pass

    def steps(self, group: str, subscriptions: Iterable[Subscription]) -> Iterator[None]:
        """The same, an expression a step."""
        wanted = {one.topic: one for one in subscriptions if one.kind not in TAG_KINDS and one.expression}
        for one in wanted.values():
            self._register(group, one)
            yield
        for topic in [topic for topic in self._topics.get(group, ()) if topic not in wanted]:
            self._die(self._table[topic, group])

    def unregister(self, group: str) -> None:
        """The group has no member any more."""
        for topic in self._topics.get(group, ()):
            self._die(self._table[topic, group])

    def expire(self) -> None:
        """Forget what has been dead for too long."""
        limit = self._now_ms() - self._kept_ms
        while self._dead:
            oldest = next(iter(self._dead))
            if self._table[oldest].dead_ms > limit:
                break
            self._remove(oldest)

    def to_json(self) -> dict[str, Any]:
        """ConsumerFilterManager; consumerFilter.json."""
        return _as_json(self._table)

    def _state(self) -> Callable[[], dict[str, Any]]:
        table = dict(self._table)
        return lambda: _as_json(table)

    def _register(self, group: str, wanted: Subscription) -> None:
        old = self.get(wanted.topic, group)
        if old is not None and wanted.version <= old.version:
            if wanted.version == old.version and old.is_dead:
                self._put(replace(old, dead_ms=0))
            return
        if old is not None and (old.expression, old.kind) == (wanted.expression, wanted.kind):
            self._put(replace(old, version=wanted.version, dead_ms=0))
            return
        try:
            self._compiled.of(wanted.expression)
        except BadExpression:
            if old is not None:  # the client is told when it pulls: FILTER_DATA_NOT_EXIST
                self._remove((wanted.topic, group))
            return
        if old is None and len(self._table) >= self._most:
            if not self._dead:
                return  # told as above
            self._remove(next(iter(self._dead)))
        now = self._now_ms()
        self._put(FilterData(group, wanted.topic, wanted.expression, wanted.kind, wanted.version, now))

    def _die(self, one: FilterData) -> None:
        if not one.is_dead:
            self._put(replace(one, dead_ms=self._now_ms()))

    def _put(self, one: FilterData) -> None:
        key = (one.topic, one.group)
        self._changed = True
        self._table[key] = one
        self._topics.setdefault(one.group, {})[one.topic] = None
        self._dead.pop(key, None)
        if one.is_dead:
            self._dead[key] = None

    def _remove(self, key: tuple[str, str]) -> None:
        topic, group = key
        self._changed = True
        del self._table[key]
        self._dead.pop(key, None)
        topics = self._topics[group]
        del topics[topic]
        if not topics:
            del self._topics[group]


def _as_json(table: Mapping[tuple[str, str], FilterData]) -> dict[str, Any]:
    by_topic: dict[str, dict[str, Any]] = {}
    for (topic, group), one in table.items():
        groups = by_topic.setdefault(topic, {"groupFilterData": {}, "topic": topic})["groupFilterData"]
        groups[group] = one.to_json()
    return {"filterDataByTopic": by_topic}
