"""What a record says outside of its body, judged: no CRC covers header, topic and properties.

A record that fails is *suspect*, not damaged: its body has its CRC, it stays readable, and nothing is cut for it. The
judges know what a broker can have written, and no more. A letter that became another letter passes.

Properties are `name \\x01 value`, joined by `\\x02`, one behind the last perhaps (MessageDecoder), and more of them
where a bridge made a record longer (engine.repair.bridge). Names hold no control characters; values hold tabs and line
ends, and no other. Values may be empty, names not. engine.log.judge_kernel is a fast lane before this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.format import sysflag
from engine.format.message import POSITION_SYS_FLAG, head_struct

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

SKEW_MS = 86_400_000
"""How far a client's clock may be ahead of the broker's: a day."""
STORED_MOST = 4_102_444_800_000
"""Store times lie before the year 2100 (ms)."""
QUEUE_ID_MOST = (1 << 16) - 1
RECONSUME_MOST = (1 << 16) - 1
PORT_MOST = (1 << 16) - 1
SYS_FLAG_KNOWN = 0x7FF
"""Source: MessageSysFlag, and the compression types of 4.9.8 and 5.x."""

_PIECE = rb"[^\x00-\x1f]+\x01[^\x00-\x08\x0b\x0c\x0e-\x1f]*"
_PROPERTIES = re.compile(rb"(?:" + _PIECE + rb"(?:\x02" + _PIECE + rb")*)?\x02*")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_HEADS = {(born, store): head_struct(born, store) for born in (False, True) for store in (False, True)}


def of_properties(raw: bytes) -> str | None:
    """Why a properties string is suspect; None when it is not."""
    if _PROPERTIES.fullmatch(raw):
        return None
    rest = raw.rstrip(b"\x02")
    for number, piece in enumerate(rest.split(b"\x02"), 1):
        name, found, value = piece.partition(b"\x01")
        if not found:
            return f"property {number} has no value: {_shown(piece)}"
        if not name or _CONTROL.search(name):
            return f"property {number} has an invalid name: {_shown(name)}"
        if not re.fullmatch(rb"[^\x00-\x08\x0b\x0c\x0e-\x1f]*", value):
            return f"property {_shown(name)} holds control characters: {_shown(value)}"
    return "properties are not separated as they are written"


def of_record(record: Buffer, topic: bytes, properties: bytes) -> str | None:
    """Why a sound record is suspect; None when it is not.

    Args:
        record: its bytes up to the body at least.
        topic: as stored.
        properties: the properties string as stored.
    """
    return _of_head(record, topic, properties) or of_properties(properties)


def _of_head(record: Buffer, topic: bytes, properties: bytes) -> str | None:
    flags = int.from_bytes(record[POSITION_SYS_FLAG : POSITION_SYS_FLAG + 4], "big", signed=True)
    head = _HEADS[bool(flags & sysflag.BORN_HOST_V6), bool(flags & sysflag.STORE_HOST_V6)]
    _, _, crc, queue_id, _, queue_offset, _, _, born, born_host, stored, behind, body_length = head.unpack_from(record)
    ports = [_signed(born_host[-4:]), _signed(behind[-16:-12])]
    reconsume, prepared = _signed(behind[-12:-8]), _signed(behind[-8:])
    if flags & ~SYS_FLAG_KNOWN:
        return f"sysFlag {flags & 0xFFFFFFFF:#x} has unknown bits"
    if not 0 <= queue_id <= QUEUE_ID_MOST:
        return f"queueId {queue_id} is out of range"
    if queue_offset < 0:
        return f"queueOffset {queue_offset} is negative"
    if not 0 < stored < STORED_MOST:
        return f"storeTimestamp {stored} is out of range"
    if not 0 <= born <= stored + SKEW_MS:
        return f"bornTimestamp {born} does not fit storeTimestamp {stored}"
    if not all(0 <= port <= PORT_MOST for port in ports):
        return f"a host's port is out of range: {ports[0]}, {ports[1]}"
    if not 0 <= reconsume <= RECONSUME_MOST:
        return f"reconsumeTimes {reconsume} is out of range"
    if prepared < 0:
        return f"preparedTransactionOffset {prepared} is negative"
    if body_length < 0:
        return f"the body's length {body_length} is negative"
    if body_length == 0 and crc:
        return f"an empty body has the CRC {crc:#x}"
    if _CONTROL.search(topic):
        return f"topic holds control characters: {_shown(topic)}"
    if not topic and (flags != sysflag.TRANSACTION_ROLLBACK or properties.strip(b"\x02")):
        return "topic is empty"
    return None


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _shown(raw: bytes) -> str:
    text = raw[:40].decode("utf-8", "replace")
    return ascii(text) + ("…" if len(raw) > 40 else "")
