"""A stored message as JSON: CLI.md "Messages". No I/O."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from engine.format import compression, sysflag
from engine.format.message import make_msg_id

if TYPE_CHECKING:
    from engine.format.message import StoredMessage


def to_json(
    message: StoredMessage, *, place: int | None = None, redact: bool = False, decompress: bool = False
) -> dict[str, Any]:
    """The JSON of CLI.md "Messages". `place`: where the record lies, when its own field may be wrong."""
    offset = message.physical_offset if place is None else place
    row: dict[str, Any] = {
        "msgId": make_msg_id(message.store_host, offset),
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": offset,
        "storeSize": message.total_size,
        "bodyCRC": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "bodyLength": len(message.body),
    }
    if offset != message.physical_offset:
        row["storedPhysicalOffset"] = message.physical_offset
    if redact:
        return row
    plain = inflate(message) if decompress else None
    if plain is not None:
        row["decompressedLength"] = len(plain)
    text = None if plain is None and is_compressed(message) else body_text(message.body if plain is None else plain)
    if text is not None:
        row["body"] = text
    else:
        row["bodyBase64"] = base64.b64encode(message.body if plain is None else plain).decode()
    return row


def is_compressed(message: StoredMessage) -> bool:
    """Whether the client has compressed the body."""
    return bool(message.sys_flag & sysflag.COMPRESSED)


def inflate(message: StoredMessage) -> bytes | None:
    """The body as the producer gave it, when it is compressed and not too large; else None. Raises NotInstalled."""
    return compression.inflate(message.body, message.sys_flag)


def body_text(body: bytes) -> str | None:
    """A body as text; None where it is no UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None
