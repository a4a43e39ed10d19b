"""The lock that a running broker holds: ours keeps Apache out, Apache's keeps us out, and readers need none."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import StoreLocked
from engine.format.message import decode
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.compat import apache, checks, fixtures
from tests.compat.apache import SMALL
from tests.support import stores

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]


def test_apache_keeps_us_out_and_lets_us_in_again(tmp_path: Path) -> None:
    root = fixtures.unpack("crashed-small", tmp_path)
    config = checks.settings(root, SMALL)
    with apache.hold_lock(root) as locked:
        assert locked
        before = stores.snapshot(root)
        with pytest.raises(StoreLocked) as refused:
            MessageStore.open(config)
        assert refused.value.exit_code == 3
        assert stores.snapshot(root) == before, (
            "locked, and yet something was written (it has an abort file to recover)"
        )
    MessageStore.open(config).close()


def test_we_keep_apache_out_and_let_it_in_again(tmp_path: Path) -> None:
    with MessageStore.open(checks.settings(tmp_path, SMALL)):
        assert not apache.try_lock(tmp_path)
    assert apache.try_lock(tmp_path)


def test_a_broker_of_apaches_does_not_start_beside_ours(tmp_path: Path) -> None:
    root = fixtures.unpack("clean-small", tmp_path)
    with MessageStore.open(checks.settings(root, SMALL)) as store, apache.live(root, SMALL) as opened:
        assert not opened
        assert store.log.max_offset == fixtures.manifest("clean-small")["maxPhyOffset"]


def test_a_running_broker_of_apaches_keeps_us_out(tmp_path: Path) -> None:
    root = fixtures.unpack("clean-small", tmp_path)
    with apache.live(root, SMALL) as opened:
        assert opened
        with pytest.raises(StoreLocked):
            MessageStore.open(checks.settings(root, SMALL))


def test_reading_beside_a_running_broker_writes_nothing(tmp_path: Path) -> None:
    name = "clean-small"
    root = fixtures.unpack(name, tmp_path)
    lines = list(fixtures.dump(name))
    with apache.live(root, SMALL) as opened:
        assert opened
        before = stores.contents(root)
        with ReadStore(checks.settings(root, SMALL)) as store:
            for line in (line for line in lines if line["type"] == "msg"):
                got = store.get(line["cqTopic"], line["cqQueueId"], line["cqOffset"], 1)
                (record,) = map(decode, got.messages)
                assert (record.physical_offset, record.msg_id) == (line["physicalOffset"], line["msgId"])
            for line in (line for line in lines if line["type"] == "query"):
                assert set(store.query(line["topic"], line["key"], 64).offsets) <= set(line["offsets"])
        assert stores.contents(root) == before
    opened_again = apache.read(root, SMALL)
    assert opened_again.abnormal is False
    assert len(opened_again.messages) == sum(line["type"] == "msg" for line in lines)
