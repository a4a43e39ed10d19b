"""A topic or group that no store knows is an error with the nearest name on Spark, too: commands, jobs, data source."""

# ruff: noqa: F811
from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rstore_cli.conftest import Cli, _no_settings_from_outside, cli  # noqa: F401 - fixtures
from tests.rstore_cli.test_known_names import GROUPS, ON_SPARK, TOPICS, filled, store  # noqa: F401 - a fixture
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

Store = Callable[[str], Path]


def on_spark(several: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted(words for words in several if ON_SPARK & set(words))


def test_a_topic(store: Path, cli: Cli) -> None:
    for words in on_spark(TOPICS):
        ran = cli("--store", store, *filled(words, store))
        assert ran.code == 2, words
        assert "no topic Ordres" in ran.error_line
        assert "(did you mean Orders?)" in ran.error_line
    output = store.parent / "output"
    assert [path for path in output.rglob("*") if path.suffix == ".parquet" or path.name == "export.json"] == []


def test_a_group(store: Path, cli: Cli) -> None:
    for words in on_spark(GROUPS):
        ran = cli("--store", store, *filled(words, store))
        assert ran.code == 2, words
        assert "(did you mean billing?)" in ran.error_line


def test_what_the_log_has_of_a_deleted_topic_is_found(fixture_copy: Store, cli: Cli, tmp_path: Path) -> None:
    root = fixture_copy("clean-small")
    shutil.rmtree(root / "consumequeue" / "audit_log-x")
    count = len(cli("--store", root, "dump", "commitlog", "--topic", "audit_log-x", "--json").lines)
    assert count > 60
    assert cli("pipeline", "grep", root, "--topic", "audit_log-x", "--limit", "0", "--json").json["matches"] == count
    done = cli("pipeline", "export", root, "--topic", "audit_log-x", "--output", tmp_path / "out", "--json")
    assert (done.code, done.json["messages"]) == (0, count)
    assert cli("pipeline", "reindex", root, "--topic", "audit_log-x", "--yes").code == 0
    check_clean(root)


def test_the_option_of_the_data_source(spark: SparkSession, fixture_store: Store, cli: Cli) -> None:
    path = str(fixture_store("clean-small"))
    read = spark.read.format("rocketmq-store")
    count = len(cli("--store", path, "dump", "commitlog", "--topic", "Orders", "--json").lines)
    assert read.option("topic", "Orders,%RETRY%billing").load(path).where("topic = 'Orders'").count() == count > 60
    with pytest.raises(Exception, match="no topic Ordres") as told:
        read.option("topic", "Orders,Ordres").load(path).count()
    assert "did you mean Orders?" in str(told.value)
