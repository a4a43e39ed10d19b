"""Records counted: what the scanner says, as numbers; whatever is in the log, wherever it is split or a window ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.wide import examples, sample_of_each

pytest.importorskip("numba")

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.files.disk import Disk
from engine.format import hosts, judge, message, sysflag
from engine.format.judge import Row
from engine.format.message import Message
from engine.format.property_crc import CrcDemand
from engine.format.record import MESSAGE_MAGIC_V2, V4_HEAD_SIZE
from engine.inspect.store.survey import survey
from engine.log.ahead import count_ahead
from engine.log.kernels.doubt import sift
from engine.log.kernels.property_crc import FAULT_FIELDS
from engine.log.kernels.tally import tally
from engine.log.property_crcs import add_faults
from engine.log.scan import Scanner
from engine.log.source import ClosedLog
from engine.log.tally import Counted, RecordCounter, Tally, tallied
from engine.log.walk import walk
from tests.engine.log.test_kernels import MUTATIONS, _long_topic, mutated, records
from tests.engine.repair import corpus
from tests.support import logs, mutate
from tests.support.logs import MemoryLog

FEW = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def put(i: int) -> Message:
    return Message(f"Topic{i % 3}", b"%05d" % i * (i % 60), i % 4, {"KEYS": f"k{i}", "TAGS": "t"})


def joined(events: Iterable[Counted]) -> list[Counted]:
    """The events, tallies that meet made one."""
    found: list[Counted] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Tally) and isinstance(last, Tally):
            assert last.end == event.start
            records, moved = last.records + event.records, last.moved + event.moved
            messages = last.messages + event.messages
            doubts, faults = last.doubts + event.doubts, list(last.crc_faults)
            add_faults(faults, event.crc_faults)
            crcs = last.property_crcs + event.property_crcs
            found[-1] = Tally(last.start, event.end, records, messages, moved, doubts, crcs, tuple(faults))
        else:
            found.append(event)
    return found


def plain(log: MemoryLog | ClosedLog, start: int = 0, end: int | None = None) -> list[Counted]:
    return joined(tallied(Scanner(log, kernels=False, window=1000).scan(start, end, resume=True)))


def counted(
    log: MemoryLog, start: int = 0, end: int = 1 << 40, *, threads: int = 3, split: int = 3000, window: int = 1000
) -> list[Counted]:
    def read_into(offset: int, buffer: memoryview) -> int:
        found = log.read(offset, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    scanner = Scanner(log, kernels=True, window=1000)
    counter = RecordCounter(scanner, read_into, window=window)
    return joined(count_ahead(counter, scanner, start, end, threads=threads, split=split))


@pytest.mark.wide
@FEW
@given(st.lists(records(), min_size=1, max_size=8), MUTATIONS, st.integers(0, 300), st.integers(-400, 400))
def test_the_kernel_counts_what_the_walk_finds(
    built: list[bytes], changes: list[tuple[int, int]], cut: int, more: int
) -> None:
    whole = mutated(b"".join(built), changes)
    data = whole[: max(1, len(whole) - cut)]
    room = max(1, len(data) + more)
    rows: list[Row] = []
    stop = walk(data, 0, room, rows)
    moved = np.zeros((len(rows), 3), dtype=np.int64)
    doubts = np.zeros((len(rows), 5), dtype=np.int64)
    array = np.frombuffer(data, dtype=np.uint8).copy()
    faults = np.zeros((0, FAULT_FIELDS), dtype=np.int64)
    demand = int(CrcDemand.NOTHING)
    records_, messages, ends, is_odd, others, doubtful, *_ = tally(
        array, room, len(data), 1000, 0, demand, moved, doubts, faults
    )
    rows = [row for row in rows if row.position < ends]
    assert records_ == len(rows)
    assert messages == sum(sysflag.is_consumable(row.sys_flag) for row in rows)
    assert ends == (rows[-1].position + rows[-1].size if rows else 0)
    assert [tuple(row) for row in moved[:others].tolist()] == [
        (1000 + row.position, row.stored_offset, row.size) for row in rows if row.stored_offset != 1000 + row.position
    ]
    judged = {row.position: judge.of_record(data[row.position :], *_texts(data, row)) for row in rows}
    assert {at for at, why in judged.items() if why is not None} <= set(doubts[:doubtful, 0].tolist())
    v2 = MESSAGE_MAGIC_V2.to_bytes(4, "big")
    if ends == stop.position and data[ends + 4 : ends + 8] != v2:
        assert is_odd == (not stop.more and ends < len(data)) or len(data) - ends < V4_HEAD_SIZE
    else:  # the walk knows one kind of record more
        assert is_odd or len(data) - ends < V4_HEAD_SIZE
        assert data[ends + 4 : ends + 8] == v2


def test_texts_that_are_nearly_alike() -> None:
    """Records of the same lengths, each with another byte of topic or properties: as the judge."""
    said = {"UNIQ_KEY": "A1B2C3D4E5F60718A1B2C3D4E5F60718", "KEYS": "k000001", "TAGS": "TagA", "EMPTY": "x" * 60}
    one = bytes(message.encode(Message("Topic0001", b"body", properties=said, born_timestamp=5)))
    texts_at = one.index(b"Topic0001")
    topic, own = slice(texts_at, texts_at + 9), slice(texts_at + 11, None)
    some = [bytearray(one)]
    for at in (*range(len(one))[topic], *range(len(one))[own]):
        some += [bytearray(one[:at] + bytes([byte]) + one[at + 1 :]) for byte in (0, 1, 2, 9, 31, 32, 200)]
    some += some[::7]
    for record in some:
        message.patch(record, 0, queue_offset=0, physical_offset=0, store_timestamp=9)
    data = np.frombuffer(b"".join(some), dtype=np.uint8).copy()
    moved, rows = np.zeros((len(some), 3), dtype=np.int64), np.zeros((len(some), 5), dtype=np.int64)
    count, _, end, _, _, doubtful, *_ = tally(
        data,
        len(data),
        len(data),
        0,
        0,
        int(CrcDemand.NOTHING),
        moved,
        rows,
        np.zeros((0, FAULT_FIELDS), dtype=np.int64),
    )
    assert (count, end) == (len(some), len(data))
    found = {at // len(one) for at in rows[: sift(data, rows[:doubtful]), 0].tolist()}
    verdicts = [judge.of_record(bytes(record), bytes(record[topic]), bytes(record[own])) for record in some]
    assert found == {i for i, verdict in enumerate(verdicts) if verdict is not None}
    assert 0 < len(found) < len(some)


def _texts(data: bytes, row: Row) -> tuple[bytes, bytes]:
    """Topic and properties, as stored."""
    topic = data[row.topic_position : row.topic_position + row.topic_length]
    return topic, data[row.properties_position : row.properties_position + row.properties_length]


@pytest.mark.parametrize("segment_size", [1 << 20, 20_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sound_log(threads: int, segment_size: int) -> None:
    built = logs.build([put(i) for i in range(600)], segment_size=segment_size)
    assert counted(built.log, threads=threads) == plain(built.log)
    assert sum(event.records for event in plain(built.log) if isinstance(event, Tally)) == 600
    middle, end = built.offsets[300], built.offsets[500]
    assert counted(built.log, middle, end, threads=threads) == plain(built.log, middle, end)
    assert counted(built.log, middle, end + 1, threads=threads) == plain(built.log, middle, end + 1)


def test_records_larger_than_a_window() -> None:
    built = logs.build([Message("T", b"x" * (i % 7 * 900), 0) for i in range(60)], segment_size=1 << 18)
    assert counted(built.log) == plain(built.log)


def test_records_of_ipv6_hosts_and_of_long_topics() -> None:
    six = hosts.parse("[2001:db8::1]:10911")
    v6 = [Message("T", b"six", 0, born_host=six), Message("T", b"six", 0, born_host=six, store_host=six)]
    built = logs.build([put(1), *v6, put(2)], segment_size=1 << 16)
    odd = _long_topic(message.encode(put(3)), put(3))
    built.log.write(built.end, bytes(odd))
    found = counted(built.log, threads=1)
    assert found == plain(built.log)
    assert isinstance(found[0], Tally)
    assert found[0].records == 5


@pytest.mark.wide
@FEW
@given(
    st.lists(st.tuples(st.integers(0, 120_000), st.integers(1, 3000)), max_size=6),
    st.integers(500, 20_000),
    st.sampled_from([1 << 18, 50_000]),
    st.sampled_from([400, 1000, 30_000]),
)
def test_damage_anywhere(damage: list[tuple[int, int]], split: int, segment_size: int, window: int) -> None:
    log = logs.build([put(i) for i in range(500)], segment_size=segment_size).log
    for at, length in damage:
        for start, data in log.files.items():
            if start <= at < start + len(data):
                end = min(len(data), at - start + length)
                data[at - start : end] = bytes(end - at + start)
    assert counted(log, split=split, window=window) == plain(log)


def test_records_that_name_another_place() -> None:
    built = logs.build([put(i) for i in range(600)], segment_size=1 << 20)
    for i in (3, 4, 400, 599):
        built.log.files[0][built.offsets[i] + 35] ^= 1
    found = counted(built.log)
    assert found == plain(built.log)
    assert isinstance(found[0], Tally)
    assert [place for place, _, _ in found[0].moved] == [built.offsets[i] for i in (3, 4, 400, 599)]
    log = MemoryLog({1 << 30: built.log.files[0]})  # all of them
    assert counted(log, 1 << 30) == plain(log, 1 << 30)


def test_missing_segments_and_pages_that_cannot_be_read() -> None:
    built = logs.build([put(i) for i in range(900)], segment_size=20_000)
    del built.log.files[40_000]
    built.log.unreadable.update({3, 17, 18})
    assert counted(built.log) == plain(built.log)


def test_behind_damage_it_is_counted_again() -> None:
    built = logs.build([put(i) for i in range(900)], segment_size=1 << 20)
    built.log.files[0][built.offsets[100] + 95] ^= 1
    asked: list[int] = []

    def read_into(offset: int, buffer: memoryview) -> int:
        asked.append(offset)
        found = built.log.read(offset, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    counter = RecordCounter(Scanner(built.log, kernels=True, window=4000), read_into, window=4000)
    assert joined(counter.count(0, 1 << 20)) == plain(built.log)
    counted_from = [at for at in asked if built.offsets[110] < at < built.end]
    assert counted_from[0] < built.offsets[250]
    assert len(counted_from) > (built.end - built.offsets[250]) // 4000


def test_a_log_full_of_damage_is_not_read_a_window_for_each() -> None:
    built = logs.build([put(i) for i in range(900)], segment_size=1 << 20)
    for i in range(100, 800, 2):
        built.log.files[0][built.offsets[i] + 95] ^= 1
    found = plain(built.log)
    reads, built.log.reads = built.log.reads, 0
    assert counted(built.log, threads=1) == found
    assert built.log.reads < 1.2 * reads


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize(
    "case", sample_of_each(corpus.fixture_cases(), corpus.category, 3, 1), ids=lambda case: str(case["id"])
)
def test_damaged_stores(case: corpus.Case, fixture_copy: Callable[[str], Path]) -> None:
    store = fixture_copy(case["base"])
    mutate.apply(store, case["ops"])
    disk = Disk()
    files = survey(disk, corpus.config(store, case))
    if not files.log:
        return
    start = files.log[0].offset
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, kernels=True, window=1 << 14)
        counter = RecordCounter(scanner, log.read_into, window=1 << 13)
        found = joined(count_ahead(counter, scanner, start, 1 << 62, threads=2, split=1 << 14))
        assert found == plain(log, start)
