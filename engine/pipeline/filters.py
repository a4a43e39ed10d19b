"""Which records are wanted: known from options and by Spark's filters, and looked at before any row is made."""

from __future__ import annotations

import datetime
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format.numbers import LONG_MAX, LONG_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql.datasource import Filter

    from engine.log.batch import RecordBatch

_RANGES = {"queue_id": 2, "queue_offset": 3, "physical_offset": 0, "store_timestamp": 6}
"""Columns that are compared, and where they lie in a batch's table."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from `low` to `high`, both included."""

    low: int = LONG_MIN
    high: int = LONG_MAX

    def both(self, other: Range) -> Range:
        """What lies in both."""
        return Range(max(self.low, other.low), min(self.high, other.high))

    @property
    def empty(self) -> bool:
        """Whether nothing lies in it."""
        return self.low > self.high


ALL = Range()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a record must be; nothing said: every one is wanted.

    Attributes:
        topics: one of these, None for any.
        consumable: with a place in a consume queue: neither prepared nor rolled back.
        queue_id, queue_offset, physical_offset, store_timestamp: in that range. Times in ms.
    """

    topics: frozenset[str] | None = None
    consumable: bool = False
    queue_id: Range = ALL
    queue_offset: Range = ALL
    physical_offset: Range = ALL
    store_timestamp: Range = ALL

    @property
    def nothing(self) -> bool:
        """Whether no record can be meant."""
        return self.topics == frozenset() or any(getattr(self, name).empty for name in _RANGES)

    def narrowed(self, **changes: Range) -> Wanted:
        """Self, with some ranges made smaller."""
        return replace(self, **{name: getattr(self, name).both(other) for name, other in changes.items()})

    def of_topics(self, topics: Iterable[str]) -> Wanted:
        """Self, of these topics only."""
        some = frozenset(topics)
        return replace(self, topics=some if self.topics is None else self.topics & some)

    def chosen(self, batch: RecordBatch) -> NDArray[np.bool_] | None:
        """bool[n]: which records of a batch are wanted; None: all of them."""
        mask: NDArray[np.bool_] | None = None
        for name, field in _RANGES.items():
            wanted: Range = getattr(self, name)
            if wanted == ALL:
                continue
            values = batch.columns()[field]
            if name == "physical_offset":
                values = values + batch.base
            some = (values >= wanted.low) & (values <= wanted.high)
            mask = some if mask is None else mask & some
        if self.consumable:
            mask = batch.consumable() if mask is None else mask & batch.consumable()
        if self.topics is not None and (mask is None or mask.any()):
            some = self._of_topic(batch)
            mask = some if mask is None else mask & some
        return None if mask is None or bool(mask.all()) else mask

    def _of_topic(self, batch: RecordBatch) -> NDArray[np.bool_]:
        import numpy as np

        assert self.topics is not None
        raw = {topic.encode("utf-8", "replace") for topic in self.topics}
        if batch.table is None or find_spec("numba") is None or "\N{REPLACEMENT CHARACTER}" in "".join(self.topics):
            topics = (str(batch.topic(i), "utf-8", "replace") for i in range(len(batch)))
            return np.fromiter((topic in self.topics for topic in topics), np.bool_, len(batch))
        from engine.pipeline.rows_kernel import is_topic

        data = np.frombuffer(batch.buffer, dtype=np.uint8)
        data.flags.writeable = False
        wanted = sorted(raw)
        ends = np.cumsum(np.array([len(one) for one in wanted], dtype=np.int64))
        mask = np.empty(len(batch), dtype=np.bool_)
        is_topic(data, batch.table, np.frombuffer(b"".join(wanted), dtype=np.uint8), ends, mask)
        return mask


def pushed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """What is still wanted when these filters hold as well, as far as they say something about columns known here.

    Spark looks at each row again, so that a filter that isn't understood does no harm.
    """
    for one in filters:
        wanted = _with(wanted, one)
    return wanted


def _with(wanted: Wanted, one: Filter) -> Wanted:
    from pyspark.sql import datasource as spark

    path: Sequence[str] = getattr(one, "attribute", ())
    if len(path) != 1:
        return wanted
    name = path[0].lower()
    value: Any = getattr(one, "value", None)
    values = [v for v in value if v is not None] if isinstance(one, spark.In) else [value]
    if name == "topic" and isinstance(one, spark.EqualTo | spark.EqualNullSafe | spark.In):
        return wanted.of_topics(values) if all(isinstance(v, str) for v in values) else wanted
    if name == "store_time":
        name, points = "store_timestamp", [p for v in values for p in _times(v)]
        if len(points) != 2 * len(values):
            return wanted
    elif name in _RANGES and all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        points = [p for v in values for p in (v, v)]
    else:
        return wanted
    if not points:
        return wanted.narrowed(**{name: Range(0, -1)}) if isinstance(one, spark.In) else wanted
    low, high = min(points), max(points)
    match one:
        case spark.EqualTo() | spark.EqualNullSafe() | spark.In():
            return wanted.narrowed(**{name: Range(low, high)})
        case spark.GreaterThan() | spark.GreaterThanOrEqual():
            return wanted.narrowed(**{name: Range(low=low)})
        case spark.LessThan() | spark.LessThanOrEqual():
            return wanted.narrowed(**{name: Range(high=high)})
    return wanted


def _times(value: object) -> tuple[int, ...]:
    """The ms around a moment: the one before or at it, and the one at or after it; nothing when it is none."""
    if not isinstance(value, datetime.datetime):
        return ()
    if value.tzinfo is None:
        value = value.astimezone()
    floor = (value - _EPOCH) // _MS
    return floor, floor if _EPOCH + floor * _MS == value else floor + 1
