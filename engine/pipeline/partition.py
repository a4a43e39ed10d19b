"""A share of a store as Spark hands it to an executor: for the batch reader and the stream reader alike."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from engine.dataclass import dataclass
from engine.pipeline.planning import StoreShare


@dataclass
class SplitPartition(InputPartition):
    """A share as Spark's partition."""

    share: StoreShare
