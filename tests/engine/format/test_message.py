"""The record: literal bytes, both ways for every message, and refusals that say why."""

from __future__ import annotations

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import FormatError, InvalidArgument
from engine.format import message, properties, sysflag
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.record import MESSAGE_MAGIC, MESSAGE_MAGIC_V2, record_size, store_timestamp_position
from tests.support import strategies

V6 = Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)
V4 = Host(bytes([192, 0, 2, 1]), 56412)

LITERAL = (
    bytes.fromhex(
        "00000074"  # totalSize 116
        "daa320a7"  # magicCode
        "3610a686"  # bodyCRC of "hello"
        "00000003"  # queueId
        "ffffffff"  # flag −1
        "0000000000000007"  # queueOffset
        "0000000000001000"  # physicalOffset
        "00000001"  # sysFlag: compressed
        "0000018bcfe56800"  # bornTimestamp
        "c00002010000dc5c"  # bornHost 192.0.2.1:56412
        "0000018bcfe5680a"  # storeTimestamp
        "7f00000100002a9f"  # storeHost 127.0.0.1:10911
        "00000002"  # reconsumeTimes
        "0000000000000000"  # preparedTransactionOffset
        "00000005"  # bodyLength
        "68656c6c6f"
        "05"  # topicLength
        "546f706963"
        "000f"  # propertiesLength
    )
    + b"TAGS\x01A\x02KEYS\x01k 1"
)
MESSAGE = Message(
    topic="Topic",
    body=b"hello",
    queue_id=3,
    properties={"TAGS": "A", "KEYS": "k 1"},
    flag=-1,
    sys_flag=sysflag.COMPRESSED,
    born_timestamp=0x18BCFE56800,
    born_host=V4,
    store_host=Host(b"\x7f\0\0\x01", 10911),
    reconsume_times=2,
)


def stored(put: Message, queue_offset: int = 7, physical_offset: int = 0x1000, time: int = 0x18BCFE5680A) -> bytearray:
    record = message.encode(put)
    message.patch(record, 0, queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp=time)
    return record


def test_literal_bytes_are_written() -> None:
    assert stored(MESSAGE).hex(" ", 4) == LITERAL.hex(" ", 4)


def test_literal_bytes_are_read() -> None:
    found = message.decode(LITERAL)
    assert found.to_message() == MESSAGE
    assert (found.total_size, found.magic, found.body_crc) == (116, MESSAGE_MAGIC, 0x3610A686)
    assert (found.queue_offset, found.physical_offset, found.store_timestamp) == (7, 4096, 0x18BCFE5680A)
    assert found.crc_ok
    assert found.msg_id == "7F00000100002A9F0000000000001000"


@given(strategies.messages, strategies.longs, strategies.longs, strategies.longs, st.binary(max_size=9))
def test_what_is_encoded_is_decoded(put: Message, queue_offset: int, offset: int, time: int, before: bytes) -> None:
    record = before + stored(put, queue_offset, offset, time) + b"behind"
    found = message.decode(record, len(before))
    expected = put._replace(sys_flag=put.stored_sys_flag)
    assert found.to_message() == expected
    assert list(found.properties) == list(put.properties)
    assert (found.queue_offset, found.physical_offset, found.store_timestamp) == (queue_offset, offset, time)
    assert found.crc_ok
    raw = properties.join(put.properties).encode()
    assert found.total_size == record_size(put.stored_sys_flag, len(put.body), len(put.topic.encode()), len(raw))
    assert found.total_size == len(record) - len(before) - len(b"behind")
    assert message.decode(memoryview(record), len(before)) == found


@pytest.mark.parametrize(
    ("born", "store", "more"), [(V4, V4, 0), (V6, V4, 12), (V4, V6, 12), (V6, V6, 24)], ids=["44", "64", "46", "66"]
)
def test_ipv6_hosts_shift_what_lies_behind(born: Host, store: Host, more: int) -> None:
    put = MESSAGE._replace(born_host=born, store_host=store)
    record = stored(put)
    assert len(record) == len(LITERAL) + more
    found = message.decode(record)
    assert (found.born_host, found.store_host) == (born, store)
    assert bool(found.sys_flag & sysflag.BORN_HOST_V6) == born.is_v6
    assert bool(found.sys_flag & sysflag.STORE_HOST_V6) == store.is_v6
    at = store_timestamp_position(found.sys_flag)
    assert struct.unpack_from(">q", record, at) == (0x18BCFE5680A,)
    assert len(found.msg_id) == (56 if store.is_v6 else 32)


def test_claimed_host_bits_follow_the_hosts() -> None:
    put = MESSAGE._replace(sys_flag=sysflag.BORN_HOST_V6 | sysflag.TRANSACTION_PREPARED)
    assert put.stored_sys_flag == sysflag.TRANSACTION_PREPARED


def test_a_record_is_patched_in_the_middle_of_a_buffer() -> None:
    record = message.encode(MESSAGE)
    buffer = bytearray(b"before") + record
    message.patch(buffer, 6, queue_offset=7, physical_offset=0x1000, store_timestamp=0x18BCFE5680A)
    assert buffer == b"before" + LITERAL


def test_a_long_topic_record_of_5x_is_read() -> None:
    topic = b"T" * 200
    head = bytearray(LITERAL[:93])
    record = head + struct.pack(">h", len(topic)) + topic + LITERAL[99:]
    struct.pack_into(">iI", record, 0, len(record), MESSAGE_MAGIC_V2)
    found = message.decode(record)
    assert found.topic == "T" * 200
    assert found.body == b"hello"
    assert found.properties == {"TAGS": "A", "KEYS": "k 1"}


@pytest.mark.parametrize(
    ("at", "patch", "why"),
    [
        (4, "cbd43194", "no message magic"),
        (0, "0000005a", "invalid total size 90:"),
        (0, "00000075", "invalid total size 117"),
        (0, "80000000", "invalid total size -2147483648:|too small"),
        (0, "00000073", "lengths add up to 116"),
        (84, "7fffffff", "invalid body length 2147483647"),
        (84, "00000004", "topic|lengths"),
        (93, "80", "invalid topic length -128"),
        (93, "7f", "invalid topic length 127"),
        (99, "000e", "lengths add up to 115"),
        (99, "7fff", "lengths add up to"),
    ],
)
def test_lengths_that_lie_are_refused(at: int, patch: str, why: str) -> None:
    record = bytearray(LITERAL)
    record[at : at + len(patch) // 2] = bytes.fromhex(patch)
    with pytest.raises(FormatError, match=why) as caught:
        message.decode(b"xx" + record, 2)
    assert caught.value.offset == 2


@given(st.integers(0, len(LITERAL) - 1))
def test_a_record_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        message.decode(LITERAL[:length])


@pytest.mark.parametrize("size", range(91, 112))
def test_a_record_too_short_for_its_ipv6_hosts_is_refused(size: int) -> None:
    record = bytearray(size)
    struct.pack_into(">iI", record, 0, size, MESSAGE_MAGIC)
    struct.pack_into(">i", record, 36, sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6)
    with pytest.raises(FormatError):
        message.decode(record)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(FormatError):
        message.decode(LITERAL, -116)


def test_negative_body_and_properties_lengths_count_as_none() -> None:
    put = Message("T")
    record = stored(put)
    struct.pack_into(">i", record, 84, -5)
    struct.pack_into(">h", record, len(record) - 2, -1)
    found = message.decode(record)
    assert (found.body, found.properties_raw) == (b"", b"")


def test_a_wrong_crc_is_told_apart_from_a_wrong_record() -> None:
    record = bytearray(LITERAL)
    record[88] ^= 1
    assert not message.decode(record).crc_ok
    record = bytearray(LITERAL)
    record[8] |= 0x80
    assert not message.decode(record).crc_ok


def test_a_crc_and_properties_that_are_known_are_taken() -> None:
    record = message.encode(MESSAGE, properties_raw=b"A\x01b\x02", crc=5)
    found = message.decode(record)
    assert (found.properties_raw, found.properties, found.body_crc) == (b"A\x01b\x02", {"A": "b"}, 5)


@pytest.mark.parametrize("topic", ["", "T" * 256, "é" * 128])
def test_topics_that_no_record_takes(topic: str) -> None:
    with pytest.raises(InvalidArgument, match="topic"):
        message.encode(Message(topic))


@pytest.mark.parametrize("topic", ["T" * 128, "é" * 64, "T" * 255])
def test_a_longer_topic_makes_a_record_of_rocketmq_5(topic: str) -> None:
    put = Message(topic, b"body", properties={"k": "v"})
    found = message.decode(message.encode(put))
    assert (found.magic, found.to_message()) == (MESSAGE_MAGIC_V2, put)


def test_limits_themselves_are_taken() -> None:
    put = Message("é" * 63 + "T", properties={"k": "v" * (32767 - 2)})
    assert message.decode(message.encode(put)).to_message() == put
    with pytest.raises(InvalidArgument, match="properties"):
        message.encode(message.with_properties(put, k="v" * (32767 - 1)))


def test_blank_records() -> None:
    blank = message.encode_blank(2244)
    assert blank.hex() == "000008c4cbd43194"
    assert message.blank_length(b"x" + blank, 1) == 2244
    assert message.blank_length(blank[:7]) is None
    assert message.blank_length(LITERAL) is None
    assert message.blank_length(blank, -8) is None


@given(strategies.hosts, strategies.longs)
def test_msg_ids_go_both_ways(host: Host, offset: int) -> None:
    text = message.make_msg_id(host, offset)
    assert text == text.upper()
    assert message.parse_msg_id(text) == (host, offset)
    assert message.parse_msg_id(text.lower()) == (host, offset)


def test_a_known_msg_id() -> None:
    assert message.parse_msg_id("7F00000100002A9F00000000000420D5") == (Host(b"\x7f\0\0\x01", 10911), 270549)


@pytest.mark.parametrize("text", ["", "7F", "7F00000100002A9F00000000000420D", "G" * 32, "0" * 40, " " * 24 + "0" * 32])
def test_what_is_no_msg_id(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not an offset message ID"):
        message.parse_msg_id(text)


@given(strategies.messages, strategies.properties)
def test_with_properties_keeps_places(put: Message, changes: dict[str, str]) -> None:
    assume(not changes.keys() & {"message"})
    changed = message.with_properties(put, **changes)
    assert list(changed.properties)[: len(put.properties)] == list(put.properties)
    assert {**put.properties, **changes} == changed.properties
