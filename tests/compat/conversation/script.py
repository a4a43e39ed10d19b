"""The whole conversation: its parts have topics and groups of their own, and are held at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.wire.codes import RequestCode
from tests.compat.conversation.backs import delays_and_backs
from tests.compat.conversation.members import heartbeats, locks, members, offsets
from tests.compat.conversation.names import lists, names
from tests.compat.conversation.pulls import limits, pulls, waiting
from tests.compat.conversation.queries import queries
from tests.compat.conversation.say import send
from tests.compat.conversation.sends import batches, sends
from tests.compat.conversation.talk import Talk
from tests.compat.conversation.topics import groups, topics
from tests.compat.conversation.transactions import transactions
from tests.compat.conversation.wire import wire

READY_S = 2.5
"""The half topic is made by the first check of transactions."""
LONG = (locks, transactions, waiting, delays_and_backs)
SHORT = (wire, topics, groups, sends, batches, pulls, limits, members, heartbeats, offsets, queries, names)


async def converse(talk: Talk) -> None:
    """Say everything; the answers are in `talk` then."""
    try:
        await asyncio.sleep(READY_S)
        first = await talk.peer("first of all")
        await first.quiet(RequestCode.SEND_MESSAGE_V2, send("First"), b"so that no message of interest is at place 0")
        await asyncio.gather(*(_hold(talk, long) for long in LONG), _in_turn(talk))
        await _hold(talk, lists)
    finally:
        talk.close()


async def _in_turn(talk: Talk) -> None:
    for short in SHORT:
        await _hold(talk, short)


async def _hold(talk: Talk, part: Callable[[Talk], Awaitable[None]]) -> None:
    """A part that can't go on is a difference like any other."""
    try:
        await part(talk)
        ended = "to its end"
    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
        ended = f"{type(error).__name__}: {error}"
    talk.note(f"{part.__name__}: held", {"how far": ended})
