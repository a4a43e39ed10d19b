"""SEND_REPLY_MESSAGE: a consumer answers a request; the answer goes to the client that asked, and is stored.

Source: ReplyMessageProcessor (4.9.8); BROKER.md 1.1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.broker.handlers.send import ALWAYS, LETTERS, LONG, SendHandler
from engine.broker.put.putter import STORED
from engine.broker.requests.answers import Answer
from engine.format import properties
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.net.connection import Connection
    from engine.broker.put.putter import Putter
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.members import Members
    from engine.broker.watch.stats import Stats
    from engine.format.hosts import Host
    from engine.format.message import Message
    from engine.log.results import PutResult

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PUSH_S = 10.0
"""How long the client that asked has to take it. Source: Broker2Client#callClient."""
_WORDS = {letter: word for word, letter in LETTERS.items()}
_NOT_SENT = {"properties", "maxReconsumeTimes", "batch", "bname"}


class ReplyHandler:
    """See the module."""

    def __init__(
        self,
        *,
        send: SendHandler,
        putter: Putter,
        members: Members,
        later: Later,
        stats: Stats,
        settings: CurrentSettings,
        store_host: Host,
        now_ms: Callable[[], int],
    ) -> None:
        self._send = send
        self._putter = putter
        self._members = members
        self._later = later
        self._stats = stats
        self._settings = settings
        self._store_host = store_host
        self._now_ms = now_ms

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2."""
        try:
            ext = request.fields
            if request.code != RequestCode.SEND_REPLY_MESSAGE:
                ext = {_WORDS.get(name, name): value for name, value in ext.items()}
            message = self._send.message_of(connection, request, ext, LONG)[0]
        except Answer as answer:
            return request.answer(answer.code, answer.remark, {**ALWAYS, **(answer.ext or {})})
        self._later.answer(connection, request, self._reply(connection, request, ext, message))
        return None

    async def _reply(
        self, connection: Connection, request: RemotingCommand, ext: Mapping[str, str], message: Message
    ) -> RemotingCommand:
        code, remark = await self._push(connection, request, ext)
        answer_ext: dict[str, str] = dict(ALWAYS)
        if code == ResponseCode.SUCCESS:  # for clients that demand them, whatever becomes of the store
            answer_ext |= {"msgId": "0", "queueId": str(message.queue_id), "queueOffset": "0"}
        if self._settings.now.store_reply:
            result = await self._store(
                message._replace(properties=properties.parse(ext.get("properties", "")), sys_flag=0)
            )
            if result.status in STORED and result.append is not None:
                append = result.append
                self._stats.put(message.topic, 1, append.size)
                answer_ext |= {
                    "msgId": append.msg_id,
                    "queueId": str(message.queue_id),
                    "queueOffset": str(append.queue_offset),
                }
            else:
                self._stats.failed()
        return request.answer(code, remark, answer_ext)

    async def _push(
        self, connection: Connection, request: RemotingCommand, ext: Mapping[str, str]
    ) -> tuple[int, str | None]:
        """PUSH_REPLY_MESSAGE_TO_CLIENT."""
        pairs = properties.parse(ext.get("properties", ""))
        client_id = pairs.get(REPLY_TO_CLIENT)
        if client_id is None:
            return ResponseCode.SYSTEM_ERROR, f"reply message properties[{REPLY_TO_CLIENT}] is null"
        client = self._members.producer(client_id)
        if client is None:
            return ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{client_id}> not found."
        now = str(self._now_ms())
        pairs[PUSH_REPLY_TIME] = now
        head = {
            **{name: ext[name] for name in LETTERS if name in ext and name not in _NOT_SENT},
            "unitMode": ext.get("unitMode", "false"),
            "bornHost": connection.address,
            "storeHost": str(self._store_host),
            "storeTimestamp": now,
            "properties": properties.join(pairs),
        }
        asked = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=head, body=request.body)
        try:
            taken = (await client.ask(asked, PUSH_S)).code == ResponseCode.SUCCESS
        except (TimeoutError, ConnectionError):
            taken = False
        if taken:
            return ResponseCode.SUCCESS, None
        return ResponseCode.SYSTEM_ERROR, f"push reply message to {client_id}fail."

    async def _store(self, message: Message) -> PutResult:
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()

        def done(result: PutResult) -> None:
            if not future.cancelled():
                future.set_result(result)

        self._putter.put(message, done)
        return await future
