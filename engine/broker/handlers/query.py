"""Offsets by queue and time, messages by id and key (BROKER.md 1.2; AdminBrokerProcessor, QueryMessageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.requests import fields
from engine.broker.requests.answers import BadField
from engine.errors import RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.net.connection import Connection
    from engine.broker.requests.dispatched import AfterDispatch
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

_MOST = 32
_NOTHING = {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


class QueryHandler:
    """See the module."""

    def __init__(self, store: MessageStore, after_dispatch: AfterDispatch) -> None:
        self._store = store
        self._after_dispatch = after_dispatch

    def max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """GET_MAX_OFFSET."""
        queue = _queue(request)
        return self._at_the_end(
            connection, request, queue, lambda: request.answer(ext={"offset": str(self._store.max_offset(*queue))})
        )

    def min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET."""
        del connection
        return request.answer(ext={"offset": str(self._store.min_offset(*_queue(request)))})

    def by_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SEARCH_OFFSET_BY_TIMESTAMP."""
        time_ms = fields.long(request.fields, "timestamp")
        queue = _queue(request)

        def search() -> RemotingCommand:
            return request.answer(ext={"offset": str(self._store.offset_by_time(*queue, time_ms))})

        return self._at_the_end(connection, request, queue, search)

    def earliest(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """GET_EARLIEST_MSG_STORETIME."""
        queue = _queue(request)

        def look() -> RemotingCommand:
            return request.answer(ext={"timestamp": str(self._store.earliest_message_time(*queue))})

        return self._at_the_end(connection, request, queue, look)

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID."""
        del connection
        offset = fields.long(request.fields, "offset")
        try:
            record = self._store.record_at(offset)
        except RStoreError:
            record = None
        if record is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.answer(body=record)

    def by_key(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """QUERY_MESSAGE."""
        late = self._after_dispatch.needed()
        answer = self._query(request)
        if answer.code == ResponseCode.QUERY_NOT_FOUND and late:
            self._after_dispatch.answer(connection, request, lambda: self._query(request))
            return None
        return answer

    def _at_the_end(
        self,
        connection: Connection,
        request: RemotingCommand,
        queue: tuple[str, int],
        answer: Callable[[], RemotingCommand],
    ) -> RemotingCommand | None:
        """What depends on a queue's end is answered when all of its messages are there."""
        if self._after_dispatch.needed_for(*queue):
            self._after_dispatch.answer(connection, request, answer)
            return None
        return answer()

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        ext = request.fields
        most = _MOST if ext.get("_UNIQUE_KEY_QUERY") == "true" else fields.number(ext, "maxNum")
        if most < 0:
            raise BadField(f"maxNum = {most}")
        matches = self._store.query(
            fields.text(ext, "topic"),
            fields.text(ext, "key"),
            most,
            fields.long(ext, "beginTimestamp"),
            fields.long(ext, "endTimestamp"),
        )
        if not matches.messages:
            remark = "can not find message, maybe time range not correct"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, _NOTHING)
        head = {
            "indexLastUpdatePhyoffset": str(matches.index_last_update_offset),
            "indexLastUpdateTimestamp": str(matches.index_last_update_timestamp),
        }
        return request.answer(ext=head, body=b"".join(matches.messages))


def _queue(request: RemotingCommand) -> tuple[str, int]:
    return fields.text(request.fields, "topic"), fields.number(request.fields, "queueId")
