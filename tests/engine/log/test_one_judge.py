"""One judge of a record, and the fast lanes before it: the same records, the same fields, every reason, bit by bit."""

from __future__ import annotations

import ast
import itertools
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("numba")

import numpy as np

from engine.errors import FormatError
from engine.format import judge, message, record, sysflag
from engine.format.hosts import Host
from engine.format.judge import Reason, Row, Stop, judge_record
from engine.format.message import Message, StoredMessage
from engine.format.queue_unit import QueueUnit
from engine.format.record_columns import FIELDS, decode_columns
from engine.log.batch import RecordBatch
from engine.log.doubts import doubts_of
from engine.log.kernels.get import by_kernel
from engine.log.kernels.property_crc import FAULT_FIELDS
from engine.log.kernels.tally import tally
from engine.log.kernels.walk import _walk, fast_walk
from engine.log.reading import ReadLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

V4, V6 = Host(bytes([192, 0, 2, 1]), 56412), Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)
LIMITS = ReadLimits(1 << 40, 1 << 30, 100, 1 << 30, 100, True)
PUT = Message(
    "Topic", b"a body", 3, {"KEYS": "k 1", "TAGS": "A"}, 5, sysflag.COMPRESSED, 1_700_000_000_000,
    reconsume_times=2, prepared_transaction_offset=77,
)  # fmt: skip


def made(put: Message, *, long_topic: bool = False) -> bytes:
    out = message.encode(put)
    message.patch(out, 0, queue_offset=7, physical_offset=0x1000, store_timestamp=1_700_000_000_010)
    if long_topic:
        at = record.body_position(put.stored_sys_flag) + len(put.body)
        out[at:at] = b"\0"
        record.SIZE_AND_MAGIC.pack_into(out, 0, len(out), record.MESSAGE_MAGIC_V2)
    return bytes(out)


BASES = {
    **{
        f"hosts-{'6' if born.is_v6 else '4'}{'6' if store.is_v6 else '4'}": made(
            PUT._replace(born_host=born, store_host=store)
        )
        for born, store in itertools.product((V4, V6), (V4, V6))
    },
    "no-body": made(PUT._replace(body=b"", properties={})),
    "long-topic": made(PUT, long_topic=True),
    "long-topic-v6": made(PUT._replace(born_host=V6, store_host=V6), long_topic=True),
}


def flipped(data: bytes) -> Iterator[bytes]:
    """The record, and each that differs from it in one bit."""
    yield data
    for at, bit in itertools.product(range(len(data)), range(8)):
        out = bytearray(data)
        out[at] ^= 1 << bit
        yield bytes(out)


def patched(data: bytes) -> Iterator[bytes]:
    """With other numbers in each of its lengths: none, less, more, the largest, negative ones."""
    body_at = record.body_position(record.sys_flag_at(data))
    row = judge_record(memoryview(data), 0, len(data), True)
    assert isinstance(row, Row)
    lengths = [
        (record.POSITION_TOTAL_SIZE, ">i"),
        (body_at - record.BODY_LENGTH_BACK, ">i"),
        (row.body_position + row.body_length, ">b" if record.magic_at(data) == record.MESSAGE_MAGIC else ">h"),
        (row.properties_position - record.PROPERTIES_LENGTH_SIZE, ">h"),
    ]
    for at, code in lengths:
        (now,) = struct.unpack_from(code, data, at)
        most = (1 << 8 * struct.calcsize(code) - 1) - 1
        for value in (0, now - 1, now + 1, now + 2, now + 3, record.V4_HEAD_SIZE, most, -1, -most - 1):
            out = bytearray(data)
            struct.pack_into(code, out, at, min(value, most))
            yield bytes(out)


def odd() -> Iterator[bytes]:
    """What is no record at all."""
    yield bytes(200)
    yield bytes(5)
    yield message.encode_blank(200) + bytes(192)
    yield message.encode_blank(8)
    yield message.encode_blank(100) + bytes(192)
    yield b"\xff" * 100
    yield unsigned(b"T" * 200, b"")
    yield unsigned(b"T", b"K\x01" + b"v" * 40_000)


def unsigned(topic: bytes, properties: bytes) -> bytes:
    """A record that would be sound if its topic's and its properties' length had no sign."""
    out = bytearray(made(PUT._replace(properties={})))[: -len(PUT.topic) - 3]
    out += bytes([len(topic)]) + topic + len(properties).to_bytes(2, "big") + properties
    struct.pack_into(">i", out, 0, len(out))
    return bytes(out)


def cases() -> Iterator[tuple[bytes, int]]:
    """Bytes of a log, and where their file ends."""
    for data in [*odd(), *(one for base in BASES.values() for change in (flipped, patched) for one in change(base))]:
        yield data, len(data)
    for base in BASES.values():
        for data in patched(base):
            yield data, len(data) + 40
            yield data[: len(data) * 2 // 3], len(data)
            yield data[:40], len(data)
            yield data, len(data) - 1


def array(data: bytes) -> NDArray[np.uint8]:
    found = np.frombuffer(data, dtype=np.uint8)
    found.flags.writeable = False
    return found


def test_every_lane_says_what_the_judge_says() -> None:
    seen: set[Reason | None] = set()
    for data, room in cases():
        for check_crc in (True, False):
            found = judge_record(memoryview(data), 0, room, check_crc)
            plain = isinstance(found, Row) and record.magic_at(data) == record.MESSAGE_MAGIC
            table = np.empty((9, len(Row._fields)), dtype=np.int64)
            count, end = _walk(array(data), 0, room, check_crc, table)
            assert (count, end) == ((1, found[1]) if plain else (0, 0)), data.hex()
            rows, stop = fast_walk(data, 0, room, check_crc=check_crc)
            if isinstance(found, Row):
                assert [tuple(row) for row in rows.tolist()] == [tuple(found)], data.hex()
                if plain:
                    assert tuple(table[0].tolist()) == tuple(found)
            else:
                assert not len(rows)
                assert stop == found, data.hex()
                seen.add(found.reason)
        assert_tally(data, room)
    # of pages who reads them says why, and of the headers of entries test_entries.py has it
    assert seen == {None, *Reason} - {Reason.UNREADABLE, Reason.ENTRY}


def assert_tally(data: bytes, room: int) -> None:
    found = judge_record(memoryview(data), 0, room, True)
    plain = isinstance(found, Row) and record.magic_at(data) == record.MESSAGE_MAGIC
    moved, doubts = np.zeros((2, 3), dtype=np.int64), np.zeros((2, 5), dtype=np.int64)
    faults = np.zeros((0, FAULT_FIELDS), dtype=np.int64)
    count, messages, end, is_odd, others, *_ = tally(
        array(data).copy(), room, len(data), 5, 0, 0, moved, doubts, faults
    )
    if not plain:
        assert (count, messages, end, others) == (0, 0, 0, 0)
        is_cut = len(data) < record.V4_HEAD_SIZE or record.total_size_at(data) > len(data)
        assert is_odd or is_cut, data.hex()
        return
    assert isinstance(found, Row)
    assert (count, messages, end) == (1, sysflag.is_consumable(found.sys_flag), found.size)
    assert others == (found.stored_offset != 5)
    assert not others or moved[0].tolist() == [5, found.stored_offset, found.size]


def test_decoding_one_record_asks_the_judge() -> None:
    """Each field, and why a record is refused; the lane for plain records says the same."""
    decoded = 0
    for data, _ in cases():
        found = judge_record(memoryview(data), 0, len(data), False)
        if isinstance(found, Stop):
            why = found.detail if len(data) >= record.MIN_RECORD_SIZE else "a record has at least"
            with pytest.raises(FormatError, match=re.escape(why)):
                message.decode(data)
            continue
        decoded += 1
        one = message.decode(data)
        assert one == message._decode_any(data, 0)
        assert message._decode_plain(data[: found.size]) in (None, one)
        assert fields_of(one) == record.whole_head(found.sys_flag).unpack_from(data)[:-1]
        body_at, topic_at, own_at = found.body_position, found.topic_position, found.properties_position
        assert one.body == data[body_at : body_at + found.body_length]
        assert one.topic == data[topic_at : topic_at + found.topic_length].decode("utf-8", "replace")
        assert one.properties_raw == data[own_at : found.size]
        assert one.crc_ok == isinstance(judge_record(memoryview(data), 0, len(data), True), Row)
        assert record.store_time_of(data) == one.store_timestamp == found.store_timestamp
    assert decoded > 1000


def fields_of(one: StoredMessage) -> tuple[object, ...]:
    """The fixed part but for the body's length, hosts as bytes."""
    return tuple(value.encode() if isinstance(value, Host) else value for value in one[:14])


def test_columns_by_the_kernel_are_those_of_the_judge() -> None:
    taken = 0
    for data, _ in cases():
        found = judge_record(memoryview(data), 0, len(data), False)
        size = found.size if isinstance(found, Row) else max(len(data), record.MIN_RECORD_SIZE)
        unit = memoryview(QueueUnit(0, size, 0).encode())
        got = by_kernel(unit, 0, memoryview(data), len(data), 1, LIMITS)
        v4 = isinstance(found, Row) and not found.sys_flag & sysflag.HOSTS_V6_MASK
        assert (got is not None) == (v4 and record.magic_at(data) == record.MESSAGE_MAGIC), data.hex()
        if got is not None:
            taken += 1
            expected = decode_columns(memoryview(data), [(0, size)]).table
            assert dict(zip(FIELDS, got[0].table[:, 0].tolist(), strict=True)) == dict(
                zip(FIELDS, expected[:, 0].tolist(), strict=True)
            )
    assert taken > 500


# --- what is suspect -------------------------------------------------------------------------------------------------


def values(position: int, code: str, *numbers: int) -> list[tuple[int, bytes]]:
    return [(position, struct.pack(code, number)) for number in numbers]


def doubtful(base: bytes) -> Iterator[bytes]:
    """Records with numbers at the limits of what each field may say, and odd texts."""
    flags = record.sys_flag_at(base)
    stored, body_at = record.store_timestamp_position(flags), record.body_position(flags)
    row = judge_record(memoryview(base), 0, len(base), True)
    assert isinstance(row, Row)
    limits = (1 << 31) - 1, -(1 << 31), -1, 0, 1
    for at, data in [
        *values(record.POSITION_QUEUE_ID, ">i", judge.QUEUE_ID_MOST, judge.QUEUE_ID_MOST + 1, *limits),
        *values(record.POSITION_FLAG, ">i", *limits),
        *values(record.POSITION_QUEUE_OFFSET, ">q", -1, 0, (1 << 63) - 1, -(1 << 63)),
        *values(record.POSITION_PHYSICAL_OFFSET, ">q", -1, 0, (1 << 63) - 1, -(1 << 63)),
        *values(record.POSITION_SYS_FLAG, ">i", *(flags ^ (1 << bit) for bit in (*range(4), *range(6, 31)))),
        *values(record.POSITION_BORN_TIMESTAMP, ">q", -1, 0, row.store_timestamp + judge.SKEW_MS),
        *values(record.POSITION_BORN_TIMESTAMP, ">q", row.store_timestamp + judge.SKEW_MS + 1, judge.BORN_MOST),
        *values(record.POSITION_BORN_TIMESTAMP, ">q", judge.BORN_MOST - 1, (1 << 63) - 1, -(1 << 63)),
        *values(stored - record.PORT_SIZE, ">i", judge.PORT_MOST, judge.PORT_MOST + 1, *limits),
        *values(stored, ">q", -1, 0, 1, judge.STORED_MOST - 1, judge.STORED_MOST, (1 << 63) - 1, -(1 << 63)),
        *values(body_at - record.STORE_PORT_BACK, ">i", judge.PORT_MOST, judge.PORT_MOST + 1, *limits),
        *values(body_at - record.RECONSUME_TIMES_BACK, ">i", judge.RECONSUME_MOST, judge.RECONSUME_MOST + 1, *limits),
        *values(body_at - record.PREPARED_BACK, ">q", -1, 0, (1 << 63) - 1, -(1 << 63)),
        (row.topic_position, b"\x1f"),
        (row.topic_position, b"\x7f"),
        *(
            (row.properties_position, text)
            for text in (b"\0", b"\x01", b"K\x03", b"K\x01", b"KEYS\x01\0", b"KEYS\x01\x0b")
        ),
        *((row.properties_position, text) for text in (b"\x02", b"KE", b"KEYSxx", b"KEYS\x01\t")),
    ]:
        out = bytearray(base)
        out[at : at + len(data)] = data
        yield bytes(out)


def without_topic(flags: int, properties: bytes) -> bytes:
    """As a bridge writes them."""
    out = bytearray(message._lay_out(Message("", b"", sys_flag=flags, born_timestamp=5), b"", properties, None))
    message.patch(out, 0, queue_offset=0, physical_offset=0, store_timestamp=9)
    return bytes(out)


def negative_length(base: bytes) -> bytes:
    out = bytearray(base)
    struct.pack_into(">i", out, record.body_position(record.sys_flag_at(base)) - record.BODY_LENGTH_BACK, -5)
    return bytes(out)


def crc_of_nothing(base: bytes) -> bytes:
    out = bytearray(base)
    struct.pack_into(">i", out, record.POSITION_BODY_CRC, 7)
    return bytes(out)


def verdicts() -> list[tuple[str, ...]]:
    """Of each reason in the judge's own source: the parts that don't depend on the record."""
    found = []
    for node in ast.walk(ast.parse(Path(judge.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Verdict":
            (said, *_) = node.args
            parts = said.values if isinstance(said, ast.JoinedStr) else [said]
            found.append(tuple(one.value for one in parts if isinstance(one, ast.Constant)))
    return found


def test_every_doubt_of_the_judge_is_found_by_the_kernels() -> None:
    v4 = [base for name, base in BASES.items() if name.startswith("hosts")]
    some = [data for base in v4 for data in doubtful(base)]
    some += [without_topic(12, b""), without_topic(12, b"\x02"), without_topic(0, b""), without_topic(12, b"K\x01v")]
    some += [negative_length(BASES["no-body"]), crc_of_nothing(BASES["no-body"])]
    reasons: set[str] = set()
    for data in some:
        row = judge_record(memoryview(data), 0, len(data), True)
        if not isinstance(row, Row):
            continue  # it is damaged, which is worse
        plain = RecordBatch(0, memoryview(data), [row])
        table, _ = fast_walk(data, 0, len(data))
        assert doubts_of(RecordBatch(0, memoryview(data), table)) == doubts_of(plain), data.hex()
        reasons |= {doubt.reason for doubt in doubts_of(plain)}
    missing = [parts for parts in verdicts() if not any(all(part in said for part in parts) for said in reasons)]
    assert not missing
    assert len(verdicts()) > 15


FIRST_LOOKS: dict[str, Callable[[bytes], object]] = {
    "total_size": record.total_size_at,
    "magic": record.magic_at,
    "body_crc": record.body_crc_at,
    "physical_offset": record.physical_offset_at,
    "sys_flag": record.sys_flag_at,
    "prepared_transaction_offset": lambda data: record.prepared_offset_at(
        data, record.body_position(record.sys_flag_at(data))
    ),
    "store_timestamp": record.store_time_of,
}


@pytest.mark.parametrize("name", BASES)
def test_single_fields_are_those_of_the_whole(name: str) -> None:
    data = BASES[name]
    one = message.decode(data)
    for field, look in FIRST_LOOKS.items():
        assert look(data) == getattr(one, field), field
    body_at = record.body_position(one.sys_flag)
    assert record.body_length_at(data, body_at) == len(one.body)
    assert len(data) == record.record_size(one.sys_flag, len(one.body), len(one.topic), len(one.properties_raw)) + (
        record.topic_length_size(one.magic) - record.TOPIC_LENGTH_SIZE
    )
