"""The live commit log alone: places, rolls, queue offsets, and what a failed append leaves."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.errors import FormatError, InvalidArgument, StorageError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.format.batch import BatchItem
from engine.format.message import blank_length, decode
from engine.log.commitlog import CommitLog
from engine.log.derive import TopicQueue
from engine.log.results import StoreClosed, WriteFailed
from engine.log.scan import Blank, RecordBatch, Scanner
from tests.engine.opening import message, small

pytestmark = pytest.mark.leaves("checkpoint-missing", "log-tail", "unit-missing")

SIZE = 4096
T0 = TopicQueue("T", 0)


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return small(tmp_path, mapped_file_size_commit_log=SIZE)


@pytest.fixture(params=["map", "channel"])
def log(request: pytest.FixtureRequest, config: StoreConfig) -> Iterator[CommitLog]:
    made = CommitLog(Disk(mapped=request.param == "map"), config, clock=lambda: 1234)
    made.open(0, {T0: 7})
    yield made
    made.close(clean=True)


def test_an_empty_log(log: CommitLog) -> None:
    assert (log.min_offset, log.max_offset, log.segments) == (-1, 0, ())
    assert len(log.read(0, 10)) == 0
    assert log.read_at(0, 1) is None
    assert log.flush_all() == 0


def test_an_append(log: CommitLog) -> None:
    first = log.append(message("a"))
    second = log.append(message("bb"))
    assert (first.physical_offset, first.queue_offset, first.store_timestamp) == (0, 7, 1234)
    assert (second.physical_offset, second.queue_offset) == (first.size, 8)
    assert log.topic_queue_table == {T0: 9}
    record = log.read_at(second.physical_offset, second.size)
    assert record is not None
    found = decode(record)
    assert (found.body, found.physical_offset, found.queue_offset) == (b"bb", second.physical_offset, 8)
    assert found.store_timestamp == 1234
    assert found.crc_ok
    assert found.msg_id == second.msg_id
    assert log.read_at(second.physical_offset, second.size + 1) is None
    assert log.roll_next_file(second.physical_offset) == SIZE


def test_eight_bytes_stay_free(log: CommitLog) -> None:
    overhead = log.append(message(b"")).size
    left = SIZE - overhead
    log.append(message(b"x" * (left - overhead - 8)))
    assert log.max_offset == SIZE - 8
    assert log.append(message(b"y")).physical_offset == SIZE
    blank = log.read_at(SIZE - 8, 8)
    assert blank is not None
    assert blank_length(blank) == 8


def test_one_byte_less_rolls(log: CommitLog) -> None:
    overhead = log.append(message(b"")).size
    left = SIZE - overhead
    assert log.append(message(b"x" * (left - overhead - 7))).physical_offset == SIZE
    blank = log.read(overhead, left)
    assert blank_length(blank) == left
    assert bytes(blank[8:]) == bytes(left - 8)


def test_a_batch_that_does_not_fit_goes_to_the_next_file_whole(log: CommitLog) -> None:
    log.append(message(b"x" * 3000))
    result = log.append_batch(message(), [BatchItem(b"a" * 300)] * 4)
    assert result.physical_offset == SIZE
    assert [decode(log.read(offset, 500)).queue_offset for offset in result.offsets] == [8, 9, 10, 11]
    assert log.topic_queue_table == {T0: 12}


def test_the_scanner_reads_it(log: CommitLog) -> None:
    sent = [b"%d" % i * 100 for i in range(50)]
    for body in sent:
        log.append(message(body))
    events = list(Scanner(log).scan(0, log.max_offset))
    found = [bytes(e.body(i)) for e in events if isinstance(e, RecordBatch) for i in range(len(e))]
    assert found == sent
    assert sum(isinstance(e, Blank) for e in events) == len(log.segments) - 1
    assert list(log.data_ranges(log.segments[-1], log.segments[-1].offset)) == [
        (log.segments[-1].offset, log.max_offset)
    ]
    assert list(log.data_ranges(log.segments[-1], log.max_offset)) == []


def test_it_goes_on_where_recovery_says(config: StoreConfig) -> None:
    disk = Disk()
    one = CommitLog(disk, config)
    one.open(0, {})
    first, second = one.append(message("a")), one.append(message("b"))
    one.flush_all()
    one.close(clean=True)
    two = CommitLog(disk, config)
    two.open(second.physical_offset, {T0: 1})
    assert two.max_offset == two.flushed_where == first.size
    assert two.append(message("c")).physical_offset == second.physical_offset
    two.close(clean=True)


def test_files_behind_the_end_are_never_deleted_here(config: StoreConfig) -> None:
    disk = Disk()
    one = CommitLog(disk, config)
    one.open(0, {})
    for _ in range(5):
        one.append(message(b"x" * 2000))
    one.close(clean=True)
    before = sorted(config.commit_log_paths[0].iterdir())
    two = CommitLog(disk, config)
    with pytest.raises(FormatError, match="after the log end"):
        two.open(100, {})
    assert sorted(config.commit_log_paths[0].iterdir()) == before


def test_after_sealing(log: CommitLog) -> None:
    log.append(message())
    log.seal()
    with pytest.raises(StoreClosed):
        log.append(message())
    with pytest.raises(StoreClosed):
        log.append_raw(log.max_offset, b"x")


def test_a_write_that_fails_leaves_nothing(config: StoreConfig) -> None:
    disk = FaultyDisk(None, mapped=False)
    log = CommitLog(disk, config)
    log.open(0, {})
    first = log.append(message("a"))
    writes = 0

    def first_write(doing: object) -> bool:
        nonlocal writes
        if doing.operation is Operation.WRITE:  # type: ignore[attr-defined]
            writes += 1
            return writes == 1
        return False

    disk.fail_when(first_write, errno.EIO)
    with pytest.raises(WriteFailed):
        log.append(message("b"))
    assert writes == 2  # what may have been written is wiped
    assert log.max_offset == first.size
    assert log.topic_queue_table == {T0: 1}
    assert log.append(message("c")).physical_offset == first.size
    log.close(clean=True)


def test_raw_bytes(log: CommitLog, tmp_path: Path) -> None:
    for i in range(30):
        log.append(message(b"%d" % i * 200))
    config = small(tmp_path / "slave", mapped_file_size_commit_log=SIZE)
    slave = CommitLog(Disk(), config)
    slave.open(0, {})
    data = b"".join(bytes(log.read(s.offset, SIZE)) for s in log.segments)
    slave.append_raw(0, data[:100])
    slave.append_raw(100, data[100:5000])
    with pytest.raises(InvalidArgument):
        slave.append_raw(100, b"again")
    slave.append_raw(5000, memoryview(data)[5000:])
    assert slave.max_offset == log.max_offset
    assert bytes(slave.read(SIZE, SIZE)) == bytes(log.read(SIZE, SIZE))
    slave.close(clean=True)


def test_a_slaves_log_starts_with_a_file(tmp_path: Path) -> None:
    slave = CommitLog(Disk(), small(tmp_path, mapped_file_size_commit_log=SIZE))
    slave.open(0, {})
    with pytest.raises(InvalidArgument):
        slave.append_raw(SIZE + 1, b"x")
    slave.append_raw(3 * SIZE, b"x")
    assert (slave.min_offset, slave.max_offset) == (3 * SIZE, 3 * SIZE + 1)
    slave.close(clean=True)


def test_queue_offsets(log: CommitLog) -> None:
    log.forget_queue(T0)
    assert log.append(message()).queue_offset == 0
    log.topic_queue_table = {T0: 100}
    assert log.append(message()).queue_offset == 100


def test_a_message_to_its_own_queue_twice_counts_once(tmp_path: Path) -> None:
    log = CommitLog(Disk(), small(tmp_path, enable_multi_dispatch=True, enable_lmq=True))
    log.open(0, {})
    for _ in range(2):
        log.append(message(INNER_MULTI_DISPATCH="T,X,X")._replace(queue_id=0))
    assert log.topic_queue_table == {T0: 2, TopicQueue("X", 0): 2}
    log.close(clean=True)


def test_two_logs_of_the_same_appends_are_the_same_bytes(tmp_path: Path) -> None:
    whole = []
    for kind in ("map", "channel", "pool"):
        config = small(tmp_path / kind, mapped_file_size_commit_log=SIZE, transient_store_pool_enable=kind == "pool")
        log = CommitLog(Disk(mapped=kind == "map"), config, clock=lambda: 5)
        log.open(0, {})
        for i in range(40):
            log.append(message(b"%d" % i * 77, queue_id=i % 3))
        log.flush_all()
        log.close(clean=True)
        whole.append([path.read_bytes() for path in sorted(config.commit_log_paths[0].iterdir())])
    assert whole[0] == whole[1] == whole[2]


def test_nothing_can_be_read_of_a_closed_log(config: StoreConfig) -> None:
    log = CommitLog(Disk(), config)
    log.open(0, {})
    log.append(message())
    log.close(clean=True)
    with pytest.raises(StorageError):
        log.append(message())


def test_much_of_a_masters_log_that_cannot_be_written_leaves_nothing(log: CommitLog, tmp_path: Path) -> None:
    for _ in range(150):
        log.append(message(bytes(1000)))
    data = b"".join(bytes(log.read(one.offset, SIZE)) for one in log.segments)
    assert len(data) > 100_000
    disk = FaultyDisk(None)
    slave = CommitLog(disk, small(tmp_path / "slave", mapped_file_size_commit_log=1 << 20))
    slave.open(0, {})
    slave.append_raw(0, data[:1000])
    disk.fail_when(lambda doing: doing.operation is Operation.WRITE and doing.length > 90_000, errno.EIO)
    with pytest.raises(WriteFailed):
        slave.append_raw(1000, data[1000:])
    assert slave.max_offset == 1000
    disk.heal()
    file = slave.segments[0].path
    assert not any(Path(file).read_bytes()[1000:])
    slave.append_raw(1000, data[1000:])
    assert bytes(slave.read(0, len(data))) == data
    slave.close(clean=True)


def test_much_of_a_masters_log_needs_no_descriptor_that_is_not_there(log: CommitLog, tmp_path: Path) -> None:
    for _ in range(150):
        log.append(message(bytes(1000)))
    data = b"".join(bytes(log.read(one.offset, SIZE)) for one in log.segments)
    disk = FaultyDisk(None)
    slave = CommitLog(disk, small(tmp_path / "slave", mapped_file_size_commit_log=1 << 20))
    slave.open(0, {})
    slave.append_raw(0, data[:1000])
    disk.fail_when(lambda doing: doing.operation is Operation.OPEN, errno.EMFILE)
    slave.append_raw(1000, data[1000:])
    disk.heal()
    assert bytes(slave.read(0, len(data))) == data
    slave.close(clean=True)
