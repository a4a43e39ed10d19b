"""The open store from outside: put, get, query, close, and what is said when something can't be done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import BrokerRole, FlushDiskType
from engine.errors import InvalidArgument, StorageError, StoreLocked
from engine.format import hosts, properties, sysflag
from engine.format.batch import BatchItem
from engine.format.message import Message, decode
from engine.format.queue_unit import decode_many
from engine.log.results import GetMessageStatus, PutMessageStatus
from engine.services.arrivals import Arrival
from engine.store import MessageStore
from tests.engine.opening import assert_sound, bodies, message, small
from tests.support import stores, strategies

Open = Callable[..., MessageStore]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """`opened(**settings)`: a small store in tmp_path/store; closed and looked at in the end."""
    made: list[MessageStore] = []

    def get(root: str = "store", **changes: object) -> MessageStore:
        made.append(MessageStore.open(small(tmp_path / root, **changes)))
        return made[-1]

    yield get
    for store in made:
        store.close()
    for store in made:
        assert_sound(store.config)


# --- put and get ----------------------------------------------------------------------------------------------------


def test_what_is_put_is_got(opened: Open) -> None:
    store = opened()
    results = [store.put(message(f"body {i}", KEYS=f"k{i}", TAGS="a")) for i in range(1000)]
    assert all(result.ok for result in results)
    assert [r.append.queue_offset for r in results if r.append] == list(range(1000))
    assert store.wait_dispatched()
    assert bodies(store) == [b"body %d" % i for i in range(1000)]
    assert store.log.segments[-1].offset > 0
    assert store.dispatch_lag == 0
    (one,) = store.query("T", "k500").messages
    assert decode(one).body == b"body 500"
    assert store.look_by_msg_id(results[7].append.msg_id).body == b"body 7"  # type: ignore[union-attr]


def test_a_reopened_store_goes_on(opened: Open) -> None:
    store = opened()
    for i in range(300):
        store.put(message(str(i), queue_id=i % 3))
    store.close()
    again = opened()
    assert again.put(message("300")).append.queue_offset == 100  # type: ignore[union-attr]
    assert again.wait_dispatched()
    assert bodies(again) == [b"%d" % i for i in range(0, 303, 3)]


@settings(max_examples=30)
@given(st.lists(strategies.messages, max_size=8))
def test_any_message(tmp_path_factory: pytest.TempPathFactory, messages: list[Message]) -> None:
    plain = [m._replace(sys_flag=m.sys_flag & ~sysflag.TRANSACTION_MASK, queue_id=3) for m in messages]
    plain = [m for m in plain if "/" not in m.topic and "\0" not in m.topic and m.topic not in (".", "..")]
    config = small(tmp_path_factory.mktemp("any"))
    with MessageStore.open(config) as store:
        put = [store.put(m) for m in plain]
        assert [r.status for r in put] == [PutMessageStatus.PUT_OK] * len(plain)
        assert store.wait_dispatched()
        for sent, result in zip(plain, put, strict=True):
            assert result.append is not None
            got = store.get(sent.topic, 3, result.append.queue_offset, 1)
            assert got.status is GetMessageStatus.FOUND
            assert decode(got.messages[0]).to_message()._replace(properties={}) == sent._replace(
                sys_flag=sent.stored_sys_flag, properties={}
            )
            assert decode(got.messages[0]).properties_raw == properties.join(sent.properties).encode()
    assert_sound(config)


def test_a_batch_is_in_one_file_or_in_none(opened: Open) -> None:
    store = opened()
    size = store.config.mapped_file_size_commit_log
    store.put(message(b"x" * (size - 1000)))
    items = [BatchItem.of(b"%d" % i * 200, {"KEYS": f"b{i}"}) for i in range(5)]
    result = store.put_batch(message(WAIT="false"), items)
    assert result.append is not None
    assert result.append.physical_offset == size
    assert result.append.message_count == 5
    assert result.append.msg_id.count(",") == 4
    assert store.wait_dispatched()
    assert len(bodies(store)) == 6
    assert decode(store.query("T", "b3").messages[0]).properties == {"KEYS": "b3", "WAIT": "false"}


def test_transactions_take_no_queue_offset(opened: Open) -> None:
    store = opened()
    half = message("half", KEYS="tx")._replace(sys_flag=sysflag.TRANSACTION_PREPARED)
    prepared = store.put(half).append
    assert prepared is not None
    assert prepared.queue_offset == 0
    commit = message("half", KEYS="tx")._replace(
        sys_flag=sysflag.TRANSACTION_COMMIT,
        prepared_transaction_offset=prepared.physical_offset,
    )
    assert store.put(commit).append.queue_offset == 0  # type: ignore[union-attr]
    assert store.put(half._replace(sys_flag=sysflag.TRANSACTION_ROLLBACK)).ok
    assert store.put(message("next")).append.queue_offset == 1  # type: ignore[union-attr]
    assert store.wait_dispatched()
    assert bodies(store) == [b"half", b"next"]
    assert len(store.query("T", "tx").messages) == 2


def test_a_delayed_message_waits_in_the_schedule_topic(opened: Open) -> None:
    store = opened()
    result = store.put(message("later", queue_id=3, DELAY="99", a="b"))
    assert result.append is not None
    assert store.wait_dispatched()
    found = store.look_message(result.append.physical_offset)
    assert found is not None
    assert (found.topic, found.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert list(found.properties.items()) == [("DELAY", "18"), ("a", "b"), ("REAL_TOPIC", "T"), ("REAL_QID", "3")]
    queue = store.find_queue("SCHEDULE_TOPIC_XXXX", 17)
    assert queue is not None
    (unit,) = queue.read(0, 1).tolist()
    assert unit[2] == found.store_timestamp + 2 * 3600 * 1000


def test_multi_dispatch(opened: Open) -> None:
    store = opened(enable_lmq=True, enable_multi_dispatch=True)
    for _ in range(2):
        store.put(message("m", queue_id=5, INNER_MULTI_DISPATCH="%LMQ%a,Side", WAIT="false"))
    assert store.wait_dispatched()
    assert [len(bodies(store, *at)) for at in (("T", 5), ("%LMQ%a", 0), ("Side", 5))] == [2, 2, 2]
    last = decode(store.get("Side", 5, 1).messages[0])
    assert last.properties == {"INNER_MULTI_DISPATCH": "%LMQ%a,Side", "INNER_MULTI_QUEUE_OFFSET": "1,1"}
    store.close()
    again = opened(enable_lmq=True, enable_multi_dispatch=True)
    again.put(message("m", queue_id=5, INNER_MULTI_DISPATCH="%LMQ%a"))
    assert again.wait_dispatched()
    assert again.max_offset("%LMQ%a", 0) == 3


def test_from_eight_threads_at_once(opened: Open) -> None:
    store = opened()
    each = 200

    def run(number: int) -> None:
        for i in range(each):
            assert store.put(message(f"{number}-{i}", queue_id=number % 2)).ok

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    again = opened()
    for queue_id in (0, 1):
        found = bodies(again, queue_id=queue_id)
        assert len(found) == 4 * each
        for number in range(queue_id, 8, 2):
            mine = [body for body in found if body.startswith(b"%d-" % number)]
            assert mine == [b"%d-%d" % (number, i) for i in range(each)]
    times = [again.message_store_timestamp("T", 0, offset) for offset in range(again.max_offset("T", 0))]
    assert times == sorted(times)


def test_asynchronous_puts(opened: Open) -> None:
    store = opened()
    futures = [store.put_async(message(str(i))) for i in range(20)]
    futures.append(store.put_batch_async(message(), [BatchItem(b"x"), BatchItem(b"y")]))
    assert all(future.result(5).ok for future in futures)
    assert store.wait_dispatched()
    assert len(bodies(store)) == 22


def test_listeners_are_told_in_order(tmp_path: Path) -> None:
    heard: list[Arrival] = []
    config = small(tmp_path)
    with MessageStore.open(config, listeners=[heard.extend]) as store:
        store.put(message("1", TAGS="a"))
        store.put(message("half")._replace(sys_flag=sysflag.TRANSACTION_PREPARED))
        store.put(message("2", queue_id=1))
        assert store.wait_dispatched()

        def broken(_: object) -> None:
            raise ValueError("oh")

        store.add_listener(broken)
        store.put(message("3"))
        assert store.wait_dispatched()
        while len(store.findings) < 1:
            pass
        assert "oh" in store.findings[0].text
        assert store.put(message("4")).ok
    assert [(a.topic, a.queue_id, a.next_offset) for a in heard] == [
        ("T", 0, 1),
        ("T", 1, 1),
        ("T", 0, 2),
        ("T", 0, 3),
    ]
    assert heard[0].tags_code == 97


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (message(topic="t" * 128), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(topic="标" * 50), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(topic=""), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(topic="../x"), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(b"x" * 1001), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(a="x" * 32766), PutMessageStatus.MESSAGE_ILLEGAL),
        (message(a="标" * 20000), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(queue_id=1 << 31), PutMessageStatus.MESSAGE_ILLEGAL),
    ],
)
def test_messages_that_no_log_takes(opened: Open, wrong: Message, status: PutMessageStatus) -> None:
    store = opened(max_message_size=1000)
    result = store.put(wrong)
    assert (result.status, result.append) == (status, None)
    assert isinstance(result.error, InvalidArgument)
    assert store.log.max_offset == 0
    assert store.put(message()).ok


def test_batches_that_no_log_takes(opened: Open) -> None:
    store = opened(max_message_size=60000)
    items = [BatchItem(b"x")]
    tries = [
        (message(), []),
        (message()._replace(sys_flag=sysflag.TRANSACTION_PREPARED), items),
        (message(DELAY="1"), items),
        (message(), [BatchItem(b"x" * 60000)]),
        (message(a="x" * 20000), [BatchItem.of(b"", {"b": "x" * 20000})]),
        (message(a="x" * 30000), [BatchItem(b"x")] * 3),
    ]
    expected = [PutMessageStatus.MESSAGE_ILLEGAL] * 4 + [PutMessageStatus.PROPERTIES_SIZE_EXCEEDED]
    expected.append(PutMessageStatus.MESSAGE_ILLEGAL)
    assert [store.put_batch(*one).status for one in tries] == expected
    assert store.log.max_offset == 0


def test_a_record_larger_than_a_file_is_refused(opened: Open) -> None:
    store = opened()
    assert store.put(message(b"x" * 65536)).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put(message(b"x" * (65536 - 8 - 92))).ok
    assert store.put(message(b"y")).append.physical_offset == 65536  # type: ignore[union-attr]


def test_a_slave_takes_no_puts(opened: Open) -> None:
    result = opened(broker_role=BrokerRole.SLAVE).put(message())
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "slave" in str(result.error)


def test_a_synchronous_master_without_a_slave_says_so(opened: Open) -> None:
    store = opened(broker_role=BrokerRole.SYNC_MASTER)
    assert store.put(message()).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    assert store.put(message(), wait=False).ok
    assert store.put(message(WAIT="false")).ok
    assert store.wait_dispatched()
    assert len(bodies(store)) == 3


def test_a_put_that_takes_too_long_turns_others_away(opened: Open) -> None:
    store = opened()
    store.log.begin_time_in_lock = store.log._clock() - 1500
    assert store.page_cache_busy
    assert store.put(message()).status is PutMessageStatus.OS_PAGECACHE_BUSY
    store.log.begin_time_in_lock = 0
    assert store.put(message()).ok


def test_too_many_light_queues(opened: Open) -> None:
    store = opened(enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=1)
    for name in ("%LMQ%a", "%LMQ%b"):
        assert store.put(message(INNER_MULTI_DISPATCH=name)).ok
        assert store.wait_dispatched()
    refused = store.put(message(INNER_MULTI_DISPATCH="%LMQ%c"))
    assert refused.status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert store.put(message()).ok


def test_after_close(opened: Open) -> None:
    store = opened()
    store.put(message())
    store.close()
    store.close()
    assert store.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.put_async(message()).result(1).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StorageError):
        store.get("T", 0, 0)
    with pytest.raises(StorageError):
        store.flush()


def test_one_store_at_a_time(opened: Open) -> None:
    store = opened()
    with pytest.raises(StoreLocked):
        MessageStore.open(store.config)


# --- life -----------------------------------------------------------------------------------------------------------


def test_what_a_crash_leaves_is_recovered(opened: Open, tmp_path: Path) -> None:
    store = opened(flush_interval_consume_queue=60_000)
    for i in range(700):
        store.put(message(f"{i}" * 20, queue_id=i % 4, KEYS=f"k{i}"))
    assert store.wait_dispatched()
    stores.copy_running(tmp_path / "store", tmp_path / "crashed")
    assert (tmp_path / "crashed" / "abort").exists()
    again = opened("crashed")
    assert again.log.max_offset == store.log.max_offset
    assert again.log.topic_queue_table == store.log.topic_queue_table
    assert [again.query("T", f"k{i}").offsets for i in range(700)] == [
        store.query("T", f"k{i}").offsets for i in range(700)
    ]
    assert again.put(message("next")).append.physical_offset == store.log.max_offset  # type: ignore[union-attr]


def test_clean_shutdown_deletes_the_file_made_ahead(opened: Open, tmp_path: Path) -> None:
    store = opened()
    store.put(message())
    while len(list((tmp_path / "store/commitlog").iterdir())) < 2:
        pass
    store.close()
    assert [path.name for path in (tmp_path / "store/commitlog").iterdir()] == ["0" * 20]


def test_flush(opened: Open) -> None:
    store = opened(flush_interval_commit_log=60_000)
    store.put(message())
    assert store.log.flushed_where == 0
    assert store.flush() == store.log.max_offset == store.log.flushed_where


def test_the_write_buffers(opened: Open, tmp_path: Path) -> None:
    store = opened(transient_store_pool_enable=True, transient_store_pool_size=3)
    results = [store.put(message(f"{i}" * 50)) for i in range(2000)]
    assert all(result.ok for result in results)
    assert store.flush() == results[-1].append.next_offset  # type: ignore[union-attr]
    assert store.wait_dispatched()
    assert bodies(store) == [b"%d" % i * 50 for i in range(2000)]
    store.close()
    again = opened(transient_store_pool_enable=True, transient_store_pool_size=3)
    assert len(bodies(again)) == 2000


def test_the_write_buffers_are_committed_without_asking(opened: Open) -> None:
    store = opened(transient_store_pool_enable=True, transient_store_pool_size=2, commit_interval_commit_log=10)
    heard = threading.Event()
    store.add_listener(lambda _: heard.set())
    store.put(message("a"))
    assert heard.wait(60)
    assert bodies(store) == [b"a"]


def test_a_slave_gets_the_masters_bytes(opened: Open) -> None:
    master, slave = opened(), opened("slave", broker_role=BrokerRole.SLAVE)
    for i in range(1500):
        master.put(message(f"{i}" * 10, queue_id=i % 2, KEYS=f"k{i}"))
    assert master.wait_dispatched()
    at = 0
    while at < master.log.max_offset:
        part = master.log.read(at, 7777)
        slave.append_raw(at, part)
        at += len(part)
    with pytest.raises(InvalidArgument):
        slave.append_raw(at + 1, b"x")
    assert slave.wait_dispatched()
    assert slave.log.max_offset == master.log.max_offset
    for queue_id in (0, 1):
        ours, theirs = slave.find_queue("T", queue_id), master.find_queue("T", queue_id)
        assert ours is not None
        assert theirs is not None
        assert (ours.read(0, 999) == theirs.read(0, 999)).all()


def test_synchronous_flush(opened: Open) -> None:
    store = opened(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for i in range(50):
        result = store.put(message(b"%d" % i * 3000))
        assert result.ok
        assert result.append is not None
        assert store.log.flushed_where >= result.append.next_offset
    assert store.checkpoint.physic_msg_timestamp > 0
    assert store.put(message(), wait=False).ok


def test_units_are_as_apaches(opened: Open) -> None:
    store = opened()
    first = store.put(message("x", TAGS="TagA")).append
    assert store.wait_dispatched()
    queue = store.find_queue("T", 0)
    assert queue is not None
    selected = queue.select(0)
    assert selected is not None
    with selected:
        assert decode_many(selected.view).tolist() == [(0, first.size, 2598919)]  # type: ignore[union-attr]


def test_hosts_of_sixteen_bytes(opened: Open) -> None:
    store = opened()
    host = hosts.parse("[2001:db8::1]:10911")
    result = store.put(message("v6")._replace(born_host=host, store_host=host))
    assert result.append is not None
    assert len(result.append.msg_id) == 56
    assert store.look_by_msg_id(result.append.msg_id).store_host == host  # type: ignore[union-attr]
    with suppress(InvalidArgument):
        store.look_by_msg_id("00")
