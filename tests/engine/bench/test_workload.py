"""The logs of the bench are what the engine itself would have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.bench.jobs import PLAIN
from engine.bench.stores import KeptStore
from engine.bench.workload import BORN_MS, KIB, MIB, PER_MS, Workload, bodies, workloads, write_log, written_ranges
from engine.files.disk import Disk
from engine.format import message, names, property_crc
from engine.format.properties import KEYS
from engine.inspect.check.check import check
from engine.inspect.check.verify import verify
from engine.inspect.store.survey import survey
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from tests.engine.bench.conftest import SMALL


def test_every_record_is_what_encode_gives(kept: KeptStore) -> None:
    workload = kept.workload
    number = 0
    disk = Disk()
    files = survey(disk, workload.config(kept.root))
    with ClosedLog(disk, files.log) as log:
        for event in Scanner(log).scan(0):
            if not isinstance(event, RecordBatch):
                continue
            for offset in event.offsets().tolist():
                expected = message.encode(workload.message(number, workload.body_of(number)))
                message.patch(
                    expected,
                    0,
                    queue_offset=number // workload.queues,
                    physical_offset=offset,
                    store_timestamp=BORN_MS + number // PER_MS,
                )
                if workload.sealed:
                    property_crc.seal(expected)
                assert bytes(log.read(offset, len(expected))) == expected
                number += 1
    assert number == kept.messages
    assert number * workload.record_size == kept.record_bytes


def test_the_log_is_sound_to_its_end(kept: KeptStore) -> None:
    disk = Disk()
    files = survey(disk, kept.workload.config(kept.root))
    assert sum(segment.size for segment in files.log) == kept.workload.size
    with ClosedLog(disk, files.log) as log:
        events = list(Scanner(log).scan(0, resume=True))
    (tail,) = [event for event in events if isinstance(event, Damage)]  # only the empty end
    assert tail is events[-1]
    blanks = [event for event in events if isinstance(event, Blank)]
    assert len(blanks) == len(files.log) - 1
    assert sum(length for _, length in written_ranges(kept.workload, kept.root / names.COMMITLOG)) == kept.record_bytes


def test_the_store_around_it_is_sound(kept: KeptStore) -> None:
    found = check(Disk(), kept.workload.config(kept.root))
    assert {one.code for one in found.findings} == ({"newer-part"} if kept.workload.sealed else set())
    assert found.counts["records"] == kept.messages
    assert verify(Disk(), kept.workload.config(kept.root)).property_crcs == kept.messages * kept.workload.sealed


def test_the_same_bytes_each_time_and_others_for_another_seed(tmp_path: Path) -> None:
    def log(seed: int, place: str) -> bytes:
        write_log(replace(SMALL[1], seed=seed), tmp_path / place)
        return (tmp_path / place / names.segment_name(0)).read_bytes()

    assert log(1, "a") == log(1, "b")
    assert log(1, "a") != log(2, "c")


def test_bodies_are_those_of_the_log() -> None:
    assert list(bodies(SMALL[0], 20)) == [SMALL[0].body_of(number) for number in range(20)]


@pytest.mark.parametrize("size", [2 * KIB, 300_000])
def test_a_small_log_of_text_has_the_words_of_a_large_one(size: int) -> None:
    small = Workload("text", KIB, size=size, segment=size, is_text=True)
    some = list(bodies(small, size // KIB))
    assert some == [small.body_of(number) for number in range(len(some))]
    assert some == list(bodies(replace(small, size=2 * size), len(some)))
    assert len(set(some)) == len(some)
    assert all(set(body) <= {*b" abcdefghijklmnopqrstuvwxyz"} for body in some)


def test_keys_and_topics() -> None:
    put = SMALL[2].message(29, b"")
    assert (put.topic, put.queue_id) == (SMALL[2].topic(29), 1)
    assert put.properties[KEYS] == SMALL[2].key_of(29)
    assert SMALL[2].topic(29) != SMALL[2].topic(3)


@pytest.mark.parametrize("size", [MIB, 128 * MIB])
def test_those_of_the_bench(size: int) -> None:
    found = workloads(size)
    assert set(found) == {"b1k", "b128", "queues", "b64k", "b1k-crc", "b128-crc", "large", "sparse", "start"}
    assert all(found[f"{name}-crc"] == replace(found[name], name=f"{name}-crc", sealed=True) for name in PLAIN)
    assert {one.size for name, one in found.items() if name not in ("large", "sparse", "start")} == {size}
    assert (found["large"].size, found["sparse"].size) == (8 * size, 100 * size)
    assert found["queues"].queues == 10_000
