"""Splits of a log in DLedger's entries: for any size and damage their union is the engine's own scan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import message
from engine.format.dledger_entry import HEAD_SIZE
from engine.format.message import Message
from engine.format.record import body_position
from engine.log.boundary import Boundaries
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.splits import Split, events, log_end, plan_splits
from engine.pipeline.stores import StoreRef, find_stores
from tests.engine.log.test_entries import records
from tests.engine.log.test_scan import flat
from tests.support import newer
from tests.support.dledger import EntryLog, put_in_entries


def _ref(log: EntryLog) -> StoreRef:
    return StoreRef("memory", StoreConfig(store_path_root_dir=Path("memory")), tuple(log.segments), False)


def _alone(split: Split, log: EntryLog) -> EntryLog:
    at = split.segment.offset
    return EntryLog({at: log.files[at]})


def _assert_the_union_is_the_scan(log: EntryLog, size: int) -> None:
    first = log.segments[0].offset
    for check_crc in (True, False):
        union = []
        for split in plan_splits([_ref(log)], split_bytes=size, start=first):
            union += flat(events(split, _alone(split, log), check_crc=check_crc))  # type: ignore[arg-type]
        whole = flat(Scanner(log, check_crc=check_crc, kernels=False).scan(first, resume=True))
        assert union == [event for event in whole if event[0] != "gap"]


def test_the_union_is_the_scan_whatever_is_damaged() -> None:
    some = random.Random(7)
    for _ in range(120):
        given = records(40, some.randrange(1000))
        log, places = put_in_entries(given, 4096, start=some.choice((0, 4096)))
        for _ in range(some.randrange(4)):
            at = some.randrange(len(places))
            begin = places[at] + some.choice((0, 4, 30, HEAD_SIZE, some.randrange(HEAD_SIZE + len(given[at]))))
            data = some.choice((bytes(some.randrange(1, 80)), some.randbytes(some.randrange(1, 40))))
            segment = next(s for s in log.segments if s.offset <= begin < s.end)
            log.write(begin, data[: segment.end - begin])
        _assert_the_union_is_the_scan(log, some.randrange(90, 6000))


def test_a_split_begins_at_an_entry_and_not_at_its_record() -> None:
    log, places = put_in_entries(records(10), 8192)
    boundaries = Boundaries(log)
    segment = log.segments[0]
    for wish in range(1, places[-1] + 1):
        assert boundaries.at(segment, wish) == next(at for at in places if at >= wish)
    log.write(places[4], b"\xff")  # its header is damaged: the scan continues at its record
    assert boundaries.at(segment, places[3] + 1) == places[4] + HEAD_SIZE
    assert boundaries.at(segment, places[4] + 1) == places[5]


def test_entries_in_a_body_are_no_boundary() -> None:
    outer = bytearray(message.encode(Message("Outer", bytes(3000))))
    given = [*records(3), outer, *records(3, 6)]
    log, places = put_in_entries(given, 1 << 14)
    body_at = places[3] + HEAD_SIZE + body_position(0)
    inner, _ = put_in_entries(records(4), 4096, start=body_at)
    copied = bytearray(message.encode(Message("Outer", bytes(inner.files[body_at][:3000]))))
    log, places = put_in_entries([*records(3), copied, *records(3, 6)], 1 << 14)
    for size in (100, 700, 2000):
        _assert_the_union_is_the_scan(log, size)
    assert Boundaries(log).at(log.segments[0], body_at) == places[4]


@pytest.mark.leaves
def test_the_end_of_the_store_of_a_real_broker(tmp_path: Path) -> None:
    (ref,) = find_stores([str(newer.unpack("dledger", tmp_path))])
    with ClosedLog(Disk(), ref.segments) as log:
        batches = [one for one in Scanner(log).scan(0, resume=True) if isinstance(one, RecordBatch)]
    assert all(segment.in_entries for segment in ref.segments)
    assert log_end(ref, Disk()) == batches[-1].end
    assert sum(map(len, batches)) == 20
