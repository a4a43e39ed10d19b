"""What a store holds, by the engine alone: the answers that jobs on Spark are held against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import StoreConfig, of_store
from engine.files.disk import Disk
from engine.format.message import StoredMessage
from engine.inspect.dump.dump import MESSAGE, dump_log


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its place in the log."""

    offset: int
    message: StoredMessage


def records(store: Path | StoreConfig) -> list[Record]:
    """All records of a log."""
    config = of_store(store) if isinstance(store, Path) else store
    rows = dump_log(Disk(), config)
    return [Record(row.offset, row.message) for row in rows if row.kind == MESSAGE and row.message is not None]


def rows(store: Path | StoreConfig) -> Iterator[dict[str, Any]]:
    """The same as rows of a table, as the data source has them."""
    for record in records(store):
        message = record.message
        yield {
            "physical_offset": record.offset,
            "size": message.total_size,
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "properties": list(message.properties.items()),
            "body": message.body,
            "body_crc": message.body_crc,
            "crc_ok": message.crc_ok,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "born_timestamp": message.born_timestamp,
            "born_host": str(message.born_host),
            "store_timestamp": message.store_timestamp,
            "store_host": str(message.store_host),
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
        }


def kept(message: StoredMessage) -> tuple[Any, ...]:
    """All that a table can keep of a record: everything but how its properties are spelled, and its place."""
    return (*message._replace(properties_raw=b"", physical_offset=0), tuple(message.properties.items()))


def by_queue(store: Path | StoreConfig) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The records of each queue, in the order of the log, without offsets."""
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for record in records(store):
        message = record.message
        one = kept(message._replace(queue_offset=0, total_size=0))
        found.setdefault((message.topic, message.queue_id), []).append(one)
    return found
