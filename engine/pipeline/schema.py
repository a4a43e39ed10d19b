"""The columns of the data source: every field of a record, and where it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark has no later time."""
COLUMNS: dict[str, str] = {
    "store": "string",
    "file": "string",
    "physical_offset": "long",
    "msg_id": "string",
    "size": "int",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "long",
    "tags": "string",
    "keys": "array<string>",
    "properties": "map<string,string>",
    "body": "binary",
    "body_length": "int",
    "body_crc": "int",
    "crc_ok": "boolean",
    "flag": "int",
    "sys_flag": "int",
    "born_timestamp": "long",
    "born_time": "timestamp",
    "born_host": "string",
    "store_timestamp": "long",
    "store_time": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "long",
    "stored_physical_offset": "long",
    "damage": "string",
}
"""Name and Spark type. Times in ms since 1970; `store_time` and `born_time` are null where Spark has no such
time. `physical_offset` is the place, `stored_physical_offset` what the record says of it, and `msg_id` the offset
message id made of that (MessageDecoder#createMessageId). `damage` is null for a record, and says what is wrong with the
`size` bytes of a row that is none."""

FIELD_IDS: dict[str, int] = {
    "store": 1,
    "file": 2,
    "physical_offset": 3,
    "msg_id": 4,
    "size": 5,
    "topic": 6,
    "queue_id": 7,
    "queue_offset": 8,
    "tags": 9,
    "keys": 10,
    "properties": 11,
    "body": 12,
    "body_length": 13,
    "body_crc": 14,
    "crc_ok": 15,
    "flag": 16,
    "sys_flag": 17,
    "born_timestamp": 18,
    "born_time": 19,
    "born_host": 20,
    "store_timestamp": 21,
    "store_time": 22,
    "store_host": 23,
    "reconsume_times": 24,
    "prepared_transaction_offset": 25,
    "stored_physical_offset": 26,
    "damage": 27,
    "full_topic": 28,
}
"""The number of each column of an exported table, in its Parquet files as in Iceberg's: it never changes, and a column
that goes leaves its number to no other."""


def spark_schema(names: tuple[str, ...]) -> str:
    """The schema of some columns, in that order, as DDL."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in names)


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """The same for Arrow."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, kinds[COLUMNS[name]]) for name in names])
