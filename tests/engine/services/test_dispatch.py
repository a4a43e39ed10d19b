"""Dispatch alone: what it does with gaps, blanks, jumps and batches."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskFull, RStoreError
from engine.log.derive import TopicQueue
from engine.log.state import QueueState
from engine.services.arrivals import Arrival
from engine.services.pace import ALONE, GATHER_MS, LISTENED, DispatchPace, still_owed
from engine.services.running_flags import Flag
from tests.engine.opening import gather_for_minutes, message, small
from tests.engine.services.dispatch_rig import T0, Rig, until

pytestmark = pytest.mark.leaves("checkpoint-missing", "index-missing", "log-gap", "unit-missing")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(small(tmp_path))
    yield made
    made.close()


def test_it_starts_where_it_is_told(rig: Rig) -> None:
    first = rig.log.append(message("1"))
    rig.log.append(message("2"))
    rig.queues.load([QueueState(T0, 0, 0, -1)], 0)
    rig.dispatch.start_from(first.next_offset)
    rig.dispatch.catch_up(rig.log.max_offset)
    queue = rig.queues.find(T0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (1, 2)
    assert rig.dispatch.lag == 0
    assert rig.dispatch.progress[0] == rig.log.max_offset
    assert rig.progress == 1


def test_many_queues_in_one_batch_keep_their_order(rig: Rig) -> None:
    heard: list[Arrival] = []
    rig.dispatch.add_listener(heard.extend)
    for i in range(3000):
        rig.log.append(message(str(i), queue_id=i * 7 % 5, KEYS="a b"))
    rig.dispatch.start_from(0)
    rig.dispatch.catch_up(rig.log.max_offset)
    rig.dispatch.stop()
    assert [queue.queue_id for queue in rig.queues.queues()] == [0, 1, 2, 3, 4]
    for queue_id in range(5):
        queue = rig.queues.find(TopicQueue("T", queue_id))
        assert queue is not None
        assert queue.max_offset == 600
        places = [place for _, units in queue.units() for place in units["physical_offset"].tolist()]
        assert places == sorted(places)
        assert [a.next_offset for a in heard if a.queue_id == queue_id] == list(range(1, 601))
    assert rig.index.keys == 6000
    assert [a.physical_offset for a in heard] == sorted(a.physical_offset for a in heard)
    assert rig.queues.next_offsets() == rig.log.topic_queue_table
    assert rig.queues.max_physical_offset() == rig.log.max_offset


def test_a_missing_file_is_stepped_over_and_named(rig: Rig) -> None:
    for i in range(200):
        rig.log.append(message(b"%d" % i * 500))
    size = rig.config.mapped_file_size_commit_log
    middle = next(file for file in rig.log.files.files if file.file_from_offset == size)
    middle.destroy(0)
    rig.log.files._forget(middle)
    rig.dispatch.start_from(0)
    rig.dispatch.catch_up(rig.log.max_offset)
    assert [finding.offset for finding in rig.dispatch.findings][:1] == [size]
    assert f"{size} bytes of the log are missing" in rig.dispatch.findings[0].text
    assert "filled with the previous unit" in rig.dispatch.findings[1].text
    queue = rig.queues.find(T0)
    assert queue is not None
    assert queue.max_offset == 200
    assert rig.errors == []


def test_starting_below_the_first_file_is_named(rig: Rig) -> None:
    for i in range(200):
        rig.log.append(message(b"%d" % i * 500))
    first = rig.log.files.first()
    assert first is not None
    first.destroy(0)
    rig.log.files._forget(first)
    rig.dispatch.start_from(0)
    rig.dispatch.catch_up(rig.log.max_offset)
    assert rig.dispatch.findings[0].offset == 0


def test_the_rest_of_a_batch_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.dispatch.RETRY_MS", 5)
    rig.index.failures = [DiskFull("full")] * 100_000  # until we have looked
    for i in range(10):
        rig.log.append(message(str(i), KEYS="k"))
    rig.dispatch.start_from(0)
    with pytest.raises(DiskFull):
        rig.dispatch.catch_up(rig.log.max_offset)
    rig.index.failures = [DiskFull("still")]
    assert rig.dispatch.wait_dispatched(rig.log.max_offset, 60_000)
    queue = rig.queues.find(T0)
    assert queue is not None
    assert queue.max_offset == 10
    assert rig.index.keys == 10
    assert rig.flags.writeable
    assert rig.errors == []


def test_a_failed_index_is_final(rig: Rig) -> None:
    rig.index.failures = [RStoreError("broken")]
    rig.log.append(message(KEYS="k"))
    rig.dispatch.start_from(0)
    with pytest.raises(RStoreError, match="broken"):
        rig.dispatch.catch_up(rig.log.max_offset)
    assert rig.flags.is_set(Flag.WRITE_INDEX_FILE_ERROR)
    assert not rig.dispatch.wait_dispatched(rig.log.max_offset)
    assert len(rig.errors) == 1


def test_waiting_in_vain(rig: Rig) -> None:
    rig.dispatch.start_from(0)
    assert not rig.dispatch.wait_dispatched(1, 20)
    rig.dispatch.stop()
    assert not rig.dispatch.wait_dispatched(1)


def test_a_queue_can_be_taken_out(rig: Rig) -> None:
    rig.log.append(message())
    rig.dispatch.start_from(0)
    rig.dispatch.catch_up(rig.log.max_offset)
    gone: Callable[[TopicQueue], object] = rig.queues.forget
    assert gone(T0) is not None
    assert gone(T0) is None
    assert rig.queues.find(T0) is None
    assert rig.queues.queues() == ()


def test_under_load_it_gathers_and_leaves_nothing_behind(rig: Rig) -> None:
    count = 3000
    rig.dispatch.start_from(0)
    for i in range(count):
        rig.log.append(message(str(i)))
        rig.dispatch.wake()
    until(lambda: not rig.dispatch.lag)  # nobody waits for it, and it comes all the same
    assert rig.dispatch.position == rig.log.max_offset
    assert rig.queues.obtain(T0).max_offset == count
    assert rig.progress < count / 4


def test_messages_that_come_singly_wait_for_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 10**9)  # long turns, and long rests between them
    monkeypatch.setattr("engine.services.dispatch.monotonic_ms", lambda: float(next(clock)))
    for pace in ("LISTENED", "ALONE"):
        monkeypatch.setattr(f"engine.services.dispatch.{pace}", DispatchPace(8, 600_000, 600_000))
    rig.dispatch.start_from(0)
    for _ in range(20):
        end = rig.log.append(message()).next_offset
        rig.dispatch.wake()
        until(lambda end=end: rig.dispatch.position == end)  # type: ignore[misc]  # nobody says that somebody waits


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50), st.sampled_from((LISTENED, ALONE)))
def test_under_load_others_have_their_share_whatever_was_before(turns: list[float], pace: DispatchPace) -> None:
    owed, rest, most, free = 0.0, 1e6, pace.most, pace.free
    for took in turns:  # one right after another: the rest is what was gathered
        before, owed = owed, still_owed(owed, rest, took, pace)
        rest = max(0.0, owed - free)
        share = max(GATHER_MS - took, min(pace.share * took, most))
        assert rest <= most
        assert rest == pytest.approx(max(0.0, min(before, free) + share - free))
        if before >= free:
            assert rest == pytest.approx(share)


def test_who_begins_to_listen_does_not_wait_for_what_is_gathered_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()  # long turns, one right after another
    monkeypatch.setattr("engine.services.dispatch.monotonic_ms", lambda: float(next(clock) // 2 * 1000))
    gather_for_minutes(monkeypatch)
    heard: list[Arrival] = []
    listens: list[bool] = []
    rig.dispatch.add_listener(heard.extend, lambda: bool(listens))
    rig.dispatch.start_from(0)

    def more() -> int:
        end = rig.log.append(message()).next_offset
        rig.dispatch.wake()
        return end

    while not rig.dispatch._gathers_alone:
        end = more()
        until(lambda end=end: rig.dispatch.position == end or rig.dispatch._gathers_alone)  # type: ignore[misc]
    more()
    assert rig.dispatch.position < rig.log.max_offset
    listens.append(True)
    rig.dispatch.listened()
    until(lambda: rig.dispatch.position == rig.log.max_offset and bool(heard))  # it is told after that
    end = more()
    until(lambda: rig.dispatch.position == end)


def test_who_listens_may_hold_a_lock_of_its_own(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked whether it does without the lock that each wake takes."""
    clock = itertools.count()
    monkeypatch.setattr("engine.services.dispatch.monotonic_ms", lambda: float(next(clock) // 2 * 1000))
    gather_for_minutes(monkeypatch)
    asked, answered = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def wanted() -> bool:
        if rig.dispatch._gathers_alone and not answered.is_set():
            asked.set()
            in_time.append(answered.wait(30))
        return answered.is_set()

    rig.dispatch.add_listener(lambda arrivals: None, wanted)
    rig.dispatch.start_from(0)
    while not asked.is_set():
        end = rig.log.append(message()).next_offset
        rig.dispatch.wake()
        until(lambda end=end: rig.dispatch.position == end or asked.is_set())  # type: ignore[misc]
    rig.dispatch.listened()
    rig.dispatch._wait_for_it(1)
    rig.dispatch._wait_for_it(-1)
    answered.set()
    end = rig.log.append(message()).next_offset
    rig.dispatch.wake()
    until(lambda: rig.dispatch.position == end)
    assert in_time == [True]


def test_who_waits_is_not_kept_waiting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.pace.GATHER_MS", 600_000)
    rig.dispatch.start_from(0)
    for _ in range(20):
        end = rig.log.append(message()).next_offset
        rig.dispatch.wake()
        assert rig.dispatch.wait_dispatched(end, 60_000)
    rig.log.append(message())
    rig.dispatch.wake()
    rig.dispatch.stop()  # nor is who closes the store
    assert rig.dispatch.position == rig.log.max_offset


def test_who_waits_has_it_look_at_what_nobody_woke_it_for(rig: Rig) -> None:
    rig.dispatch.start_from(0)
    assert rig.dispatch.wait_dispatched(rig.log.append(message()).next_offset, 60_000)
    end = rig.log.append(message()).next_offset
    assert rig.dispatch.wait_dispatched(end, 60_000)
    end = rig.log.append(message()).next_offset
    rig.dispatch.catch_up(end)
