"""A Spark session for all tests of a process: starting one takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from engine.pipeline.spark import SparkMissing, find_java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores on this machine."""
    try:
        find_java()
    except SparkMissing as missing:
        pytest.skip(str(missing))
    place = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
    }
    with session(master="local[2]", conf=conf, name="rstore tests") as found:
        yield found
