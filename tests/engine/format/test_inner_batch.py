"""Records that hold several messages: what a client makes of them, and what is refused."""

from __future__ import annotations

import random
import zlib

import pytest

from engine.errors import FormatError
from engine.format import batch, message, sysflag
from engine.format.batch import BatchItem
from engine.format.inner_batch import BatchPlace, batch_place, inner_messages
from engine.format.message import Message, StoredMessage

ITEMS = tuple(BatchItem.of(f"body {i}".encode(), {"TAGS": "t", "KEYS": f"k{i}"}, flag=i) for i in range(3))
UNWRAP = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP


def record(
    body: bytes | None = None, *, number: str | None = "3", base: str | None = "40", flags: int = UNWRAP
) -> StoredMessage:
    named = {"UNIQ_KEY": "X", "INNER_NUM": number, "INNER_BASE": base}
    properties = {name: value for name, value in named.items() if value is not None}
    raw = message.encode(
        Message("B", batch.encode(ITEMS) if body is None else body, properties=properties, sys_flag=flags)
    )
    message.patch(raw, 0, queue_offset=40, physical_offset=1000, store_timestamp=5)
    return message.decode(raw)


def test_each_message_has_its_own_queue_offset_flag_properties_and_body() -> None:
    messages = inner_messages(record())
    assert [one.queue_offset for one in messages] == [40, 41, 42]
    assert [one.flag for one in messages] == [0, 1, 2]
    assert [one.body for one in messages] == [item.body for item in ITEMS]
    assert [one.properties for one in messages] == [{"TAGS": "t", "KEYS": f"k{i}"} for i in range(3)]
    assert {(one.topic, one.physical_offset, one.store_timestamp) for one in messages} == {("B", 1000, 5)}
    assert all(one.crc_ok for one in messages)
    assert batch_place(record()) == BatchPlace(40, 3)


@pytest.mark.parametrize("flags", [0, sysflag.INNER_BATCH, sysflag.NEED_UNWRAP])
def test_a_record_without_both_flags_is_one_message(flags: int) -> None:
    plain = record(flags=flags)
    assert inner_messages(plain) == [plain]


@pytest.mark.parametrize(("number", "base"), [(None, "40"), ("3", None)])
def test_without_its_properties_a_record_counts_as_one(number: str | None, base: str | None) -> None:
    assert batch_place(record(number=number, base=base)) == BatchPlace(40, 1)


def test_a_compressed_body_is_decompressed_first() -> None:
    packed = record(zlib.compress(batch.encode(ITEMS)), flags=UNWRAP | sysflag.COMPRESSED)
    messages = inner_messages(packed)
    assert [one.body for one in messages] == [item.body for item in ITEMS]
    assert {one.sys_flag for one in messages} == {UNWRAP}
    with pytest.raises(FormatError, match="decompressed"):
        inner_messages(record(b"none", flags=UNWRAP | sysflag.COMPRESSED))


def test_of_a_record_with_a_body_crc_mismatch_no_message_is_sound() -> None:
    wrong = record()._replace(body_crc=1)
    assert not any(one.crc_ok for one in inner_messages(wrong))


@pytest.mark.parametrize("number", ["0", "-1", "2", "4", "32768", "9" * 30, "three", "３", " 3"])
def test_a_count_that_is_not_the_bodys_is_refused(number: str) -> None:
    with pytest.raises(FormatError) as caught:
        inner_messages(record(number=number))
    assert caught.value.offset == 1000


@pytest.mark.parametrize("base", ["-1", "x", str(1 << 63)])
def test_a_base_that_no_queue_has_is_refused(base: str) -> None:
    with pytest.raises(FormatError):
        batch_place(record(base=base))


@pytest.mark.parametrize("seed", range(200))
def test_bodies_that_are_damaged_are_refused_or_split(seed: int) -> None:
    chance = random.Random(seed)
    body = bytearray(batch.encode(ITEMS))
    for _ in range(chance.randint(1, 4)):
        body[chance.randrange(len(body))] = chance.choice((0, 0xFF, 0x7F, chance.randrange(256)))
    body = body[: chance.choice((len(body), chance.randrange(len(body) + 1)))]
    damaged = record(bytes(body))
    try:
        items = batch.decode(damaged.body)
    except FormatError:
        items = ()
    if len(items) == len(ITEMS):
        assert [one.body for one in inner_messages(damaged)] == [item.body for item in items]
    else:
        with pytest.raises(FormatError) as caught:
            inner_messages(damaged)
        assert caught.value.offset == 1000
