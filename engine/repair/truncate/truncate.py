"""`rstore truncate`: the log ends where the operator says; queues, extension, index and checkpoint follow.

It is a recovery whose log end is given (`recover.plan_truncate`), applied by the same `apply`. What is added here is
what consumers lose: messages that go and that a group has not read, and groups that then stand above a queue's maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import Refused, RStoreError
from engine.inspect.store.consumers import LostUnread, read_consumers
from engine.repair.recover.ledger import Ledger, ledger_of
from engine.repair.recover.recover import plan_truncate

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan

_NAMED = 5


@dataclass(frozen=True, slots=True)
class TruncatePlan:
    """What goes. `ledger`: by queue, and the groups that then stand above a queue's maximum."""

    repair: RecoverPlan
    unread: tuple[LostUnread, ...]
    ledger: Ledger

    def refusal(self, *, agreed: bool) -> RStoreError | None:
        """Why it is not carried out: damage, or unread messages while nobody has `agreed` to lose them."""
        if self.repair.refusal is not None:
            return self.repair.refusal
        if agreed or not self.unread:
            return None
        some = "; ".join(str(one) for one in self.unread[:_NAMED])
        more = f"; and {len(self.unread) - _NAMED} more" if len(self.unread) > _NAMED else ""
        return Refused(f"consumers have not read what would go: {some}{more}", hint="--yes cuts it all the same")

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The plan as recover's, with `unread` and the ledger."""
        document = self.repair.to_json(salvage=salvage)
        document["truncateTo"] = self.repair.to
        document["unread"] = [one.to_json() for one in self.unread]
        document["problems"] = [*document["problems"], *self.ledger.problems]
        return document | self.ledger.to_json()


def plan(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    to_offset: int | None = None,
    to_time: int | None = None,
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TruncatePlan:
    """Plan to end the log at `to_offset` (physical), or after what was stored at `to_time` (ms). Writes nothing.

    `store`: its survey, or the settings that name it. With `whole` the log is read from its first byte. Raises as
    `plan_truncate`.
    """
    repair = plan_truncate(disk, store, to_offset=to_offset, to_time=to_time, whole=whole, progress=progress)
    consumers = read_consumers(disk, repair.files.root, (queue.queue for queue in repair.every_queue))
    unread: list[LostUnread] = []
    for queue in repair.every_queue:
        if queue.old_extent > queue.max_offset:
            unread += consumers.unread(queue.queue, queue.max_offset, queue.old_extent)
    return TruncatePlan(repair, tuple(unread), ledger_of(disk, repair, consumers))
