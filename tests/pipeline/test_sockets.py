"""Spark's JVM and its Python workers on this machine talk through Unix sockets, which nobody else reaches."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.pipeline.spark import _sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_they_lie_in_a_directory_of_ours(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert sorted(context.parallelize(range(4), 4).map(str).collect()) == list("0123")
    directory = Path(context.getConf().get("spark.python.unix.domain.socket.dir") or "")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert any(one.is_socket() for one in directory.iterdir())


def test_where_there_are_none() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        fits, too_long = ("d" * (size - len(base) - 1) for size in (61, 62))
        for name, master, wanted in (
            ("short", "local[2]", True),
            ("short", "spark://host:7077", False),  # executors have directories of their own
            (fits, "local", True),
            (too_long, "local", False),
            ("größe", "local", False),
        ):
            place = Path(base, name)
            place.mkdir(exist_ok=True)
            assert bool(_sockets(str(place), master)) == wanted
            assert list(place.iterdir()) == []
        assert not _sockets(f"{base}/absent", "local")
