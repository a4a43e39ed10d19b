"""What a record is: sound or not, and if it is, suspect or unusual. The one judge; kernels are fast lanes before it.

*Sound* is a record whose magic is a message's, whose lengths add up to totalSize, which fits into what is left of its
file, and (unless that is switched off) whose body has the CRC that it claims. Its physicalOffset is redundant: one that
differs from the place is reported beside an otherwise sound record, never taken for the place (RECOVERY.md, rules 3,
14, 15). `judge_record` says it, and of what is none, why. Fast lanes: engine.log.kernels.sound for kernels, and
`engine.format.message.decode` for a record that is plain; tests hold them to this module, field by field.

What a sound record says outside of its body is judged apart, as no CRC covers header, topic and properties.

Two grades. A *suspect* record says what no broker has written; an *unusual* one says what a client may well have sent,
and rot may look like, too: the bytes alone can't tell. Neither is damaged: the body has its CRC, the record stays
readable, and nothing is cut for it. The judges know what can have been written, and no more: a letter that became
another letter passes.

Properties are `name \\x01 value`, joined by `\\x02`, one after the last perhaps (MessageDecoder), and more of them
where a bridge made a record longer (engine.repair.recover.bridge). Values may be empty, names not.

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

`of_record` says it; engine.log.kernels.judge is its fast lane.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from engine.format import sysflag
from engine.format.hashing import CRC_MASK
from engine.format.names import TOPIC_MAX_LENGTH
from engine.format.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    LENGTHS_SIZE,
    LONG,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_SIZE,
    PORT_SIZE,
    PROPERTIES_LENGTH_SIZE,
    SHORT,
    SIZE_AND_MAGIC,
    TOPIC_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE_V2,
    V4_HEAD_SIZE,
    body_length_at,
    body_position,
    picked,
    store_timestamp_position,
    sys_flag_at,
    whole_head,
)

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_HEAD = picked(
    "total_size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp",
    "body_length",
)  # fmt: skip
_unpack_head = _HEAD.unpack_from
_unpack_short = SHORT.unpack_from
_made = tuple.__new__
"""A `Row` of its fields, without a call of its own __new__."""
_HOST_FLAGS = sysflag.HOSTS_V6_MASK


class Reason(enum.Enum):
    """Why a place in the log holds no sound record."""

    EMPTY = "nothing written here (zeros)"
    MAGIC = "no message magic"
    BLANK_LENGTH = "blank record does not end at the segment's end"
    SIZE = "invalid total size"
    LENGTHS = "lengths do not add up to the total size"
    CRC = "body CRC mismatch"
    CUT = "the file ends inside a record"
    ENTRY = "invalid header of a DLedger entry"
    UNREADABLE = "the system can't read it"


class Row(NamedTuple):
    """One sound record: positions in the buffer, sizes in bytes, storeTimestamp in ms."""

    position: int
    size: int
    queue_id: int
    queue_offset: int
    stored_offset: int
    sys_flag: int
    store_timestamp: int
    body_position: int
    body_length: int
    topic_position: int
    topic_length: int
    properties_position: int
    properties_length: int


class Stop(NamedTuple):
    """Where the walk ended (position in the buffer), and why.

    `more`: bytes from `position` on that the next record needs to be judged (0 when it ended for another reason).
    `blank`: length of the blank record there, 0 for none. `reason`: why it is no sound record; `detail`: with the
    numbers that it says.
    """

    position: int
    more: int = 0
    blank: int = 0
    reason: Reason | None = None
    detail: str = ""


def judge_record(  # noqa: PLR0912 - one rule after another on purpose: a call for each would double its time
    view: memoryview, at: int, room: int, check_crc: bool
) -> Row | Stop:
    """The sound record at position `at`, or what is there else.

    Args:
        view: bytes of the log (uint8).
        at: position of a record in it, 0 at least.
        room: position (may lie after the buffer's end) where the file ends.
        check_crc: whether the body is read.
    """
    size = len(view)
    if size - at < V4_HEAD_SIZE:
        return _at_the_end(view, at, room)
    total, magic, crc, queue_id, queue_offset, offset, flags, stored, body_length = _unpack_head(view, at)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        return _no_message(total, magic, at, room)
    if total < MIN_RECORD_SIZE or total > room - at:
        return _no_size(total, at, room)
    end = at + total
    body_at = at + V4_HEAD_SIZE
    if flags & _HOST_FLAGS:
        body_at = at + body_position(flags)
        if body_at + LENGTHS_SIZE > end:
            return Stop(at, reason=Reason.LENGTHS, detail=f"total size {total} is too small for the hosts")
        if body_at > size:
            return Stop(at, more=total)
        body_length = body_length_at(view, body_at)
        (stored,) = LONG.unpack_from(view, at + store_timestamp_position(flags))
    if body_length < 0:  # noqa: PLR1730 - Apache's reader takes it for 0 (CommitLog#calMsgLength); max() is slower
        body_length = 0
    length_at = body_at + body_length
    if length_at + LENGTHS_SIZE > end:
        return Stop(at, reason=Reason.LENGTHS, detail=f"invalid body length {body_length} in a record of {total} bytes")
    if length_at + TOPIC_LENGTH_SIZE_V2 > size:
        return Stop(at, more=total)
    if magic == MESSAGE_MAGIC:
        topic_at = length_at + TOPIC_LENGTH_SIZE
        topic_length = view[length_at]
        if topic_length > TOPIC_MAX_LENGTH:
            return _no_topic(at, topic_length - 256, total)  # the byte is signed
    else:
        topic_at = length_at + TOPIC_LENGTH_SIZE_V2
        (topic_length,) = _unpack_short(view, length_at)
        if topic_length < 0:
            return _no_topic(at, topic_length, total)
    properties_at = topic_at + topic_length + PROPERTIES_LENGTH_SIZE
    if properties_at > end:
        return _no_topic(at, topic_length, total)
    if properties_at > size:
        return Stop(at, more=total)
    (properties_length,) = _unpack_short(view, properties_at - PROPERTIES_LENGTH_SIZE)
    if properties_length < 0:  # noqa: PLR1730 - as above
        properties_length = 0
    if properties_at + properties_length != end:
        added = properties_at + properties_length - at
        return Stop(at, reason=Reason.LENGTHS, detail=f"lengths add up to {added}, totalSize is {total}")
    if end > size:
        return Stop(at, more=total)
    if check_crc and body_length and crc32(view[body_at:length_at]) & CRC_MASK != crc:
        return Stop(at, reason=Reason.CRC)
    return _made(
        Row,
        (
            at, total, queue_id, queue_offset, offset, flags, stored,
            body_at, body_length, topic_at, topic_length, properties_at, properties_length,
        ),
    )  # fmt: skip


def _no_topic(at: int, length: int, total: int) -> Stop:
    return Stop(at, reason=Reason.LENGTHS, detail=f"invalid topic length {length} in a record of {total} bytes")


def _no_size(total: int, at: int, room: int) -> Stop:
    return Stop(at, reason=Reason.SIZE, detail=f"invalid total size {total}: {room - at} bytes are left")


def _at_the_end(view: memoryview, at: int, room: int) -> Stop:
    """Fewer bytes than a record's head are in the buffer: a blank record may fit, or more must be read."""
    left = len(view) - at
    if left < BLANK_SIZE:
        return Stop(at, more=BLANK_SIZE) if room - at >= BLANK_SIZE else Stop(at, reason=Reason.CUT)
    total, magic = SIZE_AND_MAGIC.unpack_from(view, at)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        return _no_message(total, magic, at, room)
    if total < MIN_RECORD_SIZE or total > room - at:
        return _no_size(total, at, room)
    return Stop(at, more=total)


def _no_message(total: int, magic: int, at: int, room: int) -> Stop:
    detail = f"no message magic: 0x{magic:08X}"
    if magic == BLANK_MAGIC:
        ends = total == room - at
        return Stop(at, blank=total, detail=detail) if ends else Stop(at, reason=Reason.BLANK_LENGTH, detail=detail)
    return Stop(at, reason=Reason.EMPTY if total == 0 and magic == 0 else Reason.MAGIC, detail=detail)


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
        name, separator, value = piece.partition(b"\x01")
        if not separator:
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
    verdict = of_properties(properties)
    return head if verdict is None or (verdict.unusual and head is not None) else verdict


def _of_head(record: Buffer, topic: bytes, properties: bytes) -> Verdict | None:
    flags = sys_flag_at(record)
    (
        _, _, crc, queue_id, _, queue_offset, _, _, born, born_host, stored, store_host, reconsume, prepared,
        body_length,
    ) = whole_head(flags).unpack_from(record)  # fmt: skip
    ports = [_signed(host[-PORT_SIZE:]) for host in (born_host, store_host)]
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
