"""The lives of messages, read from a store: by key or id, with its groups' offsets and its trace topic."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from engine.client.lives import GroupPlace, LifeStage, MessageLife, id_of, life_of, stage_of, traces_in
from engine.client.trace import TRACE_TOPIC
from engine.errors import NotFound
from engine.files.disk import Disk
from engine.format.delay import DelayLevels
from engine.format.message import decode
from engine.format.topic_rules import is_brokers_own
from engine.inspect.store.consumers import read_consumers
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from engine.format.message import StoredMessage
    from engine.read_store import ReadStore

_MOST = 64


def lives_in(store: ReadStore, topic: str, key: str, most: int) -> tuple[MessageLife, ...]:
    """The messages of a topic with a key or an id, the newest `most`, in log order; none where there are none.

    Raises:
        InvalidArgument: the store knows no such topic. FormatError, StorageError.
    """
    matches = [decode(record) for record in store.query(topic, key, _MOST).messages]
    with contextlib.suppress(NotFound):
        matches += store.find_message(key, topic)
    ids = list(dict.fromkeys(id_of(message) for message in sorted(matches, key=lambda one: one.physical_offset)))
    if ids:
        return tuple(_life(store, one_id, matches) for one_id in ids[-most:])
    waiting = _life(store, key, [])  # what is not delivered yet is of a broker's own topic alone
    return (waiting,) if waiting.events and waiting.topic == topic else ()


def _life(store: ReadStore, one_id: str, matches: list[StoredMessage]) -> MessageLife:
    messages = [message for message in matches if id_of(message) == one_id]
    with contextlib.suppress(NotFound):  # without a producer's id there is this one record alone
        messages += store.find_message(one_id)
    traces = traces_in([decode(record) for record in store.query(TRACE_TOPIC, one_id, _MOST).messages])
    stored = [one for one in messages if stage_of(one) in (LifeStage.STORED, LifeStage.COMMITTED)]
    places = {
        GroupPlace(group, one.topic, one.queue_id, one.queue_offset, offset)
        for one in stored
        if not is_brokers_own(one.topic)
        for group, offset in _offsets(store, TopicQueue(one.topic, one.queue_id)).items()
    }
    levels = DelayLevels.or_defaults(store.config.message_delay_level)
    groups = sorted(places, key=lambda one: (one.group, one.queue_id))
    return life_of(one_id, messages, traces, groups, lambda _: levels)


def _offsets(store: ReadStore, queue: TopicQueue) -> dict[str, int]:
    return read_consumers(Disk(), str(store.files.root), [queue]).offsets.get(queue, {})
