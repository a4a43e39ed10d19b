"""What a record says outside of its body, judged: no CRC covers header, topic and properties.

Two grades. A *suspect* record says what no broker has written; an *unusual* one says what a client may well have sent,
and rot may look like, too: the bytes alone can't tell. Neither is damaged: the body has its CRC, the record stays
readable, and nothing is cut for it. The judges know what can have been written, and no more: a letter that became
another letter passes.

Properties are `name \\x01 value`, joined by `\\x02`, one behind the last perhaps (MessageDecoder), and more of them
where a bridge made a record longer (engine.repair.bridge). Values may be empty, names not.

What Apache 4.9.8 refuses, and what it takes:

- Topics: letters, digits, `%`, `|`, `-`, `_` (TopicValidator#isTopicOrGroupIllegal, asked by the client's Validators
  and by AbstractSendMessageProcessor#msgCheck). A control character is suspect; others pass, the judge is no broker.
- Properties are not looked at (Message#putUserProperty refuses what is blank, no more). A broker takes them apart and
  joins them again (string2messageProperties, messageProperties2String), so that each has a name and a `\\x01`, and any
  other character may be in a name, and in a value a further `\\x01`, too. So broken framing is suspect; control
  characters are unusual, but for tabs and line ends in values. NUL is suspect, though a client could send it: it is
  what lost pages are read as.
- bornTimestamp is the client's (SendMessageRequestHeader) and taken as it is: ahead of the store time it is unusual,
  outside of all that a clock says suspect.
- What the broker fills in itself (offsets, store time, hosts, from sockets with their ports) is suspect out of range,
  as are sysFlag bits and counts that no client knows of.

engine.log.kernels.judge is a fast lane before this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from engine.format import sysflag
from engine.format.message import POSITION_SYS_FLAG, head_struct

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

SKEW_MS = 86_400_000
"""How far a client's clock is ahead of the broker's at most: a day."""
STORED_MOST = 4_102_444_800_000
"""Store times lie before the year 2100 (ms)."""
BORN_MOST = STORED_MOST + SKEW_MS
QUEUE_ID_MOST = (1 << 16) - 1
RECONSUME_MOST = (1 << 16) - 1
PORT_MOST = (1 << 16) - 1
SYS_FLAG_KNOWN = 0x7FF
"""Source: MessageSysFlag, and the compression types of 4.9.8 and 5.x."""

_PIECE = rb"[^\x00-\x1f]+\x01[^\x00-\x08\x0b\x0c\x0e-\x1f]*"
_PROPERTIES = re.compile(rb"(?:" + _PIECE + rb"(?:\x02" + _PIECE + rb")*)?\x02*")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_CONTROL_IN_VALUE = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_HEADS = {(born, store): head_struct(born, store) for born in (False, True) for store in (False, True)}


class Verdict(NamedTuple):
    """Why a record is suspect, or unusual."""

    reason: str
    unusual: bool = False


def of_properties(raw: bytes) -> Verdict | None:
    """What is wrong with a properties string, or unusual; None when nothing is."""
    if _PROPERTIES.fullmatch(raw):
        return None
    unusual: Verdict | None = None
    for number, piece in enumerate(raw.rstrip(b"\x02").split(b"\x02"), 1):
        name, found, value = piece.partition(b"\x01")
        if not found:
            return Verdict(f"property {number} has no value: {_shown(piece)}")
        if not name or b"\0" in name:
            return Verdict(f"property {number} has an invalid name: {_shown(name)}")
        if b"\0" in value:
            return Verdict(f"property {_shown(name)} holds zero bytes: {_shown(value)}")
        if unusual is None and _CONTROL.search(name):
            unusual = Verdict(f"the name of property {number} holds control characters: {_shown(name)}", True)
        if unusual is None and _CONTROL_IN_VALUE.search(value):
            unusual = Verdict(f"property {_shown(name)} holds control characters: {_shown(value)}", True)
    assert unusual is not None  # else the pattern had matched
    return unusual


def of_record(record: Buffer, topic: bytes, properties: bytes) -> Verdict | None:
    """What makes a sound record suspect, or else unusual; None when nothing does.

    Args:
        record: its bytes up to the body at least.
        topic: as stored.
        properties: the properties string as stored.
    """
    head = _of_head(record, topic, properties)
    if head is not None and not head.unusual:
        return head
    found = of_properties(properties)
    return head if found is None or (found.unusual and head is not None) else found


def _of_head(record: Buffer, topic: bytes, properties: bytes) -> Verdict | None:
    flags = int.from_bytes(record[POSITION_SYS_FLAG : POSITION_SYS_FLAG + 4], "big", signed=True)
    head = _HEADS[bool(flags & sysflag.BORN_HOST_V6), bool(flags & sysflag.STORE_HOST_V6)]
    _, _, crc, queue_id, _, queue_offset, _, _, born, born_host, stored, behind, body_length = head.unpack_from(record)
    ports = [_signed(born_host[-4:]), _signed(behind[-16:-12])]
    reconsume, prepared = _signed(behind[-12:-8]), _signed(behind[-8:])
    if flags & ~SYS_FLAG_KNOWN:
        return Verdict(f"sysFlag {flags & 0xFFFFFFFF:#x} has unknown bits")
    if not 0 <= queue_id <= QUEUE_ID_MOST:
        return Verdict(f"queueId {queue_id} is out of range")
    if queue_offset < 0:
        return Verdict(f"queueOffset {queue_offset} is negative")
    if not 0 < stored < STORED_MOST:
        return Verdict(f"storeTimestamp {stored} is out of range")
    if not 0 <= born < BORN_MOST:
        return Verdict(f"bornTimestamp {born} is out of range")
    if not all(0 <= port <= PORT_MOST for port in ports):
        return Verdict(f"a host's port is out of range: {ports[0]}, {ports[1]}")
    if not 0 <= reconsume <= RECONSUME_MOST:
        return Verdict(f"reconsumeTimes {reconsume} is out of range")
    if prepared < 0:
        return Verdict(f"preparedTransactionOffset {prepared} is negative")
    if body_length < 0:
        return Verdict(f"the body's length {body_length} is negative")
    if body_length == 0 and crc:
        return Verdict(f"an empty body has the CRC {crc:#x}")
    if _CONTROL.search(topic):
        return Verdict(f"topic holds control characters: {_shown(topic)}")
    if not topic and (flags != sysflag.TRANSACTION_ROLLBACK or properties.strip(b"\x02")):
        return Verdict("topic is empty")
    ahead = born > stored + SKEW_MS
    return Verdict(f"bornTimestamp {born} is ahead of storeTimestamp {stored}", True) if ahead else None


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _shown(raw: bytes) -> str:
    text = raw[:40].decode("utf-8", "replace")
    return ascii(text) + ("…" if len(raw) > 40 else "")
