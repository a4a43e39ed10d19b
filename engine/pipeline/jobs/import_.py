"""`pipeline import`: an exported table as a new store (engine.pipeline.restore says what becomes of each row).

Spark sorts by place in the log and hands the rows over in ranges of some MiB, one after the other: what the driver
holds is one of them, whatever the table's size. (A log of more than 128 GiB comes in 4096 ranges.)
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import config
from engine.config import StoreConfig
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, Refused, RStoreError
from engine.files.disk import Disk
from engine.format.quantities import counted
from engine.pipeline.exported import is_pending, local_directory, read_manifest
from engine.pipeline.jobs.export import read_table
from engine.pipeline.restore import NEEDED, Restorer
from engine.pipeline.result import JobResult, Table
from engine.repair.create import create_store
from engine.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from engine.pipeline.exported import Manifest
    from engine.pipeline.restore import Restored
    from engine.pipeline.stores import StoreRef

_RANGE = 32 << 20
_MOST_RANGES = 4096
_SAID = {
    "moved": "have a new physical offset: records before them are not in the table",
    "renumbered": "have another queue offset: messages before them in their queues are not in the table",
    "resized": "have another size: text that is not UTF-8, or a decompressed body",
    "operations_changed": "operations of transactions point at the new queue offsets of their half messages",
    "half_messages": (
        "are half messages: without the source's config/consumerOffset.json a broker asks their producers again"
    ),
    "delayed": "are delayed messages: without the source's config/delayOffset.json a broker delivers all of them again",
    "further_queues": "belong to queues that these settings don't have: enableMultiDispatch, enableLmq",
    "left_out": "rows were not imported",
}


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """From where, and where to.

    Attributes:
        table: the directory of an exported table.
        output: the new store's directory; absent, or empty.
        store: which of the table's stores (default: the only one).
        config: a broker's properties file for the new store (default: the settings that the table remembers).
        topics: only their records (default: those of all).
    """

    table: str = ""
    output: str = ""
    store: str | None = None
    config: str | None = None
    topics: tuple[str, ...] = ()


def run(spark: SparkSession, stores: Sequence[StoreRef], options: ImportOptions) -> JobResult:
    """Facts: `messages`, `bytes`, and how many could not be kept as they were; the table `left_out` names rows.

    Raises:
        Refused: something is in the directory, or an export into the table was interrupted. InvalidArgument: no table,
        columns are missing, or it has several stores. FormatError: two rows of the same place. DiskFull, StorageError.
    """
    del stores  # of a table
    disk = Disk()
    options = replace(options, table=local_directory(options.table), output=local_directory(options.output))
    if disk.exists(options.output) and (not disk.is_dir(options.output) or disk.listdir(options.output)):
        raise Refused("the directory is not empty", path=options.output, hint="give an empty or new directory")
    if is_pending(disk, options.table):
        raise Refused("an export into this table was interrupted", path=options.table, hint="run the export again")
    manifest = read_manifest(disk, options.table)
    rows = read_table(spark, options.table)
    missing = [name for name in (*NEEDED, "store") if name not in rows.columns]
    if missing:
        raise InvalidArgument(
            "the table lacks columns: " + ", ".join(missing), path=options.table, hint="export it with all columns"
        )
    name, rows, damaged = _of_one_store(rows, options)
    settings = _settings(options, manifest, name)
    done = _restore(disk, settings, rows, decompressed=manifest is not None and manifest.decompressed)
    return _answer(name, options, done, damaged)


def _of_one_store(rows: DataFrame, options: ImportOptions) -> tuple[str, DataFrame, int]:
    """The store's name, its records, and how many damaged ranges the table has of it."""
    names = sorted(row["store"] for row in rows.select("store").distinct().limit(1000).collect())
    if options.store is not None and options.store not in names:
        raise InvalidArgument(f"the table has no store {options.store}", path=options.table, hint=", ".join(names))
    if options.store is None and len(names) > 1:
        raise InvalidArgument(
            f"the table has {len(names)} stores", path=options.table, hint="choose one: " + ", ".join(names)
        )
    name = options.store or "".join(names)
    rows = rows.where(rows["store"] == name)
    damaged = 0
    if "damage" in rows.columns:
        damaged = rows.where("damage is not null").count()
        rows = rows.where("damage is null")
    if options.topics:
        rows = _of_topics(rows, options)
    optional = ("crc_ok",) if "crc_ok" in rows.columns else ()
    return name, rows.select(*NEEDED, *optional), damaged


def _of_topics(rows: DataFrame, options: ImportOptions) -> DataFrame:
    """Raises InvalidArgument: the store has no message of one of them in the table."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = rows.where(F.col("topic").isin(list(options.topics)))
    there = {row["topic"] for row in rows.select("topic").distinct().collect()}
    for topic in options.topics:
        if topic not in there:
            raise InvalidArgument(f"the table has no message of the topic {topic}", path=options.table)
    return rows


def _settings(options: ImportOptions, manifest: Manifest | None, name: str) -> StoreConfig:
    known = manifest.stores.get(name) if manifest is not None else None
    fields = StoreConfig.__dataclass_fields__
    base = StoreConfig().with_changes(
        **{key: value for key, value in (known.settings if known else {}).items() if key in fields}
    )
    settings = base if options.config is None else config.load_broker(Path(options.config), base)
    return settings.with_changes(
        store_path_root_dir=Path(os.path.abspath(options.output)),
        store_path_commit_log=None,
        read_only_commit_log_store_paths=None,
    )


def _restore(disk: Disk, settings: StoreConfig, rows: DataFrame, *, decompressed: bool) -> Restored:
    create_store(disk, settings)
    store = MessageStore.open(settings, disk)
    restorer = Restorer(store, decompressed=decompressed)
    try:
        for row in _in_order(rows):
            restorer.add(row)
        done = restorer.finish()
    except BaseException as error:
        if isinstance(error, RStoreError):
            error.hint = f"the new store has {counted(restorer.done.messages, 'message')}: delete it, then import again"
        with contextlib.suppress(RStoreError):  # what went wrong first is what is reported
            store.close()
        raise
    store.close()
    return done


def _in_order(rows: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows by physical offset, a range of the log at a time."""
    from pyspark.sql import functions as F  # noqa: N812

    (ends,) = rows.agg(F.min("physical_offset").alias("first"), F.max("physical_offset").alias("last")).collect()
    if ends["first"] is None:
        return
    span = ends["last"] - ends["first"] + 1
    width = max(_RANGE, -(-span // _MOST_RANGES))
    number = F.expr(f"int((physical_offset - {ends['first']}) div {width})")
    ordered = rows.repartitionById(-(-span // width), number).sortWithinPartitions("physical_offset")
    # A map would come as a Java HashMap, and with it the properties in another order.
    for row in ordered.withColumn("properties", F.map_entries("properties")).toLocalIterator():
        yield row.asDict()


def _answer(name: str, options: ImportOptions, done: Restored, damaged: int) -> JobResult:
    facts = {
        "store": name,
        "output": os.path.abspath(options.output),
        "messages": done.messages,
        "bytes": done.size,
        **{what: done.counts[what] for what in _SAID},
        "damaged_places": damaged,
    }
    notes = [f"{done.counts[what]} {meaning}" for what, meaning in _SAID.items() if done.counts[what]]
    if damaged:
        notes.append(f"{damaged} damaged ranges of the table are not messages")
    notes.append("config/ (topics, consumer groups, their offsets) is not part of a table: copy it from the source")
    table = Table(
        "left_out", "Rows that were not imported (the first)", ("physical_offset", "why"), tuple(done.left_out)
    )
    return JobResult(
        "import", facts, (table,) if done.left_out else (), ok=not done.counts["left_out"], notes=tuple(notes)
    )
