"""Read ahead by threads: the very events of a scan, whatever is in the log and wherever it is split."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.wide import examples, sample

pytest.importorskip("numba")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.files.operations import Doing, Operation
from engine.format import message
from engine.format.message import Message
from engine.format.record import V4_HEAD_SIZE
from engine.inspect.check.verify import verify
from engine.inspect.store.survey import survey
from engine.log.ahead import scan_ahead
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.log.threads import threads_of
from tests.engine.log.test_scan import flat
from tests.engine.repair import corpus
from tests.support import logs, mutate
from tests.support.logs import MemoryLog

SPLIT = 3000


def put(i: int) -> Message:
    return Message(f"Topic{i % 3}", b"%05d" % i * (i % 60), i % 4, {"KEYS": f"k{i}", "TAGS": "t"})


def ahead(log: MemoryLog, start: int = 0, end: int | None = None, *, resume: bool, split: int = SPLIT):
    scanner = Scanner(log, kernels=True, window=1000)
    events = scan_ahead(scanner, start, end, prepare=len, resume=resume, threads=3, split=split)
    found = []
    for event, prepared in events:
        assert prepared == (len(event) if isinstance(event, RecordBatch) else None)
        found.append(event)
    return flat(found)


def scanned(log: MemoryLog, start: int = 0, end: int | None = None, *, resume: bool):
    return flat(Scanner(log, kernels=False, window=1000).scan(start, end, resume=resume))


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("segment_size", [1 << 20, 20_000])
def test_a_sound_log(resume: bool, segment_size: int) -> None:
    built = logs.build([put(i) for i in range(600)], segment_size=segment_size)
    assert ahead(built.log, resume=resume) == scanned(built.log, resume=resume)
    middle = built.offsets[300]
    assert ahead(built.log, middle, built.offsets[500], resume=resume) == scanned(
        built.log, middle, built.offsets[500], resume=resume
    )


def test_a_split_is_one_batch_though_its_last_record_reaches_beyond_a_window() -> None:
    """A batch of that record alone cost as much as one of thousands."""
    built = logs.build([put(i) for i in range(600)], segment_size=1 << 20)
    last = built.offsets[40]
    begins = max(offset for offset in built.offsets if offset < last - 10 * (last - built.offsets[39]))
    scanner = Scanner(built.log, kernels=False, window=last - begins - (last - built.offsets[39]) // 2)
    (batch,) = (event for event in scanner.scan(begins, last) if isinstance(event, RecordBatch))
    assert (batch.start, batch.end) == (begins, last)


def test_missing_segments() -> None:
    built = logs.build([put(i) for i in range(600)], segment_size=20_000)
    del built.log.files[40_000]
    assert ("gap", 40_000, 20_000) in ahead(built.log, resume=True)
    assert ahead(built.log, resume=True) == scanned(built.log, resume=True)


@pytest.mark.wide
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 120_000), st.integers(1, 3000)), max_size=6),
    st.integers(500, 20_000),
    st.booleans(),
    st.sampled_from([1 << 18, 50_000]),
)
def test_damage_anywhere(damage: list[tuple[int, int]], split: int, resume: bool, segment_size: int) -> None:
    log = logs.build([put(i) for i in range(500)], segment_size=segment_size).log
    for at, length in damage:
        for start, data in log.files.items():
            if start <= at < start + len(data):
                data[at - start : at - start + length] = b"\xda\xa3\x20\xa7"[
                    : min(length, len(data) - at + start)
                ] + bytes(max(0, min(length, len(data) - at + start) - 4))
    assert ahead(log, resume=resume, split=split) == scanned(log, resume=resume)


@pytest.mark.parametrize("resume", [False, True])
def test_a_record_in_a_body_that_knows_its_place(resume: bool) -> None:
    """Bodies hold records that name the very offset at which they lie: splits begin in them, and are thrown away."""
    offset = 0
    messages = []
    for i in range(40):
        inner = b""
        shell = len(message.encode(Message("T", b"", properties={"KEYS": "k"})))
        for k in range(20):
            record = message.encode(Message("In", b"x" * 30))
            at = offset + V4_HEAD_SIZE + k * len(record)
            message.patch(record, 0, queue_offset=k, physical_offset=at, store_timestamp=1)
            inner += bytes(record)
        messages.append(Message("T", inner, i, {"KEYS": "k"}))
        offset += shell + len(inner)
    built = logs.build(messages, segment_size=1 << 20)
    scanner = Scanner(built.log)
    assert scanner.sound_size(built.offsets[7] + V4_HEAD_SIZE) > 0
    assert ahead(built.log, resume=resume, split=1500) == scanned(built.log, resume=resume)


def test_what_cannot_be_split_is_not_held_in_memory() -> None:
    """No record knows its own offset: nothing to split at. The scan streams, and reads no more than it gives."""
    built = logs.build([put(i) for i in range(3000)], segment_size=1 << 20)
    log = MemoryLog({1 << 30: built.log.files[0]})  # all moved by the same distance
    events = scan_ahead(Scanner(log, kernels=True, window=1000), 1 << 30, prepare=len, threads=3, split=SPLIT)
    assert isinstance(next(events)[0], RecordBatch)
    assert log.reads < 20
    events.close()
    assert ahead(log, 1 << 30, resume=True) == scanned(log, 1 << 30, resume=True)


def test_only_a_few_splits_are_read_ahead() -> None:
    built = logs.build([put(i) for i in range(3000)], segment_size=1 << 20)
    events = scan_ahead(Scanner(built.log, kernels=True, window=1 << 20), 0, prepare=len, threads=3, split=SPLIT)
    next(events)
    assert built.log.reads < 40 < built.end // SPLIT
    events.close()


def test_an_error_comes_out_in_its_place() -> None:
    built = logs.build([put(i) for i in range(600)], segment_size=1 << 20)

    def fail(batch: RecordBatch) -> None:
        if batch.start >= built.offsets[400]:
            raise ValueError("no")

    events = scan_ahead(Scanner(built.log, kernels=True), 0, prepare=fail, threads=3, split=SPLIT)
    starts: list[int] = []
    with pytest.raises(ValueError, match="no"):
        starts.extend(event.start for event, _ in events if isinstance(event, RecordBatch))
    assert starts == sorted(starts)
    assert starts
    assert starts[-1] < built.offsets[400]


def test_pages_that_cannot_be_read() -> None:
    built = logs.build([put(i) for i in range(900)], segment_size=1 << 20)
    built.log.unreadable.update({3, 17, 18})
    assert ahead(built.log, resume=True) == scanned(built.log, resume=True)


def test_threads() -> None:
    assert threads_of(1) == 1
    assert threads_of(3) == 3
    assert 1 <= threads_of(None) <= 8


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(corpus.fixture_cases(), 3, 1), ids=lambda case: str(case["id"]))
def test_damaged_stores(case: corpus.Case, fixture_copy: Callable[[str], Path]) -> None:
    store = fixture_copy(case["base"])
    mutate.apply(store, case["ops"])
    disk = Disk()
    config = corpus.config(store, case)
    files = survey(disk, config)
    if not files.log:
        return
    with ClosedLog(disk, files.log) as log:
        start = files.log[0].offset
        plain = list(Scanner(log, kernels=False).scan(start, resume=True))
        one, other = (Deriver(DeriveRules.of(config), QueueNumbers()) for _ in range(2))
        found = []
        units, keys = [], []
        scanner = Scanner(log, kernels=True, window=1 << 14)
        for event, parts in scan_ahead(scanner, start, prepare=other.prepare, resume=True, threads=2, split=1 << 14):
            found.append(event)
            if isinstance(event, RecordBatch):
                some, words = other.finish(event, parts or [])
                units += list(zip(*(getattr(some, name).tolist() for name in some.__slots__), strict=True))
                keys += list(zip(*(getattr(words, name).tolist() for name in words.__slots__), strict=True))
    assert flat(found) == flat(plain)
    for event in plain:
        if isinstance(event, RecordBatch):
            some, words = one.derive(event)
            assert units[: len(some)] == list(zip(*(getattr(some, n).tolist() for n in some.__slots__), strict=True))
            assert keys[: len(words)] == list(zip(*(getattr(words, n).tolist() for n in words.__slots__), strict=True))
            del units[: len(some)], keys[: len(words)]
    assert not units
    assert not keys


@pytest.mark.leaves
def test_verify_by_threads_is_verify(tmp_path: Path) -> None:
    """A log long enough for kernels: by one thread, by three, and by plain code in a process of its own."""
    built = logs.build([Message("T", bytes([i % 251]) * 100_000, i % 3) for i in range(400)], segment_size=1 << 26)
    data = built.log.files[0]
    for i in (7, 200, 201, 399):
        data[built.offsets[i] + 500] ^= 1
    data[built.offsets[100] + 31] ^= 1
    path = tmp_path / "store" / "commitlog" / ("0" * 20)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    config = StoreConfig(store_path_root_dir=tmp_path / "store").with_changes(mapped_file_size_commit_log=1 << 26)
    found = [verify(Disk(), config, jobs=jobs) for jobs in (1, 3)]
    assert [len(one.bad) for one in found] == [4, 4]  # two of the damaged records are neighbours
    assert found[0].bad == found[1].bad
    assert (found[0].records, found[0].size, found[0].end) == (found[1].records, found[1].size, found[1].end)
    assert found[0].records == 396
    plain = [e for e in Scanner(built.log, kernels=False).scan(0, resume=True) if isinstance(e, Damage)]
    assert [bad.offset for bad in found[0].bad if bad.stored is None] == [damage.offset for damage in plain[:3]]


def test_a_file_is_never_closed_under_a_read(tmp_path: Path) -> None:
    """The log is closed while a read waits: the read ends well, and the file is closed behind it."""
    path = tmp_path / "0"
    path.write_bytes(b"x" * 100)
    inside, go = threading.Event(), threading.Event()

    class Slow(Disk):
        def doing(self, operation: Operation, *args: object, **kwargs: object) -> Doing:
            if operation is Operation.READ:
                inside.set()
                assert go.wait(60)
            seen.append(operation)
            return super().doing(operation, *args, **kwargs)  # type: ignore[arg-type]

    seen: list[Operation] = []
    log = ClosedLog(Slow(), [Segment(0, 100, str(path))])
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(log.read, 0, 100)
        assert inside.wait(60)
        log.close()
        assert Operation.CLOSE not in seen
        go.set()
        assert bytes(read.result(60)) == b"x" * 100
    assert seen[-2:] == [Operation.READ, Operation.CLOSE]


def most_under_way(log: MemoryLog, threads: int) -> int:
    """Bytes of log that were read, but not yet given, at most."""
    held = most = 0
    lock = threading.Lock()

    def prepare(batch: RecordBatch) -> int:
        nonlocal held, most
        with lock:
            held += batch.end - batch.start
            most = max(most, held)
        return batch.end - batch.start

    for _, size in scan_ahead(Scanner(log, kernels=True), 0, prepare=prepare, threads=threads):
        with lock:
            held -= size or 0
    return most


@pytest.mark.parametrize("threads", [2, 8])
def test_memory_does_not_grow_with_the_threads(threads: int) -> None:
    built = logs.build([Message("T", bytes(50_000), 0) for _ in range(1200)], segment_size=1 << 26)
    assert 0 < most_under_way(built.log, threads) < 20 << 20
