"""A bridged store whose salvage/ was moved away: the log says what was lost, and no queue offset is given twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format.message import decode
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.check.check import check as check_store
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.engine.repair.recover.test_bridge import log, rows
from tests.engine.repair.reindex.test_reindex import reindex
from tests.engine.repair.test_rules import SIZES, damage, put, settings
from tests.support.checking import check_clean

SIZE = SIZES["mapped_file_size_commit_log"]


def last_record_of_a_queue(root: Path) -> None:
    offsets = put(root, 100)
    put(root, 1, first=2, queues=3)
    damage(root, offsets[99] + 95, b"\xff")


def long_before_the_log_s_end(root: Path) -> None:
    offsets = put(root, 100)
    put(root, 300, topic="U")
    damage(root, offsets[99] + 95, b"\xff")


def up_to_a_file_s_end(root: Path) -> None:
    """Its blank record is all that shows it."""
    offsets = put(root, 100)
    put(root, 200, topic="U")
    damage(root, offsets[96], bytes(SIZE - offsets[96] % SIZE))


def whole_file(root: Path) -> None:
    offsets = put(root, 100)
    put(root, 200, topic="U")
    damage(root, offsets[99] // SIZE * SIZE, bytes(SIZE))


SHAPES = [last_record_of_a_queue, long_before_the_log_s_end, up_to_a_file_s_end, whole_file]


def bridged(root: Path, shape: Callable[[Path], None], *, salvage: bool) -> None:
    shape(root)
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    if not salvage:
        shutil.rmtree(root / "salvage")


def ends(root: Path) -> list[int]:
    with MessageStore.open(settings(root)) as store:
        return [store.max_offset("T", queue) for queue in (0, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.__name__))
@pytest.mark.parametrize("salvage", [True, False], ids=["salvage", "gone"])
def test_no_queue_gets_shorter(shape: Callable[[Path], None], salvage: bool, tmp_path: Path) -> None:
    """By no recovery, start or rebuilding."""
    bridged(tmp_path, shape, salvage=salvage)
    for kwargs in ({}, {"whole": True}, {"bridge": True}):
        plan = plan_recover(Disk(), settings(tmp_path), **kwargs)  # type: ignore[arg-type]
        assert [q.max_offset for q in plan.queues if q.queue.topic == "T"][:2] == [50, 50]
        assert not any(q.changed for q in plan.queues)
    assert ends(tmp_path) == [50, 50]
    reindex(settings(tmp_path))
    assert ends(tmp_path) == [50, 50]
    put(tmp_path, 1, first=101)
    assert ends(tmp_path) == [50, 51]


@pytest.mark.parametrize("shape", SHAPES[:2], ids=lambda shape: str(shape.__name__))
def test_check_and_recover_say_the_same(shape: Callable[[Path], None], tmp_path: Path) -> None:
    bridged(tmp_path, shape, salvage=False)
    found = check_clean(tmp_path, settings(tmp_path))
    assert found.counts["byCode"] == {"log-bridged": 1, "unit-repeated": 1}
    assert not plan_recover(Disk(), settings(tmp_path), whole=True).changed


@pytest.mark.parametrize("shape", SHAPES[2:], ids=lambda shape: str(shape.__name__))
def test_index_entries_into_a_bridge_s_blank(shape: Callable[[Path], None], tmp_path: Path) -> None:
    """Whether a file's end once held messages is in doubt: their index entries go, when all is read."""
    bridged(tmp_path, shape, salvage=False)
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    apply(Disk(), plan)
    check_clean(tmp_path, settings(tmp_path))
    assert not plan_recover(Disk(), settings(tmp_path), whole=True).changed


@pytest.mark.parametrize("salvage", [True, False], ids=["salvage", "gone"])
def test_a_queue_that_lost_every_message(salvage: bool, tmp_path: Path) -> None:
    """Its units point at the inert record, which is no record of another queue."""
    offsets = put(tmp_path, 3, topic="Lost", queues=1)
    put(tmp_path, 50)
    damage(tmp_path, 0, bytes(offsets[2] + 100))
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    if not salvage:
        shutil.rmtree(tmp_path / "salvage")
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    assert not plan.changed
    assert plan.problems == ()
    assert check_clean(tmp_path, settings(tmp_path)).counts["byCode"]["unit-lost"] == 3
    with MessageStore.open(settings(tmp_path)) as store:
        assert store.max_offset("Lost", 0) == 3


def test_what_no_loss_explains_is_cut_and_told(tmp_path: Path) -> None:
    """A unit that is there twice at a queue's end, in a log that lost nothing."""
    put(tmp_path, 100)
    path = sorted((tmp_path / "consumequeue/T/1").iterdir())[-1]
    data = bytearray(path.read_bytes())
    end = 50 * UNIT_SIZE % SIZES["mapped_file_size_consume_queue"]
    data[end : end + UNIT_SIZE] = data[end - UNIT_SIZE : end]
    path.write_bytes(data)
    found = check_store(Disk(), settings(tmp_path))
    assert [f.code for f in found.findings] == ["unit-surplus"]
    assert found.next is not None
    assert found.next.command is not None
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    assert [q.max_offset for q in plan.queues] == [50, 50]
    apply(Disk(), plan)
    check_clean(tmp_path, settings(tmp_path))
    assert len(rows(tmp_path, 1)) >= 50


def test_messages_with_the_topic_of_a_bridge_are_messages(tmp_path: Path) -> None:
    """No plain message is taken for an inert record."""
    offsets = put(tmp_path, 40, topic="RSTORE_DAMAGED")
    assert decode(log(tmp_path, offsets[0], offsets[1])).topic == "RSTORE_DAMAGED"
    assert "log-bridged" not in check_clean(tmp_path, settings(tmp_path)).counts["byCode"]
