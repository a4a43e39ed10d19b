"""Looks every ten minutes whether the files of the open store still follow each other (Apache checkSelf).

Apache compares the offsets of neighbouring files that it has open, of the log and of each queue, and logs a bug where
two don't meet. Here the log's segments are looked for on the disk, too: one that somebody has deleted or renamed below
a running broker is served from its map until the broker stops, and is missing from then on.

Nothing is mended and nothing is refused: it is written to the daemon's log.

Source: DefaultMessageStore#addScheduleTask, #checkSelf, MappedFileQueue#checkSelf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.services.worker import OnFailure, Worker

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.log.commitlog import CommitLog
    from engine.services.queue_table import QueueTable

FIRST_MS = 60_000
EVERY_MS = 600_000


class SelfCheck(Worker):
    """See the module.

    Args:
        disk: the system's files.
        log, queues: what is looked at; of the queues, those that are open.
        on_failure: called with what ends the service: nothing but a bug.

    Attributes:
        problems: what the last look found, one sentence each.
    """

    def __init__(self, disk: Disk, log: CommitLog, queues: QueueTable, on_failure: OnFailure) -> None:
        super().__init__("SelfCheck", on_failure)
        self._disk = disk
        self._log = log
        self._queues = queues
        self.problems: tuple[str, ...] = ()

    def look(self) -> tuple[str, ...]:
        """Look now."""
        files = self._log.files.files
        first = files[0].file_from_offset if files else 0
        gone = [file for file in files if not self._disk.exists(file.path)]
        oldest = self._log.files.first()
        if oldest is not None and oldest.file_from_offset > first:  # retention was at work meanwhile
            gone = [file for file in gone if file.file_from_offset >= oldest.file_from_offset]
        problems = [f"{file.path} is missing while the store is open" for file in gone]
        problems += [f"gap in the log: no segment for {gap.start} to {gap.end}" for gap in self._log.files.check_self()]
        for queue in self._queues.opened():
            problems += [
                f"gap in queue {queue.queue}: no file for {gap.start} to {gap.end}" for gap in queue.check_self()
            ]
        self.problems = tuple(problems)
        return self.problems

    def _run(self) -> None:
        wait = FIRST_MS
        while self._pause(wait):
            self.look()
            wait = EVERY_MS
