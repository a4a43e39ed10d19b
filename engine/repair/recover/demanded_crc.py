"""Records that a store's own broker would end the log at when it starts, though they are sound: without a right
property CRC, where forceVerifyPropCRC=true demands one of each record (#7480).

A repair keeps them, and the broker's next start would take them and all that follows from the log: so the repair is
refused until the setting is off. Source: CommitLog#checkMessageAndReturnSize (5.x).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import CannotRepair
from engine.format.property_crc import CrcDemand
from engine.inspect import next_step
from engine.inspect.store.newer import FORCED, PROPERTY_CRC_FORCED
from engine.log.batch import RecordBatch
from engine.log.property_crcs import MISMATCH, MISSING, crc_faults_of

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Scanner
    from engine.log.source import ClosedLog


def demanded_crc_refusal(
    files: StoreFiles, log: ClosedLog, scanner: Scanner, start: int, end: int
) -> CannotRepair | None:
    """The refusal about the first such record in [start, end) of the log (physical offsets): what the next start
    reads; None where there is none, or nothing is demanded. Raises StorageError.
    """
    if not (files.newer.has(PROPERTY_CRC_FORCED) and files.config.check_crc_on_recover and start < end):
        return None
    for event in scanner.scan(start, end, resume=True):
        if not isinstance(event, RecordBatch):
            continue
        _, faults = crc_faults_of(event, CrcDemand.OF_ALL)
        if faults:
            first = faults[0]
            segment = next(one for one in log.segments if one.offset <= first.offset < one.end)
            return CannotRepair(
                f"{MISSING if first.missing else MISMATCH}: when its broker starts, it would lose "
                f"{end - first.offset} bytes of the log, cut",
                path=os.fspath(segment.path),
                offset=first.offset,
                hint="nothing was changed",
                next_step=next_step.bring(
                    f"set {FORCED}=false in the broker's settings file until such records have expired, then run this "
                    "again"
                ),
            )
    return None
