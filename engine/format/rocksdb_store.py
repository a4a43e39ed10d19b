"""What a broker of RocketMQ 5.4 and later keeps in `rocksdbstore/` (FORMAT.md "Timer messages, half messages and index
entries in RocksDB"), big-endian.

Column family `default`, an entry a word of a message: key `hour i64, "@", topic, "@", kind, "@", word, "@", [uniqKey,
"@",] physicalOffset i64`, value `storeTimestamp i64`. Column family `timer`, one a message that waits: key `dueTime
i64, uniqKey`, value `size i32, physicalOffset i64`. Column family `trans`, one a half message that is not ended: key
`physicalOffset i64, "@", topic, "@", uniqKey`, value `checkTimes i32, size i32`. Beside them a few keys with a number
each, which say how far the family is.

Source: IndexRocksDBRecord, TimerRocksDBRecord, TransRocksDBRecord #getKeyBytes, #getValueBytes, MessageRocksDBStorage
(5.4.0, 5.5.0).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

INDEX, TIMER, TRANSACTIONS = "default", "timer", "trans"
"""The column families. Source: MessageRocksDBStorage."""
PROGRESS: Final = {
    INDEX: (b"lastOffsetPy", b"lastStoreTimeStamp"),
    TIMER: (b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"),
    TRANSACTIONS: (b"lastOffsetPy",),
}
"""Keys of a family that say how far it is. Source: MessageRocksDBStorage."""
BY_KEY, BY_TAG, BY_UNIQ_KEY = "K", "T", "U"
"""Kinds of index entries. Source: MessageConst#INDEX_KEY_TYPE, INDEX_TAG_TYPE, INDEX_UNIQUE_TYPE."""

_LONG: Final = struct.Struct(">q")
_TIMER_VALUE: Final = struct.Struct(">iq")
_HALF_VALUE: Final = struct.Struct(">ii")
_BETWEEN = "@"


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """One entry of the index: `word` (a key, a tag, or the UNIQ_KEY, by `kind`) and where the message lies.

    `hour`: the hour that it was stored in, `store_timestamp`: when exactly (ms); `uniq_key`: of the message.
    """

    hour: int
    topic: str
    kind: str
    word: str
    uniq_key: str
    physical_offset: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """One timer message: when it is due (ms), and where it lies (bytes)."""

    due_time: int
    uniq_key: str
    physical_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class HalfEntry:
    """One half message whose transaction has no end: where it lies (bytes), and how often its producer was asked."""

    physical_offset: int
    topic: str
    uniq_key: str
    check_times: int
    size: int


@dataclass(frozen=True, slots=True)
class FamilyProgress:
    """How far a family is: `value` is an offset (bytes in the log, messages of the timer's topic) or a time (ms)."""

    name: str
    value: int


StoreEntry = KeyedEntry | WaitingEntry | HalfEntry | FamilyProgress


def decode(family: str, key: Buffer, value: Buffer) -> StoreEntry | None:
    """What a key of a family and its value say; None: a family that is not known.

    Raises FormatError: none that a broker reads.
    """
    if family not in PROGRESS:
        return None
    if bytes(key) in PROGRESS[family]:
        return FamilyProgress(bytes(key).decode(), _number(value))
    if family == INDEX:
        return _keyed(bytes(key), value)
    if family == TIMER:
        return _waiting(bytes(key), value)
    return _half(bytes(key), value)


def _keyed(key: bytes, value: Buffer) -> KeyedEntry:
    middle = _text(key[_LONG.size : -_LONG.size], key)
    parts = middle.split(_BETWEEN, 3)
    if len(key) < 2 * _LONG.size or len(parts) < 4 or parts[0] or not middle.endswith(_BETWEEN):
        raise FormatError(f"invalid key of an index entry: {_shown(key)}")
    _, topic, kind, rest = parts
    word, _, uniq_key = rest[:-1].rpartition(_BETWEEN) if kind != BY_UNIQ_KEY else (rest[:-1], "", rest[:-1])
    hour, physical_offset = _LONG.unpack_from(key)[0], _LONG.unpack_from(key, len(key) - _LONG.size)[0]
    wrong = hour <= 0 or physical_offset < 0 or kind not in (BY_KEY, BY_TAG, BY_UNIQ_KEY)
    if wrong or not topic or not word or not uniq_key:
        raise FormatError(f"invalid key of an index entry: {_shown(key)}")
    return KeyedEntry(hour, topic, kind, word, uniq_key, physical_offset, _number(value))


def _waiting(key: bytes, value: Buffer) -> WaitingEntry:
    if len(key) <= _LONG.size:
        raise FormatError(f"invalid key of a timer message: {_shown(key)}")
    if len(value) != _TIMER_VALUE.size:
        raise FormatError(f"a timer message has a value of {_TIMER_VALUE.size} bytes, this one has {len(value)}")
    (due_time,), (size, physical_offset) = _LONG.unpack_from(key), _TIMER_VALUE.unpack(value)
    if due_time <= 0 or size <= 0 or physical_offset < 0:
        raise FormatError(f"invalid timer message: at {physical_offset}, size {size}, due at {due_time}")
    return WaitingEntry(due_time, _text(key[_LONG.size :], key), physical_offset, size)


def _half(key: bytes, value: Buffer) -> HalfEntry:
    parts = _text(key[_LONG.size :], key).split(_BETWEEN)
    if len(parts) != 3 or parts[0] or not parts[1] or not parts[2]:
        raise FormatError(f"invalid key of a half message: {_shown(key)}")
    if len(value) != _HALF_VALUE.size:
        raise FormatError(f"a half message has a value of {_HALF_VALUE.size} bytes, this one has {len(value)}")
    (physical_offset,), (check_times, size) = _LONG.unpack_from(key), _HALF_VALUE.unpack(value)
    if physical_offset < 0 or check_times < 0 or size <= 0:
        raise FormatError(f"invalid half message: at {physical_offset}, size {size}, check times {check_times}")
    return HalfEntry(physical_offset, parts[1], parts[2], check_times, size)


def _number(value: Buffer) -> int:
    if len(value) != _LONG.size:
        raise FormatError(f"a number has {_LONG.size} bytes, this value has {len(value)}")
    (number,) = _LONG.unpack(value)
    return int(number)


def _text(data: bytes, key: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"invalid key: {_shown(key)}") from error


def _shown(key: bytes) -> str:
    return key[:64].hex() + ("…" if len(key) > 64 else "")
