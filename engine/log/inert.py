"""What a bridge (engine.repair.bridge) wrote over lost messages, told by the log itself: manifests can go away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format.message import (
    BLANK_SIZE,
    INERT_TOPIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_SIZE,
    POSITION_MAGIC,
)

if TYPE_CHECKING:
    from engine.log.batch import RecordBatch
    from engine.log.scan import Blank
    from engine.log.source import LogSource

_TOPIC = INERT_TOPIC.encode()
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)


def inert_in(batch: RecordBatch) -> list[int]:
    """The inert records of a batch, as places in it: rolled back, their topic `INERT_TOPIC` or its beginning, no
    properties, a body of zeros (engine.format.message.encode_inert). No broker writes such a record.
    """
    return [
        i
        for i in batch.rolled_back()
        if _TOPIC.startswith(batch.topic(i)) and not batch.properties(i) and not any(batch.body(i))
    ]


def may_hold_lost(source: LogSource, blank: Blank) -> bool:
    """Whether messages may have been lost where a file's blank record is: the next file's first record had had room.

    A broker closes a file because the next message does not fit, and that message begins the next file
    (CommitLog.DefaultAppendMessageCallback#doAppend). Of a batch only the first record shows, and of a file that is
    missing or damaged nothing: then it may be.
    """
    if blank.length < MIN_RECORD_SIZE:
        return False
    try:
        head = source.read(blank.end, POSITION_MAGIC + 4)
    except StorageError:
        return True
    size, magic = (int.from_bytes(head[at : at + 4], "big") for at in (0, POSITION_MAGIC))
    return magic not in _MAGICS or size + BLANK_SIZE <= blank.length
