"""The kernels against the plain code: the same rows, stops, units, keys and queue numbers, to the last field."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import numba
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import message, names, properties, sysflag
from engine.format.judge import Row, Stop
from engine.format.message import Message
from engine.format.record import BLANK_MAGIC, MESSAGE_MAGIC_V2
from engine.inspect.store.survey import survey
from engine.log.batch import RecordBatch
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, Units
from engine.log.kernels import fold
from engine.log.kernels.crc import crc32
from engine.log.kernels.jit import compiled
from engine.log.kernels.walk import fast_walk
from engine.log.scan import LONG, Event, Scanner
from engine.log.source import ClosedLog
from engine.log.walk import walk
from tests.engine.repair import corpus
from tests.support import golden, logs, mutate, references, strategies
from tests.support.wide import examples, sample, sample_of_each

EVERY = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
RULES = [
    DeriveRules(),
    DeriveRules(index=False),
    DeriveRules(tag_keys=True),
    DeriveRules(multi_dispatch=True, lmq=True),
    DeriveRules(multi_dispatch=True),
]

TEXTS = st.text(st.sampled_from("ab %é中\U0001f600\x00/"), max_size=40)
PIECES = st.one_of(
    st.tuples(
        st.sampled_from([
            properties.TAGS, properties.KEYS, properties.UNIQ_KEY, properties.DELAY, properties.INNER_MULTI_DISPATCH,
            properties.INNER_MULTI_QUEUE_OFFSET, "TAG", "TAGSS", "KEY", "UNIQ_KEYS", "中",
        ]),
        st.one_of(TEXTS, st.sampled_from(["3", "99", "0,1", "%LMQ%a,%LMQ%b", "x,,", "one\x01two", " a  b "])),
    ).map(properties.NAME_VALUE.join),
    st.sampled_from(["", "x", "TAGS", "TAGS\x01", "\x01v", "KEYS\x01", "\x01\x01\x01"]),
).map(str.encode)  # fmt: skip
PROPERTIES = st.lists(st.one_of(PIECES, st.binary(max_size=9)), max_size=6).map(b"\x02".join)
TOPICS = st.sampled_from(
    ["T", "Topic", "AnotherTopicOfSome25Bytes", names.SCHEDULE_TOPIC, "é", "a/b", "..", "%LMQ%a", "q" * 127]
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record whose properties may be anything."""
    put = draw(strategies.messages)
    put = Message(
        draw(TOPICS),
        draw(st.one_of(st.just(b""), st.binary(max_size=200))),
        draw(st.integers(-1, 2)),
        sys_flag=draw(st.sampled_from([0, 0, 0, sysflag.TRANSACTION_PREPARED, 8, 12, 0x7C3])),
        born_host=put.born_host,
        store_host=put.store_host,
    )
    record = message.encode(put, draw(PROPERTIES))
    stored = draw(st.integers(0, 1 << 41))
    message.patch(record, 0, queue_offset=draw(strategies.longs), physical_offset=7, store_timestamp=stored)
    if draw(st.integers(0, 9)) == 0:
        record = _long_topic(record, put)
    return bytes(record)


def _long_topic(record: bytearray, put: Message) -> bytearray:
    """The same record with the topic length of 5.x, of 2 bytes."""
    body_at = 88 + 12 * (put.born_host.is_v6 + put.store_host.is_v6)
    at = body_at + len(put.body)
    out = record[:at] + b"\0" + record[at:]
    out[:4] = len(out).to_bytes(4, "big")
    out[4:8] = MESSAGE_MAGIC_V2.to_bytes(4, "big")
    return out


MUTATIONS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3)


def mutated(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for at, value in changes:
        if out:
            out[at % len(out)] = value
    return bytes(out)


def both_walks(data: bytes, start: int, room: int, check_crc: bool) -> tuple[list[Row], Stop]:
    rows: list[Row] = []
    stop = walk(data, start, room, rows, check_crc=check_crc)
    table, fast_stop = fast_walk(data, start, room, check_crc=check_crc)
    assert table.dtype == np.int64
    assert [tuple(row) for row in table.tolist()] == [tuple(row) for row in rows]
    assert fast_stop == stop
    return rows, stop


# --- CRC -------------------------------------------------------------------------------------------------------------


@pytest.mark.wide
@EVERY
@given(st.binary(max_size=700), st.integers(0, 20), st.integers(0, 20))
def test_the_crc_is_zlibs(data: bytes, before: int, behind: int) -> None:
    array = np.frombuffer(b"x" * before + data + b"y" * behind, dtype=np.uint8)
    assert int(crc32(array, before, before + len(data))) == zlib.crc32(data)


@pytest.mark.parametrize("length", [*range(300), 1023, 1024, 4096, 65536, 1_000_003])
def test_the_crc_of_every_length(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length + 3, dtype=np.uint8)
    assert int(crc32(data, 3, length + 3)) == zlib.crc32(data[3:].tobytes())


def test_the_tables_alone_are_zlibs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs where the processor has no carry-less product: the same function, not compiled."""
    from engine.log.kernels import crc

    plain = crc.crc32.py_func  # type: ignore[attr-defined]
    monkeypatch.setattr(crc, "_FOLDS", False)
    data = np.random.default_rng(1).integers(0, 256, 200, dtype=np.uint8)

    def loaded(array: Any, at: int) -> Any:
        return np.uint64(int.from_bytes(array[at : at + 8].tobytes(), "little"))

    monkeypatch.setattr(crc, "little64", loaded)
    monkeypatch.setattr(crc, "crc_inlined", crc.crc_inlined.py_func)  # type: ignore[attr-defined]
    monkeypatch.setattr(crc, "_of_block", crc._of_block.py_func)  # type: ignore[attr-defined]
    for length in range(200):
        assert int(plain(data, 0, length)) == zlib.crc32(data[:length].tobytes())


@pytest.mark.parametrize("wide", [1, 2, 4])
def test_every_width_is_zlibs(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if wide > fold._WIDE:
        pytest.skip("this processor does not multiply so many blocks at once")
    monkeypatch.setattr(fold, "_WIDE", wide)

    @numba.njit
    def folded(data: Any, at: int, length: int) -> Any:
        low, high = fold.fold(data, at, length)
        return fold.remainder(low, high)

    data = np.random.default_rng(wide).integers(0, 256, 3003, dtype=np.uint8)
    for length in [*range(16, 1200), 2999, 3000]:
        assert int(folded(data, 3, length)) ^ 0xFFFFFFFF == zlib.crc32(data[3 : 3 + length].tobytes())


def test_hardware_is_asked_for() -> None:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        assert fold.folds_in_hardware() == ("pclmulqdq" in file.read())


# --- the walk --------------------------------------------------------------------------------------------------------


@pytest.mark.wide
@EVERY
@given(
    st.lists(records(), max_size=8), MUTATIONS, st.integers(0, 400), st.integers(-50, 300), st.booleans(), st.booleans()
)
def test_the_walks_are_one(
    some: list[bytes], changes: list[tuple[int, int]], cut: int, spare: int, blank: bool, check_crc: bool
) -> None:
    data = mutated(b"".join(some), changes)
    if blank:
        data += (50).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big") + bytes(42)
    shown = data[: max(1, len(data) - cut)]
    if shown:
        both_walks(shown, 0, max(0, len(data) + spare), check_crc)


def test_plain_records_stay_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    built = logs.build([Message(f"T{i % 3}", b"x" * i, properties={"KEYS": "k"}) for i in range(200)])
    handed: list[int] = []

    def noted(buffer: bytes, at: int, *args: Any, **options: Any) -> Stop:
        handed.append(at)
        return walk(buffer, at, *args, **options)

    monkeypatch.setattr("engine.log.kernels.walk.walk", noted)
    data = bytes(built.log.read(0, 1 << 20))
    table, stop = fast_walk(data, 0, len(data))
    assert table[:, 0].tolist() == built.offsets
    assert handed == [built.end] == [stop.position]


# --- what is derived -------------------------------------------------------------------------------------------------


def batches(events: Iterable[Event]) -> list[RecordBatch]:
    return [event for event in events if isinstance(event, RecordBatch)]


def same(one: Units | Keys, other: Units | Keys) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert a.dtype == b.dtype, field.name
        assert a.tolist() == b.tolist(), field.name


def compare(plain: Iterable[Event], fast: Iterable[Event], rules: DeriveRules) -> int:
    """Compare two scans of one log, with all that is derived; how many records there were."""
    derivers = [Deriver(rules, QueueNumbers()) for _ in range(2)]
    count = 0
    for one, other in zip(plain, fast, strict=True):
        if isinstance(one, RecordBatch):
            assert isinstance(other, RecordBatch)
            assert one.table is None
            assert other.table is not None
            assert (one.base, bytes(one.buffer)) == (other.base, bytes(other.buffer))
            assert one.rows == other.rows
            for name in ("start", "end", "last", "first_store_timestamp", "last_store_timestamp"):
                assert getattr(one, name) == getattr(other, name)
            assert (one.columns() == other.columns()).all()
            assert one.offsets().tolist() == other.offsets().tolist() == [one.offset(i) for i in range(len(one))]
            assert one.moved() == other.moved()
            for table, expected in zip(derivers[1].derive(other), derivers[0].derive(one), strict=True):
                same(table, expected)
            times = one.store_timestamps().tolist()
            assert (other.messages, other.newest_store_timestamp) == (one.messages, max(times))
            assert other.ascends == one.ascends == (times == sorted(times))
            assert other.moved() == one.moved()
            count += len(one)
        else:
            assert one == other
    assert derivers[0].unplaced == derivers[1].unplaced
    assert [derivers[0].queues[i] for i in range(len(derivers[0].queues))] == [
        derivers[1].queues[i] for i in range(len(derivers[1].queues))
    ]
    return count


def memory_log(some: list[bytes], changes: list[tuple[int, int]]) -> logs.MemoryLog:
    data = bytearray(b"".join(some))
    return logs.MemoryLog({0: bytearray(mutated(bytes(data), changes)) + bytes(300)})


@pytest.mark.wide
@EVERY
@given(
    st.lists(records(), min_size=1, max_size=12), MUTATIONS, st.sampled_from(RULES), st.sampled_from([200, 1000, 9000])
)
def test_derived_is_the_same(
    some: list[bytes], changes: list[tuple[int, int]], rules: DeriveRules, window: int
) -> None:
    log = memory_log(some, changes)
    plain, fast = (Scanner(log, kernels=kernels, window=window) for kernels in (False, True))
    compare(plain.scan(0, resume=True), fast.scan(0, resume=True), rules)


def test_many_queues_and_many_keys() -> None:
    """More new queues than the table has room for in one go, and more keys than room for keys."""
    put = [Message(f"Topic{i}", b"", i % 5, {"KEYS": " ".join("abc" * (i % 400))}) for i in range(3000)]
    log = logs.build(put, segment_size=8 << 20).log
    plain, fast = (Scanner(log, kernels=kernels) for kernels in (False, True))
    assert compare(plain.scan(0), fast.scan(0), DeriveRules()) == 3000


def test_batches_prepared_beside_each_other() -> None:
    """Prepared before any is finished: each meets the same queues as new ones."""
    put = [
        Message(f"Topic{i % 7}", b"x" * 50, i % 5, {"KEYS": f"k{i}", "TAGS": "é" if i % 9 else "t"}) for i in range(900)
    ]
    log = logs.build(put, segment_size=1 << 20).log
    found = batches(Scanner(log, kernels=True, window=20_000).scan(0))
    assert len(found) > 5
    expected = Deriver(DeriveRules(), QueueNumbers())
    deriver = Deriver(DeriveRules(), QueueNumbers())
    prepared = [deriver.prepare(batch) for batch in found]
    plain = batches(Scanner(log, kernels=False, window=20_000).scan(0))
    for batch, parts, one in zip(found, prepared, plain, strict=True):
        for table, wanted in zip(deriver.finish(batch, parts), expected.derive(one), strict=True):
            same(table, wanted)


def test_who_lets_the_bytes_go_derives_the_same() -> None:
    """Those of a batch with a new queue, or a record that kernels don't take, are wanted once more; of others never."""
    put = [
        Message(f"Topic{i % 7}", b"x" * 50, i % 5, {"KEYS": f"k{i}", "TAGS": "é" if i % 40 == 1 else "t"})
        for i in range(900)
    ]
    log = logs.build(put, segment_size=1 << 20).log
    expected, deriver = (Deriver(DeriveRules(), QueueNumbers()) for _ in range(2))
    for batch in batches(Scanner(log, kernels=True, window=2000).scan(0)):
        wanted = expected.derive(batch)
        parts = deriver.prepare_and_let_go(batch)
        reads = log.reads
        for table, one in zip(deriver.finish(batch, parts), wanted, strict=True):
            same(table, one)
        assert log.reads == reads, "nothing was let go that is wanted"
        plain = not any(len(part.odd) or len(part.new) for part in parts)
        assert bytes(batch.record(0))
        assert log.reads == reads + plain
    assert plain


# --- stores ----------------------------------------------------------------------------------------------------------


def compare_store(root: Path, rules: DeriveRules) -> int:
    disk = Disk()
    files = survey(disk, StoreConfig(store_path_root_dir=root))
    with ClosedLog(disk, files.log) as log:
        start = files.log[0].offset
        plain, fast = (Scanner(log, kernels=kernels, window=1 << 14) for kernels in (False, True))
        return compare(plain.scan(start, resume=True), fast.scan(start, resume=True), rules)


@pytest.mark.parametrize("name", references.ALL)
def test_reference_stores(name: str, reference_store: Callable[[str], Path]) -> None:
    assert compare_store(reference_store(name), DeriveRules.of(references.settings(name))) > 0


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize(
    "case",
    [*sample(golden.cases(), 16), *sample_of_each(corpus.fixture_cases(), corpus.category, 4, 2)],
    ids=lambda case: str(case["id"]),
)
def test_damaged_stores(
    case: corpus.Case, golden_copy: Callable[[str], Path], fixture_copy: Callable[[str], Path]
) -> None:
    store = (golden_copy if case["id"].startswith("v") else fixture_copy)(case["base"])
    mutate.apply(store, case["ops"])
    if any((store / "commitlog").glob("[0-9]*")):
        compare_store(store, DeriveRules.of(corpus.config(store, case)))


# --- when they run ---------------------------------------------------------------------------------------------------


def test_kernels_read_what_is_long() -> None:
    put = [Message("T", bytes(1 << 20)) for _ in range(20)]
    log = logs.build(put, segment_size=32 << 20).log
    found = batches(Scanner(log).scan(0))
    assert found[0].table is None  # who wants the first record only, doesn't wait for numba
    assert all(batch.table is not None for batch in found[1:])
    assert sum(map(len, found)) == 20


def test_kernels_do_not_read_what_is_short() -> None:
    log = logs.build([Message("T", bytes(1 << 20)) for _ in range(3)], segment_size=LONG + (4 << 20)).log
    assert all(batch.table is None for batch in batches(Scanner(log).scan(0)))


def test_a_small_store_is_read_without_numba(fixture_store: Callable[[str], Path]) -> None:
    """Loading numba takes longer than reading a small store."""
    script = """
import sys
from pathlib import Path
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.verify import verify
from engine.repair.recover.recover import plan_recover
import rstore_cli.app
config = StoreConfig(store_path_root_dir=Path(sys.argv[1]))
assert plan_recover(Disk(), config).log.end.records > 0
assert verify(Disk(), config).records > 0
print([name for name in sys.modules if name.partition(".")[0] in ("numba", "llvmlite")])
"""
    store = fixture_store("crashed-small")
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_code_that_cannot_be_kept_is_compiled_all_the_same() -> None:
    """numba has no place for the code of a module that is no file; nor where nothing may be written."""
    space: dict[str, Any] = {}
    exec("def twice(x):\n    return 2 * x\n", space)
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(space["twice"])
    assert compiled(space["twice"])(21) == 42
