"""A Spark session for all tests of a process: starting one takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from engine.pipeline.spark import SparkMissing, find_java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TIMEOUT_S = 900


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests have more time: a session alone takes long to start on a machine that has other things to do."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
