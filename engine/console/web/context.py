"""What one console is made of; pages get it with each question."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.console.changes.operations import OperationsLog
from engine.console.changes.plans import KeptPlans
from engine.console.web.clusters import Clusters
from engine.console.web.reading import Reading
from engine.console.web.runs import BackgroundRuns
from engine.console.web.sessions import Sessions
from engine.console.web.streams import Samplers
from engine.files.disk import Disk

if TYPE_CHECKING:
    from engine.console.options import ConsoleOptions


class Console:
    """See the module. For one loop.

    Args:
        options: what it was started with.
        tell: told each new token.
    """

    def __init__(self, options: ConsoleOptions, tell: Callable[[str], None] = lambda _: None) -> None:
        self.options = options
        self.disk = Disk()
        self.sessions = Sessions(time.monotonic, tell)
        self.reading = Reading()
        self.runs = BackgroundRuns()
        self.clusters = Clusters(options)
        self.samplers = Samplers()
        self.operations = OperationsLog(options.operations)
        self.plans = KeptPlans(time.monotonic)

    def changed(self) -> None:
        """The store or the cluster is not as it was: nothing that was read before counts."""
        self.reading.forget()
        self.runs.forget()

    async def close(self) -> None:
        """End what runs beside."""
        await self.samplers.close()
        await self.clusters.close()
        await self.reading.close()
