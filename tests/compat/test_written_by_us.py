"""Stores that rstore wrote, read by Apache RocketMQ 4.9.8 itself: every field, every key, every offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pytest

from engine.format.message import decode
from engine.store import MessageStore
from tests.compat import apache, puts
from tests.compat.apache import SMALL, Line, Sizes
from tests.compat.checks import (
    bytes_of,
    check_keys,
    check_log,
    check_queues,
    our_offsets,
    our_queues,
    put_all,
    settings,
)

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

LMQ: Line = {"enableLmq": True, "enableMultiDispatch": True}
EXT: Line = {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024}


@dataclass(frozen=True)
class Kind:
    """A kind of store: what makes the puts, with what settings. Made when it is wanted: it takes a second."""

    name: str
    makes: Callable[[], list[Line]]
    sizes: Sizes = SMALL
    more: Line = field(default_factory=dict)

    @cached_property
    def puts(self) -> list[Line]:
        """What is put."""
        return self.makes()


def every_level() -> list[Line]:
    maker = puts.Maker(11)
    for level in range(1, 22):
        maker.delayed("Orders", 1, level)
    maker.until(120)
    return maker.made


KINDS = [
    Kind("everything", partial(puts.everything, 4711, 700)),
    Kind("delays", every_level),
    Kind("default-sizes", partial(puts.everything, 12, 60), Sizes()),
    Kind("lmq", partial(puts.dispatched, 13, 80), more=LMQ),
    Kind("ext", partial(puts.everything, 14, 200), more=EXT),
    Kind("transient-pool", partial(puts.everything, 15, 200), more={"transientStorePoolEnable": True}),
    Kind("sync-flush", partial(puts.everything, 16, 100), more={"flushDiskType": "SYNC_FLUSH"}),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_apache_reads_what_we_wrote(kind: Kind, tmp_path: Path) -> None:
    config = settings(tmp_path, kind.sizes, kind.more)
    with MessageStore.open(config) as store:
        expected = put_all(store, kind.puts)
        store.flush()
        assert store.wait_dispatched()
        queues, log = our_queues(store), our_offsets(store)
    if kind.sizes is SMALL and len(expected) > 500:
        assert len(list((tmp_path / "commitlog").iterdir())) > 3
        assert len(list((tmp_path / "index").iterdir())) > 1
    before = bytes_of(tmp_path)

    opened = apache.read(tmp_path, kind.sizes, settings=kind.more, log=True, query_all=True)
    assert opened.exit == apache.Exit.OPENED, opened.stderr
    assert opened.load
    assert opened.abnormal is False
    assert opened.after_load == opened.final == log
    if kind.name == "lmq":
        check_dispatched(opened, expected)
    else:
        check_log(opened, expected)
        check_queues(opened, expected)
    check_keys(opened, expected)
    assert {queue for queue in opened.queues if queue.max} == queues
    assert bytes_of(tmp_path) == before

    append_and_read_again(kind, tmp_path, expected)


def check_dispatched(opened: apache.Opened, expected: list[Line]) -> None:
    """As for the others; the store adds the further queues' offsets, and each of them has its message, too."""
    for line, found in zip(expected, opened.log, strict=True):
        line["propertiesString"] = found["propertiesString"]
        line["size"] = found["size"]
    check_log(opened, expected)
    own = [line for line in opened.messages if line["cqTopic"] == line["topic"]]
    assert len(own) == len(expected)
    further: dict[tuple[str, int, int], int] = {}
    for line in opened.log:
        names = line["properties"].get("INNER_MULTI_DISPATCH", "")
        offsets = line["properties"].get("INNER_MULTI_QUEUE_OFFSET", "")
        for name, offset in zip(filter(None, names.split(",")), filter(None, offsets.split(",")), strict=True):
            queue_id = 0 if name.startswith("%LMQ%") else line["queueId"]
            further[name, queue_id, int(offset)] = line["physicalOffset"]
    found = {
        (line["cqTopic"], line["cqQueueId"], line["cqOffset"]): line["physicalOffset"]
        for line in opened.messages
        if line["cqTopic"] != line["topic"]
    }
    assert found == further
    assert len(further) > len(expected)


def append_and_read_again(kind: Kind, root: Path, expected: list[Line]) -> None:
    """Apache goes on where we stopped, and we where Apache stopped."""
    topic, queue_id = expected[0]["topic"], expected[0]["queueId"]
    config = settings(root, kind.sizes, kind.more)
    with MessageStore.open(config) as store:
        next_offset, end = store.max_offset(topic, queue_id), store.log.max_offset
    written = apache.append(root, topic, queue_id, 5, kind.sizes, settings=kind.more)
    assert written.exit == apache.Exit.OPENED, written.opened.stderr
    assert [line["logicsOffset"] for line in written.results] == list(range(next_offset, next_offset + 5))
    assert written.results[0]["wroteOffset"] >= end
    with MessageStore.open(config) as store:
        assert not store.findings
        for line in expected:
            found = store.look_message(line["physicalOffset"])
            assert found is not None
            assert (found.topic, found.body_crc) == (line["topic"], line["bodyCRC"])
        got = store.get(topic, queue_id, next_offset)
        assert [decode(record).body for record in got.messages] == [b"append-%d" % i for i in range(5)]
        for i, line in enumerate(written.results):
            assert store.query(topic, f"append-{i}").offsets == (line["wroteOffset"],)
        assert put_all(store, kind.puts[:1])[0]["queueOffset"] == next_offset + 5
