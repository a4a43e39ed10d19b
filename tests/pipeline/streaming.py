"""A streaming query to be killed: `python -m tests.pipeline.streaming STORE OUT CHECKPOINT BYTES [now]`."""

from __future__ import annotations

import sys

from engine.pipeline.source import NAME
from engine.pipeline.spark import session


def main(store: str, out: str, checkpoint: str, size: str, *words: str) -> None:
    """Into Parquet, micro-batches of about that many bytes; with `now` all that is there, and an end."""
    conf = {"spark.driver.memory": "1g", "spark.local.dir": f"{out}.scratch", "spark.sql.shuffle.partitions": "4"}
    with session(master="local[2]", conf=conf, name="rstore streaming test") as spark:
        read = spark.readStream.format(NAME).option("maxBytesPerTrigger", size).option("splitBytes", "2M")
        frame = read.option("columns", "store,physical_offset,topic,queue_id,queue_offset,body").load(store)
        write = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", out)
        write = write.trigger(availableNow=True) if "now" in words else write.trigger(processingTime="0 seconds")
        query = write.start()
        print("started", flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
