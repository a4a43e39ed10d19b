"""Messages put into a closed store, without a terminal: each, many alike, refused ones, interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import NotAStore, Refused, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format.message import Message, StoredMessage
from engine.format.properties import DELAY
from engine.log.results import MessageRefused
from engine.put_run import put_run, store_host
from engine.read_queue import QueueReading, QueueRequest
from engine.read_store import ReadStore
from engine.repair.change import carry_out
from engine.repair.recover.change import RecoverChange
from tests.engine.repair.test_rules import damage, put, settings


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of ten messages."""
    put(tmp_path, 10, queues=1)
    return tmp_path


def bodies(root: Path, first: int = 10) -> list[bytes]:
    with ReadStore(settings(root)) as reader:
        messages = list(QueueReading(reader, QueueRequest("T", 0, 1000, first)))
    return [bytes(message.body) for message in messages if isinstance(message, StoredMessage)]


def test_each_is_answered_as_it_is_put(store: Path) -> None:
    told: list[int] = []
    with put_run(Disk(), settings(store), on_put=told.append) as run:
        answers = list(run.each(Message("T", b"%d" % i) for i in range(3)))
        assert (run.messages, told) == (3, [1, 2, 3])
        assert run.size == sum(answer.store_size for answer in answers)
    assert [answer.queue_offset for answer in answers] == [10, 11, 12]
    assert bodies(store) == [b"0", b"1", b"2"]
    answer = answers[0].to_json()
    assert (answer["status"], answer["topic"], answer["queueId"]) == ("PUT_OK", "T", 0)


def test_a_delayed_message_is_answered_with_where_it_waits(store: Path) -> None:
    with put_run(Disk(), settings(store)) as run:
        (answer,) = run.each([Message("T", b"later", properties={DELAY: "3"})])
    assert (answer.topic, answer.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)


@pytest.mark.parametrize(
    ("one_by_one", "properties", "expected"),
    [(False, {}, [100]), (True, {}, list(range(1, 101))), (False, {DELAY: "1"}, list(range(1, 101)))],
    ids=["batches", "one by one", "in no batch"],
)
def test_many_alike(store: Path, one_by_one: bool, properties: dict[str, str], expected: list[int]) -> None:
    """Small segments take a batch of a few records: so many puts, and no more."""
    told: list[int] = []
    ticks: list[tuple[int, int]] = []
    with put_run(Disk(), settings(store), on_put=told.append) as run:
        message = Message("T", b"x", properties=properties)
        run.alike(message, 100, one_by_one=one_by_one, progress=lambda done, of: ticks.append((done, of)))
        summary = run.to_json()
    assert summary["messages"] == run.messages == 100
    assert told[-1] == 100
    assert len(told) == len(expected) or len(expected) == 1
    assert len(told) < 100 or len(expected) == 100
    assert ticks[0] == (0, 100)
    if not properties:
        assert bodies(store) == [b"x"] * 100


def test_what_can_not_be_put_is_told_with_what_was(store: Path) -> None:
    messages = [Message("T", b"0"), Message("T", b"1"), Message("T", bytes(5 << 20))]
    with pytest.raises(MessageRefused, match="2 messages were put before it"), put_run(Disk(), settings(store)) as run:
        list(run.each(messages))
    assert bodies(store) == [b"0", b"1"]


def test_an_interruption_waits_for_the_put_that_is_under_way(store: Path) -> None:
    steps: list[str] = []

    @contextmanager
    def held() -> Iterator[None]:
        steps.append("begun")
        yield
        steps.append("ended")
        if len(steps) == 4:  # the store is opened, a message is put
            raise KeyboardInterrupt  # it came up meanwhile

    with pytest.raises(KeyboardInterrupt), put_run(Disk(), settings(store), held=held) as run:
        list(run.each(Message("T", b"%d" % i) for i in range(3)))
    assert steps == ["begun", "ended"] * 3  # and the store is closed
    assert bodies(store) == [b"0"]


def test_a_store_that_needs_more_is_refused(store: Path) -> None:
    damage(store, put(store, 100, first=10)[-1] + 95, b"\xff")
    (store / "abort").touch()
    with pytest.raises(Refused), put_run(Disk(), settings(store)):
        pytest.fail("it was opened")
    carry_out(RecoverChange(), Disk(), settings(store))


def test_a_store_that_is_held_is_not_opened_and_none_is_made(store: Path) -> None:
    with StoreLock(Disk(), str(store)), pytest.raises(StoreLocked), put_run(Disk(), settings(store)):
        pytest.fail("it was opened")
    with pytest.raises(NotAStore), put_run(Disk(), StoreConfig(store_path_root_dir=store / "no" / "store")):
        pytest.fail("it was made")


def test_the_address_is_that_of_the_configuration() -> None:
    assert str(store_host(StoreConfig())) == "127.0.0.1:10911"
    named = StoreConfig(other={"brokerIP1": " 10.1.2.3 ", "listenPort": "10921"})
    assert str(store_host(named)) == "10.1.2.3:10921"
    assert str(store_host(StoreConfig(other={"listenPort": "many"}))) == "127.0.0.1:10911"
