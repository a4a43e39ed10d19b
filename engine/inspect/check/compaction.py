"""The copies of compacted topics of RocketMQ 5: files, units and records of each, against each other.

They outlive the log, so it vouches for none of them: a record is judged by its own CRC and by its unit. Beside a live
writer files change places all the time, and nothing is judged.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from engine.format import names
from engine.inspect.store.compaction import compacted_rows, compaction_of

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.finding import Findings
    from engine.inspect.store.survey import StoreFiles

_POSITIONS = "compaction-position"


def check_compaction(disk: Disk, files: StoreFiles, findings: Findings, deadline: float | None) -> tuple[int, bool]:
    """How many units were looked at, and whether all were: the time (monotonic) may be up. Raises StorageError."""
    kept = compaction_of(disk, files)
    units = 0
    if kept.problem is not None:
        where = os.path.join(names.COMPACTION, names.COMPACTION_POSITIONS)
        findings.add(_POSITIONS, where, where, kept.problem.message)
    for queue in kept.queues:
        latest = -1
        for row in compacted_rows(disk, queue, max_message_size=files.config.max_message_size):
            if deadline is not None and time.monotonic() > deadline:
                return units, False
            if row.queue_offset is not None:
                units += 1
                latest = max(latest, row.queue_offset)
            if row.reason is not None:
                where = f"{os.path.relpath(row.path, files.root)} at {row.offset}"
                findings.add(row.code, os.path.relpath(queue.log_directory, files.root), where, row.reason)
        if queue.files and queue.compacted_to is not None and queue.compacted_to > latest:
            detail = f"{queue.queue}: compacted up to {queue.compacted_to}, its last unit is of {latest}"
            findings.add(_POSITIONS, str(queue.queue), f"{names.COMPACTION}/{names.COMPACTION_POSITIONS}", detail)
    return units, True
