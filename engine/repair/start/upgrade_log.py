"""Records of the log that a release does not read, counted and placed: one pass, where there is a reason for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.format.property_crc import CrcDemand
from engine.format.quantities import counted
from engine.format.record import MAGIC_BYTES, POSITION_MAGIC
from engine.inspect.finding import place
from engine.inspect.store.newer import FORCED, PROPERTY_CRC, is_true
from engine.log.property_crcs import crc_faults_of
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.start.upgrade_rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.inspect.finding import Findings
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.repair.start.rules import StartRules

_NAMED = 3


def look_at_log(
    disk: Disk,
    files: StoreFiles,
    rules: StartRules,
    findings: Findings,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Raises StorageError."""
    config = files.config
    forced = rules.checks_property_crc and config.check_crc_on_recover and is_true(config, FORCED)
    sealed = RULES["record-crc"].applies(rules.release) and files.newer.has(PROPERTY_CRC)
    if (rules.reads_v2 and not forced and not sealed) or not files.log:
        return
    demand = CrcDemand.OF_ALL if forced else CrcDemand.WHERE_THERE if sealed else CrcDemand.NOTHING
    first_v2 = first_fault = first_sealed = -1
    v2 = faults = have = records = 0
    topics: set[str] = set()
    start, end = files.log[0].offset, files.log[-1].end
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, check_crc=False, max_message_size=config.max_message_size)
        for event in scanner.scan(start, resume=True):
            if not isinstance(event, RecordBatch):
                continue
            records += len(event)
            if not rules.reads_v2:
                for number in _of_v2(event):
                    v2 += 1
                    first_v2 = event.offset(number) if first_v2 < 0 else first_v2
                    if len(topics) <= _NAMED:
                        topics.add(event.topic(number).decode("utf-8", "replace"))
            count, wrong = crc_faults_of(event, demand)
            have += count
            first_sealed = event.offset(0) if count and first_sealed < 0 else first_sealed
            if forced and wrong:
                faults += sum(one.records for one in wrong)
                first_fault = wrong[0].offset if first_fault < 0 else first_fault
            if progress is not None:
                progress(event.end - start, end - start)
    if v2:
        named = ", ".join(sorted(topics)[:_NAMED]) + (", …" if len(topics) > _NAMED else "")
        findings.add("record-v2", "log", _at(files.log, first_v2), f"{counted(v2, 'record')} from there on; {named}")
    if faults:
        detail = f"{counted(faults, 'record')} of {records:,} from there on"
        findings.add("record-crc-missing", "log", _at(files.log, first_fault), detail)
    if sealed and have:
        detail = f"{counted(have, 'record')} of {records:,} from there on"
        findings.add("record-crc", "log", _at(files.log, first_sealed), detail)


def _of_v2(batch: RecordBatch) -> Sequence[int]:
    """Numbers of the records with a topic length of 2 bytes."""
    import numpy as np

    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    places = batch.offsets() - batch.base + POSITION_MAGIC
    plain = np.ones(len(batch), dtype=np.bool_)
    for number, byte in enumerate(MAGIC_BYTES[0]):
        plain &= data[places + number] == byte
    numbers: list[int] = np.flatnonzero(~plain).tolist()
    return numbers


def _at(log: Sequence[Segment], offset: int) -> str:
    segment = next(one for one in log if one.offset <= offset < one.end)
    return place(segment.path, offset)
