"""A whole record inside a damaged one is no message, and a damaged length hides none: by every reader of the log.

The logs are made by tests.support.planted, which knows nothing of the scanner: bodies that hold records which name
the very place where they lie. Truth is what was put: the outer records that no byte was changed in.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import message
from engine.format.message import Message
from engine.format.record import POSITION_MAGIC, V4_HEAD_SIZE
from engine.inspect.check.verify import verify
from engine.inspect.dump.whole_records import Displaced, Lost, whole_records
from engine.inspect.store.survey import survey
from engine.log.ahead import scan_ahead
from engine.log.boundary import Boundaries
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.support import logs, planted
from tests.support.checking import check_clean
from tests.support.logs import MemoryLog
from tests.support.planted import Planted

SEGMENT = 1 << 16
BODY_LENGTH = V4_HEAD_SIZE - 4


def found(log: MemoryLog, **options: bool) -> list[int]:
    """Where a scan of all of it meets records."""
    events = Scanner(log, **options).scan(0, resume=True)
    return [place for e in events if isinstance(e, RecordBatch) for place in e.offsets().tolist()]


def several(count: int = 30, inner: int = 3) -> planted.PlantedLog:
    return planted.build([Planted(10, 40, inner if i % 3 else 0, 20) for i in range(count)], SEGMENT)


@pytest.mark.parametrize("field", ["crc", "body", "body length", "topic length", "properties length"])
def test_what_a_damaged_record_holds_is_skipped(field: str) -> None:
    """By one damaged field; the record behind it is found."""
    made = several()
    log, offsets = made.built.log, made.built.offsets
    for i in (4, 11, 28):
        size = len(made.built.records[i])
        at = {
            "crc": 8,
            "body": V4_HEAD_SIZE + 2,
            "body length": BODY_LENGTH + 2,
            "topic length": size - 3 - 2 - 2,
            "properties length": size - 3 - 1,
        }[field]
        log.write(offsets[i] + at, bytes([log.files[0][offsets[i] + at] ^ 0x10]))
    assert found(log) == [offset for i, offset in enumerate(offsets) if i not in (4, 11, 28)]


def test_a_damaged_size_hides_no_record() -> None:
    """Records of 256 bytes: a size whose bit flips ends just where a later record begins."""
    shell = len(message.encode(Message("T", b"")))
    built = logs.build([Message("T", bytes([i]) * (256 - shell)) for i in range(40)], SEGMENT)
    for bit in range(32):
        log = MemoryLog({0: bytearray(built.log.files[0])})
        size = (256 ^ 1 << bit).to_bytes(4, "big")
        log.write(built.offsets[7], size)
        assert found(log) == built.offsets[:7] + built.offsets[8:], bit


def test_a_damaged_size_hides_no_record_before_the_log_s_end() -> None:
    """The size then ends among the zeros behind the log."""
    built = logs.build([Message("T", b"x" * 50) for _ in range(4)], SEGMENT)
    built.log.write(built.offsets[1], (0x2000).to_bytes(4, "big"))
    assert found(built.log) == [built.offsets[0], *built.offsets[2:]]


def test_the_size_and_the_body_are_damaged() -> None:
    made = several()
    log, offsets = made.built.log, made.built.offsets
    log.write(offsets[4], (1 << 30).to_bytes(4, "big"))
    log.write(offsets[4] + V4_HEAD_SIZE + 1, b"\xff")
    assert found(log) == offsets[:4] + offsets[5:]


def test_a_claim_that_a_search_meets() -> None:
    """The head before it is gone; the one behind has only its body damaged, and holds records."""
    made = several()
    log, offsets = made.built.log, made.built.offsets
    log.write(offsets[4], bytes(V4_HEAD_SIZE))
    log.write(offsets[5] + V4_HEAD_SIZE + 2, b"\xff")
    left = found(log)
    assert set(offsets) - set(left) == {offsets[4], offsets[5]}
    within = [at for at in left if offsets[5] <= at < offsets[6]]
    assert not within


def test_a_head_within_a_body_claims_no_record_behind_it() -> None:
    """The outer head is gone. A head in its body says that it reaches over sound records: nobody believes it."""
    sizes = [Message("T", bytes(400)), *(Message("T", b"x" * 50) for _ in range(5))]
    built = logs.build(sizes, SEGMENT)
    at = built.offsets[0] + 200
    reach = built.offsets[3] - at
    fake = message.encode(Message("T", bytes(reach - len(message.encode(Message("T", b""))))))
    message.patch(fake, 0, queue_offset=0, physical_offset=at, store_timestamp=1)
    log = built.log
    log.write(at, bytes(fake[:V4_HEAD_SIZE]))
    log.write(0, bytes(V4_HEAD_SIZE))
    assert found(log)[-5:] == built.offsets[1:]


@pytest.mark.parametrize("seed", range(40))
def test_every_reader_says_the_same(seed: int) -> None:
    """Random bytes of heads, bodies and properties: no nested record by any reader, no untouched outer one lost."""
    rng = random.Random(seed)
    kinds = [
        Planted(rng.randrange(60), rng.randrange(40), rng.randrange(4), rng.randrange(40), v6=rng.random() < 0.3)
        for _ in range(60)
    ]
    made = planted.build(kinds, SEGMENT)
    log, offsets = made.built.log, made.built.offsets
    sizes = [len(record) for record in made.built.records]
    hurt = set(rng.sample(range(len(offsets)), 12))
    for i in hurt:  # one place each: not the magic nor its own offset, without which a head claims nothing
        places = [at for at in range(sizes[i]) if not (4 <= at < 8 or 28 <= at < 36)]
        at = offsets[i] + rng.choice(places)
        log.write(at, bytes([log.files[at // SEGMENT * SEGMENT][at % SEGMENT] ^ 1 << rng.randrange(8)]))
    left = found(log)
    untouched = [offset for i, offset in enumerate(offsets) if i not in hurt]
    assert set(untouched) <= set(left) <= set(offsets)
    assert found(log, kernels=True) == left
    for split in (500, 3000):
        events = scan_ahead(Scanner(log, kernels=True), 0, prepare=len, resume=True, threads=3, split=split)
        assert [p for e, _ in events if isinstance(e, RecordBatch) for p in e.offsets().tolist()] == left
    places = {*left, *(s.offset for s in log.segments), *(s.end for s in log.segments)}
    boundaries = Boundaries(log)
    for segment in log.segments:
        for wish in range(segment.offset, segment.end, 701):
            assert boundaries.at(segment, wish) in places


def store_of(root: Path, count: int = 40) -> tuple[StoreConfig, list[int]]:
    """A closed store whose bodies hold records that name their place; where its records are."""
    config = StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    offsets: list[int] = []
    with MessageStore.open(config) as store:
        at = 0
        for i in range(count):
            inner = message.encode(Message("T", b"nested" * 5, properties={"KEYS": f"nested{i}"}))
            message.patch(inner, 0, queue_offset=i, physical_offset=at + V4_HEAD_SIZE + 7, store_timestamp=1)
            result = store.put(Message("T", b"-" * 7 + bytes(inner) + b"behind", properties={"KEYS": f"k{i}"}))
            assert result.append is not None
            assert result.append.physical_offset == at
            offsets.append(at)
            at += result.append.size
    return config, offsets


def test_no_repair_and_no_report_takes_it_for_a_message(tmp_path: Path) -> None:
    """Bridged, verified, searched: 40 messages less the damaged ones, and nothing that lay in their bodies."""
    config, offsets = store_of(tmp_path / "store")
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    hurt = (3, 17, 39)
    for i in hurt:
        with segment.open("r+b") as file:
            file.seek(offsets[i] + V4_HEAD_SIZE + 1)
            file.write(b"\xff")
    sound = [offset for i, offset in enumerate(offsets) if i not in hurt]
    checked = verify(Disk(), config)
    assert (checked.records, [bad.offset for bad in checked.bad]) == (len(sound), [offsets[i] for i in hurt])
    with ClosedLog(Disk(), survey(Disk(), config).log) as log:
        seen = list(whole_records(Disk(), log, 0, max_message_size=config.max_message_size))
    assert not [one for one in seen if isinstance(one, Displaced)]
    assert [one.offset for one in seen if isinstance(one, Lost)] == [offsets[i] for i in hurt]
    plan = plan_recover(Disk(), config, bridge=True)
    assert [bridge.offset for bridge in plan.log.bridges] == [offsets[3], offsets[17]]
    assert plan.log.end.end == offsets[39]
    apply(Disk(), plan)
    check_clean(tmp_path / "store", config)
    assert not plan_recover(Disk(), config, bridge=True, whole=True).changed
    with ClosedLog(Disk(), survey(Disk(), config).log) as log:
        events = list(Scanner(log).scan(0, plan.log.end.end))
    assert not [e for e in events if isinstance(e, Damage)]
    left = [place for e in events if isinstance(e, RecordBatch) for place in e.offsets().tolist()]
    assert left == offsets[:39]


def test_a_torn_last_record_is_a_tail_whatever_its_body_holds(tmp_path: Path) -> None:
    config, offsets = store_of(tmp_path / "store", 5)
    with (tmp_path / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offsets[-1] + 8)
        file.write(b"\xff\xff")
    plan = plan_recover(Disk(), config)
    assert plan.refusal is None
    assert plan.log.end.end == offsets[-1]
    apply(Disk(), plan)


assert POSITION_MAGIC == 4
