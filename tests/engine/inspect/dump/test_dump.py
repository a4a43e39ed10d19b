"""dump: rows of log, queues, index and config as they lie on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.format.queue_unit import PRE_BLANK
from engine.inspect.dump.dump import BLANK, DAMAGE, MESSAGE, dump_config, dump_index, dump_log, dump_queue
from engine.log.scan import MISSING_SEGMENT
from tests.support import fixtures

pytestmark = pytest.mark.leaves()

Store = Callable[[str], Path]
SEGMENT = 131072


def config(store: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=store)


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_the_log_without_a_gap(name: str, fixture_store: Store) -> None:
    rows = list(dump_log(Disk(), config(fixture_store(name))))
    at = 0
    for row in rows:
        assert row.offset == at
        at += row.length
    assert at == fixtures.manifest(name)["maxPhyOffset"]
    assert {row.kind for row in rows} == {MESSAGE, BLANK} - ({BLANK} if at < SEGMENT else set())


def test_damage_and_missing_segments_stand_in_their_place(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / f"{SEGMENT:020d}").unlink()
    with (store / "commitlog" / f"{2 * SEGMENT:020d}").open("r+b") as file:
        file.write(bytes(500))
    rows = list(dump_log(Disk(), config(store)))
    damage = [row for row in rows if row.kind == DAMAGE]
    assert [(row.offset, row.reason) for row in damage] == [
        (SEGMENT, MISSING_SEGMENT),
        (2 * SEGMENT, "nothing written here (zeros)"),
    ]
    assert [row.offset for row in rows] == sorted(row.offset for row in rows)


def test_a_queue_that_begins_in_the_middle_of_its_file(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    path = next((store / "consumequeue").glob("*/0")) / f"{0:020d}"
    topic = path.parent.parent.name
    with path.open("r+b") as file:
        file.write(PRE_BLANK.encode() * 2)
    assert next(dump_queue(Disk(), config(store), topic, 0))["queueOffset"] == 2
    first = next(dump_queue(Disk(), config(store), topic, 0, start=0))
    assert first == {"queueOffset": 0, "physicalOffset": 0, "size": 2**31 - 1, "tagsCode": 0}


def test_what_is_not_there(fixture_store: Store) -> None:
    store = config(fixture_store("clean-small"))
    with pytest.raises(InvalidArgument, match="no topic nope"):
        next(dump_queue(Disk(), store, "nope", 0))
    with pytest.raises(InvalidArgument, match="no index file"):
        next(dump_index(Disk(), store, file="nope"))


def test_config_goes_by_the_backup(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text("{,")
    (store / "config" / "topics.json.bak").write_text('{"a":1}')
    found = {row.name: row for row in dump_config(Disk(), config(store))}["topics.json"]
    assert (found.source, found.value) == ("topics.json.bak", {"a": 1})
    assert found.problem is not None
    assert found.problem.startswith("not JSON")
