"""The inner loop of the scanner: follow the chain of records through one buffer, as engine.format.judge finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.judge import Row, Stop, judge_record

if TYPE_CHECKING:
    from engine.format.buffers import Buffer


def walk(
    buffer: Buffer, start: int, room: int, rows: list[Row], *, check_crc: bool = True, max_rows: int = 1 << 30
) -> Stop:
    """Append a `Row` to `rows` for each sound record from `start` on, until something else comes.

    Args:
        buffer: bytes of the log.
        start: position of a record in it.
        room: position (may lie after the buffer's end) where the file ends.
        rows: gets the records.
        check_crc: whether bodies are read.
        max_rows: stop after as many (`more` is then 0, `reason` None, `blank` 0).
    """
    view = memoryview(buffer)
    add = rows.append
    at = start
    for _ in range(max_rows):
        judged = judge_record(view, at, room, check_crc)
        if isinstance(judged, Stop):
            return judged
        add(judged)
        at = judged.position + judged.size
    return Stop(at)
