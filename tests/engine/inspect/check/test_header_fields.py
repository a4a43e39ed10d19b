"""A damaged queueId or queueOffset of a record: decided by its row and the rows beside it, or told as undecided.

No checksum covers the two. Consumers go by a record's own queueOffset when they commit.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format.properties import SEPARATOR
from engine.format.record import POSITION_QUEUE_ID, POSITION_QUEUE_OFFSET
from engine.inspect.check.check import check
from engine.repair.recover.apply import apply
from engine.repair.recover.following import mended_by_recovery
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.recover.test_bridge import log
from tests.engine.repair.test_rules import damage, messages, put, settings
from tests.support import stores
from tests.support.checking import check_clean


def flip(root: Path, offset: int, position: int, bit: int) -> None:
    damage(root, offset + position, bytes([log(root, offset + position, 1)[0] ^ 1 << bit]))


POSITION_STORE_TIMESTAMP = 56

FIELDS = {
    "another queue of the topic": (POSITION_QUEUE_ID + 3, 0),
    "a queue that is not there": (POSITION_QUEUE_ID, 6),
    "a queue offset that is taken": (POSITION_QUEUE_OFFSET + 7, 0),
    "a queue offset far away": (POSITION_QUEUE_OFFSET + 2, 3),
    "a negative queue offset": (POSITION_QUEUE_OFFSET, 7),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    root = tmp_path_factory.mktemp("made") / "store"
    return root, put(root, 100)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("record", [0, 7, 50, 99], ids="record {}".format)
def test_a_flipped_bit_is_flipped_back(field: str, record: int, made: tuple[Path, list[int]], tmp_path: Path) -> None:
    root, offsets = stores.copy(made[0], tmp_path / "store"), made[1]
    offset = offsets[record]
    sound = log(root, offset, 200)
    flip(root, offset, *FIELDS[field])
    damaged = log(root, offset, 200)
    found = check(Disk(), settings(root))
    assert {f.code for f in found.findings} - {"record-suspect"} == {"unit-foreign"}
    assert found.next is not None
    assert (found.next.command or "").endswith("recover --whole")
    plan = plan_recover(Disk(), settings(root), whole=True)
    queue = {"physicalOffset": offset, "queueId": record % 2, "queueOffset": record // 2}
    assert plan.to_json()["queueOffsetsCorrected"] == [queue]
    apply(Disk(), plan)
    assert log(root, offset, 200) == sound
    check_clean(root, settings(root))
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert log(root, offset, 200) == damaged
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    assert log(root, offset, 200) == sound
    assert len(messages(root)) == 100


def test_queues_that_are_lost_are_rebuilt_with_it(tmp_path: Path) -> None:
    """Without a row it is the records beside it that tell."""
    offsets = put(tmp_path, 300)
    sound = log(tmp_path, offsets[150], 200)
    flip(tmp_path, offsets[150], POSITION_QUEUE_OFFSET + 2, 3)
    shutil.rmtree(tmp_path / "consumequeue")
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), whole=True))
    assert log(tmp_path, offsets[150], 200) == sound


@pytest.mark.leaves("unit-tags")
def test_what_nothing_decides_is_told_and_names_no_command_that_does_nothing(tmp_path: Path) -> None:
    """A tag that record and unit tell differently: a recovery leaves both."""
    offsets = put(tmp_path, 300)
    size = offsets[151] - offsets[150]
    record = log(tmp_path, offsets[150], size)
    at = record.rindex(b"TAGS\x01") + 5
    assert record[at : at + 2] in (b"a" + SEPARATOR.encode(), b"a")
    damage(tmp_path, offsets[150] + at, b"q")
    found = check(Disk(), settings(tmp_path), mended=mended_by_recovery(Disk()))
    assert {f.code for f in found.findings} == {"unit-tags"}
    assert not plan_recover(Disk(), settings(tmp_path), whole=True).changed
    assert found.next is not None
    assert found.next.command is None
    assert "dump commitlog" in found.next.why


@pytest.mark.leaves("log-stale", "unit-foreign")
def test_a_record_that_is_older_than_the_one_in_front_gets_no_queue(tmp_path: Path) -> None:
    """It may be stale, or another log's: its own queue offset is what tells that."""
    offsets = put(tmp_path, 300)
    flip(tmp_path, offsets[299], POSITION_QUEUE_OFFSET + 2, 3)
    flip(tmp_path, offsets[299], POSITION_STORE_TIMESTAMP + 3, 3)
    flip(tmp_path, offsets[299], POSITION_STORE_TIMESTAMP + 2, 0)
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    assert not plan.log.requeued


def test_first_of_what_is_read_gets_no_queue(tmp_path: Path) -> None:
    """The record in front of it is unknown; with --whole it is known."""
    offsets = put(tmp_path, 300)
    first = next(offset for offset in offsets if offset >= offsets[-1] // 8192 * 8192)
    flip(tmp_path, first, POSITION_QUEUE_OFFSET + 2, 3)
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    assert [one.physical_offset for one in plan.log.requeued] == [first]
    apply(Disk(), plan)


@pytest.mark.leaves("unit-foreign")
def test_many_in_a_row_are_no_flipped_bits(tmp_path: Path) -> None:
    """Records and rows that disagree by the dozen stay as they are, both."""
    offsets = put(tmp_path, 300)
    for record in range(100, 140, 2):
        flip(tmp_path, offsets[record], POSITION_QUEUE_ID + 3, 0)
    plan = plan_recover(Disk(), settings(tmp_path), whole=True)
    assert not plan.changed
    assert not plan.log.requeued
    found = check(Disk(), settings(tmp_path), mended=mended_by_recovery(Disk()))
    assert found.next is not None
    assert found.next.command is None
