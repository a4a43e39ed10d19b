"""Dispatch of what comes alone, by who puts: what it does itself, what it leaves for the thread, nothing twice."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import DiskFull, RStoreError
from engine.files.disk import Disk
from engine.log.derive import TopicQueue
from engine.services.arrivals import Arrival
from engine.services.dispatch import FEW
from engine.services.pace import DispatchPace
from engine.services.running_flags import Flag
from tests.engine.opening import message, small
from tests.engine.services.dispatch_rig import T0, Rig, until

pytestmark = pytest.mark.leaves("checkpoint-missing", "index-missing")


class Here(Rig):
    """A rig whose puts are dispatched in this thread where that is possible; which thread told of each message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.takes = True
        self.heard: list[Arrival] = []
        self.by: list[str] = []
        self.dispatch.begin_through(self._begin)
        self.dispatch.add_listener(self._told)

    def _begin(self, work: Callable[[], None]) -> bool:
        if self.takes:
            self.work.put(work)
        return self.takes

    def _told(self, arrivals: object) -> None:
        assert isinstance(arrivals, list)
        self.heard += arrivals
        self.by += ["here" if threading.current_thread() is threading.main_thread() else "thread"] * len(arrivals)

    def put(self, body: bytes = b"body", queue_id: int = 0, *, begin: bool = True, **properties: str) -> int:
        """Put a message and do what dispatch has this thread do. Its end (physical offset)."""
        end = self.log.append(message(body, queue_id, **properties)).next_offset
        self.dispatch.wake()
        while begin and not self.work.empty():
            self.work.get()()
        return end

    def came(self, count: int) -> str:
        """By whom the newest of so many messages was told of."""
        until(lambda: len(self.heard) == count and self.dispatch.position == self.log.max_offset)
        until(lambda: self.dispatch._idle or bool(self.errors))
        return self.by[-1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr("engine.services.dispatch.LISTENED", DispatchPace(0, 0, 10**9))
    made = Here(small(tmp_path))
    made.dispatch.start_from(0)
    assert (made.put(), made.came(1))[1] == "thread"  # it has its queue made, and loads what is needed
    yield made
    made.close()


def test_what_comes_alone_is_told_by_who_puts(here: Here) -> None:
    for count in range(2, 50):
        here.put(KEYS="k")
        assert here.came(count) == "here"
    assert [one.next_offset for one in here.heard] == list(range(1, 50))
    assert here.index.keys == 48
    assert here.queues.obtain(T0).max_offset == 49
    assert here.progress == 49


def test_much_is_the_threads(here: Here) -> None:
    here.put(bytes(FEW))
    assert here.came(2) == "thread"


def test_a_queue_that_is_not_open_is_the_threads(here: Here) -> None:
    here.put(queue_id=1)
    assert here.came(2) == "thread"
    here.put(queue_id=1)
    assert here.came(3) == "here"


def test_a_full_file_of_a_queue_is_the_threads(here: Here) -> None:
    per_file = here.config.mapped_file_size_consume_queue // 20
    by = ["thread"]
    for count in range(2, 2 * per_file + 2):
        here.put()
        by.append(here.came(count))
    assert [at for at, one in enumerate(by) if one == "thread"] == [0, per_file, 2 * per_file]


def test_a_full_index_is_the_threads(here: Here) -> None:
    here.index.failures = [DiskFull("full")]
    here.put(KEYS="k")
    until(lambda: here.flags.is_set(Flag.DISK_FULL) or len(here.heard) == 2)
    here.dispatch.wake()
    assert here.came(2) == "thread"
    assert here.index.keys == 1
    assert here.errors == []


@pytest.mark.leaves("unit-missing", "checkpoint-missing", "index-missing")
def test_a_queue_offset_that_jumps_is_the_threads(here: Here) -> None:
    here.log._table[T0] += 1
    here.put()
    assert here.came(2) == "thread"  # a listener hears of it, unit or not
    assert "an invalid queue offset and got no unit" in here.dispatch.findings[0].text


def test_a_message_that_loads_the_kernels_is_the_threads(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.dispatch._scanner, "loads_within", lambda size: size == FEW)
    here.put()
    assert here.came(2) == "thread"


@pytest.mark.parametrize("changes", [{}, {"enable_consume_queue_ext": True}], ids=["by-call", "extension"])
def test_files_that_are_written_by_call_or_twice_are_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, bool]
) -> None:
    monkeypatch.setattr("engine.services.dispatch.LISTENED", DispatchPace(0, 0, 10**9))
    made = Here(small(tmp_path, **changes), Disk(mapped=bool(changes)))
    made.dispatch.start_from(0)
    for count in range(1, 20):
        made.put(KEYS="k")
        assert made.came(count) == "thread"
    made.close()


def test_who_puts_no_more_leaves_all_to_the_thread(here: Here) -> None:
    here.put(begin=False)
    here.dispatch.begin_through(None)
    assert here.came(2) == "thread"
    here.work.get()  # and nobody calls what was begun
    here.put()
    assert here.came(3) == "thread"


def test_who_takes_nothing_has_the_thread_do_it(here: Here) -> None:
    here.takes = False
    here.put()
    assert here.came(2) == "thread"


def test_nobody_listens(tmp_path: Path) -> None:
    rig = Rig(small(tmp_path))
    asked: list[object] = []
    rig.dispatch.begin_through(lambda work: bool(asked.append(work)))
    rig.dispatch.add_listener(lambda _: None, lambda: False)
    rig.dispatch.start_from(0)
    for _ in range(20):
        rig.log.append(message())
        rig.dispatch.wake()
        until(lambda: rig.dispatch.position == rig.log.max_offset and rig.dispatch._idle)
    assert asked == []
    rig.close()


def test_who_takes_a_queue_out_is_waited_for_by_the_thread(here: Here) -> None:
    with here.dispatch.between_batches():
        here.put()
        assert len(here.heard) == 1
    assert here.came(2) == "thread"
    here.put()
    assert here.came(3) == "here"


def test_what_is_begun_late_finds_nothing_left(here: Here) -> None:
    end = here.put(begin=False)
    assert here.dispatch.wait_dispatched(end, 30_000)  # who waits for it does not wait for who has it begun
    assert here.came(2) == "thread"
    here.work.get()()
    here.put()
    assert here.came(3) == "here"


def test_what_is_begun_after_the_end_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.dispatch.LISTENED", DispatchPace(0, 0, 10**9))
    made = Here(small(tmp_path))
    made.dispatch.start_from(0)
    made.put()
    made.came(1)
    made.put(begin=False)
    made.close()
    assert made.by == ["thread"] * 2
    made.work.get()()
    assert made.by == ["thread"] * 2


@pytest.mark.leaves("log-tail", "checkpoint-missing", "index-missing")
def test_a_damaged_record_is_told_by_the_thread(here: Here) -> None:
    start = here.log.max_offset
    here.log.append(message())
    file = here.log.files.last()
    assert file is not None
    file.write_at(start + 4, b"\xff\xff")
    here.dispatch.wake()
    while not here.work.empty():
        here.work.get()()
    until(lambda: bool(here.errors))
    assert here.errors[0].offset == start
    assert len(here.heard) == 1


@pytest.mark.leaves("unit-missing", "checkpoint-missing", "index-missing")
def test_a_failure_here_is_the_threads_to_tell(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RStoreError("broken")

    monkeypatch.setattr(here.dispatch, "_append", broken)
    here.put()
    until(lambda: bool(here.errors))
    assert len(here.errors) == 1
    assert not here.dispatch.wait_dispatched(here.log.max_offset)


def test_a_failure_after_it_was_written_is_told_too(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("broken")

    monkeypatch.setattr(here.dispatch, "_on_progress", broken)
    here.put()
    until(lambda: bool(here.errors))
    assert "broken" in str(here.errors[0])


def test_space_that_ends_meanwhile_is_waited_for(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.dispatch.RETRY_MS", 5)
    monkeypatch.setattr(here.index, "has_room", lambda _: True)
    here.index.failures = [DiskFull("full")] * 3
    here.put(KEYS="k")
    assert here.came(2) == "thread"
    assert here.index.keys == 1
    assert here.errors == []
    assert here.flags.writeable
    here.put(KEYS="k")
    assert here.came(3) == "here"


@pytest.mark.parametrize("seed", range(5))
def test_nothing_comes_twice_or_out_of_order(tmp_path: Path, seed: int) -> None:
    """Puts of any size and pace by three threads, dispatched by a fourth, by the thread, between who takes queues."""
    made = Here(small(tmp_path))
    made.dispatch.start_from(0)
    over = threading.Event()

    def begin() -> None:
        while not over.is_set() or not made.work.empty():
            try:
                made.work.get(timeout=0.05)()
            except queue.Empty:
                continue

    def put(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        for _ in range(400):
            made.put(b"x" * chance.choice((1, 30, 300, 3000)), chance.randrange(4), begin=False, KEYS="k")
            if chance.random() < 0.2:
                over.wait(chance.random() / 200)
            if chance.random() < 0.02:
                assert made.dispatch.wait_dispatched(made.log.max_offset, 30_000)
            if chance.random() < 0.02:
                with made.dispatch.between_batches():
                    over.wait(chance.random() / 500)

    dispatcher = threading.Thread(target=begin)
    threads = [threading.Thread(target=put, args=(number,)) for number in range(3)]
    for thread in (dispatcher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert made.dispatch.wait_dispatched(made.log.max_offset, 30_000)
    over.set()
    dispatcher.join()
    assert made.errors == []
    assert made.dispatch.findings == ()
    assert made.index.keys == 1200
    assert [one.physical_offset for one in made.heard] == sorted({one.physical_offset for one in made.heard})
    assert len(made.heard) == 1200
    for number in range(4):
        own = [one.next_offset for one in made.heard if one.queue_id == number]
        assert own == list(range(1, len(own) + 1))
        assert made.queues.obtain(TopicQueue("T", number)).max_offset == len(own)
    made.close()
