"""What many records have in common, made ready once: a record of a known topic, queue and hosts is then one `pack`.

The bytes are those of `engine.format.message.encode` and `patch`, which say what a record is; tests hold the two equal.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.format import sysflag
from engine.format.message import MESSAGE_MAGIC, head_struct, store_timestamp_position
from engine.format.names import TOPIC_MAX_LENGTH

if TYPE_CHECKING:
    from engine.format.message import Message

_SHORT = struct.Struct(">h")
_RECONSUME_AND_PREPARED = struct.Struct(">iq")
LENGTHS = tuple(map(_SHORT.pack, range(1024)))
"""propertiesLength as stored, for short properties."""


class RecordTemplate:
    """Topic, queue, flags and hosts of a message, as its record stores them.

    Attributes:
        born_host, store_host: the very objects that it was made of.
        queue_id, flag, sys_flag: as stored.
        born, store: bornHost; storeHost with reconsumeTimes and preparedTransactionOffset behind it.
        topic: its length and its bytes.
        pack: `pack` of the fixed part's struct.
        fixed_size: bytes that a record takes beside body and properties.
        stored_at: position of storeTimestamp in a record.
    """

    __slots__ = (
        "born",
        "born_host",
        "fixed_size",
        "flag",
        "pack",
        "queue_id",
        "store",
        "store_host",
        "stored_at",
        "sys_flag",
        "topic",
    )

    def __init__(self, message: Message) -> None:
        """Of a message whose body, properties and bornTimestamp don't count.

        Raises:
            InvalidArgument: a topic over 127 bytes or without any. struct.error: a number that its field can't hold.
        """
        topic = message.topic.encode("utf-8", "replace")
        if not 0 < len(topic) <= TOPIC_MAX_LENGTH:
            raise InvalidArgument(f"a topic takes 1 to {TOPIC_MAX_LENGTH} bytes, this one {len(topic)}")
        self.born_host, self.store_host = message.born_host, message.store_host
        self.queue_id, self.flag, self.sys_flag = message.queue_id, message.flag, message.stored_sys_flag
        self.born = message.born_host.encode()
        self.store = message.store_host.encode() + _RECONSUME_AND_PREPARED.pack(
            message.reconsume_times, message.prepared_transaction_offset
        )
        self.topic = len(topic).to_bytes(1, "big") + topic
        layout = _layout(self.sys_flag)
        self.pack = layout.pack
        self.fixed_size = layout.size + len(self.topic) + _SHORT.size
        self.stored_at = store_timestamp_position(self.sys_flag)
        self.head(0, 0, 0, message.flag)  # so that a number too large is refused here

    def head(self, size: int, crc: int, body_length: int, flag: int, born_timestamp: int = 0) -> bytes:
        """The fixed part of a record of `size` bytes, what only the append lock knows still 0."""
        return self.pack(
            size, MESSAGE_MAGIC, crc, self.queue_id, flag, 0, 0, self.sys_flag, born_timestamp, self.born, 0,
            self.store, body_length,
        )  # fmt: skip


def length_of_properties(size: int) -> bytes:
    """propertiesLength as stored, for `size` bytes of properties (at most 32767)."""
    return LENGTHS[size] if size < len(LENGTHS) else _SHORT.pack(size)


@functools.lru_cache(maxsize=16)
def _layout(sys_flag: int) -> struct.Struct:
    return head_struct(bool(sys_flag & sysflag.BORN_HOST_V6), bool(sys_flag & sysflag.STORE_HOST_V6))
