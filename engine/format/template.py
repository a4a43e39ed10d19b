"""What many records have in common, made ready once: a record of a known topic, queue and hosts is then one `pack`.

The bytes are those of `engine.format.message.encode` and `patch`, which say what a record is; tests hold the two equal.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from engine.format import property_crc, sysflag
from engine.format.message import encode
from engine.format.record import head_struct, magic_at, store_timestamp_position

if TYPE_CHECKING:
    import struct

    from engine.format.message import Message

PROPERTIES_LENGTH_SIZE = 2
_LENGTHS = tuple(length.to_bytes(PROPERTIES_LENGTH_SIZE, "big") for length in range(1024))


class RecordTemplate:
    """Topic, queue, flags and hosts of a message, as its record stores them.

    Attributes:
        born_host, store_host: the very objects that it was made of.
        magic, queue_id, flag, sys_flag: as stored.
        born, store: bornHost; storeHost with reconsumeTimes and preparedTransactionOffset after it.
        topic: its length and its bytes.
        pack: `pack` of the fixed part's struct.
        fixed_size: bytes that a record takes beside body and properties.
        reserved: of those, the bytes of the property CRC that is the last of its properties; 0 without one.
        stored_at: position of storeTimestamp in a record.
        constant: what a record takes of them, in the order of use: one attribute is read in place of nine.
    """

    __slots__ = (
        "born",
        "born_host",
        "constant",
        "fixed_size",
        "flag",
        "magic",
        "pack",
        "queue_id",
        "reserved",
        "store",
        "store_host",
        "stored_at",
        "sys_flag",
        "topic",
    )

    def __init__(self, message: Message, *, sealed: bool = False) -> None:
        """Of a message whose body and properties don't count. `sealed`: with a property CRC.

        Raises as `encode`; struct.error: a number too large.
        """
        record = encode(message._replace(body=b""), b"")
        self.magic = magic_at(record)
        self.reserved = property_crc.SIZE if sealed else 0
        self.born_host, self.store_host = message.born_host, message.store_host
        self.queue_id, self.flag, self.sys_flag = message.queue_id, message.flag, message.stored_sys_flag
        layout = _layout(self.sys_flag)
        self.pack = layout.pack
        self.fixed_size = len(record) + self.reserved
        self.stored_at = store_timestamp_position(self.sys_flag)
        *_, self.born, _, self.store, _ = layout.unpack_from(record)
        self.topic = bytes(record[layout.size : -PROPERTIES_LENGTH_SIZE])
        self.constant = (
            self.pack, self.magic, self.queue_id, self.flag, self.sys_flag, self.born, self.store, self.topic,
            self.reserved,
        )  # fmt: skip

    def head(self, size: int, crc: int, body_length: int, flag: int, born_timestamp: int = 0) -> bytes:
        """The fixed part of a record of `size` bytes, what only the append lock knows still 0."""
        return self.pack(
            size, self.magic, crc, self.queue_id, flag, 0, 0, self.sys_flag, born_timestamp, self.born, 0,
            self.store, body_length,
        )  # fmt: skip


def length_of_properties(size: int) -> bytes:
    """propertiesLength as stored, for `size` bytes of properties (at most 32767)."""
    return _LENGTHS[size] if size < len(_LENGTHS) else size.to_bytes(PROPERTIES_LENGTH_SIZE, "big")


@functools.lru_cache(maxsize=16)
def _layout(sys_flag: int) -> struct.Struct:
    return head_struct(bool(sys_flag & sysflag.BORN_HOST_V6), bool(sys_flag & sysflag.STORE_HOST_V6))
