"""What is there when a store is opened: what failed before, queues alone, several directories, damaged bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import BrokerRole
from engine.errors import LogMissing, RStoreError
from engine.store import MessageStore
from tests.engine.opening import assert_sound, bodies, message, small


def test_an_open_that_fails_gives_the_lock_back(tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise RStoreError("no")

    config = small(tmp_path)
    with pytest.raises(RStoreError, match="no"):
        MessageStore.open(config, recover=refuse)  # type: ignore[arg-type]
    MessageStore.open(config).close()
    assert_sound(config)


def test_queues_without_a_log_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    (tmp_path / "consumequeue/T/0" / ("0" * 20)).write_bytes(bytes(2000))
    with pytest.raises(LogMissing):
        MessageStore.open(small(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["consumequeue", "lock"]


def test_several_directories(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    config = small(tmp_path / "store", store_path_commit_log=",".join(map(str, paths)))
    with MessageStore.open(config) as store:
        for i in range(100):
            store.put(message(b"%d" % i * 1000))
    assert_sound(config)
    names = [sorted(int(file.name) // 65536 for file in path.iterdir()) for path in paths]
    assert all(n % 2 == i for i, found in enumerate(names) for n in found)
    with MessageStore.open(config) as again:
        assert bodies(again) == [b"%d" % i * 1000 for i in range(100)]


@pytest.mark.leaves("log-tail", "not-closed")
def test_bytes_that_are_no_record_stop_dispatch_and_writing(tmp_path: Path) -> None:
    config = small(tmp_path, broker_role=BrokerRole.SLAVE)
    store = MessageStore.open(config)
    store.append_raw(0, b"this is no record at all" * 10)
    assert not store.wait_dispatched(5000)
    assert not store.flags.writeable
    (error,) = store.errors
    assert error.offset == 0
    assert "damaged record" in str(error)
    with pytest.raises(RStoreError, match="damaged record"):
        store.close()
    assert (tmp_path / "abort").exists()


def test_log_files_that_fill_faster_than_their_write_buffers_are_emptied(tmp_path: Path) -> None:
    config = small(tmp_path, transient_store_pool_enable=True, commit_interval_commit_log=1)
    with MessageStore.open(config) as store:
        for i in range(1500):
            assert store.put(message(b"x" * 500, queue_id=i % 2)).ok
        store.flush()
        assert store.wait_dispatched()
        assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (750, 750)
    assert_sound(config)
