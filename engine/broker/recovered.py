"""Lines of the daemon's log that say what its start recovered, none where the store was closed cleanly, and which
sizes of new files nothing tells."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from engine.inspect.store.guessed_sizes import of_puts
from engine.repair.recover.opening import recover_for_open

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.state import StoreState
    from engine.repair.recover.plan import RecoverPlan


def recovering(log: logging.Logger) -> Callable[[Disk, StoreConfig], tuple[StoreState, StoreConfig]]:
    """The default recovery of a store that opens, written to the log."""
    return functools.partial(recover_for_open, tell=functools.partial(_tell, log, time.monotonic()))


def _tell(log: logging.Logger, began: float, plan: RecoverPlan, salvage: str | None) -> None:
    for problem in of_puts(plan.files):
        log.warning(problem)
    end = plan.log.end
    if not plan.files.abort and not plan.changed:
        return
    extra = {
        "read_from": plan.log.read_from,
        "records": end.records,
        "max_offset": end.end,
        "bytes_cut": plan.log.bytes_cut,
        "units_rebuilt": sum(queue.units_rebuilt for queue in plan.queues),
        "units_cut": sum(queue.units_cut for queue in plan.queues),
        "keys_put": plan.index.keys_put,
        "saved": salvage,
        "seconds": round(time.monotonic() - began, 3),
    }
    why = "was not closed (process killed, or power loss)" if plan.files.abort else "was closed cleanly, but damaged"
    log.warning(f"recovered: the store {why}", extra=extra)
