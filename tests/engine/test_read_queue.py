"""Messages of one queue, page by page: what is shown, passed over, and said beside it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.errors import FormatError, InvalidArgument, StorageError
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format.message import StoredMessage
from engine.read_queue import QueueReading, QueueRequest
from engine.read_store import ReadStore
from tests.engine.repair.test_rules import damage, put, settings

MANY = 1000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A hundred messages in one queue."""
    put(tmp_path, 100, queues=1)
    return tmp_path


def read(root: Path, **request: object) -> tuple[list[int], QueueReading]:
    """The queue offsets that are read."""
    asked = QueueRequest("T", 0, **{"count": MANY, **request})  # type: ignore[arg-type]
    with ReadStore(settings(root)) as reader:
        reading = QueueReading(reader, asked)
        found = list(reading)
    assert all(isinstance(one, StoredMessage) for one in found)
    return [one.queue_offset for one in found if isinstance(one, StoredMessage)], reading


def test_all_of_it_in_pages(store: Path) -> None:
    offsets, reading = read(store)
    assert offsets == list(range(100))
    assert (reading.before, reading.after, reading.gone) == ([], [], 0)


def test_a_part_and_what_goes_on_from_there(store: Path) -> None:
    offsets, reading = read(store, count=5, start=40, options=("--count", "5"))
    assert offsets == list(range(40, 45))
    (more,) = reading.after
    assert more.startswith("more: rstore ")
    assert more.endswith("get --count 5 T 0 45")


def test_by_tags_and_by_time(store: Path) -> None:
    offsets, reading = read(store, tags="b")
    assert offsets == list(range(1, 100, 3))
    assert reading.gone == 0
    none, late = read(store, time=1 << 50)
    assert none == []
    assert "its newest was at" in late.after[0]
    assert "T 0 99 (shows that one)" in late.after[0]


def test_where_there_is_nothing(store: Path) -> None:
    assert read(store, start=100)[1].after == ["no such messages: T/0 holds offsets 0 to 100"]
    with pytest.raises(InvalidArgument):
        read_of_another(store)


def read_of_another(store: Path) -> None:
    with ReadStore(settings(store)) as reader:
        QueueReading(reader, QueueRequest("U", 0, MANY))


@pytest.mark.leaves("log-damage")
def test_offsets_that_point_at_no_message_are_counted(tmp_path: Path) -> None:
    places = put(tmp_path, 100, queues=1)
    damage(tmp_path, places[50], bytes(8))
    with ReadStore(settings(tmp_path)) as reader:
        reading = QueueReading(reader, QueueRequest("T", 0, MANY))
        found = list(reading)
    broken = sum(isinstance(one, FormatError) for one in found)
    assert (len(found) - broken, broken + reading.gone) == (99, 1)


def test_up_to_a_page_that_can_not_be_read(store: Path) -> None:
    """What lies in front of it is shown first; the error says what shows the rest."""
    with ReadStore(settings(store)) as reader:
        (message,) = QueueReading(reader, QueueRequest("T", 0, 1, 70))
    assert isinstance(message, StoredMessage)
    segment, bad = divmod(message.physical_offset, 8192)
    log = sorted((store / "commitlog").iterdir())[segment]

    def is_bad(doing: Doing) -> bool:
        at = doing.offset or 0
        return doing.operation is Operation.READ and doing.path == str(log) and at <= bad < at + max(doing.length, 1)

    disk = FaultyDisk(None, mapped=False)
    disk.fail_when(is_bad, errno.EIO)
    shown: list[int] = []
    with ReadStore(settings(store), disk) as reader:
        reading = QueueReading(reader, QueueRequest("T", 0, MANY))
        with pytest.raises(StorageError) as error:
            shown.extend(one.queue_offset for one in reading if isinstance(one, StoredMessage))
    assert shown == list(range(70))
    assert error.value.next is not None
    assert str(error.value.next.command).endswith("get T 0 71")
