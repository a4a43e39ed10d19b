"""What a bridge (engine.repair.recover.bridge) wrote over lost messages, known from the log: manifests can go away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format import property_crc
from engine.format.message import INERT_TOPIC, encode_blank
from engine.format.record import BLANK_SIZE

if TYPE_CHECKING:
    from engine.log.batch import RecordBatch
    from engine.log.scan import Blank
    from engine.log.source import LogSource

_TOPIC = INERT_TOPIC.encode()


def inert_in(batch: RecordBatch) -> list[int]:
    """The inert records of a batch, as places in it: rolled back, their topic `INERT_TOPIC` or its beginning, no
    properties but a property CRC, a body of zeros (engine.format.message.encode_inert). No broker writes such a record.
    """
    return [
        i
        for i in batch.rolled_back()
        if _TOPIC.startswith(batch.topic(i)) and _has_none_but_crc(batch, i) and not any(batch.body(i))
    ]


def _has_none_but_crc(batch: RecordBatch, i: int) -> bool:
    length = len(batch.properties(i))
    return not length or (length == property_crc.SIZE and property_crc.is_sealed(batch.record(i)))


def encode_lost_end(length: int) -> bytes:
    """The beginning of a blank record over lost messages that lie up to a file's end, `length` bytes in all.

    Every reader steps over what is after its 8 bytes. No index entry of a lost message leads there: none is as short.
    """
    return (encode_blank(length) + _TOPIC)[:length]


def is_lost_end(source: LogSource, blank: Blank) -> bool:
    """Whether a bridge wrote a file's blank record: a broker writes nothing after its 8 bytes.

    How much is left of the file proves nothing: of a batch, which has to fit as a whole, the first record alone may be
    short (CommitLog.DefaultAppendMessageCallback#doAppend). In doubt, where it can't be read, it is.
    """
    try:
        return bytes(source.read(blank.offset + BLANK_SIZE, len(_TOPIC))) == _TOPIC
    except StorageError:
        return True
