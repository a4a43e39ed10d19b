"""The walk of engine.log.walk where each record is the body of a DLedger entry (engine.format.dledger_entry).

An entry is sound when its header is and its body is one sound record, no more. Where a header is damaged, the record
after it may be sound all the same: the scan continues there, and takes this one without its header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.dledger_entry import HEAD_SIZE, judge_entry
from engine.format.judge import Reason, Row, Stop, judge_record
from engine.format.record import BLANK_SIZE, MAGICS, SIZE_AND_MAGIC

if TYPE_CHECKING:
    from engine.format.buffers import Buffer


def is_bare(view: Buffer, at: int) -> bool:
    """Whether a record begins at a position, and not an entry. Where an entry has its size, a record has its magic,
    which is no size. Source: DLedgerCommitLog#checkMessageAndReturnSize.
    """
    return len(view) - at >= BLANK_SIZE and SIZE_AND_MAGIC.unpack_from(view, at)[1] in MAGICS


def walk_entries(
    buffer: Buffer,
    start: int,
    room: int,
    base: int,
    rows: list[Row],
    *,
    check_crc: bool = True,
    bare: bool = False,
    max_rows: int = 1 << 30,
) -> Stop:
    """As `engine.log.walk.walk`; a `Row` tells of the record, its `Stop` of the entry.

    Args:
        buffer: bytes of the log.
        start: position of an entry in it.
        room: position (may lie after the buffer's end) where the file ends.
        base: physical offset of the buffer's first byte.
        rows: gets the records.
        check_crc: whether bodies are read.
        bare: whether a record without its header may stand at `start`.
        max_rows: stop after as many.
    """
    view = memoryview(buffer)
    at = start
    for _ in range(max_rows):
        if bare and is_bare(view, at):
            record = judge_record(view, at, room, check_crc)
            if isinstance(record, Stop):
                return record
            rows.append(record)
            at += record.size
            bare = False
            continue
        judged = judge_entry(view, at, room, base + at)
        if isinstance(judged, Stop):
            return judged
        if judged > HEAD_SIZE:
            end = at + judged
            record = judge_record(view[:end], at + HEAD_SIZE, end, check_crc)
            if isinstance(record, Stop):
                return Stop(at, reason=record.reason or Reason.LENGTHS, detail=record.detail)
            if record.position + record.size != end:
                size = record.size
                return Stop(at, reason=Reason.LENGTHS, detail=f"an entry of {judged} bytes has a record of {size}")
            rows.append(record)
        at += judged
    return Stop(at)
