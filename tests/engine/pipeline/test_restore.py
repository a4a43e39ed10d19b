"""Rows become records of a new store: all is kept where nothing is missing, and the store is sound where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import compress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format import judge, names, properties, sysflag
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC
from engine.log.derive import TopicQueue
from engine.pipeline.restore import Numbering, Restored, Restorer
from engine.read_store import ReadStore
from engine.repair.create import create_store
from engine.store import MessageStore
from tests.engine.opening import assert_sound, small
from tests.pipeline import plain
from tests.support import references, stores, strategies
from tests.support.checking import check_clean


def restore(rows: Any, config: StoreConfig, *, odd: bool = False, **how: Any) -> Restored:
    """`odd`: the rows hold what no broker writes, and what comes back is suspect."""
    create_store(Disk(), config)
    with MessageStore.open(config) as store:
        restorer = Restorer(store, **how)
        for row in rows:
            restorer.add(row)
        done = restorer.finish()
    assert_sound(config)
    if odd:
        check_clean(config.store_path_root_dir, config, known=("record-suspect",), why="no broker wrote these")
    else:
        check_clean(config.store_path_root_dir, config)
    return done


def written(config: StoreConfig, messages: list[Message]) -> list[dict[str, Any]]:
    """Rows of a store that these messages were put into."""
    with MessageStore.open(config, clock=iter(range(1000, 1 << 30, 7)).__next__) as store:
        for message in messages:
            assert store.put(message).ok
    return list(plain.rows(config))


@pytest.mark.parametrize("reference", ["fixtures/clean-small", "fixtures/lmq", "fixtures/transient-ext"])
def test_a_whole_log_comes_back_to_the_record(
    reference: str, reference_store: Callable[[str], Path], tmp_path: Path
) -> None:
    source = references.settings(reference).with_changes(store_path_root_dir=reference_store(reference))
    target = source.with_changes(store_path_root_dir=tmp_path / "new", transient_store_pool_enable=False)
    done = restore(plain.rows(source), target)
    before, after = plain.records(source), plain.records(target)
    assert [r.offset for r in after] == [r.offset for r in before]
    assert [plain.kept(r.message) for r in after] == [plain.kept(r.message) for r in before]
    assert (done.messages, done.left_out) == (len(before), [])
    assert {what: n for what, n in done.counts.items() if n and what not in ("delayed", "half_messages")} == {}
    with ReadStore(source) as old, ReadStore(target) as new:
        ends = {queue: (old.min_offset(*queue), old.max_offset(*queue)) for queue in old.queues()}
        assert {queue: (new.min_offset(*queue), new.max_offset(*queue)) for queue in new.queues()} == {
            queue: end for queue, end in ends.items() if end[1] > end[0]
        }


def test_delayed_messages_wait_where_they_waited(tmp_path: Path) -> None:
    delayed = [Message("T", b"%d" % i, 2, {properties.DELAY: str(1 + i % 4)}) for i in range(20)]
    rows = written(small(tmp_path / "a"), delayed)
    done = restore(rows, small(tmp_path / "b"))
    assert done.counts["delayed"] == 20
    assert plain.by_queue(small(tmp_path / "b")) == plain.by_queue(small(tmp_path / "a"))
    assert {topic for topic, _ in plain.by_queue(small(tmp_path / "b"))} == {names.SCHEDULE_TOPIC}


def test_a_log_whose_beginning_has_expired_keeps_its_offsets(tmp_path: Path) -> None:
    rows = written(small(tmp_path / "a"), [Message("T", bytes(900), i % 3) for i in range(300)])
    start = next(i for i, row in enumerate(rows) if row["physical_offset"] == 2 * 65536)
    done = restore(rows[start:], small(tmp_path / "b"))
    again = list(plain.rows(small(tmp_path / "b")))
    assert again == rows[start:]
    assert not done.counts["moved"]
    with ReadStore(small(tmp_path / "b")) as store:
        assert store.min_offset("T", rows[start]["queue_id"]) == rows[start]["queue_offset"] > 0


def _some(
    properties: st.SearchStrategy[dict[str, str]],
    born: st.SearchStrategy[int],
    hosts: st.SearchStrategy[Host],
    times: st.SearchStrategy[int],
    prepared: st.SearchStrategy[int],
) -> st.SearchStrategy[list[Message]]:
    one = st.builds(
        Message,
        topic=st.sampled_from(["A", "B", "%RETRY%g", "with*star"]),
        body=st.binary(max_size=3000),
        queue_id=st.integers(0, 2),
        properties=properties,
        flag=strategies.ints,
        sys_flag=st.sampled_from([0, sysflag.COMPRESSED, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT]),
        born_timestamp=born,
        born_host=hosts,
        store_host=hosts,
        reconsume_times=times,
        prepared_transaction_offset=prepared,
    )
    return st.lists(one, max_size=60)


_any = _some(strategies.properties, strategies.longs, strategies.hosts, strategies.ints, strategies.longs)
_sent = _some(
    strategies.sent_properties,
    st.integers(0, judge.STORED_MOST - 1),
    strategies.real_hosts,
    st.integers(0, judge.RECONSUME_MOST),
    strategies.offsets,
)
"""What brokers and clients may write and send, however odd: the store that they make is sound."""


@settings(max_examples=25)
@given(_any)
def test_any_messages_come_back(tmp_path_factory: pytest.TempPathFactory, messages: list[Message]) -> None:
    base = tmp_path_factory.mktemp("any")
    a, b = small(base / "a"), small(base / "b")
    rows = written(a, messages)
    restore(rows, b, odd=True)
    assert list(plain.rows(b)) == rows


@settings(max_examples=25)
@given(_sent, st.data())
def test_of_a_table_with_gaps_the_queues_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    base = tmp_path_factory.mktemp("gaps")
    rows = written(small(base / "a"), messages)
    some = [row for row in rows if data.draw(st.booleans())]
    done = restore(some, small(base / "b"))
    found = list(plain.rows(small(base / "b")))
    moving = ("physical_offset", "queue_offset")
    assert [{k: v for k, v in row.items() if k not in moving} for row in found] == [
        {k: v for k, v in row.items() if k not in moving} for row in some
    ]
    assert done.counts["moved"] == sum(
        a["physical_offset"] != b["physical_offset"] for a, b in zip(some, found, strict=True)
    )
    queues: dict[tuple[str, int], list[int]] = {}
    for row in found:
        if sysflag.is_consumable(row["sys_flag"]):
            queues.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    for offsets in queues.values():
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_operations_go_with_their_halves(tmp_path: Path) -> None:
    halves = [Message(HALF_TOPIC, b"half %d" % i) for i in range(6)]
    operations = [Message(OP_TOPIC, str(i).encode(), 0, {"TAGS": "d"}) for i in (1, 3, 5)]
    rows = written(small(tmp_path / "a"), [*halves, *operations])
    without = [row for row in rows if row["body"] not in (b"half 2", b"half 3")]
    done = restore(without, small(tmp_path / "b"))
    found = [(row["topic"], row["queue_offset"], row["body"]) for row in plain.rows(small(tmp_path / "b"))]
    assert found == [
        *((HALF_TOPIC, i, body) for i, body in enumerate((b"half 0", b"half 1", b"half 4", b"half 5"))),
        (OP_TOPIC, 0, b"1"),
        (OP_TOPIC, 1, b"3"),
    ]
    assert done.counts["operations_changed"] == 1
    assert [why for _, why in done.left_out] == ["it settles a half message that is not in the table"]


def test_further_queues_are_numbered_anew_behind_a_gap(tmp_path: Path) -> None:
    more = {"enable_multi_dispatch": True, "enable_lmq": True}
    both = {properties.INNER_MULTI_DISPATCH: "%LMQ%x,%LMQ%y"}
    rows = written(small(tmp_path / "a", **more), [Message("T", b"%d" % i, 1, both) for i in range(5)])
    restore([row for row in rows if row["body"] != b"2"], small(tmp_path / "b", **more))
    with ReadStore(small(tmp_path / "b", **more)) as store:
        assert set(store.queues()) == {TopicQueue("T", 1), TopicQueue("%LMQ%x", 0), TopicQueue("%LMQ%y", 0)}
        for queue in store.queues():
            assert [m.body for m in store.get(*queue, 0).decoded()] == [b"0", b"1", b"3", b"4"]
    done = restore(rows, small(tmp_path / "c"))
    assert done.counts["further_queues"] == 5


def test_a_batch_that_went_to_the_next_file_goes_there_again(tmp_path: Path) -> None:
    from engine.format.batch import BatchItem

    config = small(tmp_path / "a")
    with MessageStore.open(config) as store:
        for _ in range(3):
            assert store.put_batch(Message("T"), [BatchItem(bytes(9000), 0, b"TAGS\x01a\x02")] * 3).ok
            assert store.put(Message("T", bytes(1000), 1)).ok
    rows = list(plain.rows(config))
    assert any(row["physical_offset"] == 65536 for row in rows)
    assert restore(rows, small(tmp_path / "b")).counts["moved"] == 0
    log = names.segment_name(0)
    assert stores.digest(tmp_path / "a/commitlog" / log) == stores.digest(tmp_path / "b/commitlog" / log)


def test_a_body_that_its_crc_does_not_fit_is_left_out(tmp_path: Path) -> None:
    rows = written(small(tmp_path / "a"), [Message("T", b"%d" % i) for i in range(3)])
    rows[1]["crc_ok"] = False
    done = restore(rows, small(tmp_path / "b"))
    assert done.left_out == [(rows[1]["physical_offset"], "body CRC mismatch")]
    assert [row["body"] for row in plain.rows(small(tmp_path / "b"))] == [b"0", b"2"]


def test_decompressed_bodies_are_not_said_to_be_compressed(tmp_path: Path) -> None:
    body = b"text " * 100
    rows = written(small(tmp_path / "a"), [Message("T", compress(body), 0, {}, 0, sysflag.COMPRESSED)])
    rows[0]["body"] = body
    restore(rows, small(tmp_path / "b"), decompressed=True)
    (found,) = plain.records(small(tmp_path / "b"))
    assert (found.message.body, found.message.sys_flag) == (body, 0)


def test_rows_twice_or_out_of_order(tmp_path: Path) -> None:
    rows = written(small(tmp_path / "a"), [Message("T", b"%d" % i) for i in range(3)])
    with pytest.raises(FormatError, match=f"two rows have the same physical offset: at {rows[1]['physical_offset']}"):
        restore([rows[0], rows[1], rows[1]], small(tmp_path / "b"))
    with pytest.raises(FormatError, match="rows out of order"):
        restore([rows[1], rows[0]], small(tmp_path / "c"))


def test_a_row_that_fits_no_record_is_named(tmp_path: Path) -> None:
    rows = written(small(tmp_path / "a"), [Message("T", b"%d" % i) for i in range(3)])
    rows[1]["topic"] = "x" * 200
    rows[2]["body"] = bytes(70_000)
    done = restore(rows, small(tmp_path / "b"))
    assert [(place, why[:20]) for place, why in done.left_out] == [
        (rows[1]["physical_offset"], "topic is longer than"),
        (rows[2]["physical_offset"], "a record of 70092 by"),
    ]


def test_numbers_of_a_queue_that_no_log_could_have() -> None:
    numbers = Numbering()
    queue = TopicQueue("T", 0)
    assert [numbers.next(queue, 1 << 40, 4096), numbers.next(queue, (1 << 40) + 1, 4200)] == [0, 1]
    assert numbers.next(TopicQueue("T", 1), 10, 4096) == 10
