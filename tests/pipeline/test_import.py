"""A store, its table, a store again: the same messages in the same queues, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.config import STORE_SIZES
from engine.errors import InvalidArgument, Refused
from engine.files.disk import Disk
from engine.inspect.store.survey import survey
from engine.pipeline.jobs import export, import_
from engine.pipeline.jobs.import_ import ImportOptions, run
from engine.pipeline.stores import find_stores
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.engine.opening import assert_sound, message, small
from tests.pipeline import plain
from tests.support import references
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Store = Callable[[str], Path]


@pytest.mark.parametrize("reference", ["fixtures/lmq", "golden/clean-small", "golden/crashed-small"])
def test_a_store_its_table_a_store(
    spark: SparkSession, reference_store: Store, tmp_path: Path, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_, "_RANGE", 100_000)  # so that there are several
    root = reference_store(reference)
    source = references.settings(reference).with_changes(store_path_root_dir=root)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"enableLmq={source.enable_lmq}\nenableMultiDispatch={source.enable_multi_dispatch}\n")
    stores = find_stores([f"a={root}"], config=conf)
    export.run(spark, stores, export.ExportOptions(output=str(tmp_path / "t")))
    result = run(spark, (), ImportOptions(table=str(tmp_path / "t"), output=str(tmp_path / "new")))
    before, after = plain.records(source), plain.records(tmp_path / "new")
    assert [(r.offset, plain.kept(r.message)) for r in after] == [(r.offset, plain.kept(r.message)) for r in before]
    assert result.ok
    assert result.facts["messages"] == len(before)
    assert result.facts["bytes"] == sum(r.message.total_size for r in before)
    assert not any(result.facts[what] for what in ("moved", "renumbered", "resized", "left_out", "further_queues"))
    config = source.with_changes(store_path_root_dir=tmp_path / "new", transient_store_pool_enable=False)
    assert_sound(config)
    check_clean(tmp_path / "new", config)
    made = survey(Disk(), config).config
    assert [getattr(made, size) for size in STORE_SIZES] == [getattr(stores[0].config, size) for size in STORE_SIZES]
    with ReadStore(config) as new:
        for topic, queue_id in new.queues():
            got = _all(new, topic, queue_id)
            assert [number for _, number in got] == [*range(new.min_offset(topic, queue_id), len(got))]


def _all(store: ReadStore, topic: str, queue_id: int) -> list[tuple[int, int]]:
    """Physical offset and queue offset of all messages of a queue."""
    found, at = [], store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, at)
        for i, one in enumerate(result.decoded()):
            found.append((one.physical_offset, at + i))
        at = result.next_begin_offset
    return found


def test_of_one_topic(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path / "s")
    with MessageStore.open(config) as store:
        for i in range(50):
            assert store.put(message(b"%d" % i, i % 2, f"T{i % 3}")).ok
    stores = find_stores([f"a={tmp_path / 's'}"])
    export.run(spark, stores, export.ExportOptions(output=str(tmp_path / "t"), topics=("T1",)))
    result = run(spark, (), ImportOptions(table=str(tmp_path / "t"), output=str(tmp_path / "new")))
    wanted = {queue: found for queue, found in plain.by_queue(tmp_path / "s").items() if queue[0] == "T1"}
    assert plain.by_queue(tmp_path / "new") == wanted
    assert result.facts["moved"] == 17
    assert "17 have a new physical offset" in result.notes[0]
    assert_sound(small(tmp_path / "new"))
    check_clean(tmp_path / "new")


def test_one_of_several_stores(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with MessageStore.open(small(tmp_path / name)) as store:
            assert store.put(message(f"of {name}")).ok
    stores = find_stores([str(tmp_path / "a"), str(tmp_path / "b")])
    export.run(spark, stores, export.ExportOptions(output=str(tmp_path / "t")))
    table = str(tmp_path / "t")
    with pytest.raises(InvalidArgument, match=r"the table has 2 stores.*choose one: a, b"):
        run(spark, (), ImportOptions(table=table, output=str(tmp_path / "new")))
    with pytest.raises(InvalidArgument, match="no store c"):
        run(spark, (), ImportOptions(table=table, output=str(tmp_path / "new"), store="c"))
    assert not (tmp_path / "new").exists()
    run(spark, (), ImportOptions(table=table, output=str(tmp_path / "new"), store="b"))
    assert [r.message.body for r in plain.records(tmp_path / "new")] == [b"of b"]
    assert_sound(small(tmp_path / "new"))
    other = tmp_path / "broker.conf"
    other.write_text("mappedFileSizeCommitLog=131072\n")
    run(spark, (), ImportOptions(table=table, output=str(tmp_path / "big"), store="a", config=str(other)))
    assert (tmp_path / "big" / "commitlog" / ("0" * 20)).stat().st_size == 131072


def test_what_can_not_be_imported(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path / "s")) as store:
        assert store.put(message("x")).ok
    stores = find_stores([str(tmp_path / "s")])
    table, new = str(tmp_path / "t"), str(tmp_path / "new")
    with pytest.raises(InvalidArgument, match="not a table"):
        run(spark, (), ImportOptions(table=table, output=new))
    export.run(spark, stores, export.ExportOptions(output=table, include_body=False))
    with pytest.raises(InvalidArgument, match="the table lacks columns: body"):
        run(spark, (), ImportOptions(table=table, output=new))
    with pytest.raises(Refused, match="the directory is not empty"):
        run(spark, (), ImportOptions(table=table, output=str(tmp_path / "s")))
    with pytest.raises(InvalidArgument, match="the directory of the table is required"):
        run(spark, (), ImportOptions(output=new))
    (tmp_path / "t" / "_rstore" / "pending.json").write_text("{}")
    with pytest.raises(Refused, match="was interrupted"):
        run(spark, (), ImportOptions(table=table, output=new))
    assert not (tmp_path / "new").exists()


def test_rows_that_come_twice(spark: SparkSession, tmp_path: Path) -> None:
    with MessageStore.open(small(tmp_path / "s")) as store:
        assert store.put(message("x")).ok
    table = tmp_path / "t"
    export.run(spark, find_stores([str(tmp_path / "s")]), export.ExportOptions(output=str(table)))
    (file,) = table.rglob("*.parquet")
    file.with_name("copy.parquet").write_bytes(file.read_bytes())
    with pytest.raises(
        Exception, match=r"two rows have the same physical offset: at 0 .the new store has 1 message: delete it"
    ):
        run(spark, (), ImportOptions(table=str(table), output=str(tmp_path / "new")))
