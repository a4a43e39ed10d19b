"""A streaming query to be killed: `python -m tests.pipeline.streaming STORE OUT CHECKPOINT BYTES`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.pipeline.source import NAME
from engine.pipeline.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def begin(
    spark: SparkSession, store: str, out: str, checkpoint: str, size: str, *, now: bool = False
) -> StreamingQuery:
    """Into Parquet, micro-batches of about that many bytes; with `now` all that is there, and an end."""
    read = spark.readStream.format(NAME).option("maxBytesPerTrigger", size).option("splitBytes", "2M")
    frame = read.option("columns", "store,physical_offset,topic,queue_id,queue_offset,body").load(store)
    write = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", out)
    write = write.trigger(availableNow=True) if now else write.trigger(processingTime="0 seconds")
    return write.start()


def main(store: str, out: str, checkpoint: str, size: str) -> None:
    """Until somebody ends it."""
    conf = {"spark.driver.memory": "1g", "spark.local.dir": f"{out}.scratch", "spark.sql.shuffle.partitions": "4"}
    with session(master="local[2]", conf=conf, name="rstore streaming test") as spark:
        begin(spark, store, out, checkpoint, size).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
