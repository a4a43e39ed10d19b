"""Keys and values of RocketMQ 5 in RocksDB, and the frame of RocksDB's logs: there and back, and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import rocksdb_config, rocksdb_log, rocksdb_queue, rocksdb_store
from engine.format.rocksdb_config import NamedEntry, OffsetEntry, TableId, TableVersion
from engine.format.rocksdb_queue import OffsetKey, RocksDBUnit, UnitKey

INTS, LONGS = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
TOPICS = st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(TOPICS, INTS, LONGS)
def test_the_key_of_a_unit(topic: bytes, queue_id: int, offset: int) -> None:
    key = UnitKey(topic, queue_id, offset)
    assert rocksdb_queue.decode_unit_key(key.encode()) == key
    assert len(key.encode()) == len(topic) + rocksdb_queue.KEY_SIZE
    assert key.encode() <= rocksdb_queue.last_key(topic, queue_id)


@given(TOPICS, INTS, st.booleans())
def test_the_key_of_an_end(topic: bytes, queue_id: int, is_max: bool) -> None:
    key = OffsetKey(topic, queue_id, is_max)
    assert rocksdb_queue.decode_offset_key(key.encode()) == key


@given(LONGS, INTS, st.integers(-(2**63), 2**63 - 1), LONGS)
def test_a_unit(physical: int, size: int, tags: int, stored: int) -> None:
    unit = RocksDBUnit(physical, size, tags, stored)
    assert rocksdb_queue.decode_unit(unit.encode()) == unit
    (offset,), (row,) = rocksdb_queue.decode_many(UnitKey(b"T", 1, 5).encode(), unit.encode(), b"T")
    assert (int(offset), tuple(row.tolist())) == (5, (physical, size, tags, stored))


SOUND = UnitKey(b"T", 0, 1).encode()


@pytest.mark.parametrize(
    "key",
    [b"", b"\x00", SOUND[:-1], SOUND + b"\x00", b"\xff" + SOUND[1:], SOUND[:4] + b"\x02" + SOUND[5:],
     SOUND[:6] + b"\x02" + SOUND[7:], UnitKey(b"T", -1, 0).encode(), UnitKey(b"T", 0, -1).encode(),
     struct.pack(">i", 0) + b"\x01" * 16],
)  # fmt: skip
def test_what_is_no_key_of_a_unit(key: bytes) -> None:
    with pytest.raises(FormatError):
        rocksdb_queue.decode_unit_key(key)


def test_what_is_no_end_or_unit() -> None:
    for key in (
        b"",
        SOUND,
        OffsetKey(b"T", 0, True).encode().replace(b"max", b"mid"),
        OffsetKey(b"T", -1, True).encode(),
    ):
        with pytest.raises(FormatError):
            rocksdb_queue.decode_offset_key(key)
    for decode, size in (
        (rocksdb_queue.decode_unit, 28),
        (rocksdb_queue.decode_offset, 16),
        (rocksdb_queue.decode_checkpoint, 8),
    ):
        decode(bytes(size))
        for wrong in (size - 1, size + 1):
            with pytest.raises(FormatError):
                decode(bytes(wrong))


def test_configuration_of_v2() -> None:
    head = {table: struct.pack(">bhb", 1, table, 2) for table in TableId}
    name = struct.pack(">h", 1) + b"T"
    assert rocksdb_config.decode_v2(head[TableId.TOPICS] + name, b"\x01{}") == NamedEntry(TableId.TOPICS, "T", "{}")
    offset = head[TableId.CONSUMER_OFFSETS] + struct.pack(">h", 1) + b"g\x01" + name + b"\x01" + struct.pack(">i", 3)
    assert rocksdb_config.decode_v2(offset, struct.pack(">q", 7)) == OffsetEntry(
        TableId.CONSUMER_OFFSETS, "g", "T", 3, 7
    )
    version = struct.pack(">bhb", 1, TableId.GROUPS, 1) + b"data_version"
    assert rocksdb_config.decode_v2(version, struct.pack(">qqq", 1, 2, 3)) == TableVersion(TableId.GROUPS, 1, 2, 3)
    for key, value in (
        (b"", b""), (offset[:-1], struct.pack(">q", 7)), (offset, b""), (head[TableId.TOPICS] + name, b"\x02{}"),
        (head[TableId.TOPICS] + name + b"x", b"\x01{}"), (version, bytes(23)), (b"\x02" + offset[1:], bytes(8)),
        (head[TableId.GROUPS] + struct.pack(">h", 9) + b"T", b"\x01{}"), (head[TableId.TOPICS] + name, b"\x01\xff"),
    ):  # fmt: skip
        with pytest.raises(FormatError):
            rocksdb_config.decode_v2(key, value)


def _long(number: int) -> bytes:
    return struct.pack(">q", number)


def test_a_word_may_have_what_stands_between_parts() -> None:
    entry = rocksdb_store.decode("default", _long(1) + b"@T@K@a@b@u@" + _long(0x40404040), _long(7))
    assert entry == rocksdb_store.KeyedEntry(1, "T", "K", "a@b", "u", 0x40404040, 7)
    assert rocksdb_store.decode("later", b"", b"") is None


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("default", b"", b""), ("default", _long(1) * 2, _long(1)), ("default", b"lastOffsetPy", b"7"),
        ("default", _long(1) + b"@T@X@w@u@" + _long(1), _long(1)),
        ("default", _long(0) + b"@T@U@u@" + _long(1), _long(1)),
        ("default", _long(1) + b"@T@U@u@" + _long(-1), _long(1)),
        ("default", _long(1) + b"@T@K@u@" + _long(1), _long(1)),
        ("default", _long(1) + b"@T@U@\xff@" + _long(1), _long(1)), ("default", _long(1) + b"@T@U@u@" + _long(1), b""),
        ("timer", _long(1), bytes(12)), ("timer", _long(1) + b"u", bytes(12)), ("timer", _long(1) + b"u", b""),
        ("trans", b"", bytes(8)), ("trans", _long(1) + b"@T@", bytes(8)), ("trans", _long(1) + b"@T@u", bytes(8)),
        ("trans", _long(1) + b"@T@u", b""), ("trans", _long(-1) + b"@T@u", struct.pack(">ii", 0, 9)),
        ("trans", _long(1) + b"x@T@u", struct.pack(">ii", 0, 9)),
    ],
)  # fmt: skip
def test_what_is_no_entry_of_rocksdbstore(family: str, key: bytes, value: bytes) -> None:
    with pytest.raises(FormatError):
        rocksdb_store.decode(family, key, value)


def record(kind: int, data: bytes) -> bytes:
    return struct.pack("<IHB", 0, len(data), kind) + data


def test_where_a_log_of_rocksdb_was_cut() -> None:
    whole = record(1, b"x" * 100)
    assert rocksdb_log.torn_at(b"") is None
    assert rocksdb_log.torn_at(whole * 2) is None
    for cut in range(1, len(whole)):
        assert rocksdb_log.torn_at(whole + whole[:cut]) == len(whole)
    first = record(2, b"x" * (rocksdb_log.BLOCK - 7))
    assert rocksdb_log.torn_at(first + record(4, b"y")) is None
    assert rocksdb_log.torn_at(first) == 0
    assert rocksdb_log.torn_at(whole + bytes(500)) is None
    short = record(1, b"x" * (rocksdb_log.BLOCK - 7 - 3)) + bytes(3)
    assert rocksdb_log.torn_at(short + whole[:5]) == rocksdb_log.BLOCK
