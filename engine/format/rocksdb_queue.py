"""What RocketMQ 5 keeps of consume queues in RocksDB (FORMAT.md "Consume queues in RocksDB"), big-endian.

Column family `default`, a unit a message: key `topicLength i32, 0x01, topic, 0x01, queueId i32, 0x01, queueOffset i64`,
value `physicalOffset i64, size i32, tagsCode i64, storeTimestamp i64`. Keys of one queue are in the order of its queue
offsets. Column family `offset`, two a queue at most: key `topicLength i32, 0x01, topic, 0x01, "max" or "min", 0x01,
queueId i32`, value `physicalOffset i64, queueOffset i64`; the one of CHECKPOINT_TOPIC has a physical offset alone.

Source: RocksDBConsumeQueueTable#buildCQKeyByteBuffer0, #buildCQValueByteBuffer0,
RocksDBConsumeQueueOffsetTable (5.3.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

UNITS, OFFSETS = "default", "offset"
"""The column families. Source: ConsumeQueueRocksDBStorage#OFFSET_COLUMN_FAMILY."""
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
"""Under this topic the end of the last record that has its units.

Source: TopicValidator#RMQ_SYS_ROCKSDB_OFFSET_TOPIC.
"""
ROCKSDB_UNIT_SIZE = 28
ROCKSDB_UNIT_FIELDS = [
    ("physical_offset", ">i8"),
    ("size", ">i4"),
    ("tags_code", ">i8"),
    ("store_timestamp", ">i8"),
]
_UNIT: Final = struct.Struct(">qiqq")
assert _UNIT.size == ROCKSDB_UNIT_SIZE
_LENGTH: Final = struct.Struct(">i")
_QUEUE_ID: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">qq")
_BETWEEN = b"\x01"
"""Source: AbstractRocksDBStorage#CTRL_1."""
_MAX, _MIN = b"max", b"min"
KEY_SIZE = 4 + 1 + 1 + 4 + 1 + 8
"""Bytes of a unit's key beside the topic."""


@dataclass(frozen=True, slots=True)
class RocksDBUnit:
    """One unit: where its record lies (physical offset, bytes), hash of its tags, and when it was stored (ms)."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int

    def encode(self) -> bytes:
        """The 28 bytes."""
        return _UNIT.pack(self.physical_offset, self.size, self.tags_code, self.store_timestamp)


@dataclass(frozen=True, slots=True)
class UnitKey:
    """Whose unit it is. `topic`: its bytes."""

    topic: bytes
    queue_id: int
    queue_offset: int

    def encode(self) -> bytes:
        """The key."""
        return queue_key(self.topic, self.queue_id) + _OFFSET.pack(self.queue_offset)


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Whose end it is: that of the last message (`is_max`), or of the first one."""

    topic: bytes
    queue_id: int
    is_max: bool

    def encode(self) -> bytes:
        """The key."""
        topic = _LENGTH.pack(len(self.topic)) + _BETWEEN + self.topic
        return topic + _BETWEEN + (_MAX if self.is_max else _MIN) + _BETWEEN + _QUEUE_ID.pack(self.queue_id)


def queue_key(topic: bytes, queue_id: int) -> bytes:
    """What the keys of a queue's units begin with."""
    return _LENGTH.pack(len(topic)) + _BETWEEN + topic + _BETWEEN + _QUEUE_ID.pack(queue_id) + _BETWEEN


def last_key(topic: bytes, queue_id: int) -> bytes:
    """The greatest key that a unit of a queue may have."""
    return queue_key(topic, queue_id) + _OFFSET.pack(LONG_MAX)


def decode_unit_key(key: Buffer) -> UnitKey:
    """Whose unit a key names. Raises FormatError: no key of a unit."""
    topic, at = _topic(key)
    rest = bytes(key[at:])
    head = _BETWEEN + rest[1:5] + _BETWEEN
    if len(rest) != len(head) + _OFFSET.size or rest[: len(head)] != head:
        raise FormatError(f"invalid key of a unit: {_shown(key)}")
    queue_id, queue_offset = _QUEUE_ID.unpack_from(rest, 1)[0], _OFFSET.unpack_from(rest, len(head))[0]
    if queue_id < 0 or queue_offset < 0:
        raise FormatError(f"invalid key of a unit: queue {queue_id}, queue offset {queue_offset}")
    return UnitKey(topic, queue_id, queue_offset)


def decode_unit(value: Buffer) -> RocksDBUnit:
    """The unit in a value. Raises FormatError: another length than 28 bytes."""
    if len(value) != ROCKSDB_UNIT_SIZE:
        raise FormatError(f"a unit in RocksDB has {ROCKSDB_UNIT_SIZE} bytes, this value has {len(value)}")
    return RocksDBUnit(*_UNIT.unpack(value))


def decode_offset_key(key: Buffer) -> OffsetKey:
    """Whose end a key names. Raises FormatError: no key of the column family `offset`."""
    topic, at = _topic(key)
    rest = bytes(key[at:])
    ends = {_BETWEEN + one + _BETWEEN: one == _MAX for one in (_MAX, _MIN)}
    head = rest[: len(_BETWEEN + _MAX + _BETWEEN)]
    if len(rest) != len(head) + _QUEUE_ID.size or head not in ends:
        raise FormatError(f"invalid key of a queue's end: {_shown(key)}")
    (queue_id,) = _QUEUE_ID.unpack_from(rest, len(head))
    if queue_id < 0:
        raise FormatError(f"invalid key of a queue's end: queue {queue_id}")
    return OffsetKey(topic, queue_id, ends[head])


def encode_offset(physical_offset: int, queue_offset: int) -> bytes:
    """The value of a queue's end: of the message, physical offset and queue offset."""
    return _PLACE.pack(physical_offset, queue_offset)


def decode_offset(value: Buffer) -> tuple[int, int]:
    """Physical offset and queue offset of a queue's end. Raises FormatError: another length than 16 bytes."""
    if len(value) != _PLACE.size:
        raise FormatError(f"the end of a queue has {_PLACE.size} bytes, this value has {len(value)}")
    physical_offset, queue_offset = _PLACE.unpack(value)
    return physical_offset, queue_offset


def decode_checkpoint(value: Buffer) -> int:
    """Physical offset up to which records have their units. Raises FormatError: another length than 8 bytes."""
    if len(value) != _OFFSET.size:
        raise FormatError(f"the value of {CHECKPOINT_TOPIC} has {_OFFSET.size} bytes, this one has {len(value)}")
    (physical_offset,) = _OFFSET.unpack(value)
    return int(physical_offset)


def decode_many(keys: Buffer, values: Buffer, topic: bytes) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """Queue offsets and units of keys and values of one queue, each of its right length, one after the other."""
    import numpy as np

    key = np.dtype([("head", f"V{len(topic) + KEY_SIZE - _OFFSET.size}"), ("queue_offset", ">i8")])
    offsets = np.frombuffer(keys, dtype=key)["queue_offset"].astype(np.int64)
    return offsets, np.frombuffer(values, dtype=np.dtype(ROCKSDB_UNIT_FIELDS))


def _topic(key: Buffer) -> tuple[bytes, int]:
    """The topic that a key begins with, and where it ends. Raises FormatError."""
    start = _LENGTH.size + len(_BETWEEN)
    length = _LENGTH.unpack_from(key)[0] if len(key) >= start else -1
    if not 0 < length <= len(key) - start or bytes(key[_LENGTH.size : start]) != _BETWEEN:
        raise FormatError(f"invalid key: {_shown(key)}")
    return bytes(key[start : start + length]), start + length


def _shown(key: Buffer) -> str:
    return bytes(key[:64]).hex() + ("…" if len(key) > 64 else "")
