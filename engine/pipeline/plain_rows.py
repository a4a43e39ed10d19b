"""Rows record by record: the plain way, and the judge of engine.pipeline.rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.format.compression import inflate
from engine.format.message import decode
from engine.format.numbers import INT_MAX
from engine.format.properties import KEYS, TAGS, key_words
from engine.pipeline.schema import LATEST_MS

if TYPE_CHECKING:
    from engine.log.batch import RecordBatch
    from engine.pipeline.splits import Split


def row(split: Split, batch: RecordBatch, i: int, *, decompress: bool) -> dict[str, Any]:
    """Every column of record `i`."""
    message = decode(batch.record(i))
    properties = message.properties
    plain = inflate(message.body, message.sys_flag) if decompress else None
    return {
        "store": split.store.name,
        "file": os.path.basename(split.segment.path),
        "physical_offset": batch.offset(i),
        "msg_id": message.msg_id,
        "size": message.total_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": properties.get(TAGS),
        "keys": key_words(properties.get(KEYS)),
        "properties": list(properties.items()),
        "body": message.body if plain is None else plain,
        "body_length": len(message.body),
        "body_crc": message.body_crc,
        "crc_ok": message.crc_ok,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_time": _time(message.born_timestamp),
        "born_host": str(message.born_host),
        "store_timestamp": message.store_timestamp,
        "store_time": _time(message.store_timestamp),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "stored_physical_offset": message.physical_offset,
    }


def _time(stamp: int) -> int | None:
    """Microseconds since 1970 of ms since 1970; None where Spark has no such time."""
    return stamp * 1000 if 0 <= stamp <= LATEST_MS else None


def damage_row(store: str, file: str, offset: int, size: int, why: str) -> dict[str, Any]:
    """Where there is no record: the place (physical offset), bytes, and what is wrong there."""
    return {
        "store": store,
        "file": file,
        "physical_offset": offset,
        "size": min(size, INT_MAX),
        "damage": why,
    }
