"""A user's own job: `python -m tests.pipeline.own_session STORE DAMAGED`, a line for each thing that it tries."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

from engine.pipeline.source import NAME, RocketMQStoreSource


def tell(what: str, asked: Callable[[], object]) -> None:
    """What it gives, or what it raises."""
    try:
        print(f"{what}: {asked()}", flush=True)
    except Exception as error:  # noqa: BLE001 - whatever a user sees
        print(f"{what}: {type(error).__name__}: {error}", flush=True)


def main(store: str, damaged: str) -> None:
    """With Spark's own defaults, but for the memory."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(RocketMQStoreSource)
    read = spark.read.format(NAME)
    tell("count", lambda: read.load(store).count())
    tell("none", lambda: read.load("/none").count())
    tell("scheme", lambda: read.load("hdfs://n/x").count())
    tell("damage", lambda: read.load(damaged).count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
