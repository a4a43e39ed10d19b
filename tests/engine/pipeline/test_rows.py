"""Rows by columns are the rows that are made record by record, whatever is in the records; filters choose the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.wide import examples

pytest.importorskip("pyarrow")
pytest.importorskip("numba")

import zlib

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.format import message, sysflag
from engine.format.compression import CompressionType, deflate
from engine.format.hosts import Host
from engine.format.message import Message
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import Segment
from engine.pipeline.filters import Range, Wanted
from engine.pipeline.plain_rows import row
from engine.pipeline.rows import Rows
from engine.pipeline.schema import COLUMNS, arrow_schema
from engine.pipeline.splits import Split
from engine.pipeline.stores import StoreRef
from tests.support import logs, references, strategies
from tests.support.logs import MemoryLog

Store = Callable[[str], Path]
ALL = tuple(COLUMNS)
V6 = Host(bytes(15) + b"\1", -3)
SPLIT = Split(
    StoreRef("a-store", StoreConfig(store_path_root_dir=Path("memory")), (), False),
    0,
    Segment(0, 1 << 20, "/x/commitlog/00000000000000000000"),
    0,
    1 << 20,
    1 << 20,
)


def batches(log: MemoryLog, end: int | None = None) -> list[RecordBatch]:
    scanner = Scanner(log, check_crc=False, kernels=True)
    return [event for event in scanner.scan(0, end, resume=True) if isinstance(event, RecordBatch)]


def plain(batch: RecordBatch, decompress: bool = False) -> pa.RecordBatch:
    rows = [row(SPLIT, batch, i, decompress=decompress) for i in range(len(batch))]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ALL))


def assert_same(log: MemoryLog, end: int | None = None, *, decompress: bool = False) -> int:
    count = 0
    for batch in batches(log, end):
        assert batch.table is not None
        made = Rows(SPLIT, ALL, decompress=decompress).of(batch)
        made.validate(full=True)
        expected = plain(batch, decompress)
        for name in ALL:
            assert made.column(name).to_pylist() == expected.column(name).to_pylist(), name
        assert made.schema == expected.schema
        count += len(made)
    return count


@settings(max_examples=60, deadline=None)
@given(st.lists(strategies.messages, min_size=1, max_size=12))
def test_any_messages(some: list[Message]) -> None:
    built = logs.build(some, 1 << 16)
    assert assert_same(built.log, built.end) == len(some)


raw_properties = st.lists(
    st.sampled_from([b"KEYS", b"TAGS", b"\x01", b"\x02", b"a", b" ", b"\xff", b"\xc3\xa4", b"\xc3", b"key", b"\x00"]),
    max_size=24,
).map(b"".join)


@pytest.mark.wide
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(raw_properties, min_size=1, max_size=6))
def test_any_properties(some: list[bytes]) -> None:
    """Strings that no client writes: pieces without a name, names that come twice, bytes that are no UTF-8."""
    data = bytearray(1 << 14)
    at = 0
    for raw in some:
        record = message.encode(Message("T", b"body"), raw)
        message.patch(record, 0, queue_offset=1, physical_offset=at, store_timestamp=5)
        data[at : at + len(record)] = record
        at += len(record)
    assert assert_same(MemoryLog({0: data}), at) == len(some)


def test_what_is_rare() -> None:
    """One of each: IPv6 on either side, no body, wrong CRCs, a topic that is no UTF-8, times that Spark has not."""
    some = [
        Message("T", b""),
        Message("T", b"x", born_host=V6),
        Message("T", b"x", store_host=V6, properties={"KEYS": "  a  b ", "TAGS": "t"}),
        Message("T", b"x" * 300, born_host=V6, store_host=V6, properties={"KEYS": " "}),
        Message("Täg", b"x", properties={"TAGS": "ü", "KEYS": "ä ö", "e": "=", "x": "a\x01b"}),
        Message("T", b"wrong", flag=-5, queue_id=-1, reconsume_times=9, prepared_transaction_offset=-7),
        Message("T", b"stored", born_timestamp=-1),
        Message("T", b"x", born_timestamp=1 << 60),
    ]
    built = logs.build(some, 1 << 16)
    data = built.log.files[0]
    data[built.offsets[5] + 8] ^= 0x80
    data[built.offsets[6] + 8] ^= 0x01
    data[built.offsets[7] + 56 : built.offsets[7] + 64] = (1 << 61).to_bytes(8, "big")
    topic = data.find(b"T\xc3\xa4g")
    assert assert_same(built.log, built.end) == len(some)
    data[topic + 1] = 0xFF
    assert assert_same(built.log, built.end) == len(some)
    (batch,) = batches(built.log, built.end)
    made = Rows(SPLIT, ALL).of(batch).to_pylist()
    assert [one["crc_ok"] for one in made] == [True] * 5 + [False, False, True]
    assert made[7]["store_time"] is None
    assert made[2]["keys"] == ["a", "b"]


def test_compressed_bodies() -> None:
    """All types, zlib without type bits, too; what is no such stream stays as stored."""
    plain_body = b"sent like this " * 20
    packed = zlib.compress(plain_body)
    some = [Message("T", packed, sys_flag=flag) for flag in (sysflag.COMPRESSED, CompressionType.LZ4.flags, 0)]
    some += [Message("T", deflate(plain_body, kind, 5), sys_flag=kind.flags) for kind in CompressionType]
    some += [Message("T", b"no zlib", sys_flag=1), Message("T", zlib.compress(b""), sys_flag=1)]
    built = logs.build(some, 1 << 16)
    assert_same(built.log, built.end)
    assert_same(built.log, built.end, decompress=True)
    (batch,) = batches(built.log, built.end)
    made = Rows(SPLIT, ("body", "body_length"), decompress=True).of(batch).to_pylist()
    assert [one["body"] for one in made] == [plain_body, packed, packed, *[plain_body] * 3, b"no zlib", b""]
    assert made[0]["body_length"] == len(packed)


def test_only_the_columns_that_are_asked_for() -> None:
    built = logs.build([Message(f"T{i % 3}", b"x" * i, i) for i in range(50)], 1 << 16)
    (batch,) = batches(built.log, built.end)
    for name in ALL:
        made = Rows(SPLIT, (name,)).of(batch)
        assert made.schema.names == [name]
        assert made.column(0).to_pylist() == plain(batch).column(name).to_pylist()
    assert Rows(SPLIT, ()).of(batch).num_columns == 0


ranges = st.builds(Range, st.integers(-3, 40), st.integers(-3, 40))


@pytest.mark.wide
@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(st.none(), st.frozensets(st.sampled_from(["T0", "T1", "T", "Other", "T\ufffd", ""]))),
    ranges,
    ranges,
    st.builds(Range, st.integers(0, 4000), st.integers(0, 9000)),
    st.builds(Range, st.integers(0, 60).map(lambda i: logs.STORE_TIME + i)),
    st.booleans(),
)
def test_filters_choose_what_they_say(
    topics: frozenset[str] | None, ids: Range, numbers: Range, places: Range, times: Range, kernels: bool
) -> None:
    built = logs.build([Message(f"T{i % 3}", b"x" * (i % 40), i % 5) for i in range(60)], 1 << 16)
    built.log.files[0][built.offsets[30] + 20] = 0x7F
    data = built.log.files[0]
    at = data.find(b"\x02T2")
    data[at + 2] = 0xFF  # T and no UTF-8
    wanted = Wanted(topics, queue_id=ids, queue_offset=numbers, physical_offset=places, store_timestamp=times)
    scanner = Scanner(built.log, check_crc=False, kernels=kernels)
    (batch,) = (e for e in scanner.scan(0, built.end) if isinstance(e, RecordBatch))
    chosen = wanted.chosen(batch)
    found = np.ones(len(batch), dtype=bool) if chosen is None else chosen
    for i, one in enumerate(plain(batch).to_pylist()):
        expected = (
            (topics is None or one["topic"] in topics)
            and ids.low <= one["queue_id"] <= ids.high
            and numbers.low <= one["queue_offset"] <= numbers.high
            and places.low <= one["physical_offset"] <= places.high
            and times.low <= one["store_timestamp"] <= times.high
        )
        assert found[i] == expected
    made = Rows(SPLIT, ALL).of(batch, chosen).to_pylist()
    assert made == [one for one, keep in zip(plain(batch).to_pylist(), found, strict=True) if keep]


@pytest.mark.parametrize("reference", [one for one in references.ALL if "default-sizes" not in one])
def test_reference_stores(reference: str, reference_store: Store) -> None:
    """Every field of every record as Apache's own client decoded it."""
    store = reference_store(reference)
    found: list[dict[str, Any]] = []
    for path in sorted((store / "commitlog").glob("[0-9]" * 20)):
        start = int(path.name)
        log = MemoryLog({start: bytearray(path.read_bytes())})
        for event in Scanner(log, kernels=True).scan(start, resume=True):
            if isinstance(event, RecordBatch):
                found += Rows(SPLIT, ALL).of(event).to_pylist()
    expected = references.dump(reference, "log")
    assert len(found) == len(expected)
    for one, line in zip(found, expected, strict=True):
        assert one["physical_offset"] == line["physicalOffset"]
        assert one["size"] == line["size"]
        assert one["topic"] == line["topic"]
        assert one["queue_id"] == line["queueId"]
        assert one["queue_offset"] == line["queueOffset"]
        assert one["store_timestamp"] == line["storeTimestamp"]
        assert one["born_timestamp"] == line["bornTimestamp"]
        assert one["crc_ok"]
