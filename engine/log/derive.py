"""The one place that turns a record into its queue unit and its index keys.

Dispatch of a running store, recovery, rebuilding and every check derive through here, a batch at a time.

Source of the rules: CommitLog#checkMessageAndReturnSize (tags, delivery time, keys), the two dispatchers of
DefaultMessageStore, ConsumeQueue#multiDispatchLmqQueue, IndexService#buildIndex. Other than Apache's abnormal recovery,
the delivery time of a delayed message is always known here (recovery.md, rule 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.format import names, properties, sysflag
from engine.format.delay import DelayLevels
from engine.format.hashing import index_key_hashes, tags_code
from engine.format.numbers import LONG_MAX, parse_int

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.log.scan import RecordBatch


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
        found = self._numbers.get(queue)
        if found is None:
            found = self._numbers[queue] = len(self._queues)
            self._queues.append(queue)
        return found


@dataclass(frozen=True, slots=True)
class DeriveRules:
    """The settings that decide what is derived."""

    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    multi_dispatch: bool = False
    lmq: bool = False
    index: bool = True

    @classmethod
    def of(cls, config: StoreConfig) -> DeriveRules:
        """The rules of a store with these settings."""
        return cls(
            DelayLevels.parse(config.message_delay_level),
            config.enable_multi_dispatch,
            config.enable_lmq,
            config.message_index_enable,
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

    def derive(self, batch: RecordBatch) -> tuple[Units, Keys]:
        """Units and keys of a batch. Prepared and rolled back records give no unit, rolled back ones no key."""
        units: list[tuple[int, int, int, int, int, int]] = []
        key_texts: list[str] = []
        key_places: list[tuple[int, int]] = []
        for i, row in enumerate(batch.rows):
            offset = batch.base + row.position
            topic = self._topic(batch.topic(i))
            found = properties.parse(batch.properties(i).decode("utf-8", "replace"))
            if sysflag.is_consumable(row.sys_flag):
                code = self._tags_code(topic, found, row.store_timestamp)
                places = [(TopicQueue(topic, row.queue_id), row.queue_offset)]
                if self.rules.multi_dispatch:
                    places += self._multi_dispatch(row.queue_id, found)
                for queue, queue_offset in places:
                    if not names.is_directory_name(queue.topic):
                        self.unplaced += 1
                        continue
                    number = self.queues.number(queue)
                    units.append((number, queue_offset, offset, row.size, code, row.store_timestamp))
            if self.rules.index and sysflag.is_indexed(row.sys_flag):
                texts = index_keys(topic, found)
                key_texts += texts
                key_places += [(offset, row.store_timestamp)] * len(texts)
        return _units(units), _keys(key_texts, key_places)

    def _topic(self, raw: bytes) -> str:
        text = self._topics.get(raw)
        if text is None:
            text = self._topics[raw] = raw.decode("utf-8", "replace")
        return text

    def _tags_code(self, topic: str, found: dict[str, str], store_timestamp: int) -> int:
        if topic == names.SCHEDULE_TOPIC and properties.DELAY in found:
            level = self.rules.delay_levels.clamp(properties.delay_level(found))
            if level > 0:
                return self.rules.delay_levels.deliver_timestamp(level, store_timestamp)
        tags = found.get(properties.TAGS)
        if not tags:
            return 0
        code = self._tags.get(tags)
        if code is None:
            if len(self._tags) > 100_000:  # tags are few; a store that proves otherwise must not fill the memory
                self._tags.clear()
            code = self._tags[tags] = tags_code(tags)
        return code

    def _multi_dispatch(self, queue_id: int, found: dict[str, str]) -> list[tuple[TopicQueue, int]]:
        """The further queues of a multi-dispatch message. Unequal lists and offsets that are none give none.

        Java's split drops empty names at the end of a list.
        """
        comma = properties.MULTI_DISPATCH_SPLITTER
        targets = found.get(properties.INNER_MULTI_DISPATCH, "").rstrip(comma).split(comma)
        offsets = found.get(properties.INNER_MULTI_QUEUE_OFFSET, "").rstrip(comma).split(comma)
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


def index_keys(topic: str, found: dict[str, str]) -> list[str]:
    """The key strings of a message, in the order of their entries: UNIQ_KEY first, then the words of KEYS."""
    words = properties.key_words(found.get(properties.KEYS))
    unique = found.get(properties.UNIQ_KEY)
    return [f"{topic}#{word}" for word in ([unique, *words] if unique is not None else words)]


def _units(rows: list[tuple[int, int, int, int, int, int]]) -> Units:
    import numpy as np

    table = np.array(rows, dtype=np.int64).reshape(len(rows), 6)
    return Units(
        table[:, 0].astype(np.int32), table[:, 1], table[:, 2], table[:, 3].astype(np.int32), table[:, 4], table[:, 5]
    )


def _keys(texts: list[str], places: list[tuple[int, int]]) -> Keys:
    import numpy as np

    table = np.array(places, dtype=np.int64).reshape(len(places), 2)
    return Keys(index_key_hashes(texts), table[:, 0], table[:, 1])
