"""Requests of producers that wait for a reply, and the replies that brokers push.

Source: ClientRemotingProcessor#receiveReplyMessage, RequestFutureHolder.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from engine.client.messages import CORRELATION_ID, ReceivedMessage, demand_packages, received
from engine.errors import NotInstalled
from engine.format import properties as property_words
from engine.format.hosts import LOOPBACK
from engine.format.message import StoredMessage
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.client.connection import RemotingClient
    from engine.wire.command import RemotingCommand


class Replies:
    """See the module. For one loop."""

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Future[ReceivedMessage]] = {}

    @contextlib.contextmanager
    def expected(self, correlation: str) -> Iterator[asyncio.Future[ReceivedMessage]]:
        """A reply with this id is waited for."""
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._expected[correlation] = future
        try:
            yield future
        finally:
            del self._expected[correlation]

    def take(self, peer: RemotingClient, request: RemotingCommand) -> None:
        """PUSH_REPLY_MESSAGE_TO_CLIENT."""
        try:
            reply = _reply(request.fields, bytes(request.body))
        except ValueError:
            answer = request.answer(ResponseCode.SYSTEM_ERROR, "process reply message fail")
        else:
            future = self._expected.get(reply.properties.get(CORRELATION_ID, ""))
            if future is not None and not future.done():
                message = received(reply, "")
                try:
                    demand_packages([message])
                except NotInstalled as error:
                    future.set_exception(error)
                else:
                    future.set_result(message)
            answer = request.answer()
        if not request.is_oneway:
            peer.answer(answer)


def _reply(fields: Mapping[str, str], body: bytes) -> StoredMessage:
    """Raises ValueError: a field is no number."""
    properties = fields.get("properties", "")
    return StoredMessage(
        total_size=0,
        magic=0,
        body_crc=0,
        queue_id=int(fields.get("queueId", "0")),
        flag=int(fields.get("flag", "0")),
        queue_offset=0,
        physical_offset=0,
        sys_flag=int(fields.get("sysFlag", "0")),
        born_timestamp=int(fields.get("bornTimestamp", "0")),
        born_host=LOOPBACK,
        store_timestamp=int(fields.get("storeTimestamp", "0")),
        store_host=LOOPBACK,
        reconsume_times=int(fields.get("reconsumeTimes", "0")),
        prepared_transaction_offset=0,
        body=body,
        topic=fields.get("topic", ""),
        properties_raw=property_words.join(property_words.parse(properties)).encode("utf-8", "replace"),
    )
