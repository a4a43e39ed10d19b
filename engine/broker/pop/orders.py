"""What groups that pop in order have of each queue: the next messages come when these are acknowledged, or late.

A pop in order stores no checkpoint. What it gave of a queue is kept here, and in consumerOrderInfo.json, as RocketMQ 5
has it; until all of it is acknowledged or its time is over, nobody else of the group gets anything of that queue. Then
it is given again from the first message that was not acknowledged.

Source: ConsumerOrderInfoManager, ConsumerOrderInfoLockManager (5.3.3).
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.broker.pop.receipts import kind_of
from engine.broker.tables.config_file import KeptTable
from engine.dataclass import dataclass
from engine.errors import CannotRepair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.tables.config_file import ConfigFile
    from engine.broker.tables.groups import GroupTable
    from engine.broker.tables.topics import TopicTable

ILLEGAL, NOTHING = -1, -2
"""What `committed` gives where there is no next offset: the message was not given; another pop gave it."""
_KEPT_MS = 24 * 3600 * 1000
"""How long what nobody consumes any more stays in the file. Source: #autoClean."""
_AT = "@"
_TABLE = "table"
Place = tuple[str, str, int]
"""Topic, group, queue id."""


@dataclass(frozen=True, slots=True)
class OrderInfo:
    """What a group has of a queue. Times in ms.

    Attributes:
        attempt: attemptId of the pop: the same attempt gets its messages again.
        offsets: queue offsets of the messages.
        visible: when a message can be given again, where a client has changed that.
        consumed: how often a message was given before; None: this is the first pop of the queue.
        last: when it was popped. `done`: a bit for each message that was acknowledged.
    """

    attempt: str | None
    pop_time: int
    invisible_ms: int
    offsets: tuple[int, ...]
    last: int
    visible: Mapping[int, int] | None = None
    consumed: Mapping[int, int] | None = None
    done: int = 0

    @property
    def waits(self) -> list[int]:
        """Queue offsets of the messages that were not acknowledged."""
        return [offset for at, offset in enumerate(self.offsets) if not self.done >> at & 1]

    @property
    def free_ms(self) -> int:
        """When all that waits can be given again."""
        visible = self.visible or {}
        return max((visible.get(offset, self.pop_time + self.invisible_ms) for offset in self.waits), default=0)

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ 5 has it."""
        first = self.offsets[0] if self.offsets else 0
        value = {
            "a": self.attempt,
            "cm": self.done,
            "i": self.invisible_ms,
            "l": self.last,
            "o": [*self.offsets[:1], *(offset - first for offset in self.offsets[1:])],
            "oc": None if self.consumed is None else dict(self.consumed),
            "ot": None if self.visible is None else dict(self.visible),
            "popTime": self.pop_time,
        }
        return {name: one for name, one in value.items() if one is not None}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> OrderInfo:
        """From either. Raises ValueError, TypeError, AttributeError, ArithmeticError."""
        first, *others = [int(one) for one in value.get("o") or [0]]
        offsets = (first, *(first + one for one in others)) if value.get("o") else ()
        visible, consumed = (
            None if value.get(name) is None else {int(one): int(other) for one, other in value[name].items()}
            for name in ("ot", "oc")
        )
        attempt = value.get("a")
        return cls(
            None if attempt is None else str(attempt), int(value.get("popTime", 0)), int(value.get("i") or 0), offsets,
            int(value.get("l", 0)), visible, consumed, int(value.get("cm", 0)),
        )  # fmt: skip


class PopOrders(KeptTable):
    """See the module. For the loop's thread alone, but `write`."""

    def __init__(self, file: ConfigFile, topics: TopicTable, groups: GroupTable, now_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._infos: dict[Place, OrderInfo] = {}
        self._frees: list[tuple[int, Place]] = []

    def load(self) -> None:
        """What the file says. Raises CannotRepair, StorageError."""
        key = _TABLE
        try:
            for key, queues in (self._file.load().get(_TABLE) or {}).items():
                topic, _, group = key.partition(_AT)
                for queue_id, value in queues.items():
                    self._set((topic, group, int(queue_id)), OrderInfo.of_json(value))
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise CannotRepair(f"{key}: {error}", path=self._file.path) from None
        self._changed = False

    def blocks(self, place: Place, attempt: str | None, invisible_ms: int) -> bool:
        """Whether a group is to get nothing of a queue now."""
        info = self._infos.get(place)
        if info is None or (info.attempt is not None and info.attempt == attempt):
            return False
        if info.invisible_ms <= 0:  # of a release that did not note it
            info = self._infos[place] = replace(info, invisible_ms=invisible_ms)
        return self._now_ms() < info.free_ms

    def took(
        self, place: Place, attempt: str | None, pop_time: int, invisible_ms: int, offsets: tuple[int, ...]
    ) -> list[str]:
        """A pop gave these messages: the parts of its orderCountInfo."""
        before = self._infos.get(place)
        again = _consumed(before, attempt, offsets)
        info = OrderInfo(attempt, pop_time, invisible_ms, offsets, self._now_ms(), consumed=again)
        self._set(place, info)
        kind, queue_id, consumed = kind_of(place[0]), place[2], info.consumed or {}
        least = min(consumed.values()) if consumed and len(consumed) == len(offsets) else 0
        counts = [f"{kind} qo{queue_id}%{offset} {times}" for offset, times in consumed.items()]
        return [*counts, f"{kind} {queue_id} {least}"]

    def committed(self, place: Place, offset: int, pop_time: int) -> int:
        """A message is acknowledged: the group's next offset, or ILLEGAL, or NOTHING."""
        info = self._infos.get(place)
        if info is None:
            return offset + 1
        if not info.offsets:
            return ILLEGAL
        if pop_time != info.pop_time:
            return NOTHING
        if offset not in info.offsets:
            return ILLEGAL
        info = replace(info, done=info.done | 1 << info.offsets.index(offset))
        self._set(place, info)
        waits = info.waits
        return waits[0] if waits else info.offsets[-1] + 1

    def change(self, place: Place, offset: int, pop_time: int, visible_ms: int) -> None:
        """A message that was given can be given again at another time."""
        info = self._infos.get(place)
        if info is not None and info.pop_time == pop_time:
            self._set(place, replace(info, visible={**(info.visible or {}), offset: visible_ms}))

    def free(self) -> list[Place]:
        """Queues that have come free since this was asked last."""
        now, frees, places = self._now_ms(), self._frees, []
        while frees and frees[0][0] <= now:
            places.append(heapq.heappop(frees)[1])
        return places

    def _set(self, place: Place, info: OrderInfo) -> None:
        self._infos[place] = info
        self._changed = True
        if info.waits:
            heapq.heappush(self._frees, (info.free_ms, place))  # one that was changed stands there twice

    # --- consumerOrderInfo.json ---------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """ConsumerOrderInfoManager: without what is of no use any more."""
        return self._state()()

    def _state(self) -> Callable[[], dict[str, Any]]:
        infos, now = dict(self._infos), self._now_ms()

        def table() -> dict[str, Any]:
            queues: dict[str, dict[str, Any]] = {}
            for (topic, group, queue_id), info in infos.items():
                known = self._topics.find(topic)
                gone = known is None or queue_id >= known.read_queues or group not in self._groups.groups
                if not gone and now - info.last <= _KEPT_MS:
                    queues.setdefault(f"{topic}{_AT}{group}", {})[str(queue_id)] = info.to_json()
            return {_TABLE: queues}

        return table


def _consumed(before: OrderInfo | None, attempt: str | None, offsets: tuple[int, ...]) -> Mapping[int, int] | None:
    """How often each was given before. Source: OrderInfo#mergeOffsetConsumedCount."""
    if before is None:
        return None
    known = before.consumed or {}
    if before.attempt is not None and before.attempt == attempt:
        return known
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in before.offsets}
