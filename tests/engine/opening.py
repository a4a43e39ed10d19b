"""Small stores for tests: opened here, and at the end closed and looked at: a sound store has nothing to recover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message, decode
from engine.repair.recover.recover import plan_recover
from engine.services.pace import DispatchPace
from engine.store import MessageStore

SMALL = {
    "mapped_file_size_commit_log": 65536,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def small(root: Path, **changes: Any) -> StoreConfig:
    """Settings of a small store at `root`."""
    return StoreConfig(store_path_root_dir=root).with_changes(**{**SMALL, **changes})


def assert_sound(config: StoreConfig, disk: Disk | None = None) -> None:
    """The closed store is as a clean shutdown leaves it: recovery would not change a byte, and has nothing to say."""
    disk = disk or Disk()
    plan = plan_recover(disk, config)
    assert plan.refusal is None
    assert plan.problems == ()
    assert not plan.changed
    assert not disk.exists(str(config.store_path_root_dir / "abort"))


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0, *, waits: bool = True) -> list[bytes]:
    """The bodies of all messages of a queue; it `waits` for those that were put just now."""
    assert not waits or store.wait_dispatched(30_000)
    found: list[bytes] = []
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, at)
        found += [decode(record).body for record in result.messages]
        assert result.next_begin_offset > at
        at = result.next_begin_offset
    return found


def message(body: bytes | str = b"body", queue_id: int = 0, topic: str = "T", **properties: str) -> Message:
    """A message; keyword arguments are its properties."""
    return Message(topic, body.encode() if isinstance(body, str) else body, queue_id, properties)


def gather_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some turns of dispatch messages are gathered for ten minutes, unless somebody listens."""
    monkeypatch.setattr("engine.services.dispatch.LISTENED", DispatchPace(1, 10**9, 10**9))
    monkeypatch.setattr("engine.services.dispatch.ALONE", DispatchPace(10**9, 600_000, 600_000))
