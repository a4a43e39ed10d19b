"""The base of the services: woken, stopped, and never silently gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from engine.errors import RStoreError, StorageError
from engine.services.worker import Worker, monotonic_ms


class Counting(Worker):
    """Counts how often it was woken; raises what it is given."""

    def __init__(self) -> None:
        super().__init__("Counting", self.failures_append)
        self.rounds = 0
        self.failures: list[RStoreError] = []
        self.raises: Exception | None = None
        self.done = threading.Event()
        self.round = threading.Semaphore(0)

    def failures_append(self, error: RStoreError) -> None:
        self.failures.append(error)

    def _run(self) -> None:
        while self._wait(None):
            if self.raises is not None:
                raise self.raises
            self.rounds += 1
            self.round.release()

    def _ended(self) -> None:
        self.done.set()


@pytest.fixture
def worker() -> Iterator[Counting]:
    made = Counting()
    yield made
    made.stop()


def test_it_works_when_woken_and_only_then(worker: Counting) -> None:
    worker.start()
    worker.start()
    assert worker.running
    for _ in range(3):
        worker.wake()
        assert worker.round.acquire(timeout=60)
    assert not worker.round.acquire(timeout=0.05)
    worker.stop()
    assert not worker.running
    assert worker.rounds == 3
    assert worker.failures == []


def test_being_woken_before_it_waits_is_not_lost(worker: Counting) -> None:
    worker.wake()
    worker.wake()
    worker.start()
    assert worker.round.acquire(timeout=60)


def test_stopping_what_never_ran(worker: Counting) -> None:
    worker.stop()
    assert not worker.running


@pytest.mark.parametrize(("raised", "kind"), [(StorageError("disk"), StorageError), (ValueError("bug"), RStoreError)])
def test_what_ends_it_is_told(worker: Counting, raised: Exception, kind: type[RStoreError]) -> None:
    worker.raises = raised
    worker.start()
    worker.wake()
    assert worker.done.wait(60)
    (error,) = worker.failures
    assert type(error) is kind
    assert str(raised).split(":", maxsplit=1)[0] in str(error)


def test_a_pause_is_not_cut_short_by_a_wake_but_by_a_stop() -> None:
    class Pausing(Worker):
        def _run(self) -> None:
            self.begun = monotonic_ms()
            self.went_on = self._pause(50)
            self.ended = monotonic_ms()
            went.set()
            self.stopped_early = not self._pause(60_000)

    went = threading.Event()
    pausing = Pausing("Pausing", lambda _: None)
    pausing.start()
    pausing.wake()
    assert went.wait(60)
    pausing.stop()
    assert pausing.went_on
    assert pausing.ended - pausing.begun >= 49
    assert pausing.stopped_early


def test_a_worker_that_fails_says_so() -> None:
    class Failing(Worker):
        def _run(self) -> None:
            raise RuntimeError("nobody expected this")

    failures: list[RStoreError] = []
    plain = Failing("Plain", failures.append)
    plain.start()
    plain.stop()
    assert "Plain stopped unexpectedly" in str(failures[0])
