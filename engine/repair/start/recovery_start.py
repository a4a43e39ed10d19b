"""From which segment of the log a start's recovery reads, by the rules of its release.

Source: CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover (5.3.3, 5.4.0, 5.5.0),
ConsumeQueueStore#isMappedFileMatchedRecover, IndexService#isMappedFileMatchedRecover (5.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.property_crc import CrcDemand
from engine.format.record import MESSAGE_MAGIC, MESSAGE_MAGIC_V2, SIZE_AND_MAGIC
from engine.inspect.store.log_clock import store_time_at
from engine.inspect.store.newer import is_true
from engine.inspect.store.release import queues_offset
from engine.log.property_crcs import crc_faults_of
from engine.log.scan import RecordBatch
from engine.log.state import NORMAL_FILES
from engine.repair.recover.log_end import Mode
from engine.repair.start.rules import AbnormalStart, NormalStart

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.scan import Scanner
    from engine.log.source import ClosedLog, Segment
    from engine.repair.start.rules import StartRules

_MOST_FILES = "commitLogRecoverMaxNum"


@dataclass(frozen=True, slots=True)
class _First:
    """The first record of a segment: the physical offset that it says itself, and its store time (ms)."""

    offset: int
    time: int


def first_segment(
    disk: Disk, files: StoreFiles, log: ClosedLog, scanner: Scanner, rules: StartRules, mode: Mode, known: int
) -> Segment:
    """The segment from which recovery reads. `known`: the queues' greatest physical offset."""
    if mode is Mode.NORMAL:
        return _normal(files, scanner, rules, known)
    if rules.abnormal_start is AbnormalStart.CHECKPOINT_TIMES:
        return _by_time(files, log, rules)
    point = files.checkpoint
    if rules.abnormal_start is AbnormalStart.CHECKPOINT_TIMES_JUDGED:
        limit = point.min_timestamp
        return _judged(files, scanner, rules, lambda first: first.time <= limit, least=-1)
    place = queues_offset(disk, files.root)
    if place > 0:
        return _judged(files, scanner, rules, lambda first: first.offset <= place, least=-1)
    return _judged(files, scanner, rules, lambda first: first.time <= point.logics_msg_timestamp, least=-1)


def _normal(files: StoreFiles, scanner: Scanner, rules: StartRules, known: int) -> Segment:
    if rules.normal_start is NormalStart.THIRD_LAST:
        return files.log[max(0, len(files.log) - NORMAL_FILES)]
    if rules.normal_start is NormalStart.QUEUES_END:
        before = [segment for segment in files.log if segment.offset <= known]
        return before[-1] if before else files.log[0]
    return _judged(files, scanner, rules, lambda first: first.offset <= known, least=0)


def _by_time(files: StoreFiles, log: ClosedLog, rules: StartRules) -> Segment:
    point = files.checkpoint
    limit = point.min_timestamp_index if _index_is_safe(files.config) else point.min_timestamp
    magics = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) if rules.reads_v2 else (MESSAGE_MAGIC,)
    for segment in reversed(files.log):
        head = bytes(log.read(segment.offset, SIZE_AND_MAGIC.size))
        stored = store_time_at(log, segment.offset)
        if stored and stored <= limit and SIZE_AND_MAGIC.unpack(head)[1] in magics:
            return segment
    return files.log[0]


def _judged(
    files: StoreFiles, scanner: Scanner, rules: StartRules, is_old: Callable[[_First], bool], *, least: int
) -> Segment:
    """The last segment whose first record is sound and old enough, of those that recovery looks back at.

    `least`: the number of the segment that is taken unasked, where no later one is; −1: the first one is asked, too.
    """
    given = files.config.other.get(_MOST_FILES, "").strip()
    left = int(given) if given.isdecimal() and int(given) else rules.most_files or len(files.log)
    safe = _index_is_safe(files.config)
    for number in range(len(files.log) - 1, least, -1):
        left -= 1
        first = _first_record(files, scanner, files.log[number])
        old = first is not None and is_old(first)
        old = old and not (safe and first is not None and first.time > files.checkpoint.index_msg_timestamp)
        if old or left <= 0:
            return files.log[number]
    return files.log[0]


def _first_record(files: StoreFiles, scanner: Scanner, segment: Segment) -> _First | None:
    """None: no sound record begins the segment, or it has no store time."""
    for event in scanner.scan(segment.offset, segment.end):
        if not isinstance(event, RecordBatch) or event.start != segment.offset:
            return None
        one = event.first(1)
        forced = files.config.check_crc_on_recover and is_true(files.config, "forceVerifyPropCRC")
        if forced and crc_faults_of(one, CrcDemand.OF_ALL)[1]:
            return None
        time = int(one.store_timestamps()[0])
        return _First(int(one.stored_offsets()[0]), time) if time else None
    return None


def _index_is_safe(config: StoreConfig) -> bool:
    return config.message_index_enable and config.message_index_safe
