"""Stores whose repair saved messages, and what a replay has put back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from engine.config import StoreConfig
from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format import properties
from engine.format.message import StoredMessage, decode
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.replay.plan import ReplayPlan, ReplayRequest
from engine.repair.replay.planner import plan_replay
from engine.replay import replay


def cut(config: StoreConfig) -> str:
    """`recover --cut`; the repair's name."""
    applied = apply(Disk(), plan_recover(Disk(), config, cut=True))
    assert applied.salvage is not None
    return Path(applied.salvage).name


def put_back(config: StoreConfig, disk: Disk | None = None, **request: object) -> ReplayPlan:
    """Plan a replay, and carry it out."""
    plan = plan_replay(Disk(), config, ReplayRequest(**request))  # type: ignore[arg-type]
    replay(disk or Disk(), plan)
    return plan


def by_queue(config: StoreConfig, *, damaged: bool = False) -> Iterator[tuple[str, int, int, StoredMessage]]:
    """Every message that consumers can get: topic, queue id, queue offset, the message.

    `damaged`: units may point at what is no record any more.
    """
    with ReadStore(config) as store:
        for topic, queue_id in store.queues():
            at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            while at < end:
                found = store.get(topic, queue_id, at, 1000)
                for i, record in enumerate(found.messages):
                    try:
                        yield topic, queue_id, at + i, decode(record)
                    except FormatError:
                        assert damaged
                assert found.next_begin_offset > at
                at = found.next_begin_offset


def replayed(config: StoreConfig) -> Counter[str]:
    """The marks of replayed messages that consumers can get, once each where all is well."""
    found = (message.properties.get(properties.REPLAYED) for _, _, _, message in by_queue(config))
    return Counter(mark for mark in found if mark is not None)
