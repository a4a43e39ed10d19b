"""Consumer offsets of a closed store: listed, and one of them set, with the file as a broker would have left it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import CannotRepair, InvalidArgument, Refused
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import fastjson
from engine.log.derive import TopicQueue
from engine.repair.config.consumer_offsets import list_offsets, plan_offset, set_offset
from tests.conftest import Store
from tests.engine.repair.test_rules import put, settings
from tests.support import stores
from tests.support.config import write_config

T0 = TopicQueue("T", 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    put(root, 40)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{\n\t"offsetTable":{"T@g":{0:25,1:3}}\n}')
    write_config(root)
    return root


def test_set_and_listed(store: Path) -> None:
    plan = plan_offset(Disk(), settings(store), "g", T0, "max")
    assert (plan.old, plan.new, plan.min_offset, plan.max_offset, plan.skipped) == (25, 20, 0, 20, 0)
    old = (store / "config" / "consumerOffset.json").read_bytes()
    set_offset(Disk(), plan)
    assert (store / "config" / "consumerOffset.json.bak").read_bytes() == old
    assert (store / "config" / "consumerOffset.json").read_text() == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:20,\n\t\t\t1:3\n\t\t}\n\t}\n}'
    )
    found, problems = list_offsets(Disk(), settings(store))
    assert problems == ()
    assert [(o.group, o.queue.queue_id, o.offset, o.unread, o.problem) for o in found] == [
        ("g", 0, 20, 0, None),
        ("g", 1, 3, 17, None),
    ]
    assert not plan_offset(Disk(), settings(store), "g", T0, 20).changed


def test_a_group_that_has_none_gets_one(store: Path) -> None:
    (store / "config" / "consumerOffset.json").unlink()
    plan = plan_offset(Disk(), settings(store), "new", T0, 7)
    assert plan.old is None
    set_offset(Disk(), plan)
    assert list_offsets(Disk(), settings(store))[0][0].offset == 7


@pytest.mark.leaves("consumer-above")
def test_what_it_means_is_told(store: Path) -> None:
    assert plan_offset(Disk(), settings(store), "g", TopicQueue("T", 1), "max").skipped == 17
    assert plan_offset(Disk(), settings(store), "g", TopicQueue("T", 1), "min").skipped == -3


@pytest.mark.leaves("consumer-above")
@pytest.mark.parametrize(
    ("group", "queue", "to", "error"),
    [
        ("g", T0, 21, Refused),
        ("g", T0, -1, Refused),
        ("g", T0, "middle", Refused),
        ("g", TopicQueue("T", 9), 0, InvalidArgument),
        ("g", TopicQueue("nope", 0), 0, InvalidArgument),
        ("a@b", T0, 0, InvalidArgument),
        ("", T0, 0, InvalidArgument),
    ],
)
def test_misuse(store: Path, group: str, queue: TopicQueue, to: int | str, error: type[Exception]) -> None:
    before = stores.snapshot(store)
    with pytest.raises(error):
        plan_offset(Disk(), settings(store), group, queue, to)
    assert stores.snapshot(store) == before


def test_a_broken_file_is_never_made_the_bak(store: Path) -> None:
    good = (store / "config" / "consumerOffset.json").read_bytes()
    (store / "config" / "consumerOffset.json.bak").write_bytes(good)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:')
    plan = plan_offset(Disk(), settings(store), "g", T0, 5)
    assert plan.problem
    set_offset(Disk(), plan)
    assert (store / "config" / "consumerOffset.json.bak").read_bytes() == good
    assert list_offsets(Disk(), settings(store))[0][0].offset == 5


@pytest.mark.leaves("config-bad")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"offsetTable":[]}', '"x"', "\0\0\0"])
def test_no_table_at_all_is_refused(store: Path, text: str) -> None:
    (store / "config" / "consumerOffset.json").write_text(text)
    before = stores.snapshot(store)
    with pytest.raises(CannotRepair):
        plan_offset(Disk(), settings(store), "g", T0, 5)
    assert stores.snapshot(store) == before


@pytest.mark.leaves("consumer-above")
def test_killed_at_every_step(store: Path, tmp_path: Path) -> None:
    """The file is the old one or the new one, never less; run again it is the new one."""
    whole = stores.copy(store, tmp_path / "whole")
    disk = FaultyDisk(None)
    set_offset(disk, plan_offset(disk, settings(whole), "g", T0, 5))
    assert disk.changes_seen > 3
    for number in range(1, disk.changes_seen + 1):
        copy = stores.copy(store, tmp_path / f"killed-{number}")
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            set_offset(faulty, plan_offset(faulty, settings(copy), "g", T0, 5))
        (old,) = [o.offset for o in list_offsets(Disk(), settings(copy))[0] if o.queue == T0]
        assert old in (5, 25)
        set_offset(Disk(), plan_offset(Disk(), settings(copy), "g", T0, 5))
        assert list_offsets(Disk(), settings(copy))[0][0].offset == 5


@pytest.mark.leaves("config-missing")
def test_light_queues_have_a_table_of_their_own(fixture_copy: Store) -> None:
    root = fixture_copy("lmq")
    config = StoreConfig(store_path_root_dir=root).with_changes(enable_lmq=True, enable_multi_dispatch=True)
    queue = next(
        TopicQueue(path.name, 0) for path in sorted((root / "consumequeue").iterdir()) if path.name.startswith("%LMQ%")
    )
    (root / "config").mkdir(exist_ok=True)
    name = root / "config" / "lmqConsumerOffset.json"
    name.write_text(json.dumps({"offsetTable": {}, "lmqOffsetTable": {f"{queue.topic}@g": 1}}))
    plan = plan_offset(Disk(), config, "g", queue, "max")
    assert plan.old == 1
    set_offset(Disk(), plan)
    assert fastjson.loads(name.read_text())["lmqOffsetTable"] == {f"{queue.topic}@g": plan.max_offset}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"', '12":', "\\", "{1:2}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(-9, 9).map(str), inner),
)


@given(_VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == value
