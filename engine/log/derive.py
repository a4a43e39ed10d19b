"""The one place that turns a record into its queue unit and its index keys.

Dispatch of a running store, recovery, rebuilding and every check derive through here, a batch at a time.

Source of the rules: CommitLog#checkMessageAndReturnSize (tags, delivery time, keys), the two dispatchers of
DefaultMessageStore, ConsumeQueue#multiDispatchLmqQueue, IndexService#buildIndex. Other than Apache's abnormal recovery,
the delivery time of a delayed message is always known here (RECOVERY.md, rule 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from engine.dataclass import dataclass
from engine.format import names, properties, sysflag
from engine.format.delay import DelayLevels
from engine.format.hashing import index_key_hashes, tag_index_key, tags_code
from engine.format.judge import Row
from engine.format.numbers import LONG_MAX, parse_int

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.log.batch import RecordBatch
    from engine.log.kernels.derive import DerivedPart, KnownQueues


class TopicQueue(NamedTuple):
    """One consume queue: topic and queue id."""

    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class QueueNumbers:
    """Gives each topic and queue a small number, so that columns can name it."""

    def __init__(self) -> None:
        self._numbers: dict[TopicQueue, int] = {}
        self._queues: list[TopicQueue] = []

    def __len__(self) -> int:
        return len(self._queues)

    def __getitem__(self, number: int) -> TopicQueue:
        return self._queues[number]

    def number(self, queue: TopicQueue) -> int:
        """The number of a queue, the next free one when it is new."""
        number = self._numbers.get(queue)
        if number is None:
            number = self._numbers[queue] = len(self._queues)
            self._queues.append(queue)
        return number


@dataclass(frozen=True, slots=True)
class DeriveRules:
    """The settings that decide what is derived. `tag_keys`: index keys of tags, too (RocketMQ 5.4 and later)."""

    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    multi_dispatch: bool = False
    lmq: bool = False
    index: bool = True
    batch_topics: frozenset[str] = frozenset()
    """Topics of RocketMQ 5 whose records get units of batch queues, and none of plain ones."""
    tag_keys: bool = False

    @classmethod
    def of(cls, config: StoreConfig, batch_topics: frozenset[str] = frozenset()) -> DeriveRules:
        """The rules of a store with these settings."""
        return cls(
            DelayLevels.or_defaults(config.message_delay_level),
            config.enable_multi_dispatch,
            config.enable_lmq,
            config.message_index_enable,
            batch_topics,
            config.index_tags,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Queue units derived from a batch, in log order; columns of one length.

    queue int32 (a number of `QueueNumbers`), queue_offset / physical_offset / tags_code / store_timestamp int64,
    size int32 (bytes).
    """

    queue: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.queue)

    def taken(self, which: NDArray[Any]) -> Units:
        """Some of the units: a mask, or places."""
        return _taken(self, which)


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Index keys derived from a batch, in log order; columns of one length.

    key_hash int32 (≥ 0), physical_offset int64, store_timestamp int64 (ms).
    """

    key_hash: NDArray[np.int32]
    physical_offset: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key_hash)

    def taken(self, which: NDArray[Any]) -> Keys:
        """Some of the keys: a mask, or places."""
        return _taken(self, which)


class Deriver:
    """Derives units and keys of record batches; remembers topics and tags that it has seen.

    Attributes:
        unplaced: units that no queue can take so far, as their topic (or light queue) is no directory's name.
    """

    def __init__(self, rules: DeriveRules, queues: QueueNumbers) -> None:
        self.rules = rules
        self.queues = queues
        self._topics: dict[bytes, str] = {}
        self._tags: dict[str, int] = {}
        self.unplaced = 0
        self._known: KnownQueues | None = None  # replaced as a whole: threads that prepare read it
        self._entries: dict[tuple[bytes, int], int] = {}
        self._known_numbers: NDArray[np.int32] | None = None  # by entry
        self._some_unplaced = False
        self._is_batch: list[bool] = []  # by number
        self._fresh: dict[tuple[bytes, int], int] = {}

    def derive(self, batch: RecordBatch) -> tuple[Units, Keys]:
        """Units and keys of a batch. Prepared and rolled back records give no unit, rolled back ones no key."""
        return self.finish(batch, self.prepare(batch))

    def prepare(self, batch: RecordBatch) -> list[DerivedPart]:
        """The half that needs no order: may run for several batches at once, in threads. For `finish`.

        Nothing for a batch that was read without kernels.
        """
        parts: list[DerivedPart] = []
        if batch.table is not None:
            from engine.log.kernels.derive import KnownQueues, derive_part

            known = self._known or KnownQueues.none()
            at = 0
            while at < len(batch):
                parts.append(derive_part(batch, at, self.rules, known))
                at = parts[-1].end
            batch.note(
                messages=sum(part.messages for part in parts),
                newest=max(part.newest for part in parts),
                ascends=not any(part.back for part in parts),
                in_place=not any(part.moved for part in parts),
            )
        return parts

    def prepare_and_let_go(self, batch: RecordBatch) -> list[DerivedPart]:
        """As `prepare`, for who wants nothing else of the records' bytes: they aren't held (`RecordBatch.let_go`)."""
        parts = self.prepare(batch)
        if parts and not self.rules.batch_topics and not any(len(part.odd) or len(part.new) for part in parts):
            batch.let_go()  # else `finish` wants them
        return parts

    def finish(self, batch: RecordBatch, parts: list[DerivedPart]) -> tuple[Units, Keys]:
        """The other half, batches in log order: queues get their numbers, odd records are derived.

        Without those of batch queues, which `finish_all` gives.
        """
        units, keys, _ = self.finish_all(batch, parts)
        return units, keys

    def finish_all(self, batch: RecordBatch, parts: list[DerivedPart]) -> tuple[Units, Keys, NDArray[np.void] | None]:
        """As `finish`, and the units of batch queues (engine.log.batch_rows.batch_row_dtype): None without any."""
        units, keys = self._finish(batch, parts)
        of_batches = self._of_batch_queues(units)
        if of_batches is None:
            return units, keys, None
        from engine.log.batch_rows import batch_rows

        return units.taken(~of_batches), keys, batch_rows(batch, units.taken(of_batches))

    def _of_batch_queues(self, units: Units) -> NDArray[np.bool_] | None:
        """Which of them are of batch queues: bool[n], None where none is."""
        topics = self.rules.batch_topics
        if not topics or not len(units):
            return None
        import numpy as np

        known = len(self._is_batch)
        self._is_batch += [self.queues[number].topic in topics for number in range(known, len(self.queues))]
        mask: NDArray[np.bool_] = np.array(self._is_batch, dtype=np.bool_)[units.queue]
        return mask if mask.any() else None

    def _finish(self, batch: RecordBatch, parts: list[DerivedPart]) -> tuple[Units, Keys]:
        odd = _Columns()
        if batch.table is None:
            for i, row in enumerate(batch.rows):
                self._derive_one(batch, i, row, odd)
            return odd.units(), odd.keys()
        units, keys = joined([self._finish_part(batch, part, odd) for part in parts])
        if self._fresh:
            self._extend_known()
        if odd.rows:
            units = _in_order([units, odd.units()], Units)
        if odd.texts:
            keys = _in_order([keys, odd.keys()], Keys)
        return units, keys

    def _derive_one(self, batch: RecordBatch, i: int, row: Row, out: _Columns) -> None:
        """Units and keys of record `i`."""
        offset = batch.base + row.position
        topic = self._topic(batch.topic(i))
        pairs = properties.parse(batch.properties(i).decode("utf-8", "replace"))
        if sysflag.is_consumable(row.sys_flag):
            code = self._tags_code(topic, pairs, row.store_timestamp)
            places = [(TopicQueue(topic, row.queue_id), row.queue_offset)]
            if self.rules.multi_dispatch and topic not in self.rules.batch_topics:
                places += self._multi_dispatch(row.queue_id, pairs)
            for queue, queue_offset in places:
                number = self._number(queue)
                if number < 0:
                    self.unplaced += 1
                    continue
                out.rows.append((number, queue_offset, offset, row.size, code, row.store_timestamp))
        if self.rules.index and sysflag.is_indexed(row.sys_flag):
            texts = index_keys(topic, pairs, tag_key=self.rules.tag_keys)
            out.texts += texts
            out.places += [(offset, row.store_timestamp)] * len(texts)

    def _number(self, queue: TopicQueue) -> int:
        """The number of a queue, −1 when its topic is no directory's name."""
        return self.queues.number(queue) if names.is_directory_name(queue.topic) else -1

    def _finish_part(self, batch: RecordBatch, part: DerivedPart, out: _Columns) -> tuple[Units, Keys]:
        """The units and keys of a part's plain records; those of the odd ones go to `out`."""
        import numpy as np

        table = batch.table
        assert table is not None
        numbers: list[int] = []
        odd = part.odd.tolist()
        done = 0
        for record in part.new.tolist():  # queues get their numbers in the order in which the log shows them
            while done < len(odd) and odd[done] < record:
                self._derive_one(batch, odd[done], Row._make(table[odd[done]].tolist()), out)
                done += 1
            numbers.append(self._entry(batch.topic(record), int(table[record, 2])))
        for record in odd[done:]:
            self._derive_one(batch, record, Row._make(table[record].tolist()), out)
        keys = Keys(part.key_hash, part.key_offset, part.key_timestamp)
        of_entry = np.array(numbers, dtype=np.int32)
        if self._known_numbers is not None:
            of_entry = np.concatenate([self._known_numbers[: part.there], of_entry])
        queue = of_entry[part.entry]
        units = Units(queue, part.queue_offset, part.physical_offset, part.size, part.tags_code, part.store_timestamp)
        if self._some_unplaced:
            placed = queue >= 0
            self.unplaced += len(queue) - int(placed.sum())
            units = _taken(units, placed)
        return units, keys

    def _entry(self, topic: bytes, queue_id: int) -> int:
        """The number of a queue that the kernel did not know."""
        name = (topic, queue_id)
        number = self._fresh.get(name)
        if number is None:
            known = self._entries.get(name)
            if known is not None:  # another batch was first; this one was prepared beside it
                assert self._known_numbers is not None
                return int(self._known_numbers[known])
            number = self._fresh[name] = self._number(TopicQueue(self._topic(topic), queue_id))
            self._some_unplaced = self._some_unplaced or number < 0
        return number

    def _extend_known(self) -> None:
        import numpy as np

        from engine.log.kernels.derive import KnownQueues

        known = self._known or KnownQueues.none()
        for name in self._fresh:
            self._entries[name] = len(self._entries)
        fresh = np.array(list(self._fresh.values()), dtype=np.int32)
        self._known_numbers = fresh if self._known_numbers is None else np.concatenate([self._known_numbers, fresh])
        self._known = known.with_queues([topic for topic, _ in self._fresh], [queue for _, queue in self._fresh])
        self._fresh = {}

    def _topic(self, raw: bytes) -> str:
        text = self._topics.get(raw)
        if text is None:
            text = self._topics[raw] = raw.decode("utf-8", "replace")
        return text

    def _tags_code(self, topic: str, pairs: dict[str, str], store_timestamp: int) -> int:
        if topic == names.SCHEDULE_TOPIC and properties.DELAY in pairs:
            level = self.rules.delay_levels.clamp(properties.delay_level(pairs))
            if level > 0:
                return self.rules.delay_levels.deliver_timestamp(level, store_timestamp)
        tags = pairs.get(properties.TAGS)
        if not tags:
            return 0
        code = self._tags.get(tags)
        if code is None:
            if len(self._tags) > 100_000:  # tags are few; a store that proves otherwise must not fill the memory
                self._tags.clear()
            code = self._tags[tags] = tags_code(tags)
        return code

    def _multi_dispatch(self, queue_id: int, pairs: dict[str, str]) -> list[tuple[TopicQueue, int]]:
        """The further queues of a multi-dispatch message. Unequal lists and offsets that are none give none.

        Java's split drops empty names at the end of a list.
        """
        comma = properties.MULTI_DISPATCH_SPLITTER
        targets = pairs.get(properties.INNER_MULTI_DISPATCH, "").rstrip(comma).split(comma)
        offsets = pairs.get(properties.INNER_MULTI_QUEUE_OFFSET, "").rstrip(comma).split(comma)
        if len(targets) != len(offsets) or not targets[0].strip():
            return []
        try:
            places = [parse_int(offset, 0, LONG_MAX) for offset in offsets]
        except ValueError:
            return []
        return [
            (TopicQueue(name, 0 if self.rules.lmq and names.is_lmq(name) else queue_id), place)
            for name, place in zip(targets, places, strict=True)
        ]


def index_keys(topic: str, pairs: dict[str, str], *, tag_key: bool = False) -> list[str]:
    """The key strings of a message, in the order of their entries: UNIQ_KEY first, then the words of KEYS.

    `tag_key`: that of its tag after them. Source: IndexService#buildIndex (5.4.0, 5.5.0).
    """
    words = properties.key_words(pairs.get(properties.KEYS))
    unique = pairs.get(properties.UNIQ_KEY)
    keys = [f"{topic}#{word}" for word in ([unique, *words] if unique is not None else words)]
    tag = pairs.get(properties.TAGS) if tag_key else None
    return [*keys, tag_index_key(topic, tag)] if tag else keys


class _Columns:
    """Units and keys that are made one by one."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.texts: list[str] = []
        self.places: list[tuple[int, int]] = []

    def units(self) -> Units:
        import numpy as np

        table = np.array(self.rows, dtype=np.int64).reshape(len(self.rows), 6)
        queue, queue_offset, offset, size, code, stored = table.T
        return Units(queue.astype(np.int32), queue_offset, offset, size.astype(np.int32), code, stored)

    def keys(self) -> Keys:
        import numpy as np

        table = np.array(self.places, dtype=np.int64).reshape(len(self.places), 2)
        return Keys(index_key_hashes(self.texts), table[:, 0], table[:, 1])


_Table = TypeVar("_Table", Units, Keys)


def _taken(table: _Table, which: NDArray[Any]) -> _Table:
    """Some rows of a table: a mask or places."""
    return type(table)(*(getattr(table, field.name)[which] for field in fields(table)))


def concatenated(tables: Sequence[_Table], kind: type[_Table]) -> _Table:
    """The rows of all tables, one after the other."""
    import numpy as np

    if len(tables) == 1:
        return tables[0]
    return kind(*(np.concatenate([getattr(table, field.name) for table in tables]) for field in fields(kind)))


def joined(parts: Sequence[tuple[Units, Keys]]) -> tuple[Units, Keys]:
    """What several batches derive to, one after the other."""
    return concatenated([units for units, _ in parts], Units), concatenated([keys for _, keys in parts], Keys)


def _in_order(tables: Sequence[_Table], kind: type[_Table]) -> _Table:
    """The tables' rows in log order; those of one record come from one table, and stay in its order."""
    import numpy as np

    both = concatenated(tables, kind)
    return _taken(both, np.argsort(both.physical_offset, kind="stable"))
