"""How groups consume topics, by pulls or by pops: messageRequestMode.json of RocketMQ 5.

Source: MessageRequestModeManager, SetMessageRequestModeRequestBody (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.broker.requests import fields
from engine.broker.tables.config_file import VersionedTable
from engine.broker.tables.topics import RETRY
from engine.dataclass import dataclass
from engine.errors import CannotRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.errors import RStoreError

PULL, POP = "PULL", "POP"
MODES = (PULL, POP)
_AT = "@"
_MAP = "messageRequestModeMap"


@dataclass(frozen=True, slots=True)
class RequestMode:
    """How a group consumes a topic.

    Attributes:
        share: of POP: how many of the next clients of the group pop a client's queues, too; 0 or less: all do.
    """

    topic: str
    group: str
    mode: str = PULL
    share: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the file and clients have it."""
        return {"consumerGroup": self.group, "mode": self.mode, "popShareQueueNum": self.share, "topic": self.topic}

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> RequestMode:
        """From either; a mode that is none counts as PULL. Raises Answer: an invalid number."""
        mode = entry.get("mode")
        return cls(
            str(entry.get("topic")),
            str(entry.get("consumerGroup")),
            mode if mode in MODES else PULL,
            fields.whole(entry, "popShareQueueNum", 0),
        )


class RequestModes(VersionedTable[RequestMode]):
    """Modes by topic and group, where one was set. For the loop's thread alone."""

    def load(self) -> None:
        """What the file says. Raises CannotRepair, StorageError."""
        content = self._file.load().get(_MAP) or {}
        if not isinstance(content, dict):
            raise CannotRepair(f"{_MAP}: not a JSON object", path=self._file.path)
        flat = {}
        for topic, groups in content.items():
            if not isinstance(groups, dict):
                raise CannotRepair(f"{topic}: not a JSON object", path=self._file.path)
            flat.update({f"{topic}{_AT}{group}": mode for group, mode in groups.items()})
        _, table = self._parsed({_MAP: flat}, _MAP, lambda _, entry: RequestMode.of_json(entry))
        self._table.update(table)

    def get(self, topic: str, group: str) -> RequestMode:
        """What was set, or else the default: pulls. Source: QueryAssignmentProcessor#queryAssignment."""
        mode = None if topic.startswith(RETRY) else self._table.get(f"{topic}{_AT}{group}")
        return mode or RequestMode(topic, group)

    def put(self, mode: RequestMode, done: Callable[[RStoreError | None], None]) -> None:
        """Set one; `done` is called when that is durable, or with why nothing has changed."""
        self._put(f"{mode.topic}{_AT}{mode.group}", mode, done)

    def _content(self, version: dict[str, int], table: Mapping[str, RequestMode]) -> dict[str, Any]:
        del version  # the file has none
        return self._as_json(table)

    def _as_json(self, table: Mapping[str, RequestMode]) -> dict[str, Any]:
        modes: dict[str, dict[str, Any]] = {}
        for key, mode in table.items():
            topic, _, group = key.partition(_AT)
            modes.setdefault(topic, {})[group] = mode.to_json()
        return {_MAP: modes}
