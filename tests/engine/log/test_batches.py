"""What is put is what `encode` makes: one message, a batch of objects, a batch of columns, by kernels or without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import FormatError, InvalidArgument
from engine.files.disk import Disk
from engine.format import batch, message, properties, sysflag
from engine.format.batch import ITEM_SIZE, BatchItem
from engine.format.buffers import Buffer
from engine.format.columns import MessageColumns
from engine.format.message import (
    Message,
    StoredMessage,
    _decode_any,
    decode,
    encode,
    patch,
)
from engine.format.record import BLANK_SIZE
from engine.log import prepare_batch
from engine.log.frames import columns_of
from engine.log.prepare import Prepared, Preparer
from engine.log.prepare_batch import BatchPreparer, PreparedBatch, PreparedColumns
from engine.log.results import MessageRefused, PutMessageStatus, PutResult
from engine.store import MessageStore
from tests.engine.opening import assert_sound, small
from tests.engine.opening import message as simple
from tests.support import strategies
from tests.support.wide import examples

CONFIG = StoreConfig(store_path_root_dir=Path("/none"))
EVERY = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
ITEMS = st.lists(
    st.builds(
        BatchItem,
        st.one_of(st.binary(max_size=200), st.integers(0, 5000).map(bytes)),
        strategies.ints,
        st.one_of(st.binary(max_size=60), st.just(b"A\x01b\x02"), st.just(b"")),
    ),
    min_size=1,
    max_size=8,
)
PLAIN = strategies.messages.map(lambda m: m._replace(sys_flag=m.sys_flag & ~sysflag.TRANSACTION_MASK)).filter(
    lambda m: "/" not in m.topic and "\0" not in m.topic and m.topic not in (".", "..")
)
"""Messages that a batch may be of."""


def expected(shared: Message, items: list[BatchItem], queue_offset: int, physical: int, now: int) -> bytes:
    """As the format says it, record by record."""
    common = properties.join(shared.properties).encode()
    out = bytearray()
    for i, item in enumerate(items):
        own = item.properties_raw
        between = b"\x02" if own and common and not own.endswith(b"\x02") else b""
        one = shared._replace(body=item.body, flag=item.flag, prepared_transaction_offset=0)
        record = encode(one, own + between + common)
        patch(record, 0, queue_offset=queue_offset + i, physical_offset=physical + len(out), store_timestamp=now)
        out += record
    return bytes(out)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(prepare_batch, "MANY", 0)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_batch, "MANY", 0)
    monkeypatch.setitem(sys.modules, "engine.log.kernels.encode", None)
    monkeypatch.delattr("engine.log.kernels.encode", raising=False)


def fresh() -> BatchPreparer:
    return BatchPreparer(CONFIG, Preparer(CONFIG))


# --- one message -----------------------------------------------------------------------------------------------------


@pytest.mark.wide
@EVERY
@given(strategies.messages, st.integers(0, 1 << 62), st.integers(0, 1 << 62), strategies.longs)
def test_a_message_is_what_encode_and_patch_make_of_it(put: Message, place: int, physical: int, now: int) -> None:
    preparer = Preparer(CONFIG)
    wanted = encode(put)
    patch(wanted, 0, queue_offset=place, physical_offset=physical, store_timestamp=now)
    try:
        found = [preparer.one(put), preparer.one(put._replace()), preparer.one(put)]  # made, equal, remembered
    except MessageRefused:
        assert "/" in put.topic or "\0" in put.topic or put.topic in (".", "..")
        return
    assert [bytes(one.record(place, physical, now)) for one in found] == [bytes(wanted)] * 3
    assert {one.size for one in found} == {len(wanted)}
    assert {one.destination.numbered for one in found if isinstance(one, Prepared)} == {
        sysflag.is_consumable(put.sys_flag)
    }


def test_what_is_remembered_of_one_is_not_taken_for_another() -> None:
    preparer = Preparer(CONFIG)
    one = simple(b"x")
    other = one._replace(born_host=message.Host(bytes(16), 7), store_host=message.Host(b"\1\2\3\4", 9))
    commit = one._replace(sys_flag=sysflag.TRANSACTION_COMMIT, prepared_transaction_offset=77)
    again = commit._replace(prepared_transaction_offset=0)
    for put in (one, other, one, commit, again, one._replace(flag=3), one._replace(reconsume_times=2)):
        assert bytes(preparer.one(put).record(0, 0, 0)) == bytes(encode(put))


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_id": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"born_timestamp": 1 << 63},
        {"reconsume_times": 1 << 40},
        {"prepared_transaction_offset": 1 << 63},
        {"sys_flag": 1 << 33},
    ],
)
def test_a_number_that_its_field_cant_hold_is_refused(wrong: dict[str, int]) -> None:
    put = simple()._replace(**wrong)  # type: ignore[arg-type]
    with pytest.raises(MessageRefused, match="out of range for its field"):
        Preparer(CONFIG).one(put)
    if "prepared_transaction_offset" not in wrong and "flag" not in wrong:
        with pytest.raises(MessageRefused, match="out of range for its field"):
            fresh().batch(put, [BatchItem(b"x")])


@pytest.mark.wide
@EVERY
@given(strategies.messages, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3))
def test_a_record_decodes_the_fast_way_as_the_other(put: Message, changes: list[tuple[int, int]]) -> None:
    record = encode(put)
    for at, value in changes:
        record[at % len(record)] = value
    for buffer in (bytes(record), memoryview(b"abc" + bytes(record) + b"def")[3:]):
        assert outcome(decode, buffer) == outcome(_decode_any, buffer)


def outcome(read: Callable[[Buffer, int], StoredMessage], buffer: Buffer) -> object:
    try:
        return read(buffer, 0)
    except FormatError as error:
        return str(error)


# --- a batch ---------------------------------------------------------------------------------------------------------


def check_batch(shared: Message, items: list[BatchItem], kind: type) -> None:
    wanted = expected(shared, items, 12, 3456, 1_700_000_000_123)
    for given_items in (items, MessageColumns.of_items(items), MessageColumns.of_frame(batch.encode(items))):
        found = fresh().batch(shared, given_items)
        assert type(found) is kind
        assert bytes(found.record(12, 3456, 1_700_000_000_123)) == wanted
        assert (found.size, found.count) == (len(wanted), len(items))
        starts = found.offsets(0)
        assert [decode(wanted, start).body for start in starts] == [item.body for item in items]
        assert all(type(start) is int for start in starts)


@pytest.mark.wide
@settings(EVERY, suppress_health_check=list(HealthCheck))
@given(PLAIN, ITEMS)
@example(simple(a="b"), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v"), BatchItem(b"y")])
def test_a_batch_in_plain_python(without_kernels: None, shared: Message, items: list[BatchItem]) -> None:
    check_batch(shared, items, PreparedBatch)


@pytest.mark.wide
@settings(EVERY, suppress_health_check=list(HealthCheck))
@given(PLAIN, ITEMS)
@example(simple(a="b"), [BatchItem(b"x", 0, b"k\x01v\x02"), BatchItem(b"", 1, b"k\x01v"), BatchItem(b"y")])
def test_a_batch_by_kernels(by_kernels: None, shared: Message, items: list[BatchItem]) -> None:
    check_batch(shared, items, PreparedColumns)


def test_kernels_are_loaded_when_so_many_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(prepare_batch, "MANY", 10)
    one = fresh()
    kinds = [type(one.batch(simple(), [BatchItem(b"x")] * 4)) for _ in range(4)]
    assert kinds == [PreparedBatch, PreparedBatch, PreparedColumns, PreparedColumns]


TOO_LONG = [
    (simple(), [BatchItem(b"x" * (4 << 20))]),
    (simple(a="x" * 20000), [BatchItem(b"ok"), BatchItem.of(b"", {"b": "x" * 20000})]),
    (simple(), [BatchItem(b"x", 1 << 31)]),
    (simple(), []),
    (simple(DELAY="2"), [BatchItem(b"x")]),
]


@pytest.mark.parametrize("kernels", ["without_kernels", "by_kernels"])
def test_what_is_refused(kernels: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(kernels)
    found = []
    for shared, items in TOO_LONG:
        with pytest.raises(MessageRefused) as refused:
            fresh().batch(shared, items)
        found.append(refused.value.status)
    illegal = PutMessageStatus.MESSAGE_ILLEGAL
    assert found == [illegal, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, illegal, illegal, illegal]


@pytest.mark.parametrize("kernels", ["without_kernels", "by_kernels"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body_at", -1), ("body_at", 9), ("body_length", -1), ("body_length", 1 << 62), ("properties_at", 1 << 62),
        ("properties_length", -5), ("properties_at", -1), ("properties_length", 100),
    ],
)  # fmt: skip
def test_columns_that_point_outside_of_their_buffers(
    kernels: str, column: str, value: int, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(kernels)
    columns = MessageColumns.of_items([BatchItem(b"body", 0, b"a\x01b"), BatchItem(b"other", 0, b"c\x01d")])
    getattr(columns, column)[1] = value
    if value == 1 << 62:  # two such numbers add up to one below 0
        getattr(columns, column.replace("_length", "_at"))[1] = value
        getattr(columns, column.replace("_at", "_length"))[1] = value
    with pytest.raises(MessageRefused):
        fresh().batch(simple(), columns)


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.wide
@EVERY
@given(ITEMS)
def test_columns_are_the_items(items: list[BatchItem]) -> None:
    for columns in (MessageColumns.of_items(items), MessageColumns.of_frame(batch.encode(items))):
        assert columns.items() == items
        assert columns[1:3].items() == items[1:3]
        assert len(columns) == len(items)


def test_columns_of_one_buffer_each() -> None:
    columns = MessageColumns.of(b"abcde", [2, 0, 3], b"k\x01v", [0, 3, 0], 7)
    assert columns.items() == [BatchItem(b"ab", 7), BatchItem(b"", 7, b"k\x01v"), BatchItem(b"cde", 7)]
    assert MessageColumns.of(b"ab", np.array([1, 1], dtype=np.int32)).items() == [BatchItem(b"a"), BatchItem(b"b")]


@pytest.mark.parametrize(
    "wrong",
    [
        (b"abc", [1, 1]),
        (b"abc", [4, -1]),
        (b"abc", [1, 2], b"", [0]),
        (b"abc", [1, 2], b"x", [0, 0]),
        (b"abc", [1, 2], b"", None, 1 << 31),
        (b"abc", [1, 2], b"", None, [1, 2, 3]),
    ],
)
def test_columns_that_are_none(wrong: tuple[object, ...]) -> None:
    with pytest.raises(InvalidArgument):
        MessageColumns.of(*wrong)  # type: ignore[arg-type]


@pytest.mark.wide
@EVERY
@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(500, 6000), st.integers(4096, 6000))
def test_pieces_are_as_large_as_a_batch_may_be(sizes: list[int], most: int, file_size: int) -> None:
    config = CONFIG.with_changes(max_message_size=most, mapped_file_size_commit_log=file_size)
    preparer = BatchPreparer(config, Preparer(config))
    columns = MessageColumns.of(bytes(sum(sizes)), sizes)
    shared = simple(a="b")
    pieces = preparer.pieces(shared, columns)
    assert [item for piece in pieces for item in piece.items()] == columns.items()

    def fits(items: list[BatchItem]) -> bool:
        sent = sum(ITEM_SIZE + len(item.body) for item in items)
        stored = sum(len(encode(shared._replace(body=item.body))) for item in items)
        return sent <= most and stored + BLANK_SIZE <= file_size

    at = 0
    for piece in pieces:
        here = piece.items()
        at += len(here)
        assert len(here) == 1 or fits(here)
        following = columns.items()[at : at + 1]
        # a piece leaves room for a separator in each record that none of these needs
        assert not following or not fits([*here, *following, *[BatchItem(bytes(len(here) + 1))]])


# --- through the store -----------------------------------------------------------------------------------------------


def put_all(root: Path, columns: MessageColumns, how: str, *, mapped: bool = True) -> tuple[list[PutResult], bytes]:
    """The answers and the log."""
    config = small(root, max_message_size=9000)
    shared = simple(WAIT="true")._replace(born_timestamp=5)
    with MessageStore.open(config, Disk(mapped=mapped), clock=lambda: 1_700_000_000_000) as store:
        if how == "columns":
            results = list(store.put_columns(shared, columns))
        else:
            results = [store.put_batch(shared, piece.items()) for piece in store.log.batches(shared, columns)]
        assert store.wait_dispatched()
        assert store.max_offset("T", 0) == len(columns)
        assert store.log.topic_queue_table == {("T", 0): len(columns)}
        found: list[StoredMessage] = []
        while len(found) < len(columns):
            found += store.get("T", 0, len(found), 16).decoded()
        assert [one.body for one in found] == [item.body for item in columns.items()]
        assert [one.queue_offset for one in found] == list(range(len(columns)))
        assert len(store.query("T", "k7").messages) == 1
        log = bytes(store.log.read(0, 65536)) + bytes(store.log.read(65536, 65536))
    assert_sound(config)
    return results, log


def many() -> MessageColumns:
    return MessageColumns.of_items([BatchItem.of(b"%d" % i * 150, {"KEYS": f"k{i}"}, i) for i in range(260)])


def test_columns_through_the_store(by_kernels: None, tmp_path: Path) -> None:
    columns = many()
    results, log = put_all(tmp_path / "one", columns, "columns")
    others, same = put_all(tmp_path / "two", columns, "items")
    assert results == others
    assert log == same
    assert len(results) > 10
    assert all(result.ok for result in results)
    offsets = [offset for result in results if result.append for offset in result.append.offsets]
    assert len(offsets) == len(columns)
    assert offsets == sorted(offsets)
    assert offsets[-1] > 65536


def test_columns_by_call_and_without_kernels(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    columns = many()
    request.getfixturevalue("by_kernels")
    by_kernels = put_all(tmp_path / "one", columns, "columns", mapped=False)
    request.getfixturevalue("without_kernels")
    assert put_all(tmp_path / "two", columns, "columns") == by_kernels


def test_columns_end_at_the_first_that_is_not_stored(tmp_path: Path) -> None:
    config = small(tmp_path, max_message_size=5000)
    with MessageStore.open(config) as store:
        columns = MessageColumns.of(bytes(20_000), [4000, 4000, 5000, 4000, 3000])
        results = store.put_columns(simple(), columns)
        assert [result.status for result in results] == [
            PutMessageStatus.PUT_OK,
            PutMessageStatus.PUT_OK,
            PutMessageStatus.MESSAGE_ILLEGAL,
        ]
        assert store.put_columns(simple(topic="a/b"), columns)[0].status is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.put_columns(simple(), MessageColumns.of(b"", []))[0].status is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.wait_dispatched()
        assert store.max_offset("T", 0) == 2
    assert store.put_columns(simple(), columns)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert_sound(config)


# --- frames ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=30), st.integers(-(2**31), 2**31 - 1)), max_size=8),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 30),
)
def test_frames_by_the_kernel(messages: list[tuple[bytes, bytes, int]], flips: list[tuple[int, int]], cut: int) -> None:
    import engine.log.kernels.encode  # noqa: F401 - whoever loads it has frames read by a kernel

    frame = bytearray(batch.encode(BatchItem(body, flag, names) for body, names, flag in messages))
    for at, value in flips:
        if at < len(frame):
            frame[at] = value
    frame = frame[: len(frame) - cut] if cut < 20 else frame
    wanted, found = read_frame(MessageColumns.of_frame, frame), read_frame(columns_of, frame)
    if isinstance(wanted, FormatError):
        assert isinstance(found, FormatError)
        assert (found.message, found.offset) == (wanted.message, wanted.offset)
        return
    assert isinstance(found, MessageColumns)
    for name in ("body_at", "body_length", "properties_at", "properties_length", "flag"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert found.bodies.tobytes() == wanted.bodies.tobytes() == bytes(frame)


def read_frame(read: Callable[[Buffer], MessageColumns], frame: Buffer) -> MessageColumns | FormatError:
    try:
        return read(frame)
    except FormatError as error:
        return error
