"""Puts into stores of RocketMQ 5: records with a property CRC, and those of topics whose length takes two bytes.

The expectation is built from the format, record by record; the real releases are in tests/compat/test_parity5.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from engine.format import batch, names, properties, property_crc
from engine.format.batch import BatchItem
from engine.format.columns import MessageColumns
from engine.format.message import Message, decode, encode, patch, row_at
from engine.format.property_crc import CrcState
from engine.format.record import MESSAGE_MAGIC, MESSAGE_MAGIC_V2, PROPERTIES_MAX_LENGTH
from engine.log import prepare_batch
from engine.log.prepare import Preparer
from engine.log.prepare_batch import BatchPreparer, PreparedBatch, PreparedColumns
from engine.log.results import MessageRefused, PutMessageStatus, PutResult
from engine.store import MessageStore
from tests.engine.log.test_batches import CONFIG, ITEMS, PLAIN
from tests.engine.opening import assert_sound, bodies, small
from tests.support import strategies
from tests.support.wide import examples

SEALED = CONFIG.with_changes(property_crcs=True, long_topics=True)
LONG = names.RETRY_PREFIX + "g" * (names.FILE_NAME_MAX - len(names.RETRY_PREFIX))
PLACE = 12, 3456, 1_700_000_000_123
EVERY = settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(prepare_batch, "MANY", 0)


def sealed(message: Message, raw: bytes, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytearray:
    """As the format says: what there is of properties, a separator after them, and the CRC of all before it."""
    after = b"\x02" if raw and not raw.endswith(b"\x02") else b""
    record = encode(message, raw + after + bytes(property_crc.SIZE))
    patch(record, 0, queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp=store_timestamp)
    crc = property_crc.compute(record)
    record[-20:] = b"__CRC32#\x01" + f"{crc:010}"[::-1].encode() + b"\x02"
    return record


@pytest.mark.wide
@EVERY
@given(strategies.messages)
@example(Message("T", b"x", properties={"a": "1", property_crc.NAME: "0000000000"}))
@example(Message(LONG, b"x", properties={"a": "1"}))
def test_a_message_has_a_property_crc_after_its_properties(put: Message) -> None:
    pairs = {name: value for name, value in put.properties.items() if name != property_crc.NAME}
    wanted = sealed(put, properties.join(pairs).encode("utf-8", "replace"), *PLACE)
    try:
        one = Preparer(SEALED).one(put)
    except MessageRefused:
        assert "/" in put.topic or "\0" in put.topic or put.topic in (".", "..")
        return
    record = bytes(one.record(*PLACE))
    assert record == bytes(wanted)
    assert one.size == len(wanted)
    assert property_crc.state_of(record, len(decode(record).properties_raw)) is CrcState.RIGHT


def check_batch(shared: Message, items: list[BatchItem], kind: type) -> None:
    common = properties.join(shared.properties).encode()
    wanted = bytearray()
    for i, item in enumerate(items):
        own = item.properties_raw
        between = b"\x02" if own and common and not own.endswith(b"\x02") else b""
        one = shared._replace(body=item.body, flag=item.flag, prepared_transaction_offset=0)
        place = PLACE[0] + i, PLACE[1] + len(wanted), PLACE[2]
        wanted += sealed(one, own + between + common, *place)
    for given_items in (items, MessageColumns.of_items(items), MessageColumns.of_frame(batch.encode(items))):
        made = BatchPreparer(SEALED, Preparer(SEALED)).batch(shared, given_items)
        assert type(made) is kind
        assert bytes(made.record(*PLACE)) == bytes(wanted)
        assert (made.size, made.count) == (len(wanted), len(items))


@pytest.mark.wide
@EVERY
@given(PLAIN, ITEMS)
@example(Message("T", properties={"a": "b"}), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v")])
@example(Message(LONG), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v"), BatchItem(b"y")])
def test_a_batch_in_plain_python(shared: Message, items: list[BatchItem]) -> None:
    check_batch(shared, items, PreparedBatch)


@pytest.mark.wide
@EVERY
@given(PLAIN, ITEMS)
@example(Message("T", properties={"a": "b"}), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v")])
@example(Message(LONG), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v"), BatchItem(b"y")])
def test_a_batch_by_kernels(by_kernels: None, shared: Message, items: list[BatchItem]) -> None:
    check_batch(shared, items, PreparedColumns)


def test_properties_leave_space_for_their_crc() -> None:
    most = PROPERTIES_MAX_LENGTH - property_crc.SIZE - len("a\x01\x02")
    for length, refused in ((most, False), (most + 1, True)):
        put = Message("T", b"x", properties={"a": "v" * length})
        items = [BatchItem.of(b"x", {"a": "v" * length})]
        for prepare in (
            lambda put=put: Preparer(SEALED).one(put),
            lambda items=items: BatchPreparer(SEALED, Preparer(SEALED)).batch(Message("T"), items),
        ):
            if not refused:
                assert prepare().size > most
                continue
            with pytest.raises(MessageRefused) as error:
                prepare()
            assert error.value.status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED


@pytest.mark.parametrize(
    ("topic", "plain", "newer"),
    [
        ("T" * 127, MESSAGE_MAGIC, MESSAGE_MAGIC),
        ("T" * 128, None, None),
        (LONG[:127], MESSAGE_MAGIC, MESSAGE_MAGIC),
        (LONG[:128], None, MESSAGE_MAGIC_V2),
        (LONG, None, MESSAGE_MAGIC_V2),
        (LONG + "g", None, None),
        (names.RETRY_PREFIX + "组" * 41, None, MESSAGE_MAGIC_V2),
        (names.RETRY_PREFIX + "组" * 83, None, None),
    ],
)
def test_a_retry_topic_alone_may_be_longer_and_in_newer_stores_alone(
    topic: str, plain: int | None, newer: int | None
) -> None:
    for config, magic in ((CONFIG, plain), (SEALED, newer)):
        if magic is None:
            with pytest.raises(MessageRefused, match="topic"):
                Preparer(config).one(Message(topic, b"x"))
            continue
        record = Preparer(config).one(Message(topic, b"x", properties={"a": "1"})).record(*PLACE)
        stored = decode(record)
        assert (stored.magic, stored.topic, stored.body) == (magic, topic, b"x")
        assert row_at(record).size == len(record)


def test_a_store_by_its_settings_alone_is_written_so_and_read(tmp_path: Path) -> None:
    """Puts of every kind into a new store whose broker writes property CRCs; `check` at the end is the fixture's."""
    config = small(tmp_path, enable_multi_dispatch=True, enable_lmq=True, other={"enabledAppendPropCRC": "true"})
    further = {properties.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b", "KEYS": "k1"}
    results: list[PutResult] = []
    with MessageStore.open(config) as opened:
        for number, put in enumerate(
            (
                Message("T", b"one", properties={"KEYS": "k0"}),
                Message("T", b"", 1),
                Message("T", b"far", properties=further),
                Message(LONG, b"long", properties={"TAGS": "t"}),
                Message("T", b"late", properties={"DELAY": "3"}),
            )
        ):
            results.append(opened.put(put._replace(born_timestamp=number)))
        results.append(opened.put_batch(Message("T", properties={"s": "1"}), [BatchItem(b"x" * n) for n in range(40)]))
        assert opened.wait_dispatched()
        assert all(result.ok for result in results)
        places = [place for result in results if result.append is not None for place in result.append.offsets]
        assert len(places) == 45
    assert_sound(config)
    data = (tmp_path / "commitlog" / names.segment_name(0)).read_bytes()
    rows = [row_at(data, place) for place in places]
    states = {
        property_crc.state_of(data[row.position : row.position + row.size], row.properties_length) for row in rows
    }
    assert states == {CrcState.RIGHT}
    with MessageStore.open(config) as opened:
        assert bodies(opened, LONG) == [b"long"]
        assert len(bodies(opened)) == 42
