"""What each group has consumed: consumerOffset.json (ConsumerOffsetManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.broker.tables.config_file import KeptTable
from engine.errors import CannotRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from engine.broker.tables.config_file import ConfigFile
    from engine.store import MessageStore

_AT = "@"
_DISPATCH_MS = 60_000


Pair = tuple[str, str]
"""Topic and group."""


class ConsumerOffsets(KeptTable):
    """Offsets by topic and group, each pair found by either. For the loop's thread alone.

    What is written is a state of the table, and its text is made beside the loop: queues of a pair are copied when they
    change for the first time after that state was taken.
    """

    def __init__(self, file: ConfigFile) -> None:
        super().__init__(file)
        self._table: dict[Pair, dict[int, int]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        self._groups: dict[str, dict[str, None]] = {}
        self._own: set[Pair] = set()

    def load(self) -> None:
        """What the file says. Raises CannotRepair, StorageError."""
        self._put_all(self._parsed(self._file.load()))

    def take(self, table: dict[str, Any]) -> None:
        """A master's offsets over ours. Raises CannotRepair. Source: SlaveSynchronize#syncConsumerOffset."""
        self._put_all(self._parsed(table))
        self._changed = True

    def _parsed(self, content: dict[str, Any]) -> dict[Pair, dict[int, int]]:
        table: dict[Pair, dict[int, int]] = {}
        for key, queues in content.get("offsetTable", {}).items():
            topic, at, group = key.partition(_AT)
            try:
                if at and isinstance(queues, dict):
                    table[topic, group] = {int(queue): int(offset) for queue, offset in queues.items()}
            except (TypeError, ValueError, ArithmeticError):
                raise CannotRepair(f"{key}: an offset is not a number", path=self._file.path) from None
        return table

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next queue offset, None when the group has none there (or committed a negative one)."""
        offset = self._table.get((topic, group), {}).get(queue_id)
        return None if offset is None or offset < 0 else offset

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group has consumed what lies before `offset`."""
        pair = (topic, group)
        queues = self._table.get(pair)
        if queues is not None and queues.get(queue_id) == offset:
            return
        if pair not in self._own:
            queues = {} if queues is None else dict(queues)
            self._put(pair, queues)
        assert queues is not None
        queues[queue_id] = offset
        self._changed = True

    def pairs(self) -> list[Pair]:
        """(topic, group) wherever there are offsets."""
        return list(self._table)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Of each queue of a topic: a copy."""
        return dict(self._table.get((topic, group), {}))

    def topics(self) -> list[str]:
        """Topics in which any group has offsets."""
        return sorted(self._groups)

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return sorted(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return sorted(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another in a topic. Source: #cloneOffset."""
        queues = self._table.get((topic, source))
        if queues is not None:
            self._put((topic, target), dict(queues))
            self._changed = True

    def forget(self, group: str) -> None:
        """Take all offsets of a group away."""
        for topic in self._topics.pop(group, ()):
            del self._table[topic, group]
            self._own.discard((topic, group))
            groups = self._groups[topic]
            del groups[group]
            if not groups:
                del self._groups[topic]
            self._changed = True

    def entries(self) -> Iterator[tuple[str, dict[str, int]]]:
        """What the file says of each pair, as it is when that comes; pairs that come or go meanwhile may be missing."""
        for topic, group in self.pairs():
            queues = self._table.get((topic, group))
            if queues is not None:
                yield _entry(topic, group, queues)

    def to_json(self) -> dict[str, Any]:
        """ConsumerOffsetSerializeWrapper; consumerOffset.json."""
        return _as_json(self._table)

    def _state(self) -> Callable[[], dict[str, Any]]:
        table = dict(self._table)
        self._own.clear()
        return lambda: _as_json(table)

    def _put_all(self, table: dict[Pair, dict[int, int]]) -> None:
        for pair, queues in table.items():
            self._put(pair, queues)

    def _put(self, pair: Pair, queues: dict[int, int]) -> None:
        """These queues, which nobody else has."""
        topic, group = pair
        self._table[pair] = queues
        self._own.add(pair)
        self._topics.setdefault(group, {})[topic] = None
        self._groups.setdefault(topic, {})[group] = None


def _entry(topic: str, group: str, queues: Mapping[int, int]) -> tuple[str, dict[str, int]]:
    return f"{topic}{_AT}{group}", {str(queue): offset for queue, offset in sorted(queues.items())}


def _as_json(table: Mapping[Pair, Mapping[int, int]]) -> dict[str, Any]:
    return {"offsetTable": dict(_entry(topic, group, queues) for (topic, group), queues in table.items())}


def at_most_the_end(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Where a group continues that was at `offset` of a queue, at the start: a log that was cut ends before it, and the
    messages that come next in the queue would be passed over.
    """
    if offset <= store.max_offset(topic, queue_id) or not store.wait_dispatched(_DISPATCH_MS):
        return offset
    return min(offset, store.max_offset(topic, queue_id))
