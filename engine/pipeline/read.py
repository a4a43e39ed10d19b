"""One split as Arrow batches: the engine's scan, its records as rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format.message import decode
from engine.format.properties import KEYS, TAGS, key_words
from engine.log.scan import Damage, RecordBatch
from engine.pipeline.schema import COLUMNS, arrow_schema
from engine.pipeline.splits import events, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from engine.pipeline.splits import Split

FAIL, MARK, SKIP = "fail", "mark", "skip"
ROWS = 4096
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark has no later time."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How splits are read.

    Attributes:
        columns: names, in the order of the rows.
        on_damage: FAIL, MARK (a row whose `damage` says what) or SKIP.
    """

    columns: tuple[str, ...] = tuple(COLUMNS)
    on_damage: str = FAIL


def read_split(split: Split, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a split.

    Raises:
        FormatError: damage, with FAIL. StorageError.
    """
    import pyarrow as pa

    schema = arrow_schema(options.columns)
    rows: list[dict[str, Any]] = []
    with open_log(split, Disk()) as log:
        for event in events(split, log, check_crc=False):
            if isinstance(event, RecordBatch):
                rows += [_row(split, event, i) for i in range(len(event))]
            elif isinstance(event, Damage):
                if options.on_damage == FAIL:
                    raise FormatError(event.reason.value, path=event.segment.path, offset=event.offset)
                if options.on_damage == MARK:
                    rows.append(_damage(split, event))
            while len(rows) >= ROWS:
                yield pa.RecordBatch.from_pylist(rows[:ROWS], schema=schema)
                rows = rows[ROWS:]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _row(split: Split, batch: RecordBatch, i: int) -> dict[str, Any]:
    message = decode(batch.record(i))
    found = message.properties
    return {
        "store": split.store.name,
        "file": os.path.basename(split.segment.path),
        "physical_offset": batch.offset(i),
        "size": message.total_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": found.get(TAGS),
        "keys": key_words(found.get(KEYS)),
        "properties": list(found.items()),
        "body": message.body,
        "body_length": len(message.body),
        "body_crc": message.body_crc,
        "crc_ok": message.crc_ok,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": str(message.born_host),
        "store_timestamp": message.store_timestamp,
        "store_time": message.store_timestamp * 1000 if 0 <= message.store_timestamp <= _LATEST_MS else None,
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "stored_physical_offset": message.physical_offset,
    }


def _damage(split: Split, event: Damage) -> dict[str, Any]:
    return {
        "store": split.store.name,
        "file": os.path.basename(split.segment.path),
        "physical_offset": event.offset,
        "size": min(event.length, 0x7FFFFFFF),
        "damage": event.reason.value,
    }
