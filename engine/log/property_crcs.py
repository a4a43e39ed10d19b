"""Sound records whose property CRC (engine.format.property_crc) is not theirs, or is missing, found in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.format import property_crc
from engine.format.judge import Row, judge_record
from engine.format.property_crc import CrcDemand, CrcState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.log.batch import RecordBatch
    from engine.log.scan import Scanner
    from engine.log.source import LogSource

MISMATCH = "property CRC mismatch"
MISSING = "no property CRC, which forceVerifyPropCRC=true demands"
CLIENTS = f"a property {property_crc.NAME} that is not the record's CRC; the record after it has none"
_NEAR = 16
"""Records after a mismatch that are asked whether they have a property CRC."""


class CrcFault(NamedTuple):
    """Physical offset and size (bytes) of a record whose property CRC is not its own; `missing`: a range of records
    that have none, where all must have one.
    """

    offset: int
    size: int
    records: int = 1
    missing: bool = False


def crc_faults_of(batch: RecordBatch, demand: CrcDemand) -> tuple[int, tuple[CrcFault, ...]]:
    """How many records of a batch have a property CRC; the faults. By a kernel, where the batch was read by one."""
    if demand is CrcDemand.NOTHING:
        return 0, ()
    if batch.table is None:
        return _plain(batch, demand)
    import numpy as np

    from engine.log.kernels.property_crc import FAULT_FIELDS, crc_faults

    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    data.flags.writeable = False  # one kind of array: one kernel
    table = np.ascontiguousarray(batch.table)
    room = np.empty((0, FAULT_FIELDS), dtype=np.int64)
    have, count = crc_faults(data, table, batch.base, int(demand), room)
    if count:
        room = np.empty((count, FAULT_FIELDS), dtype=np.int64)
        crc_faults(data, table, batch.base, int(demand), room)
    return have, faults_in(room.tolist())


def _plain(batch: RecordBatch, demand: CrcDemand) -> tuple[int, tuple[CrcFault, ...]]:
    have = 0
    faults: list[CrcFault] = []
    for i, row in enumerate(batch.rows):
        state = property_crc.state_of(batch.record(i), row.properties_length)
        have += state is not CrcState.NONE
        if state is CrcState.MISMATCH:
            faults.append(CrcFault(batch.offset(i), row.size))
        elif state is CrcState.NONE and demand is CrcDemand.OF_ALL:
            add_faults(faults, [CrcFault(batch.offset(i), row.size, 1, True)])
    return have, tuple(faults)


def faults_in(table: Iterable[list[int]]) -> tuple[CrcFault, ...]:
    """The faults in the rows of a kernel's table."""
    return tuple(CrcFault(offset, size, records, bool(missing)) for offset, size, records, missing in table)


def add_faults(faults: list[CrcFault], more: Iterable[CrcFault]) -> None:
    """Add what follows in the log: ranges without a property CRC that meet become one."""
    for one in more:
        last = faults[-1] if faults else None
        if last is not None and last.missing and one.missing and last.offset + last.size == one.offset:
            faults[-1] = CrcFault(last.offset, last.size + one.size, last.records + one.records, True)
        else:
            faults.append(one)


class CrcJudge:
    """Says what a fault is.

    A broker writes property CRCs or doesn't, from its start to its end. So where the record after a wrong one has none,
    it may be a property of that name that a client sent to a broker without (or the last record before such a start).
    Several of them side by side are of one kind.

    Args:
        scanner: by which records are read again.
        log: what it scans.
        demand: which records are judged.
        live: another process writes the log: a record may have been read before it was whole.
    """

    def __init__(self, scanner: Scanner, log: LogSource, demand: CrcDemand, *, live: bool = False) -> None:
        self._scanner = scanner
        self._log = log
        self._demand = demand
        self._live = live

    def verdicts(self, faults: Sequence[CrcFault]) -> list[str]:
        """Of faults in log order: MISMATCH, MISSING, CLIENTS, or nothing: it is right by now."""
        verdicts: list[str] = []
        later = ""  # of the mismatch that lies right after it
        after = -1
        for fault in reversed(faults):
            if self._live and fault.records == 1 and self._look(fault.offset)[1] is CrcState.RIGHT:
                verdict = ""
            elif fault.missing:
                verdict = MISSING
            elif self._demand is CrcDemand.OF_ALL:
                verdict = MISMATCH
            elif later and fault.offset + fault.size == after:
                verdict = later
            else:
                verdict = CLIENTS if self._is_clients(fault) else MISMATCH
            later, after = "" if fault.missing else verdict, fault.offset
            verdicts.append(verdict)
        return verdicts[::-1]

    def _is_clients(self, fault: CrcFault) -> bool:
        end = fault.offset + fault.size
        for _ in range(_NEAR):
            after = self._scanner.find_sound(end)
            if after is None:
                break
            size, state = self._look(after)
            if state is not CrcState.MISMATCH:
                return state is CrcState.NONE
            end = after + size
        return False

    def _look(self, offset: int) -> tuple[int, CrcState]:
        """Size of the sound record at a physical offset (0: there is none), and whether its property CRC is right."""
        size = self._scanner.sound_size(offset)
        record = memoryview(self._log.read(offset, size))
        row = judge_record(record, 0, size, False) if size else None
        if not isinstance(row, Row):
            return 0, CrcState.NONE
        return size, property_crc.state_of(record, row.properties_length)
