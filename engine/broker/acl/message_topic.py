"""Whose message lies at a physical offset: the topic on which who asks for it by its place needs a right.

A client chooses the offset. It may lie inside of a body, where the client itself has put what looks like a record that
claims the bytes of the messages after it. So a record counts only where one begins: its queue has a unit for it, or,
where dispatch has not come yet, the records from there on lead to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.acl.strict import UnknownMessage
from engine.errors import FormatError, RStoreError
from engine.format import names, properties
from engine.format.message import decode
from engine.format.topic_rules import DISCARDED, HALF_TOPIC

if TYPE_CHECKING:
    from engine.format.message import StoredMessage
    from engine.store import MessageStore

_WAITING = frozenset({names.SCHEDULE_TOPIC, names.TIMER_TOPIC, HALF_TOPIC, DISCARDED})
"""Where messages of other topics lie, and REAL_TOPIC says whose they are."""
_FOLLOWED = 1000
"""Records that are followed where dispatch has not come yet: a moment's."""


class MessageTopics:
    """Is asked as a function (`strict.TopicOf`)."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def __call__(self, offset: int) -> str | None:
        """The topic; of a delayed or half message that of the message. None: no message can be found there.

        Raises:
            UnknownMessage: bytes lie there that somebody may have put into a body. StorageError.
        """
        try:
            record = self._store.record_at(offset)
        except FormatError:
            return None  # nor does who handles the request find one
        if record is None:
            return None
        try:
            message = decode(record)
        except FormatError:
            raise UnknownMessage from None
        if not self._begins(message, offset):
            raise UnknownMessage
        if message.topic in _WAITING:
            return message.properties.get(properties.REAL_TOPIC) or message.topic
        return message.topic

    def _begins(self, message: StoredMessage, offset: int) -> bool:
        dispatched = self._store.dispatch.position
        if offset >= dispatched:
            return self._leads(dispatched, offset)
        queue = self._store.find_queue(message.topic, message.queue_id)
        unit = None if queue is None else queue.get(message.queue_offset)
        return unit is not None and (unit.physical_offset, unit.size) == (offset, message.total_size)

    def _leads(self, start: int, offset: int) -> bool:
        segment = self._store.config.mapped_file_size_commit_log
        for _ in range(_FOLLOWED):
            if start >= offset:
                break
            try:
                record = self._store.record_at(start)
            except RStoreError:
                record = None
            start += segment - start % segment if record is None else len(record)  # a blank ends the segment
        return start == offset
