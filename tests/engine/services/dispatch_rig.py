"""Log, queues and dispatch without a store around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.config import StoreConfig
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.log.commitlog import CommitLog
from engine.log.derive import Keys, TopicQueue
from engine.services.dispatch import DispatchService
from engine.services.queue_table import QueueTable
from engine.services.running_flags import RunningFlags

T0 = TopicQueue("T", 0)


@dataclass
class Index:
    """Takes keys; fails as often as told."""

    failures: list[RStoreError] = field(default_factory=list)
    keys: int = 0

    def put(self, keys: Keys) -> int:
        failures = self.failures  # a test may give others meanwhile
        if failures:
            raise failures.pop(0)
        self.keys += len(keys)
        return len(keys)

    def has_room(self, keys: int) -> bool:
        del keys
        return not self.failures


@dataclass
class Rig:
    """Log, queues and dispatch without a store around them."""

    config: StoreConfig
    disk: Disk = field(default_factory=Disk)
    flags: RunningFlags = field(default_factory=RunningFlags)
    index: Index = field(default_factory=Index)
    errors: list[RStoreError] = field(default_factory=list)
    progress: int = 0

    def __post_init__(self) -> None:
        self.log = CommitLog(self.disk, self.config)
        self.log.open(0, {})
        self.queues = QueueTable(self.disk, self.config)
        self.dispatch = DispatchService(
            self.log, self.queues, self.index, self.flags, self.config, self.made_progress, self.errors.append
        )

    def made_progress(self) -> None:
        self.progress += 1

    def close(self) -> None:
        self.dispatch.stop()
        self.queues.shutdown()
        self.log.close(clean=True)


def until(state: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not state() and time.monotonic() < ends:
        time.sleep(0.001)
    assert state()
