"""Gets as columns, objects and views: the same answer whichever way, with the kernel and without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format.hosts import Host
from engine.format.message import decode
from engine.format.record_columns import FIELDS, RecordColumns
from engine.log.reading import ReadLimits, get_columns, get_message
from engine.log.records import Records
from engine.log.results import GetMessageStatus, GetResult
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.engine.opening import message, small
from tests.support import strategies
from tests.support.wide import examples

pytest.importorskip("numba")

from engine.log.kernels.get import by_kernel, get
from engine.log.natives import COLUMNS

COUNT = 300
V6 = Host(bytes(range(16)), 10911)


def filled(store: MessageStore) -> None:
    """Queue 0: plain records. Queue 1: some have IPv6 hosts, some no body. In three files."""
    for i in range(COUNT):
        assert store.put(message(b"%d" % i * (i % 250), KEYS=f"k{i}", TAGS="ab"[i % 2])).ok
        other = message(b"x" * (i % 7), 1)
        assert store.put(other._replace(born_host=V6) if i % 5 == 4 else other).ok
    assert store.wait_dispatched()
    assert len(store.log.segments) > 2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("columns")
    with MessageStore.open(small(root)) as store:
        filled(store)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(small(tmp_path_factory.mktemp("live"))) as opened:
        filled(opened)
        yield opened


def told(columns: RecordColumns) -> list[tuple[object, ...]]:
    """What the columns say of each record, places aside."""
    out: list[tuple[object, ...]] = []
    for i in range(len(columns)):
        names = [name for name in FIELDS if not name.endswith("_at") and name != "position"]
        numbers = [int(getattr(columns, name)[i]) for name in names]
        parts = (columns.record(i), columns.body(i), columns.properties_raw(i))
        born, store = int(columns.born_host_at[i]), int(columns.store_host_at[i])
        hosts = (bytes(columns.buffer[born : born + 8]), bytes(columns.buffer[store : store + 8]))
        out.append((*numbers, *map(bytes, parts), columns.topic(i), hosts, columns.message(i)))
    return out


def by_objects(result: GetResult) -> list[tuple[object, ...]]:
    out: list[tuple[object, ...]] = []
    for record in result.messages:
        one = decode(record)
        numbers = (
            one.total_size, one.magic, one.body_crc, one.queue_id, one.flag, one.queue_offset, one.physical_offset,
            one.sys_flag, one.born_timestamp, one.store_timestamp, one.reconsume_times,
            one.prepared_transaction_offset, len(one.body), len(one.topic), len(one.properties_raw),
        )  # fmt: skip
        hosts = (one.born_host.encode()[:8], one.store_host.encode()[:8])
        out.append((*numbers, bytes(record), one.body, one.properties_raw, one.topic, hosts, one))
    return out


def head(result: GetResult) -> tuple[object, ...]:
    return (*result[:4], result.suggest_from_slave, result.message_count, result.total_size)


LIMITS = st.builds(
    ReadLimits,
    memory=st.sampled_from([0, 20_000, 1 << 40]),
    bytes_in_memory=st.sampled_from([10, 3000, 256 * 1024]),
    count_in_memory=st.sampled_from([1, 7, 32]),
    bytes_in_disk=st.sampled_from([10, 1500, 64 * 1024]),
    count_in_disk=st.sampled_from([1, 8]),
    correct_offsets=st.booleans(),
)


@pytest.mark.wide
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIMITS, st.integers(0, 2), st.integers(-1, COUNT + 2), st.sampled_from([0, 1, 5, 32, 900]))
def test_the_kernel_answers_as_the_plain_get(
    store: MessageStore, limits: ReadLimits, queue_id: int, offset: int, max_msgs: int
) -> None:
    queue = store.find_queue("T", queue_id)
    asked = (store.log, store.log.max_offset, queue, offset, max_msgs, limits)
    plain = get_message(*asked)
    COLUMNS.compiled()
    for which in (get, by_kernel, None):
        found = get_columns(*asked, which)
        assert head(found) == head(plain)
        assert told(found.columns()) == by_objects(plain)
        assert found.messages == plain.messages
        assert found.decoded() == [decode(record) for record in plain.messages]
        assert found == plain


def through(store: MessageStore | ReadStore, queue_id: int) -> list[tuple[object, ...]]:
    at, out = 0, []
    while at < COUNT:
        result, same = store.get_columns("T", queue_id, at), store.get("T", queue_id, at)
        assert head(result) == head(same)
        assert result.status is GetMessageStatus.FOUND
        assert told(result.columns()) == told(same.columns()) == by_objects(same)
        out += told(result.columns())
        at = result.next_begin_offset
    return out


@pytest.mark.parametrize("queue_id", [0, 1])
def test_a_closed_store_an_open_one_and_one_by_call_say_the_same(root: Path, queue_id: int) -> None:
    with ReadStore(small(root)) as closed:
        found = through(closed, queue_id)
    assert len(found) == COUNT
    with MessageStore.open(small(root)) as opened:
        assert through(opened, queue_id) == found
    with MessageStore.open(small(root), Disk(mapped=False)) as by_call:
        assert through(by_call, queue_id) == found


def test_without_numba(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ReadStore(small(root)) as closed:
        found = through(closed, 1)
    monkeypatch.setitem(sys.modules, "engine.log.kernels.get", None)
    with ReadStore(small(root)) as closed:
        assert through(closed, 1) == found


def test_what_a_get_gave_stays_readable_when_its_file_is_deleted(tmp_path: Path) -> None:
    store = MessageStore.open(small(tmp_path))
    with store:
        filled(store)
        columns, views = store.get_columns("T", 0, 0), store.get("T", 0, 0)
        before = told(columns.columns())
        assert store.log.files.delete_first(0)
        for gone in (store.get("T", 0, 0), store.get_columns("T", 0, 0)):
            assert (gone.status, gone.next_begin_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 100)
            assert len(gone.columns()) == gone.message_count == 0
    assert told(columns.columns()) == before == by_objects(views)


def test_a_unit_that_points_at_no_record(store: MessageStore) -> None:
    """Bytes that are there, and are none: views give them, decoding says so."""
    (record,) = store.get("T", 0, 9, 1).messages
    wrong = Records([(record, 1, len(record) - 1)])
    assert wrong.views() == (record[1:],)
    for read in (wrong.decoded, wrong.columns):
        with pytest.raises(FormatError):
            read()


@settings(max_examples=60, deadline=None)
@given(st.lists(strategies.messages, min_size=1, max_size=6))
def test_any_records_as_columns(messages: list) -> None:
    from engine.format.message import encode

    records = [memoryview(bytes(encode(one))) for one in messages]
    apart = Records([(record, 0, len(record)) for record in records])
    assert [columns.message(i) for columns in [apart.columns()] for i in range(len(columns))] == apart.decoded()
    assert [bytes(apart.columns().record(i)) for i in range(len(apart))] == list(map(bytes, apart.views()))
    assert apart.size == sum(map(len, records))
    with pytest.raises(AttributeError):
        _ = apart.columns().nothing
