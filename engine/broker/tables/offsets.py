"""What each group has consumed: consumerOffset.json (ConsumerOffsetManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.broker.tables.config_file import KeptTable
from engine.errors import CannotRepair

if TYPE_CHECKING:
    from engine.broker.tables.config_file import ConfigFile
    from engine.store import MessageStore

_AT = "@"
_DISPATCH_MS = 60_000


class ConsumerOffsets(KeptTable):
    """Offsets by topic and group."""

    def __init__(self, file: ConfigFile) -> None:
        super().__init__(file)
        self._table: dict[tuple[str, str], dict[int, int]] = {}

    def load(self) -> None:
        """What the file says. Raises CannotRepair, StorageError."""
        self._table.update(self._parsed(self._file.load()))

    def take(self, table: dict[str, Any]) -> None:
        """A master's offsets over ours. Raises CannotRepair. Source: SlaveSynchronize#syncConsumerOffset."""
        self._table.update(self._parsed(table))
        self._changed = True

    def _parsed(self, content: dict[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
        table: dict[tuple[str, str], dict[int, int]] = {}
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
        queues = self._table.setdefault((topic, group), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._changed = True

    def pairs(self) -> list[tuple[str, str]]:
        """(topic, group) wherever there are offsets."""
        return sorted(self._table)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Of each queue of a topic: a copy."""
        return dict(self._table.get((topic, group), {}))

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return sorted(topic for topic, name in self._table if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return sorted(group for name, group in self._table if name == topic)

    def clone(self, source: str, target: str, topic: str | None) -> None:
        """Give one group the offsets of another. Source: #cloneOffset."""
        for (name, group), queues in list(self._table.items()):
            if group == source and topic in (None, name):
                self._table[name, target] = dict(queues)
                self._changed = True

    def forget(self, group: str) -> None:
        """Take all offsets of a group away."""
        for key in [key for key in self._table if key[1] == group]:
            del self._table[key]
            self._changed = True

    def to_json(self) -> dict[str, Any]:
        """ConsumerOffsetSerializeWrapper; consumerOffset.json."""
        return {
            "offsetTable": {
                f"{topic}{_AT}{group}": {str(queue): offset for queue, offset in sorted(queues.items())}
                for (topic, group), queues in self._table.items()
            }
        }


def at_most_the_end(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Where a group continues that was at `offset` of a queue, at the start: a log that was cut ends before it, and the
    messages that come next in the queue would be passed over.
    """
    if offset <= store.max_offset(topic, queue_id) or not store.wait_dispatched(_DISPATCH_MS):
        return offset
    return min(offset, store.max_offset(topic, queue_id))
